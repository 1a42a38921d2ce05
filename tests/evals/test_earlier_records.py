"""The threat: a new version that no longer knows an earlier run, or reads a later one as if it were its own."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from evals.recording import RunWriter
from evals.records import RecordError, RunReader
from evals.types import Arm, Manifest

ARM = Arm(
    name="mtp@1",
    method="mtp",
    k=1,
    engine="openvino-genai",
    device="CPU",
    target_digest="t" * 64,
    head_digest="h" * 64,
    properties={"KV_CACHE_PRECISION": "u8"},
)
MANIFEST = Manifest(
    schema=1,
    tool_version="0.1.0",
    created="2026-11-30T16:00:00+00:00",
    model="m",
    model_digest_before="d",
    arms=(ARM,),
    tasks={"csv": "c"},
    prompts={"csv": ("a",)},
    repeats={"mtp@1": 2},
    policy_digest="p",
)


class LaterArm(Arm, frozen=True):
    """An arm as a later version may have it."""

    draft_digest: str | None = None
    adapters: dict[str, str] = {}  # noqa: RUF012


def later(**fields: object) -> LaterArm:
    return LaterArm(**msgspec.structs.asdict(ARM), **fields)  # type: ignore[arg-type]


def test_the_first_version_s_identities_still_hold() -> None:
    assert ARM.identity() == "e88508c0cacb851f078886e870172d34ee2910ebd7b383e7d3710a5d56ae5a7d"
    assert MANIFEST.identity() == "daa8036fe162dd82a40a2481e1d0db59abfc215ca05d88b539f1d03d46dff21c"


def test_a_field_that_an_arm_does_not_use_leaves_its_identity() -> None:
    assert later().identity() == ARM.identity()
    assert later().described() == ARM.described()


@pytest.mark.parametrize("fields", [{"draft_digest": "x"}, {"adapters": {"a": "b"}}], ids=str)
def test_a_field_that_an_arm_uses_is_part_of_its_identity(fields: dict[str, object]) -> None:
    assert later(**fields).identity() != ARM.identity()
    assert later(**fields).described().items() >= fields.items()


def test_every_first_field_counts_also_at_its_default() -> None:
    assert ARM.described().keys() >= {"head", "properties", "scheduler", "versions", "control_seed"}


def test_records_of_a_later_schema_are_refused_by_name(tmp_path: Path) -> None:
    RunWriter.create(tmp_path, MANIFEST).close()
    fields = msgspec.to_builtins(MANIFEST) | {"schema": 2, "something": "new"}
    (tmp_path / "manifest.json").write_bytes(msgspec.json.encode(fields))
    with pytest.raises(
        RecordError, match=r"expected records of schema 1 or earlier, found schema 2.*later version"
    ):
        RunReader(tmp_path)
