# ruff: noqa: PTH100, PTH118, PTH120, UP031, UP037, UP045
"""The Python driver of function mode, and the encoding of values that both sides use.

Inside: `python -I driver.py ENTRY` loads program.py beside it and answers requests. It knows no expected result; it
sends back what the function returned as plain built-in values, and the comparison is made outside.

A request is `ID LENGTH\\n` and an encoded pair: the list of arguments, the dict of keyword arguments. The first one
loads the program.
A reply is `ID KIND LENGTH\\n` and a body: kind r, an encoded value; e, the name of the exception's type; u, the name
of a type that can't be sent.

A value is a letter and its body: n None; t True; f False; iHEX; an int; dHEX16 a float (big-endian IEEE 754);
sLENGTH:BYTES a str in UTF-8 (lone surrogates passed); bLENGTH:BYTES bytes; lCOUNT; uCOUNT; eCOUNT; zCOUNT; a list,
tuple, set, frozenset and their items; mCOUNT; a dict and its keys and values in turn.
"""

import os
import struct
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:  # a program waits for its driver: typing and collections would double the time to load it
    from collections.abc import Callable, Iterable  # noqa: F401 (in strings only)
    from typing import Optional, cast
else:

    def cast(_, value):
        return value


DEPTH = 50
CROWDED = 64
_ITEMS: "dict[type, bytes]" = {list: b"l", tuple: b"u", set: b"e", frozenset: b"z"}
_MAKE = {b"l": list, b"u": tuple, b"e": set, b"z": frozenset}
# standard subclasses of dict whose own equality is dict's: sent as what they hold
_DICTS = ("OrderedDict", "defaultdict", "Counter")


class Unsupported(TypeError):
    """A value whose exact type isn't one of the built-in ones above; the message is the type's name."""


class Malformed(ValueError):
    """Bytes that are no encoded value."""


def encode(value: object, depth: int = 0) -> bytes:
    """Bytes of a value. Raises Unsupported: subclasses, cycles and nesting over DEPTH included."""
    kind = type(value)
    if value is None:
        return b"n"
    # `kind is`, not isinstance: a subclass may compare equal to anything
    if kind is bool:
        return b"t" if value else b"f"
    if kind is int:
        return b"i%s;" % format(value, "x").encode()
    if kind is float:
        return b"d" + struct.pack(">d", value).hex().encode()
    if kind is str:
        text = cast("str", value).encode("utf-8", "surrogatepass")
        return b"s%d:%s" % (len(text), text)
    if kind is bytes:
        return b"b%d:%s" % (len(cast("bytes", value)), cast("bytes", value))
    if depth >= DEPTH:
        raise Unsupported("nesting deeper than %d" % DEPTH)
    if kind in _ITEMS:
        items = [encode(item, depth + 1) for item in cast("Iterable[object]", value)]
        return b"%s%d;%s" % (_ITEMS[kind], len(items), b"".join(items))
    if kind is dict or _is_standard_dict(kind):
        held = dict.items(cast("dict[object, object]", value))
        pairs = [encode(key, depth + 1) + encode(item, depth + 1) for key, item in held]
        return b"m%d;%s" % (len(pairs), b"".join(pairs))
    raise Unsupported(kind.__name__[:100])


def _is_standard_dict(kind: type) -> bool:
    collections = sys.modules.get("collections")
    return collections is not None and any(kind is getattr(collections, name) for name in _DICTS)


def decode(data: bytes) -> object:
    """The value of `encode`'s bytes. Raises Malformed for anything else; takes time linear in the length."""
    try:
        value, end = _decode(data, 0, 0)
    except (ValueError, TypeError, IndexError, OverflowError, struct.error) as error:
        raise Malformed(str(error)[:100]) from None
    if end != len(data):
        raise Malformed("%d bytes after the value" % (len(data) - end))
    return value


def _decode(data: bytes, at: int, depth: int) -> "tuple[object, int]":
    tag, at = data[at : at + 1], at + 1
    if tag in (b"n", b"t", b"f"):
        return {b"n": None, b"t": True, b"f": False}[tag], at
    if tag == b"d":
        return struct.unpack(">d", bytes.fromhex(data[at : at + 16].decode("ascii")))[0], at + 16
    if tag == b"i":
        end = data.index(b";", at)
        return int(data[at:end], 16), end + 1
    if tag in (b"s", b"b"):
        end = data.index(b":", at, at + 12)
        start = end + 1
        stop = start + _count(data[at:end], len(data) - start)
        body = data[start:stop]
        return (body.decode("utf-8", "surrogatepass") if tag == b"s" else body), stop
    if tag not in (b"l", b"u", b"e", b"z", b"m") or depth >= DEPTH:
        raise Malformed("no value at byte %d" % (at - 1))
    end = data.index(b";", at, at + 12)
    count = _count(data[at:end], len(data) - end)
    at = end + 1
    items = []
    for _ in range(count * 2 if tag == b"m" else count):
        item, at = _decode(data, at, depth + 1)
        items.append(item)
    if tag == b"m":
        _refuse_collisions(items[::2])
        return dict(zip(items[::2], items[1::2])), at  # noqa: B905 (older interpreters)
    if tag in (b"e", b"z"):
        _refuse_collisions(items)
    return _MAKE[tag](items), at


def _count(digits: bytes, at_most: int) -> int:
    if not digits.isdigit() or int(digits) > at_most:
        raise Malformed("a length that doesn't fit")
    return int(digits)


def _refuse_collisions(keys: "list[object]") -> None:
    """Keys chosen to share a hash would make a set or dict of them take quadratic time."""
    if len(keys) <= CROWDED:
        return
    seen: "dict[int, int]" = {}
    for key in keys:
        seen[hash(key)] = seen.get(hash(key), 0) + 1
    if max(seen.values()) > CROWDED:
        raise Malformed("keys chosen to collide")


def run_source(source: bytes, name: str) -> types.ModuleType:
    """Run a source as a module of that name. Raises whatever it raises."""
    module = types.ModuleType(name)
    module.__file__ = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".py")
    sys.modules[name] = module
    exec(compile(source, name + ".py", "exec"), module.__dict__)  # noqa: S102 (what this file is for)
    return module


def _load(entry: str) -> "Callable[..., object]":
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "program.py"), "rb") as file:
        return cast("Callable[..., object]", getattr(run_source(file.read(), "program"), entry))


def main() -> None:
    """Answer requests until the end of input."""
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # whatever the program prints is no answer
    function: "Optional[Callable[..., object]]" = None
    for line in requests:
        identity, length = line.split()
        asked = decode(requests.read(int(length)))
        arguments, keywords = cast("tuple[list[object], dict[str, object]]", asked)
        kind, body, result = b"r", b"", cast("object", None)
        try:
            if function is None:
                function = _load(sys.argv[1])
            else:
                result = function(*arguments, **keywords)
        except BaseException as error:
            kind, body = b"e", type(error).__name__[:100].encode("utf-8", "replace")
        if kind == b"r":
            try:
                body = encode(result)
            except BaseException as error:
                kind, body = b"u", str(error)[:100].encode("utf-8", "replace")
        reply = memoryview(b"%s %s %d\n%s" % (identity, kind, len(body), body))
        while reply:
            reply = reply[os.write(replies, reply) :]


if __name__ == "__main__":
    main()
