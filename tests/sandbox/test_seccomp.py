"""The threat: a filter that is off by one jump, or knows the numbers of another architecture, lets through what it
names.

The program is run here by a small interpreter of classic BPF, against every system call of this machine's headers.
"""

from __future__ import annotations

import errno
import re
import struct
from pathlib import Path

import pytest

from sandbox import seccomp
from sandbox.contract import SandboxUnavailable
from sandbox.docker_seccomp import ALLOWED, profile

HEADERS = {
    "x86_64": (Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), r"#define __NR_(\w+)\s+(\d+)"),
    "aarch64": (Path("/usr/include/asm-generic/unistd.h"), r"#define __NR(?:3264)?_(\w+)\s+(\d+)"),
}
ALLOW, EPERM, ENOSYS, KILL = 0x7FFF0000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS, 0x80000000


def run(program: bytes, number: int, machine: str, *arguments: int) -> int:
    """What the filter decides about a call."""
    data = struct.pack(
        "<IIQ6Q", number, seccomp.AUDIT_ARCH[machine], 0, *(*arguments, *[0] * (6 - len(arguments)))
    )
    code = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    at = accumulator = 0
    while True:
        operation, true, false, value = code[at]
        at += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif operation == 0x54:
            accumulator &= value
        elif operation == 0x06:
            return value
        else:
            holds = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: accumulator & value != 0}[
                operation
            ]
            at += true if holds else false


@pytest.mark.parametrize("machine", seccomp.AUDIT_ARCH)
@pytest.mark.parametrize("counted", [True, False])
def test_every_denied_call_is_refused_and_no_other(machine: str, counted: bool) -> None:
    program = seccomp.program(machine, counted=counted)
    column = list(seccomp.AUDIT_ARCH).index(machine)
    denied = {pair[column] for pair in seccomp.DENIED.values()}
    if not counted:
        denied |= {pair[column] for pair in seccomp.UNCOUNTED.values()}
    special = {seccomp.CLONE3, seccomp.SOCKET[column], seccomp.SOCKETPAIR[column], seccomp.CLONE[column]}
    for number in set(range(600)) - special:
        assert run(program, number, machine) == (EPERM if number in denied else ALLOW), number
    assert run(program, seccomp.CLONE3, machine) == ENOSYS


def test_what_must_be_closed_is_named() -> None:
    must = "ptrace io_uring_setup io_uring_enter unshare setns mount umount2 keyctl add_key bpf userfaultfd"
    must += " perf_event_open process_vm_readv process_vm_writev open_by_handle_at kexec_load init_module reboot chroot"
    assert set(must.split()) <= set(seccomp.DENIED)


@pytest.mark.parametrize("machine", seccomp.AUDIT_ARCH)
def test_sockets_by_family_kind_and_protocol(machine: str) -> None:
    program = seccomp.program(machine)
    column = list(seccomp.AUDIT_ARCH).index(machine)
    for number in (seccomp.SOCKET[column], seccomp.SOCKETPAIR[column]):
        for family in range(64):
            expected = ALLOW if family in (1, 2, 10) else EPERM
            assert run(program, number, machine, family, 1 | 0o2004000, 0) == expected
        for kind in range(16):
            assert run(program, number, machine, 2, kind, 0) == (ALLOW if kind in (1, 2, 5) else EPERM)
        for protocol in (0, 1, 6, 17, 33, 132, 255, 262):
            assert run(program, number, machine, 2, 1, protocol) == (
                ALLOW if protocol in (0, 6, 17) else EPERM
            )


@pytest.mark.parametrize("machine", seccomp.AUDIT_ARCH)
@pytest.mark.parametrize(
    "flag", [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000]
)
def test_clone_makes_no_namespace(machine: str, flag: int) -> None:
    program = seccomp.program(machine)
    number = seccomp.CLONE[list(seccomp.AUDIT_ARCH).index(machine)]
    assert run(program, number, machine, flag | 17) == EPERM
    assert run(program, number, machine, 0x3D0F00) == ALLOW  # a thread of glibc


def test_other_architectures_are_killed_or_refused() -> None:
    program = seccomp.program("x86_64")
    assert run(program, 1, "aarch64") == KILL
    assert run(program, 0x40000000 + 1, "x86_64") == KILL
    with pytest.raises(SandboxUnavailable, match=r"expected one of .*found 's390x'"):
        seccomp.program("s390x")


def test_numbers_are_those_of_the_kernels_headers() -> None:
    """Of those headers that are here: both architectures' come with linux-libc-dev."""
    for machine, (path, pattern) in HEADERS.items():
        if not path.exists():
            continue
        known = {name: int(number) for name, number in re.findall(pattern, path.read_text())}
        column = list(seccomp.AUDIT_ARCH).index(machine)
        named = {
            **seccomp.DENIED, **seccomp.UNCOUNTED,
            "clone": seccomp.CLONE, "socket": seccomp.SOCKET, "socketpair": seccomp.SOCKETPAIR,
        }  # fmt: skip
        wrong = {
            name: pair[column]
            for name, pair in named.items()
            if name in known and known[name] != pair[column]
        }
        assert wrong == {}
        assert sum(name in known for name in named) > 50


def test_the_docker_profile_allows_nothing_that_the_filter_denies() -> None:
    rules = profile()["syscalls"]
    assert profile()["defaultAction"] == "SCMP_ACT_ERRNO"
    unconditional = {
        name
        for rule in rules
        if not rule["args"] and rule["action"] == "SCMP_ACT_ALLOW"
        for name in rule["names"]
    }
    assert unconditional == set(ALLOWED)
    assert not unconditional & {*seccomp.DENIED, "socket", "socketpair", "clone", "clone3", "umount"}
    families = [rule["args"][0]["value"] for rule in rules if "socket" in rule["names"]]
    assert families == [1, 2, 10]
