"""Threat: a report that is passed on tells where its author lives on disk, or carries a key."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.private import LEFT_OUT, scrubbed, secret_name, shareable


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("/home/ada/models/x", "~/models/x"),
        ("in '/home/ada/x': no head", "in '~/x': no head"),
        ("/Users/ada/x", "~/x"),
        ("file:///root/models", "file://~/models"),
        ("/rootless/x and /opt/home/x", "/rootless/x and /opt/home/x"),
        ("HF_TOKEN=hf_" + "a" * 30, f"HF_TOKEN={LEFT_OUT}"),
        ("Authorization: Bearer " + "x" * 30, f"Authorization: {LEFT_OUT}"),
        ("sk-" + "a1" * 12, LEFT_OUT),
        ("acceptance 93.9 %", "acceptance 93.9 %"),
    ],
)
def test_homes_and_keys_are_left_out(text: str, clean: str) -> None:
    assert scrubbed(text) == clean


def test_this_users_home_is_left_out_wherever_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert scrubbed(f"model {tmp_path}/m") == "model ~/m"
    assert scrubbed(f"{tmp_path}more/m") == f"{tmp_path}more/m"


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "apiKey", "api_key", "password", "SECRET_NAME", "aws-secret-access-key"]
)
def test_names_of_keys(name: str) -> None:
    assert secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "stop_token_ids",
        "max_new_tokens",
        "openvino_tokenizers",
        "KV_CACHE_PRECISION",
        "monkeys",
        "tokens_per_s",
    ],
)
def test_names_that_only_sound_like_it(name: str) -> None:
    assert not secret_name(name)


def test_nested_values() -> None:
    value = {"a": [{"HF_TOKEN": "x", "path": "/home/ada/m"}], "n": 3, "none": None}
    assert shareable(value) == {"a": [{"HF_TOKEN": LEFT_OUT, "path": "~/m"}], "n": 3, "none": None}


def test_depth_is_bounded() -> None:
    deep: dict[str, object] = {}
    for _ in range(5000):
        deep = {"a": deep}
    assert "a" in shareable(deep)
