"""The threat: a directory damaged in a way nobody thought of ends in a traceback, a hang, or a pass.

Real graphs, small enough to look at 2,000 directories, which is the bar; GATE_TEST_EXAMPLES sets another number.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from evals.inspection.directory import inspect_directory
from evals.inspection.pairing import require_pairing
from evals.inspection.types import Inspection
from evals.inspection.whole import require_whole
from evals.model_dir import ModelDirError, inspect_model, require_decodable
from gate.cli.inspect import command, lines
from tests.evals.inspection_dirs import HEAD, TARGET, save_small_model

GRAPHS = [
    f"{stem}.{end}" for stem in (TARGET, HEAD, "openvino_text_embeddings_model") for end in ("xml", "bin")
]
FILES = [
    *GRAPHS,
    "openvino_tokenizer.xml",
    "openvino_detokenizer.bin",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
]
NUMBERS = [
    "-1",
    "0",
    "1",
    "7",
    "4294967296",
    "9" * 19,
    "9" * 5000,
    "1e308",
    "NaN",
    "",
    "?",
    "\x00",
    "<",
    "&x;",
]
VALUES = [
    "null",
    "true",
    "[]",
    "{}",
    "-1",
    "1e999",
    '"\\ud800"',
    "[" * 3000,
    '{"layers": {"0": 3}}',
    '{"model": {"vocab": [1]}}',
]

Fault = tuple[str, str, float, str]
faults = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "cut",
                "empty",
                "delete",
                "swap",
                "flip",
                "number",
                "value",
                "grow",
                "repeat",
                "directory",
                "dangling",
                "drop",
            ]
        ),
        st.sampled_from(FILES),
        st.floats(0, 1),
        st.sampled_from([*FILES, *NUMBERS, *VALUES]),
    ),
    min_size=1,
    max_size=3,
)


@pytest.fixture(scope="module")
def small(sample_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("small") / "model"
    save_small_model(root, sample_dir)
    return root


def damage(root: Path, fault: Fault) -> None:
    kind, name, where, what = fault
    path = root / name
    if path.is_symlink() or not path.is_file():
        return
    data = path.read_bytes()
    at = int(where * max(len(data) - 1, 0))
    if kind == "cut":
        path.write_bytes(data[:at])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "delete":
        path.unlink()
    elif kind == "swap" and what in FILES and (root / what).is_file():
        path.write_bytes((root / what).read_bytes())
        (root / what).write_bytes(data)
    elif kind == "flip" and data:
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << (len(what) % 8))]) + data[at + 1 :])
    elif kind == "number":
        runs = list(re.finditer(rb"\d+", data[: 1 << 20]))
        if runs:
            run = runs[int(where * (len(runs) - 1))]
            path.write_bytes(data[: run.start()] + what.encode() + data[run.end() :])
    elif kind == "value":
        path.write_text(what)
    elif kind == "grow":
        path.write_bytes(data + bytes(at))
    elif kind == "repeat":
        path.write_bytes(data[:at] + data[at // 2 :])
    elif kind == "drop":
        path.write_bytes(data[: at // 2] + data[at:])
    elif kind in ("directory", "dangling"):
        path.unlink()
        path.mkdir() if kind == "directory" else path.symlink_to(root / "nowhere")


def looked_at(root: Path) -> Inspection | None:
    try:
        return inspect_directory(root)
    except ModelDirError:
        return None


def on_a_copy(small: Path, damages: list[Fault], then: Callable[[Path], None]) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary) / "model"
        shutil.copytree(small, root)
        for fault in damages:
            damage(root, fault)
        then(root)


def test_undamaged_it_is_servable(small: Path) -> None:
    found = inspect_directory(small)
    assert found.servable, found.problems
    require_pairing(inspect_model(small))


@pytest.mark.filterwarnings("error")
@pytest.mark.timeout(3600)
@settings(
    max_examples=int(os.environ.get("GATE_TEST_EXAMPLES", "2000")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(damages=faults)
@example(damages=[("value", "tokenizer.json", 0.0, "[" * 3000)])
@example(damages=[("number", f"{HEAD}.xml", 0.5, "9" * 5000)])
@example(damages=[("dangling", "config.json", 0.0, "")])
@example(damages=[("directory", f"{HEAD}.bin", 0.0, "")])
def test_no_damage_ends_in_anything_but_a_finding(small: Path, damages: list[Fault]) -> None:
    def look(root: Path) -> None:
        shown = CliRunner().invoke(command, ["--model", str(root), "--json"], standalone_mode=False)
        found = None
        if not isinstance(shown.exception, ModelDirError):
            assert shown.exception is None, shown.exception
            found = msgspec.json.decode(shown.stdout, type=Inspection)
            assert shown.return_value == (0 if found.servable else 2)
            assert all(lines(found))
        try:
            model = inspect_model(root)
            require_decodable(model)
            require_whole(model)
            require_pairing(model)
        except ModelDirError:
            assert found is None or not found.servable

    on_a_copy(small, damages, look)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    kind=st.sampled_from(["cut", "empty", "delete", "swap", "value", "directory", "dangling"]),
    name=st.sampled_from(GRAPHS),
    where=st.floats(0, 0.999),
    other=st.sampled_from(GRAPHS),
)
def test_a_graph_cut_swapped_or_replaced_is_always_refused(
    small: Path, kind: str, name: str, where: float, other: str
) -> None:
    if kind == "swap" and name == other:
        return

    def look(root: Path) -> None:
        found = looked_at(root)
        assert found is None or not found.servable

    on_a_copy(small, [(kind, name, where, other if kind == "swap" else "[]")], look)
