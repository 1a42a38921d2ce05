"""The threat: the page on heads shows commands that don't work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

PAGE = Path(__file__).parents[2] / "docs/heads.md"


def commands(page: Path) -> list[str]:
    blocks = [t.content for t in MarkdownIt().parse(page.read_text()) if t.type == "fence" and t.info == "sh"]
    return [line for block in blocks for line in block.splitlines()]


def test_commands_work_in_the_order_of_the_page(tmp_path: Path, repo: Path) -> None:
    places = {"CHECKPOINT": repo / "tests/models/qwen3_5", "EXPORT": repo / "evals/sample/int4"}
    gate = [sys.executable, "-c", "import sys; from gate.cli import main; sys.exit(main())"]
    ran = 0
    for line in commands(PAGE):
        first, *words = line.split()
        if first == "gate" and words[0] == "head":
            given = [str(places.get(word, word)) for word in words]
            ended = subprocess.run([*gate, *given], cwd=tmp_path, capture_output=True, text=True, check=False)
            assert ended.returncode == 0, (line, ended.stderr)
            ran += 1
    assert ran == 4
    for name in ("BUILT", "BUILT-INT4", "EXPORTED", "SPLIT"):
        assert (tmp_path / name / "config.json").is_file()
    with pytest.raises(FileNotFoundError):
        (tmp_path / "SPLIT" / "openvino_mtp_model.xml").stat()
