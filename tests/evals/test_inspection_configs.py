"""The threat: the gate asks and decodes one way, a server that honours the directory's configs another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evals.inspection.chat import look_at_template
from evals.inspection.configs import Declared, declared_against_found, look_at_generation, read_declared
from evals.inspection.directory import inspect_directory
from tests.evals.inspection_dirs import linked

TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}A:{% endif %}"


def template_codes(root: Path, text: str, in_tokenizer: str | None = None) -> dict[str, str]:
    (root / "chat_template.jinja").write_text(text)
    _, problems = look_at_template(root, in_tokenizer)
    return {problem.code: problem.severity for problem in problems}


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        (TEMPLATE, {}),
        ("{% generation %}" + TEMPLATE + "{% endgeneration %}", {}),
        (TEMPLATE + "{{ strftime_now('%d') }}", {"chat-template-clock": "warning"}),
        ("{{ messages }}", {"chat-template-no-turn": "warning"}),
        (TEMPLATE + "{% if enable_thinking %}{% endif %}", {"chat-template-thinking": "note"}),
        (TEMPLATE.replace("A:", "<think>"), {"chat-template-thinking": "warning"}),
        (TEMPLATE + "{% if %}", {"chat-template-broken": "error"}),
        (TEMPLATE + "{{" + "(" * 50_000, {"chat-template-broken": "error"}),
        (TEMPLATE + " " * (1 << 18), {"chat-template-size": "error"}),
    ],
)
def test_traps_of_a_template(text: str, codes: dict[str, str], tmp_path: Path) -> None:
    assert template_codes(tmp_path, text) == codes


def test_copies_of_the_template_must_agree(tmp_path: Path) -> None:
    assert template_codes(tmp_path, TEMPLATE, in_tokenizer=TEMPLATE + "\n") == {}
    assert template_codes(tmp_path, TEMPLATE, in_tokenizer="other") == {"chat-templates-differ": "warning"}


def test_templates_are_found_where_transformers_looks(tmp_path: Path) -> None:
    config = tmp_path / "tokenizer_config.json"
    for said, places in (
        (TEMPLATE, ("tokenizer_config.json",)),
        (
            [{"name": "tool", "template": "x"}, {"name": "default", "template": TEMPLATE}],
            ("tokenizer_config.json",),
        ),
        ([1, {"name": "tool"}], ()),
        (None, ()),
    ):
        config.write_text(json.dumps({"chat_template": said}))
        found, problems = look_at_template(tmp_path, None)
        assert found == places
        assert [problem.code for problem in problems] == ([] if places else ["no-chat-template"])


def test_a_template_in_the_tokenizer_graph_alone_is_not_enough(tmp_path: Path) -> None:
    found, problems = look_at_template(tmp_path, TEMPLATE)
    assert found == ("openvino_tokenizer.xml",)
    assert [(problem.code, problem.severity) for problem in problems] == [("no-chat-template", "error")]


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "\udcff"])
def test_a_damaged_tokenizer_config_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    _, problems = look_at_template(tmp_path, None)
    assert ("damaged-file", "tokenizer_config.json") in [
        (problem.code, problem.where) for problem in problems
    ]


@pytest.mark.parametrize(
    ("config", "codes"),
    [
        ({"eos_token_id": 2}, []),
        ({"eos_token_id": [1, 2], "temperature": 0.6, "do_sample": False}, []),
        ({"eos_token_id": 2, "do_sample": True}, ["generation-samples"]),
        ({"eos_token_id": 2, "repetition_penalty": 1.05}, ["generation-penalty"]),
        ({"eos_token_id": 2, "no_repeat_ngram_size": 3}, ["generation-penalty"]),
        ({"eos_token_id": 2, "suppress_tokens": [], "min_new_tokens": 0, "stop_strings": None}, []),
        ({"eos_token_id": 2, "min_new_tokens": 9, "ignore_eos": True}, ["generation-penalty"] * 2),
        ({"eos_token_id": 2, "stop_strings": [[[3]]], "bad_words_ids": [[1]]}, ["generation-penalty"] * 2),
        ({"eos_token_id": 2, "do_sample": "yes"}, ["generation-samples"]),
        ({"eos_token_id": 2, "num_beams": 4}, ["generation-beams"]),
        ({"eos_token_id": 2, "assistant_confidence_threshold": 0.4}, ["generation-threshold"]),
        ({"eos_token_id": 2, "max_new_tokens": 20}, ["generation-short"]),
        ({}, ["generation-no-stop"]),
        ({"eos_token_id": "2"}, ["generation-no-stop"]),
        ({"eos_token_id": 7}, ["generation-stop"]),
        ({"eos_token_id": 2, "num_beams": {"a": []}, "max_length": True}, ["generation-beams"]),
        ([], ["damaged-file"]),
        ("x", ["damaged-file"]),
    ],
)
def test_traps_of_generation_config(config: object, codes: list[str], tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps(config))
    assert [problem.code for problem in look_at_generation(tmp_path, Declared(), 2)] == codes


def test_stop_tokens_of_two_configs(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 7}')
    found = look_at_generation(tmp_path, Declared(eos=frozenset({2})), None)
    assert [problem.code for problem in found] == ["generation-stop"]
    assert look_at_generation(tmp_path, Declared(eos=frozenset({7})), 7) == []


def test_no_generation_config_is_a_note(tmp_path: Path) -> None:
    (found,) = look_at_generation(tmp_path, Declared(), None)
    assert (found.code, found.severity) == ("no-generation-config", "note")


def test_the_text_part_of_a_config_counts(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{"hidden_size": 1, "tie_word_embeddings": true, "text_config": {"hidden_size": 64, "vocab_size": "x"}}'
    )
    declared = read_declared(tmp_path)
    assert (declared.hidden_size, declared.vocabulary, declared.tied) == (64, None, True)
    assert [problem.code for problem in declared_against_found(declared, 65, 7)] == ["config-mismatch"]
    assert declared_against_found(declared, None, None) == []


def test_a_directory_without_a_template_is_refused(sample_dir: Path, tmp_path: Path) -> None:
    root = linked(sample_dir, tmp_path / "m", without=("chat_template.jinja",))
    found = inspect_directory(root)
    assert not found.servable and "no-chat-template" in {problem.code for problem in found.problems}
