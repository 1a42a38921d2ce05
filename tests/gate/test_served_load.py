"""The threat: a server that answers well one by one, and with several requests in flight mixes its streams up.

The server is a stub, since the fault itself has to be made: it answers once as many requests are there as asked for.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gate.cli import gate

WORDS = {
    "rain": "The rain fell on every roof of the harbour while a clerk counted barrels under his lamp and wrote them "
    "down twice, since nobody had told him which of two ledgers the owner would read in the morning.",
    "bread": "Mix flour with water until no dry patch remains, cover the bowl, and wait; then fold the dough over "
    "itself four times, shape a loaf, score it deeply, and bake it hot until its crust sings on the rack.",
    "stars": "Old charts show seven bright points above that ridge, yet surveyors found nine, because two of them move "
    "so slowly that whole families passed before anyone thought to measure where they had stood.",
}
POLICY = "[thresholds]\nmin_drafts = 8\n"


class Stub(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, speculates: bool) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.speculates, self.fault = speculates, ""
        self.in_flight = self.most = 0
        self.lock = threading.Lock()
        self.barrier: threading.Barrier | None = None


class Handler(BaseHTTPRequestHandler):
    server: Stub

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        found = self.path.endswith("/models")
        self._head(200 if found else 404, "application/json")
        self.wfile.write(b'{"object":"list","data":[{"id":"stub","object":"model"}]}' if found else b"{}")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = next(key for key in WORDS if key in asked["messages"][-1]["content"])
        server = self.server
        with server.lock:
            server.in_flight += 1
            server.most = max(server.most, server.in_flight)
        if server.barrier is not None:
            server.barrier.wait(20)
        pieces = self._pieces(key)
        self._head(200, "text/event-stream")
        for piece in pieces:
            self._event({"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]})
        self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        usage = {"prompt_tokens": 9, "completion_tokens": len(pieces), "total_tokens": 9 + len(pieces)}
        timings = {"draft_n": 40, "draft_n_accepted": 30} if server.speculates else {}
        self._event({"choices": [], "usage": usage, "timings": timings})
        self.wfile.write(b"data: [DONE]\n\n")
        with server.lock:
            server.in_flight -= 1

    def _pieces(self, key: str) -> list[str]:
        said = {name: [f"{word} " for word in text.split()] for name, text in WORDS.items()}
        if self.server.fault == "swap":
            return said[{"rain": "bread", "bread": "rain"}.get(key, key)]
        if self.server.fault == "chunk":
            moved = said["rain"][6:8]
            if key == "rain":
                return [*said["rain"][:6], *said["rain"][8:]]
            if key == "bread":
                return [*said["bread"][:3], *moved, *said["bread"][3:]]
        return said[key]

    def _head(self, status: int, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Connection", "close")
        self.end_headers()

    def _event(self, event: dict[str, Any]) -> None:
        whole = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "stub", **event}
        self.wfile.write(b"data: " + json.dumps(whole).encode() + b"\n\n")


@contextmanager
def serving(speculates: bool) -> Iterator[Stub]:
    stub = Stub(speculates)
    thread = threading.Thread(target=stub.serve_forever, daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        stub.shutdown()
        stub.server_close()


def lay_tasks(folder: Path) -> list[str]:
    options = []
    for name in WORDS:
        task = folder / name
        task.mkdir()
        (task / "task.toml").write_text(
            f'schema = 1\nname = "{name}"\ntitle = "On {name}"\nsummary = "A short text on {name}."\nkind = "prose"\n'
            'judge = "constraints"\nmax_new_tokens = 80\ngold = "gold.txt"\n'
            '[[mutant]]\nfile = "empty.txt"\nfails = ["length"]\n'
        )
        (task / "prompts.toml").write_text(f'[[prompt]]\nid = "p1"\ntext = "Write of {name}."\n')
        (task / "cases.jsonl").write_text('{"name":"length","constraint":"words","min":3,"max":400}\n')
        (task / "gold.txt").write_text(f"A few words on {name}.\n")
        (task / "empty.txt").write_text("no\n")
        options += ["--tasks", str(task), "--task", name]
    return options


@pytest.mark.parametrize(
    ("fault", "decision", "where"),
    [
        ("", "serve", set()),
        ("swap", "do_not_serve", {("rain", "whole", "bread"), ("bread", "whole", "rain")}),
        ("chunk", "do_not_serve", {("rain", "lost", "bread"), ("bread", "received", "rain")}),
    ],
)
def test_streams_that_are_mixed_up_under_load_are_named(
    fault: str, decision: str, where: set[tuple[str, str, str]], tmp_path: Path
) -> None:
    (tmp_path / "gate.toml").write_text(POLICY)
    tasks = lay_tasks(tmp_path)
    with serving(False) as plain, serving(True) as spec:
        plain.barrier, spec.barrier, spec.fault = threading.Barrier(3), threading.Barrier(3), fault
        urls = [f"http://127.0.0.1:{stub.server_address[1]}/v1" for stub in (plain, spec)]
        argv = ["check", "--plain-url", urls[0], "--spec-url", urls[1], "--concurrency", "3", "--no-state-probe",
                "--policy", str(tmp_path / "gate.toml"), "--out", str(tmp_path / "run"), "-q", *tasks]  # fmt: skip
        gate.main(argv, standalone_mode=False)
        assert (plain.most, spec.most) == (3, 3)
    verdict = json.loads((tmp_path / "run" / "verdict.json").read_text())
    assert verdict["decision"] == decision, verdict["findings"]
    assert all(t["speed_ratio"] for t in verdict["tasks"]), (
        "the speed of a batch is known without ids, by its bill"
    )
    crossed = [f for f in verdict["findings"] if f["code"] == "crossed-answers"]
    assert {(f["task"], f["evidence"]["how"], f["evidence"]["other_task"]) for f in crossed} == where
    assert {t["arm"] for t in verdict["tasks"]} == {"served/n3"}
    assert {a["arm"] for t in verdict["tasks"] for a in t["arms"]} == {"plain/n3", "served/n3"}
