"""The threat: a server, or what stands before it, that makes the client hang, grow, ask twice, tell the key, or take a
broken reply for an answer."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest

from evals.endpoint import http
from evals.endpoint.address import EndpointError, parse_endpoint, parse_metrics_url
from evals.endpoint.reply import Reply
from evals.endpoint.seat import EndpointSeat, look_at
from evals.engine.process import OutOfTime, Patience
from evals.messages import Message
from evals.plan import Asked
from evals.types import Failure
from tests.evals.endpoint.stub_server import HEAD, event, stub, whole

KEY = "sk-secret-0123456789"
GOOD = HEAD + event("one ") + event("two") + event("", "stop") + b"data: [DONE]\n\n"
HELLO = Asked(task="t", prompt="p", text="hello", max_new_tokens=8, messages=(Message("user", "hello"),))
QUICK = Patience(first_s=1.0, least_s=1.0, factor=1.0)


def ask(url: str, **options: object) -> Reply | Failure:
    seat = EndpointSeat(parse_endpoint(url, "--spec-url"), "spec", patience=QUICK)
    seat.start()
    assert seat.ready() is None
    try:
        return seat.ask(HELLO, **options)  # type: ignore[arg-type]
    finally:
        seat.kill()


def failure(url: str, **options: object) -> Failure:
    found = ask(url, **options)
    assert isinstance(found, Failure), found
    return found


def test_a_good_stream_is_an_answer() -> None:
    with stub(lambda c, body, n: c.sendall(GOOD)) as (url, _):
        reply = ask(url)
    assert isinstance(reply, Reply)
    assert (reply.text, reply.finish, reply.cuts, reply.usage, reply.drafted) == (
        "one two",
        "stop",
        (4, 3),
        None,
        None,
    )


@pytest.mark.parametrize("status", ["429 Too Many Requests", "502 Bad Gateway", "503 Service Unavailable"])
def test_a_busy_server_is_asked_again_before_the_first_byte(status: str) -> None:
    busy = whole(status, "application/json", b"{}", "Retry-After: 0")
    with stub(lambda c, body, n: c.sendall(GOOD if n == 2 else busy)) as (url, asked):
        assert isinstance(ask(url), Reply)
    assert len(asked) == 3


@pytest.mark.parametrize(
    ("status", "kind", "times"),
    [
        ("429 Too Many Requests", "rate_limited", 3),
        ("503 Service Unavailable", "server_error", 3),
        ("500 Internal Server Error", "server_error", 1),
        ("400 Bad Request", "refused", 1),
        ("401 Unauthorized", "refused", 1),
    ],
)
def test_a_status_has_its_name(status: str, kind: str, times: int) -> None:
    reply = whole(status, "application/json", b'{"error":"no"}', "Retry-After: 0")
    with stub(lambda c, body, n: c.sendall(reply)) as (url, asked):
        found = failure(url)
    assert (found.kind, len(asked)) == (kind, times)
    assert status[:3] in found.message


@pytest.mark.parametrize(
    ("sent", "kind", "says"),
    [
        (HEAD + event("one"), "cut", "without a finish reason"),
        (HEAD + event("one") + b"data: [DONE]\n\n", "cut", "without a finish reason"),
        (HEAD + event("one") + b"data: {nonsense\n\n", "malformed", "expected a message"),
        (HEAD + event("one") + b'data: {"error":{"message":"oom"}}\n\n', "malformed", "oom"),
        (HEAD + b"data: " + b"x" * (2 << 20), "malformed", "limit"),
        (whole("200 OK", "text/html", b"<p>Sign in</p>"), "not_api", "HTML"),
        (whole("302 Found", "text/plain", b"", "Location: http://127.0.0.1:1/v1"), "not_api", "redirected"),
        (whole("200 OK", "application/json", b"{}"), "cut", "finish reason"),
        (
            whole("200 OK", "application/json", b"\x1f\x8b", "Content-Encoding: gzip"),
            "malformed",
            "compressed",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 999\r\n\r\n" + event("a"),
            "cut",
            "ended",
        ),
    ],
)
def test_what_is_no_answer_has_its_name_and_is_not_asked_again(sent: bytes, kind: str, says: str) -> None:
    with stub(lambda c, body, n: c.sendall(sent)) as (url, asked):
        found = failure(url)
    assert (found.kind, len(asked)) == (kind, 1), found
    assert says in found.message


def test_an_endless_stream_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_REPLY", 1 << 16)

    def flood(connection: socket.socket, body: bytes, number: int) -> None:
        connection.sendall(HEAD)
        while True:
            connection.sendall(event("again") * 50)

    with stub(flood) as (url, _):
        assert failure(url).kind == "malformed"


def silent(connection: socket.socket, body: bytes, number: int) -> None:
    connection.sendall(HEAD + event("one"))
    time.sleep(5)


def pinging(connection: socket.socket, body: bytes, number: int) -> None:
    connection.sendall(HEAD + event("one"))
    for _ in range(60):
        connection.sendall(b": keep-alive\n\n")
        time.sleep(0.1)


@pytest.mark.parametrize("server", [silent, pinging])
def test_silence_in_mid_reply_is_a_stall_even_with_keep_alives(server) -> None:  # type: ignore[no-untyped-def]
    with stub(server) as (url, asked):
        assert failure(url).kind == "stalled"
    assert len(asked) == 1


def test_no_answer_at_all_is_unreachable() -> None:
    with stub(lambda c, body, n: time.sleep(5)) as (url, _):
        assert failure(url).kind == "unreachable"


def test_the_deadline_of_a_budget_is_kept() -> None:
    with stub(pinging) as (url, _), pytest.raises(OutOfTime):
        ask(url, deadline=time.monotonic() + 0.3)


def test_a_key_is_sent_and_never_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATE_API_KEY", KEY)
    echo = whole("401 Unauthorized", "application/json", f'{{"error":"bad key {KEY}"}}'.encode())
    with stub(lambda c, body, n: c.sendall(echo)) as (url, asked):
        found = failure(url)
    assert f"Bearer {KEY}".encode() in asked[0] and KEY not in found.message
    said = HEAD + event(KEY[:9]) + event(KEY[9:], "stop")
    with stub(lambda c, body, n: c.sendall(said)) as (url, _):
        reply = ask(url)
    assert isinstance(reply, Reply) and KEY not in reply.text


def test_a_key_stays_with_the_server_that_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATE_API_KEY", KEY)
    with stub(lambda c, body, n: c.sendall(GOOD)) as (other, asked_there):
        away = whole("307 Temporary Redirect", "text/plain", b"", f"Location: {other}/v1/chat/completions")
        with stub(lambda c, body, n: c.sendall(away)) as (url, _):
            assert failure(url).kind == "not_api"
    assert not asked_there


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    with stub(lambda c, body, n: c.sendall(GOOD)) as (url, _):
        assert isinstance(ask(url), Reply)


def test_a_server_that_is_not_there_is_said_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evals.endpoint.seat.HEALTH_S", 0.5)
    seat = EndpointSeat(parse_endpoint("http://127.0.0.1:1/v1", "--spec-url"), "spec")
    with pytest.raises(EndpointError, match="arm served can't be asked"):
        look_at({"served": seat})


def test_tls_to_a_plain_port_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not waited for as for a server that comes up: no wait heals it."""
    monkeypatch.setattr("evals.endpoint.seat.HEALTH_S", 600.0)
    reply = whole("400 Bad Request", "text/plain", b"")
    with socket.create_server(("127.0.0.1", 0)) as plain:
        threading.Thread(target=lambda: plain.accept()[0].sendall(reply), daemon=True).start()
        url = f"https://127.0.0.1:{plain.getsockname()[1]}/v1"
        seat = EndpointSeat(parse_endpoint(url, "--spec-url"), "spec")
        with pytest.raises(EndpointError, match="doesn't speak TLS: name it with http://"):
            look_at({"served": seat})


def test_an_untrusted_certificate_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evals.endpoint.seat.HEALTH_S", 600.0)
    pem = tmp_path / "own.pem"
    pem.write_bytes(own_certificate())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)

    def greet(server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            context.wrap_socket(server.accept()[0], server_side=True)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=greet, args=(server,), daemon=True).start()
        url = f"https://127.0.0.1:{server.getsockname()[1]}/v1"
        with pytest.raises(EndpointError, match="certificate isn't trusted"):
            look_at({"served": EndpointSeat(parse_endpoint(url, "--spec-url"), "spec")})


def own_certificate() -> bytes:
    """A certificate for 127.0.0.1 that nobody else signed, and its key."""
    import datetime as dt

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("127.0.0.1")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return made.public_bytes(pem) + key.private_bytes(pem, *plain)


def test_a_model_that_is_not_served_is_said_before_the_run() -> None:
    with stub(lambda c, body, n: None) as (url, _):
        seat = EndpointSeat(parse_endpoint(url, "--spec-url", model="other"), "spec")
        with pytest.raises(EndpointError, match=r"expected the model 'other' on the server, found: m"):
            look_at({"served": seat})


@pytest.mark.parametrize(
    ("listed", "model"),
    [
        ('{"id":"a"},{"id":"b"}', "a"),
        ('{"id":"a","status":{"value":"unloaded"}},{"id":"/m/b","status":{"value":"loaded"}}', "b"),
        ('{"id":"a","status":{"value":"unloaded"}},{"id":"b","status":"up"}', "a"),
        ('{"id":"a","status":null},{"id":"b","status":[]}', "a"),
        ("", None),
    ],
)
def test_of_several_models_the_one_in_memory_is_asked(listed: str, model: str | None) -> None:
    """A server that lists all it could load would load another, or refuse."""
    with stub(lambda c, body, n: None, f'{{"data":[{listed}]}}'.encode()) as (url, _):
        seat = EndpointSeat(parse_endpoint(url, "--spec-url"), "spec")
        seat.start()
        assert seat.ready() is None and seat.model == model
        seat.kill()


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a/v1",
        "http://",
        "127.0.0.1:8000",
        "http://me:secret@host/v1",
        "http://host/v1?key=secret",
        "http://a:b/v1",
    ],
)
def test_a_url_that_cannot_be_asked_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(EndpointError) as refused:
        parse_endpoint(url, "--spec-url")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "base", "api"),
    [
        ("http://h:1", "http://h:1/v1", "chat"),
        ("http://h:1/v3/", "http://h:1/v3", "chat"),
        ("https://h/v1/chat/completions", "https://h/v1", "chat"),
        ("http://h/v3/completions", "http://h/v3", "completions"),
    ],
)
def test_a_url_says_which_base_and_api(url: str, base: str, api: str) -> None:
    found = parse_endpoint(url, "--spec-url")
    assert (found.url, found.api) == (base, api)


def test_a_models_name_that_is_the_key_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATE_API_KEY", KEY)
    with stub(lambda c, body, n: None, f'{{"data":[{{"id":"{KEY}"}}]}}'.encode()) as (url, _):
        seat = EndpointSeat(parse_endpoint(url, "--spec-url"), "spec")
        seat.start()
        assert seat.ready() is None and seat.model == "[key]"
        seat.kill()


WHOLE = b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}'


def test_a_reply_that_came_whole_has_no_pause() -> None:
    with stub(lambda c, body, n: c.sendall(whole("200 OK", "application/json", WHOLE))) as (url, _):
        reply = ask(url, whole=True)
    assert isinstance(reply, Reply) and (reply.ttft_s, reply.decode_s) == (None, None)
    assert reply.pause_s is not None and reply.pause_s > 0, "all of its time"


def test_a_wait_before_another_attempt_is_not_the_answers() -> None:
    busy = whole("503 Service Unavailable", "application/json", b"{}", "Retry-After: 1")
    with stub(lambda c, body, n: c.sendall(GOOD if n else busy)) as (url, _):
        began = time.monotonic()
        reply = ask(url)
        took = time.monotonic() - began
    assert isinstance(reply, Reply) and reply.ttft_s is not None and reply.ttft_s <= took - 1


def dripping(connection: socket.socket, body: bytes, number: int) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n")
    for _ in range(60):
        connection.sendall(b" ")
        time.sleep(0.1)


def test_a_body_that_drips_ends_too() -> None:
    with stub(dripping) as (url, _), pytest.raises(OutOfTime):
        ask(url, whole=True, deadline=time.monotonic() + 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            with contextlib.suppress(OSError):
                dripping(server.accept()[0], b"", 0)

        threading.Thread(target=drip, daemon=True).start()
        client = http.Http()
        with pytest.raises(http.Refusal, match="dripped"):
            client.get(f"http://127.0.0.1:{server.getsockname()[1]}/metrics", 0.5)
        client.close()


@pytest.mark.parametrize("charset", ["idna", "undefined", "utf_16", "hex", "rot13", "punycode"])
def test_a_stream_is_utf_8_whatever_its_head_says(charset: str) -> None:
    said = GOOD.replace(b"event-stream", b"event-stream; charset=" + charset.encode())
    with stub(lambda c, body, n: c.sendall(said)) as (url, _):
        reply = ask(url)
    assert isinstance(reply, Reply) and reply.text == "one two"


@pytest.mark.parametrize("host", ["-a..b", "a" * 64])
def test_a_host_that_no_name_server_can_know_is_refused(host: str) -> None:
    for parse in (parse_endpoint, parse_metrics_url):
        with pytest.raises(EndpointError):
            parse(f"http://{host}/", "--url")


def test_an_address_without_what_it_cannot_hold() -> None:
    assert parse_metrics_url("http://h:1/me\ntrics?a=b", "--metrics-url") == "http://h:1/metrics?a=b"
    client = http.Http()
    with pytest.raises(http.Refusal, match="no address that can be asked"):
        client.get(parse_metrics_url("http://h:1/\x01", "--metrics-url"), 1.0)
    client.close()
