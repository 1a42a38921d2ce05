"""Asking servers: 64 streams at once, and what the client adds to a bare loop over the same HTTP library.

A stub in a process of its own streams numbered pieces: 64 streams, a little over 2,000 tokens a second in all,
one timer for all of them. Prints lost and mixed pieces (bar: none), the rate that was reached, the parent's
peak memory (bar: 300 MB) and its CPU seconds by wall seconds (bar: one core). Then time to first token and
decode rate of one stream at a time, by the gate's client and by a bare loop over httpx2's events, in pairs
whose order changes: the median difference of the pairs by the bare loop's median, with its interval (bar: 2 %
of overhead).

usage: bench_endpoint.py [PAIRS]
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median

STREAMS, RATE, TOKENS, PAIRS = 64, 2050, 320, 40
STUB = """
import asyncio, json, sys, time
rate = float(sys.argv[1])
HEAD = b"HTTP/1.1 200 OK\\r\\nContent-Type: text/event-stream\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n"
BEFORE, AFTER = b'data: {"choices":[{"index":0,"delta":{"content":"', b' "},"finish_reason":null}]}\\n\\n'
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}\\n\\ndata: [DONE]\\n\\n'
END = b"%x\\r\\n%s\\r\\n0\\r\\n\\r\\n" % (len(END), END)
streams = {}  # writer: [name, tokens, seconds a token, when it began, tokens sent, done]
def tick():
    now = time.monotonic()
    for writer, one in list(streams.items()):
        name, n, pause, began, sent, done = one
        due = min(n, int((now - began) / pause))
        if due > sent:
            pieces = (b"%s%s:%d%s" % (BEFORE, name, i, AFTER) for i in range(sent, due))
            writer.write(b"".join(b"%x\\r\\n%s\\r\\n" % (len(p), p) for p in pieces))
            one[4] = due
        if due == n:
            writer.write(END); del streams[writer]; done.set_result(None)
    asyncio.get_running_loop().call_later(0.002, tick)
async def serve(reader, writer):
    try:
        while head := await reader.readuntil(b"\\r\\n\\r\\n"):
            if head.startswith(b"GET"):
                writer.write(b"HTTP/1.1 404 no\\r\\nContent-Length: 0\\r\\n\\r\\n"); continue
            length = int(head.lower().partition(b"content-length:")[2].split(b"\\r\\n")[0])
            body = json.loads(await reader.readexactly(length))
            writer.write(HEAD)
            done = asyncio.get_running_loop().create_future()
            pause = float(body.get("pause", 1 / rate))
            name = body["messages"][0]["content"].encode()
            streams[writer] = [name, body["max_tokens"], pause, time.monotonic(), 0, done]
            await done
    except (asyncio.IncompleteReadError, ConnectionError):
        streams.pop(writer, None)
    writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=256)
    print(server.sockets[0].getsockname()[1], flush=True)
    tick()
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
    names = [f"s{n}" for n in range(STREAMS)]
    with ThreadPoolExecutor(STREAMS) as pool:
        list(
            pool.map(lambda name: seat.ask(question(name, 1)), names)
        )  # connections and imports aren't the bar
        wall, cpu = time.monotonic(), time.process_time()
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


def overhead(url: str, pairs: int) -> None:
    import httpx2

    from evals.endpoint.address import parse_endpoint
    from evals.endpoint.seat import EndpointSeat
    from evals.speed import median_interval

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

    measured = []
    for number in range(pairs + 2):
        if number % 2:
            one = bare()
            measured.append((one, ours()))
        else:
            other = ours()
            measured.append((bare(), other))
    del measured[:2]  # connections and imports
    first = median(one[0] for one, _ in measured)
    late = [(own[0] - one[0]) / first for one, own in measured]
    slow = [1 - own[1] / one[1] for one, own in measured]
    for what, found in (("time to first token", late), ("decode rate", slow)):
        low, high = median_interval(found, 0.95) or (float("nan"), float("nan"))
        print(
            f"client overhead, {what}: {100 * median(found):+.2f} % "
            f"({100 * low:+.2f} to {100 * high:+.2f}, {len(found)} pairs; bar 2)"
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
        overhead(url, int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS)
    finally:
        stub.kill()
        stub.wait()


if __name__ == "__main__":
    main()
