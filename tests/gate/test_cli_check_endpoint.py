"""The threat: options that don't go together, and a check that starts all the same and gates something else."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from evals.endpoint.address import EndpointError
from evals.tokens import TokenError
from gate.cli import gate
from tests.evals.endpoint.stub_server import stub, whole

URL = "http://127.0.0.1:1/v1"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ([], "--model"),
        (["--plain-url", URL], "--plain-url needs --spec-url"),
        (["--model", "sample", "--switch-cmd", "x"], "--switch-cmd needs --spec-url"),
        (["--model", "sample", "--spec-metrics", URL], "--spec-metrics needs --spec-url"),
        (["--spec-url", URL], "needs one measure"),
        (["--spec-url", URL, "--plain-url", URL], "same server"),
        (["--spec-url", URL, "--plain-url", "http://127.0.0.1:2", "--switch-cmd", "x"], "needs one measure"),
        (["--spec-url", URL, "--switch-cmd", "x", "--device", "GPU"], "--device needs --model"),
        (["--spec-url", URL, "--switch-cmd", "x", "--cache", "c"], "--cache needs --model"),
        (["--spec-url", URL, "--switch-cmd", "x", "--k", "1", "--k", "2"], "one K"),
        (["--spec-url", URL, "--switch-cmd", "x", "--spec-log-pattern", "x"], "needs --spec-log"),
    ],
)
def test_options_that_do_not_go_together_are_refused(args: list[str], says: str) -> None:
    with pytest.raises(click.UsageError, match=says):
        gate.main(["check", *args], standalone_mode=False)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--request", "seed=1"], "the gate doesn't set itself"),
        (["--request", "top_k=["], "expected JSON"),
        (["--spec-log", "nowhere.log"], "found no file"),
        (["--spec-metrics", "http://me:secret@127.0.0.1:1/metrics"], "without credentials"),
        (["--spec-metrics", "127.0.0.1:9100"], "expected http://HOST:PORT/metrics"),
        (["--depths", "512"], "needs --tokenizer"),
    ],
)
def test_values_that_cannot_be_used_are_refused(args: list[str], says: str, tmp_path: Path) -> None:
    with (
        stub(lambda c, b, n: c.sendall(whole("500 no", "text/plain", b""))) as (url, _),
        pytest.raises(EndpointError, match=says),
    ):
        urls = ["--plain-url", f"{url}/v1", "--spec-url", f"{url}/v3"]
        gate.main(["check", *urls, "--out", str(tmp_path / "run"), *args], standalone_mode=False)
    assert not (tmp_path / "run").exists()


def test_a_tokenizer_that_is_none_is_refused(tmp_path: Path) -> None:
    with stub(lambda c, b, n: None) as (url, _), pytest.raises(TokenError, match=r"tokenizer\.json"):
        urls = ["--plain-url", f"{url}/v1", "--spec-url", f"{url}/v3", "--tokenizer", str(tmp_path)]
        gate.main(["check", *urls, "--out", str(tmp_path / "run")], standalone_mode=False)
