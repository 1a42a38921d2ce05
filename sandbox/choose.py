"""Which sandbox a run uses: the one that was named, or the first that passes its self-test."""

from collections.abc import Callable, Sequence

from sandbox.contract import Probe, Sandbox, SandboxUnavailable


def _bubblewrap() -> Sandbox:
    from sandbox.bubblewrap import Bubblewrap

    return Bubblewrap()


def _docker() -> Sandbox:
    try:
        from sandbox.docker_backend import DockerSandbox
    except ImportError as error:
        raise SandboxUnavailable(
            f"docker: {error}; install it with `pip install 'mtp-gate[docker]'`"
        ) from error
    return DockerSandbox()


BACKENDS: dict[str, Callable[[], Sandbox]] = {"bubblewrap": _bubblewrap, "docker": _docker}


def failures(probes: Sequence[Probe]) -> str:
    """The failed probes, one a line; "" if all passed and there was one."""
    if not probes:
        return "  no probe ran"
    return "\n".join(
        f"  {probe.name}: expected {probe.expected}, found {probe.found}; {probe.remedy}"
        for probe in probes
        if not probe.passed
    )


def choose(name: str | None = None) -> Sandbox:
    """The backend of that name, or the first of BACKENDS, that can be made and passes its self-test just now.

    Raises SandboxUnavailable with every reason and what to do; ValueError for a name that isn't one.
    """
    if name is not None and name not in BACKENDS:
        raise ValueError(f"--sandbox: expected one of {', '.join(BACKENDS)}, found {name!r}")
    reasons = []
    for candidate in [name] if name else list(BACKENDS):
        try:
            sandbox = BACKENDS[candidate]()
        except SandboxUnavailable as error:
            reasons.append(f"{candidate}: {error}")
            continue
        failed = failures(sandbox.self_test())
        if not failed:
            return sandbox
        sandbox.close()
        reasons.append(f"{candidate} isn't to be trusted here:\n{failed}")
    raise SandboxUnavailable("no sandbox that could be trusted.\n" + "\n".join(reasons))
