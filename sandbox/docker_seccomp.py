"""The system-call profile that is handed to Docker, in its JSON form.

An allow list, since Docker's own default is one and a deny list in its place would open whatever the kernel gains.
Against Docker's default it closes ptrace, io_uring, process_vm_*, AF_VSOCK, AF_NETLINK and every other family but
unix and IP, keeps user namespaces shut, and makes clone3 fail with ENOSYS so that glibc falls back to clone.
"""

import errno
from typing import Any

from sandbox.seccomp import AF_INET, AF_INET6, AF_UNIX, CLONE_NEW_NAMESPACE

ALLOWED = """
accept accept4 access alarm arch_prctl bind brk capget capset chdir chmod chown clock_getres clock_gettime
clock_nanosleep close close_range connect copy_file_range creat dup dup2 dup3 epoll_create epoll_create1
epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 execve execveat exit exit_group faccessat
faccessat2 fadvise64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr
flistxattr flock fork fremovexattr fsetxattr fstat fstatfs fsync ftruncate futex futex_waitv get_robust_list
getcpu getcwd getdents getdents64 getegid geteuid getgid getgroups getitimer getpeername getpgid getpgrp
getpid getppid getpriority getrandom getresgid getresuid getrlimit getrusage getsid getsockname getsockopt
gettid gettimeofday getuid getxattr inotify_add_watch inotify_init inotify_init1 inotify_rm_watch ioctl
ioprio_get kill lchown lgetxattr link linkat listen listxattr llistxattr lremovexattr lseek lsetxattr lstat
madvise membarrier memfd_create mincore mkdir mkdirat mlock mlock2 mlockall mmap mprotect mremap msync
munlock munlockall munmap nanosleep newfstatat open openat openat2 pause pidfd_open pidfd_send_signal pipe
pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll prctl pread64 preadv preadv2 prlimit64 pselect6 pwrite64
pwritev pwritev2 read readahead readlink readlinkat readv recvfrom recvmmsg recvmsg removexattr rename
renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo
rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min
sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_setaffinity
sched_yield select semctl semget semop semtimedop sendfile sendmmsg sendmsg sendto set_robust_list
set_tid_address setfsgid setfsuid setgid setgroups setitimer setpgid setpriority setregid setresgid
setresuid setreuid setrlimit setsid setsockopt setuid setxattr shmat shmctl shmdt shmget shutdown
sigaltstack signalfd signalfd4 splice stat statfs statx symlink symlinkat sync sync_file_range sysinfo tee
tgkill time timer_create timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create
timerfd_gettime timerfd_settime times tkill truncate umask uname unlink unlinkat utime utimensat utimes
vfork vmsplice wait4 waitid write writev
""".split()  # noqa: SIM905 (a name a line would hide the rest)


def profile() -> dict[str, Any]:
    """The profile, to be serialised into `--security-opt seccomp=…`."""

    def allow(names: list[str], *args: dict[str, Any]) -> dict[str, Any]:
        return {"names": names, "action": "SCMP_ACT_ALLOW", "args": list(args)}

    def family(number: int) -> dict[str, Any]:
        return allow(["socket", "socketpair"], {"index": 0, "value": number, "op": "SCMP_CMP_EQ"})

    no_namespace = {"index": 0, "value": CLONE_NEW_NAMESPACE, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": errno.EPERM,
        "archMap": [
            {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": []},
            {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": []},
        ],
        "syscalls": [
            allow(ALLOWED),
            *map(family, (AF_UNIX, AF_INET, AF_INET6)),
            allow(["clone"], no_namespace),
            {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS, "args": []},
        ],
    }
