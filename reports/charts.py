"""Charts of a run as inline SVG: acceptance, throughput, margins against noise, scores.

matplotlib draws them (imported on first use: it is slow to import). What it writes is made fit for the page: its style
attributes, which the page's content security policy forbids, become attributes or classes that follow light and dark,
and every id gets a prefix, as ids repeat between drawings.
"""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import msgspec
from markupsafe import Markup

from reports.view import View
from reports.visible import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_ROWS = 24
"""Tasks that a chart shows; the tables have all."""

INK, SOFT, LINE = "#000001", "#000002", "#000003"
SERIES = ("#00000a", "#00000b", "#00000c", "#00000d", "#00000e", "#00000f")
"""Colours that stand for a class of the page's style sheet: the page decides what they look like."""
_CLASSES = {INK: "ink", SOFT: "soft", LINE: "line"} | {colour: f"s{i}" for i, colour in enumerate(SERIES)}

_SVG = "{http://www.w3.org/2000/svg}"
_XLINK = "{http://www.w3.org/1999/xlink}"


class Chart(msgspec.Struct, frozen=True):
    """One drawing. note: what it shows, in a sentence, for those who can't see it and as its caption."""

    key: str
    title: str
    note: str
    svg: Markup


_Point = tuple[int, float, float | None, float | None]


class _Series(msgspec.Struct, frozen=True):
    """One arm's marks: row number, value, and the ends of its interval where there is one.

    number: the arm's place in the run, which gives its colour and its marker in every chart.
    """

    number: int
    name: str
    points: list[_Point]


def charts(view: View) -> list[Chart]:
    """The charts that this run has numbers for; empty where it has none."""
    made = (_acceptance(view), _throughput(view), _scores(view), _margins(view))
    return [chart for chart in made if chart is not None]


def _rows(view: View) -> list[str]:
    return [task.name for task in view.tasks[:MOST_ROWS]]


def _by_arm(view: View, value: Callable[[Any], float | None]) -> list[_Series]:
    """A series per arm of one number of its summaries."""
    series = []
    for number, arm in enumerate(view.arms):
        points: list[_Point] = []
        for row, task in enumerate(view.tasks[:MOST_ROWS]):
            summary = task.summary_of(arm.name)
            found = None if summary is None else value(summary)
            if found is not None:
                points.append((row, found, None, None))
        series.append(_Series(number, arm.name, points))
    return series


def _acceptance(view: View) -> Chart | None:
    control = {arm.name for arm in view.arms if arm.method == "control"}
    series = [s for s in _by_arm(view, lambda s: s.acceptance) if s.name not in control]
    return _dots(
        view,
        "acceptance",
        "Acceptance by task",
        "Share of drafted tokens that the target accepted.",
        series,
        share=True,
    )


def _scores(view: View) -> Chart | None:
    series = _by_arm(view, lambda s: s.score.passed / s.score.judged if s.score.judged else None)
    return _dots(
        view, "scores", "Score by arm", "Share of cases passed, over each task's prompts.", series, share=True
    )


def _throughput(view: View) -> Chart | None:
    series = [
        _Series(
            number,
            arm.name,
            [
                (row, spread.median, spread.low, spread.high)
                for row, task in enumerate(view.tasks[:MOST_ROWS])
                for spread in task.speeds
                if spread.arm == arm.name
            ],
        )
        for number, arm in enumerate(view.arms)
    ]
    note = (
        "Decoded tokens per second after the first step: median over answers, with the middle half as a line."
    )
    return _dots(view, "throughput", "Decode throughput", note, series, share=False)


def _dots(view: View, key: str, title: str, note: str, series: list[_Series], *, share: bool) -> Chart | None:
    """One row a task, one mark an arm."""
    drawn = [one for one in series if one.points]
    if not drawn:
        return None
    rows = _rows(view)

    def draw(axes: Axes) -> None:
        step = 0.5 / max(1, len(drawn) - 1) if len(drawn) > 1 else 0
        for place, one in enumerate(drawn):
            colour = SERIES[one.number % len(SERIES)]
            heights = [row - (0.25 if len(drawn) > 1 else 0) + place * step for row, *_ in one.points]
            for height, (_, _, low, high) in zip(heights, one.points, strict=True):
                if low is not None and high is not None:
                    axes.plot(
                        [low, high], [height, height], color=colour, linewidth=2, solid_capstyle="round"
                    )
            values = [value for _, value, *_ in one.points]
            axes.plot(
                values, heights, "osD^vP"[one.number % 6], color=colour, markersize=6, label=_said(one.name)
            )
        if share:
            axes.set_xlim(-0.02, 1.02)
            axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0%", "25%", "50%", "75%", "100%"])
        else:
            axes.set_xlim(left=0)
        _label_rows(axes, rows)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=min(4, len(drawn)), borderaxespad=0)

    return Chart(key, title, note, _svg(key, title, note, draw, len(rows)))


def _margins(view: View) -> Chart | None:
    """Every measured divergence: its gap by the width noise's 99th percentile, on a logarithmic scale."""
    rows = _rows(view)
    found = [
        (rows.index(m.task), max(m.gap / m.noise["p99"], 0.01), m.reproduced)
        for m in view.margins
        if m.noise.get("p99") and m.task in rows
    ]
    if not found:
        return None
    note = (
        "Each mark is a divergence: the gap between the best token and the arm's by plain's logits, in units of the "
        "99th percentile of width noise (at 0.01: that or less). Hollow: not reproduced, so no evidence."
    )

    def draw(axes: Axes) -> None:
        for reproduced in (True, False):
            points = [(gap, row) for row, gap, sure in found if sure is reproduced]
            face = SERIES[1] if reproduced else "none"
            axes.plot(*_columns(points), "o", markerfacecolor=face, markeredgecolor=SERIES[1], markersize=6)
        axes.axvline(1, color=SOFT, linewidth=1.5, linestyle=(0, (4, 3)))
        axes.annotate(
            "noise, p99", (1, 1), xycoords=("data", "axes fraction"), xytext=(0, 4), textcoords="offset points",
            color=SOFT, ha="center",
        )  # fmt: skip
        axes.set_xscale("log")
        low, high = axes.get_xlim()
        axes.set_xlim(min(low, 0.05), max(high, 20))
        ticks = [
            tick for tick in (0.01, 0.1, 1, 10, 100, 1000) if axes.get_xlim()[0] <= tick <= axes.get_xlim()[1]
        ]
        axes.set_xticks(ticks, [f"{tick:g}×" for tick in ticks])
        axes.minorticks_off()
        _label_rows(axes, rows)

    return Chart(
        "margins",
        "Margins against noise",
        note,
        _svg("margins", "Margins against noise", note, draw, len(rows)),
    )


def _columns(points: Iterable[tuple[float, float]]) -> tuple[list[float], list[float]]:
    listed = list(points)
    return [x for x, _ in listed], [y for _, y in listed]


def _said(name: str) -> str:
    return one_line(name, 22)


def _label_rows(axes: Axes, rows: list[str]) -> None:
    axes.set_yticks(range(len(rows)), [_said(row) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)


_SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "mtp-gate",
    "text.parse_math": False,
    "font.size": 12,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "x",
    "axes.axisbelow": True,
    "grid.color": LINE,
    "xtick.color": LINE,
    "xtick.labelcolor": SOFT,
    "ytick.left": False,
    "ytick.color": LINE,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.handletextpad": 0.2,
    "legend.columnspacing": 1.2,
}


def _svg(key: str, title: str, note: str, draw: Callable[[Axes], None], rows: int) -> Markup:
    """Draw on axes 480 points wide and high enough for the rows; returns an `<svg>` fit for the page."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # or it speaks of its font cache on stderr
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    written = io.BytesIO()
    with mpl.rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # glyphs that the measuring font lacks: the page's fonts draw them
        figure = Figure(figsize=(480 / 72, (90 + 46 * rows) / 72), dpi=72, layout="constrained")
        axes = figure.add_subplot()
        draw(axes)
        FigureCanvasSVG(figure).print_svg(written, metadata={"Date": None, "Creator": None})
    return _fit(written.getvalue(), f"chart-{key}", title, note)


def _fit(svg: bytes, prefix: str, title: str, note: str) -> Markup:
    """matplotlib's file as an element of the page: no style, unique ids, a title and a description."""
    root = ElementTree.fromstring(svg)  # noqa: S314  (written by matplotlib a moment ago, names in it escaped)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{_SVG}metadata", f"{_SVG}style"):
                parent.remove(child)
    for element in root.iter():
        _unstyle(element)
        _prefix_ids(element, prefix)
        element.tag = element.tag.removeprefix(_SVG)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.attrib |= {"class": "chart", "role": "img", "aria-labelledby": f"{prefix}-title {prefix}-note"}
    root.attrib |= {"stroke-linejoin": "round", "focusable": "false"}
    for place, (tag, text) in enumerate((("title", title), ("desc", note))):
        child = ElementTree.Element(tag, {"id": f"{prefix}-{'title' if tag == 'title' else 'note'}"})
        child.text = text
        root.insert(place, child)
    return Markup(ElementTree.tostring(root, encoding="unicode"))  # noqa: S704  (serialised, so escaped)


def _unstyle(element: ElementTree.Element) -> None:
    """Turns `style` into attributes, and the stand-in colours into classes."""
    classes = []
    styles = dict(part.split(":", 1) for part in element.attrib.pop("style", "").split(";") if ":" in part)
    for name, value in ((name.strip(), value.strip()) for name, value in styles.items()):
        if name == "font":
            size = re.search(r"([\d.]+)px", value)
            element.set("font-size", size.group(1) if size else "12")
        else:
            element.set(name, value)
    for name in ("fill", "stroke"):
        if (known := _CLASSES.get(element.get(name, ""))) is not None:
            classes.append(f"{name[0]}-{known}")
            del element.attrib[name]
    if classes:
        element.set("class", " ".join(classes))


def _prefix_ids(element: ElementTree.Element, prefix: str) -> None:
    for name, value in list(element.attrib.items()):
        if name == "id":
            element.set(name, f"{prefix}-{value}")
        elif name == f"{_XLINK}href":
            del element.attrib[name]
            element.set("href", f"#{prefix}-{value.removeprefix('#')}")
        elif "url(#" in value:
            element.set(name, value.replace("url(#", f"url(#{prefix}-"))
