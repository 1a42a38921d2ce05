"""The system-call filter of the bubblewrap backend, as a classic BPF program for `bwrap --seccomp`.

A deny list: what a language runtime needs stays open, what reaches past a namespace or widens the kernel's
surface is refused (ptrace, io_uring, bpf, keyrings, mounts, new namespaces, sockets other than unix and IP).
Numbers: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h (aarch64), Linux 6.18.
"""

import errno
import platform
import struct

from sandbox.contract import SandboxUnavailable

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
CLONE3 = 435
# (x86_64, aarch64); None where the architecture lacks the call
CLONE = (56, 220)
SOCKET = (41, 198)
SOCKETPAIR = (53, 199)
DENIED: dict[str, tuple[int | None, int | None]] = {
    "_sysctl": (156, None),
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "get_mempolicy": (239, 236),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "mbind": (237, 235),
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "set_mempolicy": (238, 237),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
# memory that belongs to no process's map, which only a control group can count
UNCOUNTED: dict[str, tuple[int | None, int | None]] = {"memfd_create": (319, 279), "shmget": (29, 194)}
CLONE_NEW_NAMESPACE = 0x7E020000
AF_UNIX, AF_INET, AF_INET6 = 1, 2, 10

_LOAD, _EQ, _GE, _SET, _RETURN, _AND = 0x20, 0x15, 0x35, 0x45, 0x06, 0x54
_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_EPERM = 0x00050000 | errno.EPERM
_ENOSYS = 0x00050000 | errno.ENOSYS
_NR, _ARCH, _ARG0, _ARG1, _ARG2 = 0, 4, 16, 24, 32  # offsets in struct seccomp_data, low words


def _op(code: int, k: int, true: int = 0, false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, true, false, k)


def _socket_rule(number: int) -> bytes:
    """Unix, IPv4 and IPv6; stream, datagram or (unix) seqpacket; the default protocol, TCP or UDP."""
    body = [
        _op(_LOAD, _ARG0),
        _op(_EQ, AF_UNIX, true=3),
        _op(_EQ, AF_INET, true=2),
        _op(_EQ, AF_INET6, true=1),
        _op(_RETURN, _EPERM),
        _op(_LOAD, _ARG1),
        _op(_AND, 0xF),
        _op(_EQ, 1, true=3),
        _op(_EQ, 2, true=2),
        _op(_EQ, 5, true=1),
        _op(_RETURN, _EPERM),
        _op(_LOAD, _ARG2),
        _op(_EQ, 0, true=3),
        _op(_EQ, 6, true=2),
        _op(_EQ, 17, true=1),
        _op(_RETURN, _EPERM),
        _op(_RETURN, _ALLOW),
    ]
    return _op(_EQ, number, false=len(body)) + b"".join(body)


def program(machine: str | None = None, *, counted: bool = True) -> bytes:
    """The filter for a machine (default: this one), as an array of struct sock_filter.

    counted: a control group bounds memory; without one, calls that make memory no process maps are refused too.
    Raises SandboxUnavailable for an architecture whose numbers aren't known.
    """
    machine = machine or platform.machine()
    if machine not in AUDIT_ARCH:
        raise SandboxUnavailable(
            f"seccomp filter: expected one of {sorted(AUDIT_ARCH)}, found {machine!r}; use --sandbox docker"
        )
    column = list(AUDIT_ARCH).index(machine)
    code = [_op(_LOAD, _ARCH), _op(_EQ, AUDIT_ARCH[machine], true=1), _op(_RETURN, _KILL), _op(_LOAD, _NR)]
    if machine == "x86_64":  # the x32 variants of every call begin here
        code += [_op(_GE, 0x40000000, false=1), _op(_RETURN, _KILL)]
    # clone3 passes its flags by pointer, which no filter can read; glibc falls back to clone
    code += [_op(_EQ, CLONE3, false=1), _op(_RETURN, _ENOSYS)]
    code += [_socket_rule(SOCKET[column]), _socket_rule(SOCKETPAIR[column])]
    code += [
        _op(_EQ, CLONE[column], false=4),
        _op(_LOAD, _ARG0),
        _op(_SET, CLONE_NEW_NAMESPACE, false=1),
        _op(_RETURN, _EPERM),
        _op(_RETURN, _ALLOW),
    ]
    denied = [pair[column] for pair in (DENIED if counted else {**DENIED, **UNCOUNTED}).values()]
    numbers = sorted(number for number in denied if number is not None)
    for index, number in enumerate(numbers):
        code.append(_op(_EQ, number, true=len(numbers) - index))
    code += [_op(_RETURN, _ALLOW), _op(_RETURN, _EPERM)]
    return b"".join(code)
