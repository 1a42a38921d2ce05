"""The threat: a published schema that isn't what verdict.json holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator, ValidationError

import gate.schema
from gate.schema import FILE, published_schema, schema_text


@pytest.fixture
def validator():
    Draft202012Validator.check_schema(published_schema())
    return Draft202012Validator(published_schema())


def test_the_file_is_current():
    """`python -m gate.schema` writes it again."""
    assert Path(gate.schema.__file__).with_name(FILE).read_text("utf-8") == schema_text()


def test_a_verdict_validates(make_attested_run, validator):
    validator.validate(json.loads(make_attested_run("serve").verdict_json))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("decision", "maybe"),
        ("schema", 0),
        ("tasks", "csv"),
        ("reasons", [1]),
        ("worth_it", "yes"),
        ("extra", 1),
    ],
)
def test_what_is_no_verdict_does_not(make_attested_run, validator, key, value):
    document = json.loads(make_attested_run("serve").verdict_json)
    document[key] = value
    with pytest.raises(ValidationError):
        validator.validate(document)


def test_nothing_may_be_left_out_that_a_deploy_step_reads(make_attested_run, validator):
    document = json.loads(make_attested_run("serve").verdict_json)
    for key in ("decision", "target_digest", "head_digests", "policy_digest", "findings", "tasks"):
        with pytest.raises(ValidationError):
            validator.validate({k: v for k, v in document.items() if k != key})
