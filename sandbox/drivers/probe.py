# ruff: noqa: PTH208, S108
"""The self-test's attacks, run inside a sandbox: `probe.py ATTACK [ARGUMENT…]`.

`facts` tries all that ends by itself and prints what it found as JSON; the others are attacks whose end is seen
from outside. A last argument that begins with "mark:" makes the processes recognisable there.
"""

import ctypes
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable

MEGABYTE = 1 << 20
SYSTEM_CALLS = {  # name: number on x86_64, number on aarch64, first argument
    "io_uring_setup": (425, 425, 1),
    "unshare": (272, 97, 0x10000000),
    "ptrace": (101, 117, 0),
    "keyctl": (250, 219, 0),
}
FAMILIES = {"AF_VSOCK": 40, "AF_NETLINK": 16, "AF_ALG": 38}


def refused_calls() -> "dict[str, bool]":
    """Name of a system call or socket family → True if the kernel refused it."""
    libc = ctypes.CDLL(None, use_errno=True)
    column = 1 if os.uname().machine == "aarch64" else 0
    argument = ctypes.create_string_buffer(256)
    found = {}
    for name, numbers in SYSTEM_CALLS.items():
        child = os.fork()  # a call that isn't refused changes the process that made it
        if child == 0:
            os._exit(0 if libc.syscall(numbers[column], numbers[2], argument, 0, 0, 0) < 0 else 1)
        found[name] = os.waitpid(child, 0)[1] == 0
    for name, family in FAMILIES.items():
        try:
            socket.socket(family, socket.SOCK_STREAM if name == "AF_VSOCK" else socket.SOCK_RAW).close()
            found[name] = False
        except OSError:
            found[name] = True
    return found


def status() -> "dict[str, str]":
    """Lines of /proc/self/status."""
    with open("/proc/self/status") as file:
        return {part[0]: part[2].strip() for part in (line.partition(":") for line in file)}


def parent_uid() -> int:
    """The uid that the parent user namespace sees."""
    with open("/proc/self/uid_map") as file:
        for line in file:
            inside, outside, count = map(int, line.split())
            if inside <= os.getuid() < inside + count:
                return outside + os.getuid() - inside
    return -1


def forks() -> int:
    """How many children could be alive at once, 4096 at most."""
    children: list[int] = []
    try:
        while len(children) < 4096:
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            children.append(child)
    except OSError:
        pass
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return len(children)


def fill(pattern: str, files: int, each: int) -> int:
    """Bytes that could be written to files."""
    total = 0
    try:
        for number in range(files):
            with open(pattern % number, "wb", buffering=0) as file:
                for _ in range(each // MEGABYTE):
                    total += file.write(b"x" * MEGABYTE)
    except OSError:
        pass
    return total


def writable(paths: "list[str]") -> "list[str]":
    """Those of the paths that could be written."""
    found = []
    for path in paths:
        try:
            with open(path, "a") as file:
                file.write("x")
            found.append(path)
        except OSError:
            pass
    return found


def readable(paths: "list[str]") -> "list[str]":
    """Those of the paths from which a byte could be read."""
    found = []
    for path in paths:
        try:
            with open(path, "rb") as file:
                if file.read(1):
                    found.append(path)
        except OSError:
            pass
    return found


def connects(port: int) -> bool:
    """True if the host's loopback can be reached."""
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(("127.0.0.1", port)) == 0


def facts(port: str, *secrets: str) -> None:
    """Everything that ends by itself."""
    lines = status()
    outside = [
        "/etc/x",
        "/usr/x",
        "/x",
        "/dev/x",
        "/code/x",
        "/var/tmp/x",
        "/root/x",
        "/home/x",
        "/run/x",
        "/sys/x",
    ]
    found = {
        "uid": [os.getuid(), parent_uid()],
        "status": {key: lines.get(key, "") for key in ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp")},
        "refused": refused_calls(),
        "connects": connects(int(port)),
        "writable": writable(outside),
        "readable": readable([*secrets, "/etc/shadow", "/dev/mem", "/proc/kcore"]),
        "one_file": fill("/tmp/one%d", 1, 64 * MEGABYTE),
        "all_files": fill("/tmp/many%d", 64, MEGABYTE),
        "processes_seen": sum(entry.isdigit() for entry in os.listdir("/proc")),
        "environment": sorted(os.environ),
        "forks": forks(),
    }
    print(json.dumps(found))


def memory(children: str, megabytes: str) -> None:
    """Children that hold memory together; none alone is over the limit."""
    for _ in range(int(children)):
        if os.fork() == 0:
            held = bytearray(b"x") * (int(megabytes) * MEGABYTE)
            time.sleep(60)
            os._exit(len(held) & 1)
    os.wait()


def detach() -> None:
    """A daemon that ignores signals and keeps standard output open."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            time.sleep(60)
        os._exit(0)


def survive() -> None:
    """End at once, leaving a daemon behind."""
    detach()


def loop() -> None:
    """Leave a daemon behind and never end."""
    detach()
    while True:
        pass


def flood() -> None:
    """Output without end."""
    while True:
        os.write(1, b"x" * MEGABYTE)


def wait() -> None:
    """Say that it runs, then be looked at from outside until standard input ends."""
    os.write(1, b"here")
    sys.stdin.read()


ATTACKS: "dict[str, Callable[..., None]]" = {
    "facts": facts,
    "memory": memory,
    "survive": survive,
    "loop": loop,
    "flood": flood,
    "wait": wait,
}

if __name__ == "__main__":
    ATTACKS[sys.argv[1]](*[argument for argument in sys.argv[2:] if not argument.startswith("mark:")])
