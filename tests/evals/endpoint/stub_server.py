"""A server of a few lines, for what no real one can be made to do: each test says what it answers, byte by byte."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

Answerer = Callable[[socket.socket, bytes, int], None]
"""Given the connection, the request, and how many came before it."""

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
MODELS = b'{"data":[{"id":"m"}]}'


def event(text: str, finish: str | None = None) -> bytes:
    end = "null" if finish is None else f'"{finish}"'
    return f'data: {{"choices":[{{"index":0,"delta":{{"content":"{text}"}},"finish_reason":{end}}}]}}\n\n'.encode()


def whole(status: str, kind: str, body: bytes, *more: str) -> bytes:
    head = [
        f"HTTP/1.1 {status}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *more,
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


@contextlib.contextmanager
def stub(answer: Answerer, models: bytes = MODELS) -> Iterator[tuple[str, list[bytes]]]:
    """Its base URL, and the questions that it got (not those for /models and /metrics)."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def one(connection: socket.socket) -> None:
            with connection:
                request = b""
                while b"\r\n\r\n" not in request:
                    request += connection.recv(65536) or b"\r\n\r\n"
                head, _, body = request.partition(b"\r\n\r\n")
                length = next(
                    (
                        int(h.split(b":")[1])
                        for h in head.split(b"\r\n")
                        if h.lower().startswith(b"content-length")
                    ),
                    0,
                )
                while len(body) < length:
                    body += connection.recv(65536)
                if head.startswith(b"GET"):
                    ok = b"/models" in head
                    connection.sendall(
                        whole("200 OK" if ok else "404 Not Found", "application/json", models if ok else b"")
                    )
                    return
                asked.append(head + b"\r\n\r\n" + body)
                with contextlib.suppress(OSError):
                    answer(connection, body, len(asked) - 1)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    threading.Thread(target=one, args=(connection,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}", asked
        finally:
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
