"""The threat: a directory that can't be gated exits with 0, or one that can with 2, or the output can't be read."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from evals.sample import sample_dir
from gate.cli.inspect import command
from tests.evals.inspection_dirs import HEAD, edited, linked

LISTED = [
    # name, config, files, layout, words of the refusal (cases/reports.jsonl, C05)
    ("old export", 1, ["openvino_text_embeddings_model"], "none", ["declared in config (1 layer)"]),
    ("xml without bin", 1, ["openvino_mtp_model.xml"], "exported", ["openvino_mtp_model.bin missing"]),
    ("split layout, half", 1, ["openvino_mtp_layer"], "half", ["openvino_mtp_lm_head.* missing"]),
    (
        "both layouts",
        1,
        ["openvino_mtp_model", "openvino_mtp_layer", "openvino_mtp_lm_head"],
        "both",
        ["ambiguous"],
    ),
    ("head, none declared", 0, ["openvino_mtp_model"], "exported", ["mismatch", "declares 0 layers"]),
    ("two layers declared", 2, ["openvino_mtp_model"], "exported", ["unsupported", "2 MTP layers"]),
    ("case trap", 1, ["OpenVINO_MTP_Model"], "none", ["case-sensitive", "OpenVINO_MTP_Model"]),
]


def inspect(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments], standalone_mode=False)


def test_the_sample_by_name_and_by_path() -> None:
    by_name, by_path = inspect("--model", "sample"), inspect("--model", sample_dir())
    assert by_name.return_value == by_path.return_value == 0
    assert by_name.output == by_path.output
    assert "int4_asym" in by_name.output and "speaks against" in by_name.output
    assert "serve" not in by_name.output.split()


def test_json_holds_everything_and_the_exit_code_agrees(tmp_path: Path) -> None:
    shown = inspect("--model", sample_dir(), "--json", "--digests")
    found = json.loads(shown.output)
    assert shown.return_value == 0 and found["servable"] is True
    assert set(found["digests"]) == {"whole", "target", "head"}
    assert {part["role"] for part in found["parts"]} >= {"target", "head", "embeddings"}
    refused = inspect("--model", linked(sample_dir(), tmp_path / "m", without=(f"{HEAD}.bin",)), "--json")
    assert refused.return_value == 2 and json.loads(refused.output)["servable"] is False


@pytest.mark.parametrize(
    ("name", "layers", "files", "layout", "words"), LISTED, ids=[case[0] for case in LISTED]
)
def test_reported_listings(
    name: str, layers: int, files: list[str], layout: str, words: list[str], tmp_path: Path
) -> None:
    root = linked(sample_dir(), tmp_path / "m", without=(f"{HEAD}.xml", f"{HEAD}.bin", "config.json"))
    (root / "config.json").write_text(json.dumps({"mtp_num_hidden_layers": layers}))
    for file in files:
        for end in (".xml", ".bin"):
            if not file.endswith((".xml", ".bin")) and not (root / f"{file}{end}").exists():
                (root / f"{file}{end}").symlink_to(sample_dir() / f"{HEAD}{end}")
        if file.endswith(".xml"):
            (root / file).symlink_to(sample_dir() / f"{HEAD}.xml")
    shown = inspect("--model", root)
    assert shown.return_value == 2 and f"layout: {layout}" in shown.output
    for word in words:
        assert word in shown.output


def test_every_code_stands_on_the_page(repo: Path) -> None:
    """docs/inspecting-a-model.md lists what code gives a problem's name, and nothing else."""
    source = "".join(file.read_text() for file in sorted((repo / "evals" / "inspection").glob("*.py")))
    named = set(
        re.findall(r'(?:Problem|_error|say|_attempt)\(\s*(?:problems, )?(?:code=)?"([a-z-]+)"', source)
    )
    page = (repo / "docs" / "inspecting-a-model.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    listed = [code for row in rows for code in re.findall(r"`([a-z-]+)`", row.split("|")[1])]
    assert len(listed) == len(set(listed)) and set(listed) == named


def test_a_head_that_does_not_fit_is_refused_by_the_command_itself(tmp_path: Path) -> None:
    root = edited(
        sample_dir(), tmp_path / "m", f"{HEAD}.xml", ('name="hidden_states" type', 'name="other" type')
    )
    ran = subprocess.run(
        [sys.executable, "-m", "gate", "inspect", "--model", root],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2 and "[no-mtp-head]" in ran.stdout and ran.stderr == ""
    nowhere = subprocess.run(
        [sys.executable, "-m", "gate", "inspect", "--model", tmp_path / "x"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert nowhere.returncode == 2 and "nothing there" in nowhere.stderr and "Traceback" not in nowhere.stderr


def test_names_from_a_graph_cannot_steer_the_terminal(tmp_path: Path) -> None:
    change = ('name="beam_idx" type', 'name="&#x9b;31m&#x202e;beam" type')
    shown = inspect("--model", edited(sample_dir(), tmp_path / "m", f"{HEAD}.xml", change))
    assert "beam" in shown.output
    assert "\x9b" not in shown.output and "\u202e" not in shown.output
