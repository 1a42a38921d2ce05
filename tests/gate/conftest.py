"""What the tests of gate share: a small model directory, a run's verdict and manifest that belong to it, runs of
earlier versions, and the command line in this process."""

from __future__ import annotations

import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evals.batches import under_load
from evals.digest import digest_model
from evals.model_dir import inspect_model
from evals.types import Arm, Manifest
from gate.attestation import sha256, spell
from gate.cli import gate as command_line
from gate.cli.errors import run_guarded
from gate.types import Decision, TaskVerdict, Verdict

GRAPH = b'<?xml version="1.0"?>\n<net name="m"><layer><data offset="0" size="16" /></layer></net>\n'


class MadeRun(msgspec.Struct, frozen=True):
    """A run directory with manifest.json and verdict.json, and the model directory that it judged."""

    model: Path
    path: Path
    manifest: Manifest
    verdict: Verdict

    @property
    def verdict_json(self) -> bytes:
        return (self.path / "verdict.json").read_bytes()


def lay_model(path: Path) -> Path:
    """A directory that inspection accepts: two small graphs with their weights, a tokenizer, a config."""
    path.mkdir(parents=True)
    for stem, filler in (("openvino_model", b"t"), ("openvino_mtp_model", b"h")):
        (path / f"{stem}.xml").write_bytes(GRAPH)
        (path / f"{stem}.bin").write_bytes(filler * 16)
    (path / "config.json").write_text('{"mtp_num_hidden_layers": 1}')
    (path / "tokenizer.json").write_text("{}")
    return path


@pytest.fixture
def make_attested_run(tmp_path: Path) -> Callable[..., MadeRun]:
    """make(decision, ks=(1,), loads=(1,), tests={arm: decision}, limits=…, **changes of the verdict) -> MadeRun"""

    def make(
        decision: Decision = "serve",
        *,
        ks: tuple[int, ...] = (1,),
        loads: tuple[int, ...] = (1,),
        tests: dict[str, Decision] | None = None,
        limits: dict[str, dict[str, Any]] | None = None,
        requirement: str = "no_worse",
        name: str = "run",
        **changes: Any,
    ) -> MadeRun:
        model = tmp_path / "model"
        if not model.exists():
            lay_model(model)
        digests = digest_model(inspect_model(model))
        common: dict[str, Any] = {
            "engine": "genai",
            "device": "CPU",
            "target_digest": digests.target,
            "properties": {"INFERENCE_PRECISION_HINT": "f32"},
            "versions": {"openvino": "2026.4.1", "openvino-genai": "2026.4.1.0"},
            "scheduler": {"cache_size": 1, "enable_prefix_caching": False},
        }
        plain = Arm(name="plain", method="plain", k=0, head_digest=None, **common)
        single = tuple(
            Arm(name=f"mtp@{k}", method="mtp", k=k, head_digest=digests.head, **common) for k in ks
        )
        arms = under_load((plain, *single), loads, 0)
        mtp = tuple(arm for arm in arms if arm.method == "mtp")
        manifest = Manifest(
            schema=1,
            tool_version="0.1.0",
            created="2026-11-30T11:00:00Z",
            model=str(model),
            model_digest_before=digests.whole,
            arms=arms,
            tasks={"csv": "c" * 64, "prose": "d" * 64},
            prompts={"csv": ("w1", "w2"), "prose": ("w1",)},
            repeats={a.name: 2 if a.method == "plain" else 1 for a in arms},
            policy_digest="b" * 64,
            environment={"in_force": {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f16"}},
        )
        verdict = Verdict(
            schema=1,
            tool_version="0.1.0",
            created="2026-11-30T12:00:00Z",
            decision=decision,
            sentence="made",
            what_to_do="nothing",
            reasons=(),
            worth_it=True,
            k=ks,
            model=str(model),
            target_digest=digests.target,
            head_digests={a.name: digests.head or "" for a in mtp},
            policy_digest="b" * 64,
            manifest_identity=manifest.identity(),
            tasks=tuple(
                TaskVerdict(
                    task=task,
                    arm=a.name,
                    requirement=requirement,
                    decision=(tests or {}).get(a.name, decision),
                    reasons=(),
                    sentence="made",
                    prompts=2,
                    identical=2,
                    lost=(),
                    gained=(),
                    arms=(),
                    limits=(limits or {}).get(a.name, {}),
                )
                for task in manifest.tasks
                for a in mtp
            ),
            findings=(),
        )
        verdict = msgspec.structs.replace(verdict, **changes)
        path = tmp_path / name
        path.mkdir()
        (path / "manifest.json").write_bytes(msgspec.json.encode(manifest))
        (path / "verdict.json").write_bytes(msgspec.json.encode(verdict))
        return MadeRun(model, path, manifest, verdict)

    return make


@pytest.fixture
def reseal() -> Callable[[dict[str, Any]], bytes]:
    """Give a changed statement a fitting checksum, as somebody would who knows how."""

    def seal(statement: dict[str, Any]) -> bytes:
        configuration = statement["predicate"]["configuration"]
        del configuration[-1]
        configuration.append({"name": "statement", "digest": {"sha256": sha256(spell(statement))}})
        return spell(statement)

    return seal


@pytest.fixture
def unpack(tmp_path: Path) -> Callable[[str], Path]:
    """unpack(name) -> the run directory of that name from tests/fixtures/runs"""

    def unpacked(name: str) -> Path:
        with tarfile.open(Path(__file__).parents[1] / "fixtures" / "runs" / f"{name}.tar.gz") as archive:
            archive.extractall(tmp_path, filter="data")
        return tmp_path / name

    return unpacked


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """command(*arguments) -> exit code, what `gate` with these printed on stdout and stderr"""

    def call(*arguments: str | Path) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["gate", *map(str, arguments)])
        capsys.readouterr()
        code = run_guarded(command_line)
        return code, "".join(capsys.readouterr())

    return call
