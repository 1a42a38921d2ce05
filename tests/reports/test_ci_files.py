"""Threat: a CI job goes green though the head must not be served, red though it may, or keeps no report.

Every script of action.yml and of the GitLab template runs here as its runner would run it, on a real run for each exit
code. The environments that they make get this project from here and its dependencies from the tests' own environment.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
import yaml

SHORT = {"model": "sample", "tasks": "my tasks", "task": "short", "arguments": "--no-control"}
"""A run that serves."""

BLOCKS = '[severities]\n"slower-than-plain" = "block"\n[thresholds]\nmin_speed_ratio = 100.0\n'
"""A policy that any honest run fails: no head is a hundred times faster."""

RUNS: dict[int, dict[str, str]] = {
    0: {},
    1: {"policy": "blocks.toml"},
    2: {"model": "no such directory"},
    3: {"budget": "1s"},
}
"""Exit code → what differs from a run that serves."""
DECISIONS = {0: "serve", 1: "do_not_serve", 2: "could_not_start", 3: "inconclusive"}
JUNIT = {0: (0, 0), 1: (1, 0), 3: (0, 1)}
"""Exit code → whether junit.xml has failures, errors."""
SHARED = {"report.html", "summary.md", "junit.xml", "attestation.json", "attestation.svr.json"}
"""What is kept of a redacted run."""


class Job(msgspec.Struct):
    """What a runner knows after a job: how it ended, what each step wrote, what it kept."""

    code: int
    outputs: dict[str, str]
    kept: list[Path]
    log: str
    summary: str = ""


@pytest.fixture(scope="module")
def deps() -> dict[str, str]:
    """Lets pip install this project alone, from here, with what the tests' own environment holds to build it.

    PIP_NO_BUILD_ISOLATION=0 is how pip spells "no isolation" in the environment.
    """
    here = sysconfig.get_paths()["purelib"]
    return {"PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_INDEX": "1", "PYTHONPATH": here}


@pytest.fixture
def work(tmp_path: Path, repo: Path) -> Path:
    """A user's checkout: a task of one prompt in a folder with a blank in its name, and a policy."""
    folder = tmp_path / "my tasks" / "short"
    shutil.copytree(repo / "tasks" / "builtin" / "count", folder)
    manifest = (folder / "task.toml").read_text()
    (folder / "task.toml").write_text(manifest.replace('name = "count"', 'name = "short"'))
    prompts = (folder / "prompts.toml").read_text()
    first = tomllib.loads(prompts)["prompt"][0]
    (folder / "prompts.toml").write_text(
        f"[[prompt]]\nid = {json.dumps(first['id'])}\ntext = {json.dumps(first['text'])}\n"
    )
    (tmp_path / "blocks.toml").write_text("schema = 1\n" + BLOCKS)
    return tmp_path


def bash(script: str, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs a script as both runners do: bash that stops at the first error, with the environment of a job."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(command, cwd=cwd, env=kept | env, capture_output=True, text=True, timeout=280)


def see_dependencies(venv: Path) -> None:
    """Lets the environment that a script made see what the tests' own one holds, in place of a download."""
    (packages,) = venv.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")


# -- GitHub ----------------------------------------------------------------------------------------------------------


def substituted(text: str, known: dict[str, str]) -> str:
    """A workflow's text with its `${{ … }}` replaced; an unknown name raises KeyError."""
    return re.sub(r"\$\{\{\s*([\w.-]+)\s*\}\}", lambda match: known[match.group(1)], text)


def holds(condition: str, known: dict[str, str]) -> bool:
    """A step's `if`, of the few operators that ours use."""
    python = condition.strip().removeprefix("${{").removesuffix("}}")
    python = re.sub(r"(?:inputs|steps)[\w.-]+", lambda match: repr(known[match.group()]), python)
    return bool(eval(python.replace("&&", " and ").replace("||", " or ")))


def read_outputs(text: str) -> dict[str, str]:
    """A GITHUB_OUTPUT file: name=value, and name<<MARK … MARK."""
    found = {m[1]: m[3] for m in re.finditer(r"(?ms)^([\w-]+)<<(\w+)\n(.*?)\n\2$", text)}
    rest = re.sub(r"(?ms)^([\w-]+)<<(\w+)\n(.*?)\n\2$", "", text)
    return found | dict(line.split("=", 1) for line in rest.splitlines() if line)


@pytest.fixture(scope="module")
def action(repo: Path) -> dict[str, Any]:
    return yaml.safe_load((repo / "action.yml").read_text())


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A runner's temporary directory, shared so that the action installs once."""
    return tmp_path_factory.mktemp("runner")


def run_action(
    action: dict[str, Any], inputs: dict[str, str], work: Path, runner: Path, repo: Path, deps: dict[str, str]
) -> Job:
    """Runs the action's steps one after the other until one fails, as a runner does."""
    known = {f"inputs.{name}": str(given.get("default", "")) for name, given in action["inputs"].items()}
    assert {name for name, given in action["inputs"].items() if given.get("required")} <= set(inputs)
    known |= {f"inputs.{name}": value for name, value in inputs.items()}
    known |= {"github.action_path": str(repo), "runner.temp": str(runner)}
    log, kept, summary = "", [], work / "summary"
    outputs: dict[str, str] = {}
    for step in action["runs"]["steps"]:
        if "if" in step and not holds(step["if"], known):
            continue
        if "uses" in step:
            paths = substituted(step["with"]["path"], known).splitlines()
            kept = [work / path for path in paths if (work / path).exists()]
            continue
        env = {name: substituted(value, known) for name, value in step["env"].items()}
        venv = runner / "mtp-gate-venv"
        if step["name"].startswith("Install"):
            if venv.exists():
                continue
            env |= deps
        output = work / "output"
        output.write_text("")
        done = bash(
            step["run"], work, env | {"GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(summary)}
        )
        log += done.stdout + done.stderr
        if step["name"].startswith("Install") and done.returncode == 0:
            see_dependencies(venv)
        wrote = read_outputs(output.read_text())
        outputs |= wrote
        known |= {f"steps.{step.get('id')}.outputs.{name}": value for name, value in wrote.items()}
        if done.returncode:
            return Job(done.returncode, outputs, kept, log, summary.read_text() if summary.exists() else "")
    return Job(0, outputs, kept, log, summary.read_text())


@pytest.mark.engine
@pytest.mark.parametrize("code", RUNS)
def test_the_action_fails_by_the_exit_code_and_keeps_the_report(
    action: dict[str, Any], work: Path, runner: Path, repo: Path, deps: dict[str, str], code: int
) -> None:
    job = run_action(action, SHORT | RUNS[code], work, runner, repo, deps)
    assert job.code == code, job.log
    assert (job.outputs["exit-code"], job.outputs["decision"]) == (str(code), DECISIONS[code])
    if code == 2:
        assert job.kept == []
        assert "exit code 2" in job.summary
        return
    (kept,) = job.kept
    assert_report(kept, code)
    assert_records(kept, code)
    assert job.summary == (kept / "summary.md").read_text()
    annotations = [line for line in job.log.splitlines() if line.startswith("::")]
    assert annotations[0].startswith("::notice " if code == 0 else "::error ")


@pytest.mark.engine
def test_a_redacted_action_keeps_what_may_be_shared_alone(
    action: dict[str, Any], work: Path, runner: Path, repo: Path, deps: dict[str, str]
) -> None:
    job = run_action(action, SHORT | RUNS[3] | {"redact": "true"}, work, runner, repo, deps)
    assert job.code == 3, job.log
    names = {path.name for path in job.kept}
    assert {"report.html", "summary.md", "junit.xml"} <= names <= SHARED


def assert_report(kept: Path, code: int) -> None:
    """The kept files say what the exit code says, each of them."""
    root = ElementTree.parse(kept / "junit.xml").getroot()
    assert (int(root.get("failures", "")) > 0, int(root.get("errors", "")) > 0) == JUNIT[code]
    assert f'class="verdict {DECISIONS[code]}"' in (kept / "report.html").read_text()
    assert (kept / "summary.md").read_text().startswith("## ")


def assert_records(kept: Path, code: int) -> None:
    """The kept run can be graded again, and its verdict is the exit code's."""
    assert json.loads((kept / "verdict.json").read_text())["decision"] == DECISIONS[code]
    assert (kept / "manifest.json").exists()
    assert (kept / "answers.jsonl").exists() or code == 3


def test_no_input_is_pasted_into_a_script(action: dict[str, Any]) -> None:
    """What a workflow gives stands in the environment, so that no branch name or path can be a command."""
    for step in action["runs"]["steps"]:
        assert "${{" not in step.get("run", "")


def test_a_step_that_fails_to_install_fails_the_job(
    action: dict[str, Any], work: Path, tmp_path: Path, repo: Path
) -> None:
    inputs = {"model": "sample", "python": "no-such-python"}
    job = run_action(action, inputs, work, tmp_path / "runner", repo, {})
    assert job.code == 127
    assert job.kept == []


# -- GitLab ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gitlab(repo: Path) -> dict[str, Any]:
    return yaml.safe_load((repo / "ci" / "gitlab" / "mtp-gate.yml").read_text())["mtp-gate"]


@pytest.fixture(scope="module")
def venv(
    gitlab: dict[str, Any], repo: Path, deps: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """What the job's first lines make, run once for all jobs."""
    work = tmp_path_factory.mktemp("gitlab")
    for line in gitlab["script"][:-1]:
        done = bash(line, work, gitlab["variables"] | {"GATE_PACKAGE": str(repo)} | deps)
        assert done.returncode == 0, done.stderr
    see_dependencies(work / ".mtp-gate" / "venv")
    return work / ".mtp-gate" / "venv"


def run_gitlab(job: dict[str, Any], variables: dict[str, str], work: Path, venv: Path) -> Job:
    """Runs the job's last line, which gates, in a checkout that has the environment of the others."""
    (work / ".mtp-gate").mkdir()
    (work / ".mtp-gate" / "venv").symlink_to(venv)
    done = bash(job["script"][-1], work, job["variables"] | variables)
    return Job(
        done.returncode, {}, [work / path for path in job["artifacts"]["paths"]], done.stdout + done.stderr
    )


@pytest.mark.engine
@pytest.mark.parametrize("code", RUNS)
def test_the_gitlab_job_fails_by_the_exit_code_and_keeps_the_report(
    gitlab: dict[str, Any], work: Path, venv: Path, code: int
) -> None:
    given = SHORT | RUNS[code] | {"redact": "true" if code == 1 else "false"}
    variables = {f"GATE_{name.upper()}": value for name, value in given.items()}
    job = run_gitlab(gitlab, variables, work, venv)
    assert job.code == code, job.log
    assert gitlab["artifacts"]["when"] == "always"
    (kept,) = job.kept
    if code == 2:
        assert list(kept.iterdir()) == []
        return
    assert_report(kept, code)
    assert (work / gitlab["artifacts"]["reports"]["junit"]).exists()
    if code != 1:
        assert_records(kept, code)
        return
    assert {path.name for path in kept.iterdir()} <= SHARED
    prompt = tomllib.loads((work / "my tasks" / "short" / "prompts.toml").read_text())["prompt"][0]["text"]
    answer = json.loads((work / ".mtp-gate" / "run" / "answers.jsonl").read_text().splitlines()[0])["text"]
    for path in kept.iterdir():
        assert prompt not in path.read_text()
        assert answer[:20] not in path.read_text()


# -- both ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "file"),
    [("vendor.github-actions", "action.yml"), ("vendor.gitlab-ci", "ci/gitlab/mtp-gate.yml")],
)
def test_the_file_is_what_its_platform_reads(repo: Path, schema: str, file: str) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(repo / file)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
