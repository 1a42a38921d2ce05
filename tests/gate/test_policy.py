"""The threat: a policy that doesn't say what its author meant: a misspelt key that is ignored, a number out of range, a
severity that turns missing evidence into a pass."""

from __future__ import annotations

import datetime as dt
import os
import re
import tomllib

import pytest

from gate.policy import MAX_BYTES, PolicyError, Thresholds, default_policy_text, load_policy


@pytest.fixture
def load(tmp_path):
    def load(text, tasks=None):
        path = tmp_path / "gate.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_policy(path, tasks)

    return load


def test_the_default_is_what_gate_policy_prints(load):
    assert load(default_policy_text()) == load_policy(None)
    assert load_policy(None).requirement("csv") == "no_worse"
    assert load_policy(None).thresholds.min_drafts == 50


def test_every_threshold_is_explained_beside_its_number():
    lines = default_policy_text().splitlines()
    for name in Thresholds.__struct_fields__:
        (at,) = [i for i, line in enumerate(lines) if re.match(rf"{name} = ", line)]
        assert lines[at - 1].startswith("# "), name


def test_a_file_need_only_hold_what_differs(load):
    policy = load('[thresholds]\nmin_drafts = 200\n[requirements.tasks]\ncsv = "identical"\n')
    assert policy.thresholds.min_drafts == 200
    assert policy.thresholds.dead_acceptance == load_policy(None).thresholds.dead_acceptance
    assert (policy.requirement("csv"), policy.requirement("prose")) == ("identical", "no_worse")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[thresholds]\ndead_acceptance = 1.5", ["thresholds.dead_acceptance", "<= 1"]),
        ("[thresholds]\nmin_drafts = 0", ["thresholds.min_drafts", ">= 1"]),
        ("[thresholds]\nmin_drafts = 1.5", ["thresholds.min_drafts", "int"]),
        ("[thresholds]\nmin_speed_ratio = nan", ["thresholds.min_speed_ratio"]),
        ("[thresholds]\nnear_tie_factor = inf", ["thresholds.near_tie_factor"]),
        ("[thresholds]\nconfidence = 1.0", ["thresholds.confidence"]),
        ('[thresholds]\nnear_tie_quantile = "p95"', ["thresholds.near_tie_quantile", "p95"]),
        ('[thresholds]\nmin_drafts = "50"', ["thresholds.min_drafts", "str"]),
        ("[thresholds]\nmin_draft = 50", ["[thresholds]", "'min_draft'", "did you mean 'min_drafts'?"]),
        ("[threshold]\nmin_drafts = 50", ["the top level", "'threshold'", "did you mean 'thresholds'?"]),
        ("thresholds = 3", ["thresholds", "int"]),
        ('[requirements]\ndefault = "better"', ["requirements.default", "better"]),
        ('[requirements]\nall = "identical"', ["[requirements]", "'all'"]),
        ('[requirements.tasks]\ncsv = "equal"', ["requirements.tasks", "equal"]),
        ("schema = 2", ["schema"]),
        ('[severities]\n"case-los" = "note"', ["severities", "'case-los'", "did you mean 'case-lost'?"]),
        ('[severities]\n"case-lost" = "unreadable"', ["severities"]),
        ('[severities]\n"plain-unrepeatable" = "note"', ["severities", "can't be turned into a pass"]),
        ('[severities]\n"waiver-unused" = "note"', ["severities", "'waiver-unused'", "isn't kept"]),
        ("this is not toml", ["expected TOML", "gate policy"]),
        (b"\xff\xfe\x00", ["expected TOML"]),
        (b"a = " + b"[" * 5000, ["expected TOML"]),
        (b"#" * (MAX_BYTES + 1), ["at most 256 KB"]),
    ],
)
def test_what_is_wrong_is_said(load, text, says):
    with pytest.raises(PolicyError) as error:
        load(text)
    message = str(error.value)
    for part in says:
        assert part in message
    assert "gate.toml" in message
    assert "Object contains" not in message


WAIVER = '[[waivers]]\ncode = "case-lost"\ntask = "csv"\nreason = "ticket 12"\nexpires = 2027-01-31\n'


def test_a_waiver_is_read(load):
    (waiver,) = load(WAIVER).waivers
    assert (waiver.code, waiver.task, waiver.arm, waiver.expires) == (
        "case-lost",
        "csv",
        None,
        dt.date(2027, 1, 31),
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (('reason = "ticket 12"\n', ""), ["waivers", "reason"]),
        (('"ticket 12"', '""'), ["waivers", "length"]),
        (("expires = 2027-01-31\n", ""), ["waivers", "expires"]),
        (("2027-01-31", '"soon"'), ["waivers"]),
        (("case-lost", "case-loss"), ["waivers[0]", "did you mean 'case-lost'?"]),
        (("case-lost", "plain-unrepeatable"), ["waivers[0]", "'unreadable'", "can't be waived"]),
        (("case-lost", "waiver-expired"), ["waivers[0]", "the policy's own", "can't be waived"]),
        (("case-lost", "near-tie"), ["waivers[0]", "'note'"]),
        (("task =", "tasks ="), ["[waivers", "did you mean 'task'?"]),
    ],
)
def test_a_waiver_that_is_wrong_is_said(load, change, says):
    with pytest.raises(PolicyError) as error:
        load(WAIVER.replace(*change))
    for part in says:
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("text", "where"),
    [('[requirements.tasks]\ncvs = "identical"', "requirements.tasks"), (WAIVER, "waivers[0]")],
)
def test_a_task_that_does_not_exist_is_an_error_where_tasks_are_known(load, text, where):
    load(text)
    with pytest.raises(PolicyError, match=re.escape(where)):
        load(text, tasks=["prose", "iso8601"])


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(PolicyError, match="can't be read"):
        load_policy(tmp_path / "none.toml")
    with pytest.raises(PolicyError, match="can't be read"):
        load_policy(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PolicyError, match="regular file"):
        load_policy(tmp_path / "pipe")


def test_the_digest_is_of_the_meaning(load):
    base = load_policy(None)
    assert load("# a comment\n[thresholds]\nmin_speed_ratio = 1\n").digest() == base.digest()
    assert load("[thresholds]\nmin_drafts = 51").digest() != base.digest()
    assert load(WAIVER).digest() != base.digest()
    assert len(base.digest()) == 64


def test_the_default_is_valid_toml_that_any_reader_takes():
    assert tomllib.loads(default_policy_text())["schema"] == 1
