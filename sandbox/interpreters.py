"""Which interpreter of the host runs a program, and what of the host must be visible for it.

The system's own is preferred: /usr is readable by everyone. Where there is no system Python, the one that
this process was built from is used, at its own path, its prefix bound read-only.
"""

import os
import sys
from pathlib import Path

import msgspec

from sandbox import reach
from sandbox.contract import SandboxUnavailable

CANDIDATES = {
    "python": ("/usr/bin/python3",),
    "lua": ("/usr/bin/lua5.4", "/usr/local/bin/lua5.4"),
    "javascript": ("/usr/bin/node", "/usr/bin/nodejs", "/usr/local/bin/node"),
}
NOT_NEEDED = frozenset({"ensurepip", "idlelib", "lib2to3", "site-packages", "test", "tkinter"})
INSTALL = {"python": "python3", "lua": "lua5.4", "javascript": "nodejs"}


class Interpreter(msgspec.Struct, frozen=True):
    """path: where it is inside. prefix: a directory outside /usr to bind read-only at its own path, or "".
    source: what to bind there, the prefix itself or a copy of it.
    """

    path: str
    prefix: str = ""
    source: str = ""


def identity(language: str) -> str:
    """Which file the interpreter is, its size and its time: another text where another version was installed."""
    try:
        path = os.path.realpath(find(language).path)
        about = Path(path).stat()
    except (OSError, SandboxUnavailable):
        return ""
    return f"{path} {about.st_size} {about.st_mtime_ns}"


def missing(language: str) -> str:
    """What to say, and what to install, where a language has no interpreter."""
    return f"no interpreter for {language}: expected {CANDIDATES[language][0]}; install {INSTALL[language]}"


def find(language: str) -> Interpreter:
    """The interpreter for a language. Raises SandboxUnavailable with the package to install."""
    for path in CANDIDATES[language]:
        if os.access(path, os.X_OK):
            return Interpreter(path)
    if language == "python":
        prefix = Path(sys.base_prefix).resolve()
        for name in (f"python{sys.version_info[0]}.{sys.version_info[1]}", "python3"):
            path = str(prefix / "bin" / name)
            if os.access(path, os.X_OK):
                return Interpreter(
                    path, *([] if prefix.is_relative_to("/usr") else [str(prefix), str(prefix)])
                )
    raise SandboxUnavailable(missing(language))


def copy_of_own(interpreter: Interpreter) -> Interpreter:
    """The same interpreter from a copy that others can read: the program, its shared libraries, its standard library.

    The caller removes `source`. Raises SandboxUnavailable.
    """
    prefix, version = Path(interpreter.prefix), f"python{sys.version_info[0]}.{sys.version_info[1]}"
    parts = [(Path(interpreter.path), str(Path(interpreter.path).relative_to(prefix)))]
    parts += [
        (library, f"lib/{library.name}") for library in (prefix / "lib").glob("*.so*") if library.is_file()
    ]
    parts.append((prefix / "lib" / version, f"lib/{version}"))
    source = reach.copies(parts, skip=NOT_NEEDED)
    return msgspec.structs.replace(interpreter, source=str(source))


def arguments(language: str, environment: dict[str, str]) -> tuple[str, ...]:
    """Options of the interpreter: Python ignores the working directory and, unless the program's environment
    sets a PYTHON variable on purpose, the environment.
    """
    if language == "python":
        return ("-s",) if any(key.startswith("PYTHON") for key in environment) else ("-I",)
    return ()
