"""The threat: a published schema that isn't what verdict.json holds."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from jsonschema import Draft202012Validator, ValidationError

import gate.schema
from evals.inspection.directory import inspect_directory
from evals.sample import sample_dir
from gate.schema import FILES, published_schema, schema_text


@pytest.fixture
def validator():
    Draft202012Validator.check_schema(published_schema())
    return Draft202012Validator(published_schema())


@pytest.mark.parametrize("file", FILES)
def test_the_file_is_current(file):
    """`python -m gate.schema` writes it again."""
    assert Path(gate.schema.__file__).with_name(file).read_text("utf-8") == schema_text(file)


def test_an_inspection_validates(tmp_path):
    validator = Draft202012Validator(published_schema("inspection.schema.json"))
    for directory in (sample_dir(), tmp_path):
        document = json.loads(msgspec.json.encode(inspect_directory(directory)))
        validator.validate(document)
        with pytest.raises(ValidationError):
            validator.validate({**document, "layout": "other"})


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
