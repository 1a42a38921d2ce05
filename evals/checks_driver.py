"""Runs inside a sandbox of its own: calls a data set's checks with a stand-in for the answer's function.

`python -I checks_driver.py` loads checks.py beside it. Each message, in and out, is `LENGTH\\n` and an encoded list
(`sandbox.drivers.python_driver`, which lies beside it too). In: ["run", name], then for every call ["returned", value],
["raised", type name] or ["gone"]. Out: ["call", arguments] and at last ["done", outcome, sentence]; the outcome is
passed, failed (AssertionError), raised (an exception of the program that no check caught) or broken.
"""

import builtins
import os
import sys
import types
from collections.abc import Callable


class Gone(BaseException):
    """The program ended, so no call can be answered; no check may catch this as an Exception."""


def load(name: str, path: str) -> types.ModuleType:
    """The module in the file at `path`."""
    module = types.ModuleType(name)
    module.__file__ = path
    sys.modules[name] = module
    with open(path, "rb") as file:
        source = file.read()
    exec(compile(source, path, "exec"), module.__dict__)  # noqa: S102 (what this file is for)
    return module


class Relay:
    """The channel to the grader, and the stand-in that it makes calls through."""

    def __init__(self, codec: types.ModuleType) -> None:
        self.codec = codec
        self.requests = os.fdopen(os.dup(0), "rb")
        self.replies = os.fdopen(os.dup(1), "wb")
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)  # whatever the checks print is no message
        self.raised: list[Exception] = []

    def receive(self) -> "list[object] | None":
        line = self.requests.readline()
        return self.codec.decode(self.requests.read(int(line))) if line else None

    def send(self, message: "list[object]") -> None:
        body = self.codec.encode(message)
        self.replies.write(b"%d\n%s" % (len(body), body))
        self.replies.flush()

    def candidate(self, *arguments: object) -> object:
        """What the checks get in place of the answer's function."""
        self.send(["call", list(arguments)])
        kind, *rest = self.receive() or ["gone"]
        if kind == "returned":
            return rest[0]
        if kind == "raised":
            self.raised.append(error(str(rest[0])))
            raise self.raised[-1]
        raise Gone

    def run(self, check: "Callable[[object], object]") -> "list[object]":
        """The outcome of one check, and a sentence."""
        del self.raised[:]
        try:
            check(self.candidate)
        except BaseException as caught:
            name = type(caught).__name__[:100]
            if any(caught is one for one in self.raised):
                return ["done", "raised", name]
            text = str(caught)[:200].encode("utf-8", "replace").decode()
            return ["done", "failed" if isinstance(caught, AssertionError) else "broken", f"{name}: {text}"]
        return ["done", "passed", ""]


def error(name: str) -> Exception:
    """An exception of the built-in type of that name, or of a new type."""
    kind: object = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind("raised by the program")
        except TypeError:  # a type that wants more than a message
            pass
    made: Exception = type(name, (Exception,), {})("raised by the program")
    return made


def main() -> None:
    """Run checks until the end of input."""
    relay = Relay(load("python_driver", "/code/python_driver.py"))
    checks, fault = None, ""
    try:
        checks = load("checks", "/code/checks.py")
    except BaseException as caught:
        fault = f"{type(caught).__name__} while loading the checks"
    while True:
        message = relay.receive()
        if message is None:
            return
        check = getattr(checks, str(message[1]), None)
        if check is None:
            relay.send(["done", "broken", fault or f"the checks define no {message[1]}"])
        else:
            relay.send(relay.run(check))


if __name__ == "__main__":
    main()
