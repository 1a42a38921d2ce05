"""Asking servers: 64 streams at once, and what the client adds to a bare loop over the same HTTP library.

A stub in a process of its own streams numbered pieces: 64 streams, 2,000 tokens a second in all. Prints lost and mixed
pieces (bar: none), the parent's peak memory (bar: 300 MB) and its CPU seconds by wall seconds (bar: one core). Then
time to first token and decode rate of one stream at a time, by the gate's client and by a bare loop over httpx2's
events, in turn (bar: 2 % of overhead).
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median

STREAMS, RATE, TOKENS, ROUNDS = 64, 2000, 160, 9
STUB = """
import asyncio, json, sys
rate = float(sys.argv[1])
async def serve(reader, writer):
    try:
        while head := await reader.readuntil(b"\\r\\n\\r\\n"):
            if head.startswith(b"GET"):
                writer.write(b"HTTP/1.1 404 no\\r\\nContent-Length: 0\\r\\n\\r\\n"); continue
            length = int(head.lower().partition(b"content-length:")[2].split(b"\\r\\n")[0])
            body = json.loads(await reader.readexactly(length))
            name, n, pause = body["messages"][0]["content"], body["max_tokens"], float(body.get("pause", 1 / rate))
            writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Type: text/event-stream\\r\\n")
            writer.write(b"Transfer-Encoding: chunked\\r\\n\\r\\n")
            def send(data):
                writer.write(b"%x\\r\\n%s\\r\\n" % (len(data), data))
            start = asyncio.get_running_loop().time()
            for i in range(n):
                await asyncio.sleep(max(0, start + (i + 1) * pause - asyncio.get_running_loop().time()))
                delta = {"choices": [{"index": 0, "delta": {"content": f"{name}:{i} "}, "finish_reason": None}]}
                send(b"data: " + json.dumps(delta).encode() + b"\\n\\n")
            send(b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}\\n\\n')
            send(b"data: [DONE]\\n\\n"); send(b"")
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=256)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


def question(name: str, tokens: int):  # type: ignore[no-untyped-def]
    from evals.messages import Message
    from evals.plan import Asked

    return Asked(task="t", prompt=name, text="", max_new_tokens=tokens, messages=(Message("user", name),))


def many(url: str) -> None:
    from evals.endpoint.address import parse_endpoint
    from evals.endpoint.reply import Reply
    from evals.endpoint.seat import EndpointSeat

    seat = EndpointSeat(parse_endpoint(url, "--spec-url"), "spec")
    seat.start()
    assert seat.ready() is None
    wall, cpu = time.monotonic(), time.process_time()
    names = [f"s{n}" for n in range(STREAMS)]
    with ThreadPoolExecutor(STREAMS) as pool:
        replies = list(pool.map(lambda name: seat.ask(question(name, TOKENS)), names))
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    wrong = sum(
        not isinstance(reply, Reply) or reply.text != "".join(f"{name}:{i} " for i in range(TOKENS))
        for name, reply in zip(names, replies, strict=True)
    )
    seat.kill()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{STREAMS} streams, {STREAMS * TOKENS / wall:.0f} tokens/s in all: {wrong} with a piece lost or mixed"
    )
    print(f"  peak memory {peak:.0f} MB (bar 300), CPU {cpu / wall:.2f} of a core (bar 1)")


def overhead(url: str) -> None:
    import httpx2

    from evals.endpoint.address import parse_endpoint
    from evals.endpoint.seat import EndpointSeat

    seat = EndpointSeat(parse_endpoint(url, "--spec-url", request={"pause": 0.01}), "spec")
    seat.start()
    client = httpx2.Client(trust_env=False)
    body = {
        "messages": [{"role": "user", "content": "one"}],
        "max_tokens": 100,
        "stream": True,
        "pause": 0.01,
    }
    data, kind = json.dumps(body).encode(), {"Content-Type": "application/json"}

    def bare() -> tuple[float, float]:
        began, first, last = time.monotonic(), 0.0, 0.0
        with client.stream("POST", f"{url}/chat/completions", content=data, headers=kind) as response:
            for event in httpx2.EventSource(response):
                if event.data == "[DONE]":
                    break
                if json.loads(event.data)["choices"][0]["delta"].get("content"):
                    last = time.monotonic()
                    first = first or last
        return first - began, 99 / (last - first)

    def ours() -> tuple[float, float]:
        reply = seat.ask(question("one", 100))
        assert reply.ttft_s and reply.decode_s, reply  # type: ignore[union-attr]
        return reply.ttft_s, 99 / reply.decode_s  # type: ignore[union-attr]

    pairs = [(bare(), ours()) for _ in range(ROUNDS)][1:]
    first = median(own[0] - other[0] for other, own in pairs) / median(other[0] for other, _ in pairs)
    rate = 1 - median(own[1] / other[1] for other, own in pairs)
    print(
        f"client overhead: time to first token {100 * first:+.2f} %, decode rate {100 * rate:+.2f} % (bar 2)"
    )
    seat.kill()
    client.close()


def main() -> None:
    stub = subprocess.Popen(
        [sys.executable, "-c", STUB, str(RATE / STREAMS)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert stub.stdout is not None
        url = f"http://127.0.0.1:{int(stub.stdout.readline())}/v1"
        many(url)
        overhead(url)
    finally:
        stub.kill()
        stub.wait()


if __name__ == "__main__":
    main()
