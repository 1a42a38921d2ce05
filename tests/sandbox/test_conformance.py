"""The threat: two backends that keep the same contract differently, so that a program's grade depends on where it ran.

One suite, every backend: how an end is told, what is measured, what a program sees; honest programs are let be.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.choose import failures
from sandbox.contract import Limits, Outcome, Program, Sandbox, SandboxUnavailable, SessionEnded, Status

LIMITS = Limits(wall_s=20, cpu_s=10, memory_bytes=256 << 20)


def python(source: str, **fields: object) -> Program:
    return Program(files={"main.py": source.encode()}, entry="main.py", **fields)  # type: ignore[arg-type]


def test_self_test_passes(sandbox: Sandbox) -> None:
    assert failures(sandbox.self_test()) == ""


def test_is_a_sandbox(sandbox: Sandbox) -> None:
    assert isinstance(sandbox, Sandbox)


def test_description_names_what_holds(sandbox: Sandbox) -> None:
    facts = sandbox.describe()
    assert {"backend", "version", "kernel", "control"} <= set(facts)
    assert facts["backend"] == sandbox.name
    assert facts["control"] in ("cgroup v1", "cgroup v2", "cgroup v2 (systemd)", "watchdog")


def test_the_known_gaps_are_listed_and_no_other_is_there(sandbox: Sandbox, backend_name: str) -> None:
    """A gap that was closed leaves the list, and one that opens is seen here."""
    gaps = sandbox.describe()["gaps"]
    source = "for i in range(6000):\n    open(f'/tmp/{i}', 'w').close()\nprint('made')"
    many_files = b"made" in sandbox.run(python(source), LIMITS).stdout
    assert many_files == ("number of files" in gaps)
    assert ("burst" in gaps) == (backend_name == "bubblewrap-watchdog")
    children = (
        "import os, time\nfor _ in range(3):\n    if os.fork() == 0:\n        end = time.process_time() + 0.3\n"
        "        while time.process_time() < end: pass\n        os._exit(0)\n    os.wait()"
    )
    low = sandbox.run(python(children), LIMITS).cpu_s < 0.85
    assert not low or "lower bound" in gaps


def test_streams_are_bytes_and_apart(sandbox: Sandbox) -> None:
    source = "import os\nos.write(1, b'out\\r\\n\\xff\\0')\nos.write(2, b'err\\xfe')"
    outcome = sandbox.run(python(source), LIMITS)
    assert (outcome.status, outcome.exit_code) == (Status.EXITED, 0)
    assert outcome.stdout == b"out\r\n\xff\0"
    assert outcome.stderr == b"err\xfe"
    assert outcome.wall_s > 0


def test_stdin_arrives_whole_and_ends(sandbox: Sandbox) -> None:
    data = bytes(range(256)) * 4000
    source = "import sys, hashlib\ndata = sys.stdin.buffer.read()\nprint(len(data), data == bytes(range(256)) * 4000)"
    assert sandbox.run(python(source, stdin=data), LIMITS).stdout == b"1024000 True\n"


def test_a_program_that_reads_no_stdin_ends(sandbox: Sandbox) -> None:
    assert sandbox.run(python("print(1)", stdin=b"x" * (1 << 20)), LIMITS).stdout == b"1\n"


@pytest.mark.parametrize("code", [0, 1, 2, 7, 127])
def test_exit_codes_are_told(sandbox: Sandbox, code: int) -> None:
    outcome = sandbox.run(python(f"import os; os._exit({code})"), LIMITS)
    assert (outcome.status, outcome.exit_code, outcome.signal) == (Status.EXITED, code, None)


@pytest.mark.parametrize("number", [6, 9, 11, 15])
def test_signals_are_told(sandbox: Sandbox, number: int) -> None:
    outcome = sandbox.run(
        python(f"import os, signal; os.kill(os.getpid(), {number})\nimport time; time.sleep(9)"), LIMITS
    )
    assert (outcome.status, outcome.exit_code, outcome.signal) == (Status.SIGNALLED, None, number)


def test_wall_and_cpu_timeouts_are_told_apart(sandbox: Sandbox) -> None:
    idle = sandbox.run(python("import time; time.sleep(100)"), Limits(wall_s=1, cpu_s=50))
    busy = sandbox.run(python("while True: pass"), Limits(wall_s=60, cpu_s=0.5))
    assert (idle.status, idle.limit) == (Status.TIMEOUT, "wall_s")
    assert (busy.status, busy.limit) == (Status.TIMEOUT, "cpu_s")
    assert busy.cpu_s >= 0.4


def test_cpu_time_of_short_lived_children_counts(sandbox: Sandbox) -> None:
    """No single process comes near RLIMIT_CPU here."""
    source = (
        "import os, time\nwhile True:\n    if os.fork() == 0:\n        end = time.process_time() + 0.05\n"
        "        while time.process_time() < end: pass\n        os._exit(0)\n    os.wait()"
    )
    outcome = sandbox.run(python(source), Limits(wall_s=60, cpu_s=0.6))
    assert (outcome.status, outcome.limit) == (Status.TIMEOUT, "cpu_s")


def test_output_so_far_is_kept_on_a_timeout(sandbox: Sandbox) -> None:
    outcome = sandbox.run(
        python("print('so far', flush=True)\nimport time; time.sleep(100)"), Limits(wall_s=2, cpu_s=5)
    )
    assert (outcome.status, outcome.stdout) == (Status.TIMEOUT, b"so far\n")


def test_output_is_cut_at_the_limit(sandbox: Sandbox) -> None:
    exactly = Limits(output_bytes=1000)
    fits = sandbox.run(python("print('x' * 999)"), exactly)
    over = sandbox.run(python("print('x' * 1000)"), exactly)
    assert (fits.status, len(fits.stdout)) == (Status.EXITED, 1000)
    assert (over.status, over.limit) == (Status.OUTPUT_LIMIT, "output_bytes")
    assert len(over.stdout) <= 1000


def test_memory_over_the_limit_is_told_and_under_it_is_let_be(sandbox: Sandbox) -> None:
    source = "x = bytearray(b'x') * ({} << 20)\nprint(len(x))"
    under = sandbox.run(python(source.format(64)), Limits(memory_bytes=192 << 20))
    over = sandbox.run(python(source.format(600)), Limits(memory_bytes=192 << 20))
    assert (under.status, under.stdout) == (Status.EXITED, b"%d\n" % (64 << 20))
    assert (over.status, over.limit) == (Status.KILLED, "memory_bytes")


def test_files_are_placed_where_promised_and_read_only(sandbox: Sandbox) -> None:
    source = (
        "import os\nprint(open('/code/data/deep/table.csv').read(), os.getcwd(), sorted(os.listdir('/code')))\n"
        "for path in ('/code/new', '/code/main.py', '/code/data/x'):\n"
        "    try: open(path, 'w'); print('written', path)\n    except OSError: pass\n"
    )
    program = Program(files={"main.py": source.encode(), "data/deep/table.csv": b"a,b"}, entry="main.py")
    assert sandbox.run(program, LIMITS).stdout == b"a,b /tmp ['data', 'main.py']\n"


def test_arguments_and_environment_are_the_programs_own(sandbox: Sandbox) -> None:
    source = "import os, sys\nprint(sys.argv[1:], os.environ['TZ'], sorted(os.environ))"
    program = python(source, argv=("a b", "$HOME", "é"), environment={"TZ": "Asia/Tokyo"})
    text = sandbox.run(program, LIMITS).stdout.decode()
    assert text.startswith("['a b', '$HOME', 'é'] Asia/Tokyo ")
    names = set(text.split("[", 2)[2].rstrip("]\n").replace("'", "").split(", "))
    assert names <= {"HOME", "HOSTNAME", "LANG", "LC_CTYPE", "PATH", "PWD", "TMPDIR", "TZ"}


def test_the_zone_is_far_from_utc_whatever_the_hosts_is(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    source = "import time\nprint(time.strftime('%z', time.localtime(0)))"
    assert sandbox.run(python(source), LIMITS).stdout == b"+0545\n"


def test_nothing_is_left_for_the_next_program(sandbox: Sandbox) -> None:
    sandbox.run(python("open('/tmp/left', 'w').write('x')"), LIMITS)
    outcome = sandbox.run(python("import os; print(os.listdir('/tmp'))"), LIMITS)
    assert outcome.stdout == b"[]\n"


HONEST = {
    "threads": "import threading\nt = [threading.Thread(target=print, args=('x',)) for _ in range(8)]\n"
    "[x.start() for x in t]; [x.join() for x in t]",
    "processes": "import multiprocessing as m\nif __name__ == '__main__':\n"
    "    with m.get_context('fork').Pool(2) as p: assert p.map(abs, [-1, -2]) == [1, 2]",
    "subprocess": "import subprocess, sys\n"
    "assert subprocess.check_output([sys.executable, '-c', 'print(1)']) == b'1\\n'",
    "temporary files": "import tempfile\nwith tempfile.TemporaryFile() as f: f.write(b'x' * 100000)",
    "a database": "import sqlite3\nc = sqlite3.connect('/tmp/x.db'); c.execute('create table t (a)'); c.commit()",
    "sockets between threads": "import socket\na, b = socket.socketpair(); a.send(b'x'); assert b.recv(1) == b'x'",
    "its own loopback": "import socket\ns = socket.create_server(('127.0.0.1', 0))\n"
    "c = socket.create_connection(s.getsockname()); a, _ = s.accept(); a.send(b'x'); assert c.recv(1) == b'x'",
    "asyncio": "import asyncio\nasyncio.run(asyncio.sleep(0.01))",
    "random and secrets": "import random, secrets, uuid\nsecrets.token_hex(); random.random(); uuid.uuid4()",
    "dates": "import datetime, zoneinfo\ndatetime.datetime.now(zoneinfo.ZoneInfo('Europe/Berlin'))",
    "warnings on stderr": "import warnings\nwarnings.warn('x')",
    "deep recursion": "import sys\nsys.setrecursionlimit(9000)\ndef f(n): return n and f(n - 1)\nf(8000)",
    "a large int": "assert len(str(2 ** 10000)) == 3011",
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_programs_are_let_be(sandbox: Sandbox, name: str) -> None:
    outcome = sandbox.run(python(HONEST[name]), LIMITS)
    assert (outcome.status, outcome.exit_code) == (Status.EXITED, 0), outcome


ENVIRONMENTS = [
    *({"TZ": zone} for zone in ("UTC", "America/New_York", "Asia/Kolkata", "Pacific/Chatham")),
    *({"LANG": locale, "LC_ALL": locale} for locale in ("C", "C.UTF-8", "de_DE.UTF-8")),
    *({"PYTHONHASHSEED": seed} for seed in ("0", "1", "2", "3", "4294967295")),
]


def test_the_hash_seed_is_the_one_asked_for(sandbox: Sandbox) -> None:
    asked = [
        sandbox.run(python("print(hash('x'))", environment={"PYTHONHASHSEED": "7"}), LIMITS).stdout
        for _ in range(2)
    ]
    assert asked[0] == asked[1] != b""


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=str)
def test_honest_program_passes_in_every_environment(sandbox: Sandbox, environment: dict[str, str]) -> None:
    source = (
        "import sys\nrows = sys.stdin.buffer.read().decode('utf-8').split('\\n')\n"
        "sys.stdout.buffer.write(b'%d %d' % (len(set(rows)), '\\u00e9' in rows))"
    )
    outcome = sandbox.run(python(source, stdin="é\na\né".encode(), environment=environment), LIMITS)
    assert outcome.stdout == b"2 1", outcome


LANGUAGES = [
    pytest.param("lua", "main.lua", 'io.write(io.read("a"):upper())', marks=pytest.mark.system("lua")),
    pytest.param(
        "javascript",
        "main.js",
        'process.stdout.write(require("fs").readFileSync(0, "latin1").toUpperCase(), "latin1")',
        marks=pytest.mark.system("node"),
    ),
]


@pytest.mark.parametrize(("language", "entry", "source"), LANGUAGES)
def test_other_languages_run(sandbox: Sandbox, language: str, entry: str, source: str) -> None:
    program = Program(files={entry: source.encode()}, entry=entry, language=language, stdin=b"hello\r\n\x80")
    outcome = sandbox.run(program, LIMITS)
    assert (outcome.status, outcome.exit_code) == (Status.EXITED, 0), outcome
    assert outcome.stdout == b"HELLO\r\n\x80"


def test_session_answers_turn_by_turn(sandbox: Sandbox) -> None:
    source = "import sys\nfor line in sys.stdin: print(line.upper(), end='', flush=True)"
    with sandbox.open(python(source), LIMITS) as session:
        for word in (b"one\n", b"two\n"):
            session.send(word)
            answer = b""
            while not answer.endswith(b"\n"):
                answer += session.receive()
            assert answer == word.upper()
        first = session.close()
        assert session.close() == first


def test_session_says_how_its_program_ended(sandbox: Sandbox) -> None:
    with sandbox.open(python("import sys\nprint('last words', flush=True)\nsys.exit(3)"), LIMITS) as session:
        assert session.receive() == b"last words\n"
        with pytest.raises(SessionEnded) as ended:
            session.receive()
    assert (ended.value.outcome.status, ended.value.outcome.exit_code) == (Status.EXITED, 3)


def test_session_times_out_and_its_clock_can_be_restarted(sandbox: Sandbox) -> None:
    source = "import sys, time\nfor line in sys.stdin: time.sleep(float(line)); print('x', flush=True)"
    with sandbox.open(python(source), Limits(wall_s=3, cpu_s=3)) as session:
        for _ in range(3):
            session.restart_clock()
            session.send(b"1.5\n")
            assert session.receive() == b"x\n"
        session.restart_clock()
        session.send(b"100\n")
        with pytest.raises(SessionEnded) as ended:
            session.receive()
    assert (ended.value.outcome.status, ended.value.outcome.limit) == (Status.TIMEOUT, "wall_s")


def test_the_cpu_allowance_of_a_session_begins_again(sandbox: Sandbox) -> None:
    """RLIMIT_CPU knows only the sum."""
    source = "import sys, time\nfor line in sys.stdin:\n    end = time.process_time() + 0.45\n"
    source += "    while time.process_time() < end: pass\n    print('x', flush=True)"
    with sandbox.open(python(source), Limits(wall_s=30, cpu_s=1)) as session:
        for _ in range(8):
            session.restart_clock()
            session.send(b"go\n")
            assert session.receive() == b"x\n"


def test_session_closed_while_its_program_runs(sandbox: Sandbox) -> None:
    session = sandbox.open(python("import time; time.sleep(100)"), LIMITS)
    outcome = session.close()
    assert (outcome.status, outcome.signal) == (Status.SIGNALLED, 9)


def test_many_at_once_keep_apart(sandbox: Sandbox) -> None:
    results: dict[int, Outcome] = {}

    def one(number: int) -> Callable[[], None]:
        def run() -> None:
            results[number] = sandbox.run(python(f"print({number})"), LIMITS)

        return run

    threads = [threading.Thread(target=one(number)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {number: outcome.stdout for number, outcome in results.items()} == {
        n: b"%d\n" % n for n in range(6)
    }


def test_no_descriptor_is_left_open(sandbox: Sandbox) -> None:
    for _ in range(2):  # a client may keep some connections for later
        sandbox.run(python("print(1)"), LIMITS)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(8):
        sandbox.run(python("print(1)"), LIMITS)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 4


def test_a_missing_interpreter_is_no_fail_of_the_program(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sandbox import interpreters

    monkeypatch.setitem(interpreters.CANDIDATES, "lua", ("/usr/bin/lua-that-is-not-there",))
    if hasattr(sandbox, "_known"):
        monkeypatch.setattr(sandbox, "_known", {})
    program = Program(files={"main.lua": b"print(1)"}, entry="main.lua", language="lua")
    outcome = sandbox.run(program, LIMITS)
    assert outcome.status is Status.INFRA
    assert "install lua5.4" in outcome.detail
    with pytest.raises(SandboxUnavailable, match=r"lua5\.4"):
        sandbox.open(program, LIMITS)
