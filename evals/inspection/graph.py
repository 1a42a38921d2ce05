"""An OpenVINO graph (IR) as inspection needs it: read as a stream, in bounded memory and time, no weights.

The file is others'. expat reads it in pieces; a DTD, and with it every entity, is refused (no graph has one), and so is
whatever would make the reader hold more than a graph needs. defusedxml was looked at: its last release is of 2021, and
it does the same three lines over the same expat.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NoReturn
from xml.parsers import expat

import msgspec

from evals.model_dir import MAX_XML, ModelDirError

MAX_LAYERS = 500_000
MAX_DEPTH = 64
MAX_TOKEN = 4 << 20
MAX_INFO = 4096
MAX_SIDE = 1 << 40
_CHUNK = 1 << 18
_BODIES = frozenset({"body", "then_body", "else_body"})

BITS = {
    "f64": 64, "i64": 64, "u64": 64, "f32": 32, "i32": 32, "u32": 32, "f16": 16, "bf16": 16, "i16": 16, "u16": 16,
    "i8": 8, "u8": 8, "boolean": 8, "f8e4m3": 8, "f8e5m2": 8, "f8e8m0": 8, "i4": 4, "u4": 4, "nf4": 4, "f4e2m1": 4,
    "u3": 3, "u6": 6, "u2": 2, "u1": 1,
}  # fmt: skip
"""Bits of an element, of the types that have a fixed size."""

_SIZELESS = frozenset({"string", "dynamic", "undefined"})


class Const(msgspec.Struct, frozen=True):
    """A constant and where it lies in the weights file, in bytes. shape: () for a scalar."""

    name: str
    type: str
    shape: tuple[int, ...]
    offset: int
    size: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


class Port(msgspec.Struct, frozen=True):
    """An input, output or state of a graph. shape: None for a side that is free."""

    name: str
    type: str
    shape: tuple[int | None, ...]


class Graph(msgspec.Struct, frozen=True):
    """A graph's layers by key (the id; those of a loop's body with a prefix) and who feeds whom.

    types, names: of each layer. inputs: key → [(input port, feeding key)]. consumers: key → [(their input port, key)].
    parameters, results: of the graph itself, bodies left out. info: the runtime information, "a/b" → value.
    needed: the end of the last constant, in bytes.
    """

    file: Path
    types: dict[str, str]
    names: dict[str, str]
    consts: dict[str, Const]
    inputs: dict[str, list[tuple[int, str]]]
    consumers: dict[str, list[tuple[int, str]]]
    parameters: tuple[Port, ...]
    results: tuple[Port, ...]
    states: tuple[Port, ...]
    info: dict[str, str]
    needed: int

    @property
    def weights_file(self) -> Path:
        return self.file.with_suffix(".bin")


def read_graph(file: Path) -> Graph:
    """Read a graph. Raises ModelDirError for a file that is no graph, or larger or deeper than any graph is."""
    reader = _Reader(file)
    try:
        size = file.stat().st_size
        if size > MAX_XML:
            _refuse(file, f"{size} bytes (at most {MAX_XML} are read)")
        with file.open("rb") as stream:
            fed = 0
            while chunk := stream.read(_CHUNK):
                fed += len(chunk)
                reader.feed(chunk, fed)
        return reader.close()
    except OSError as error:
        raise ModelDirError(f"{file}: cannot be read ({error}). Check its permissions.") from error
    except expat.ExpatError as error:
        _refuse(file, str(error))
    except (ValueError, KeyError) as error:
        if isinstance(error, ModelDirError):
            raise
        _refuse(file, f"{type(error).__name__} at line {reader.line}: {str(error)[:120]}")


def _refuse(file: Path, found: str) -> NoReturn:
    raise ModelDirError(
        f"{file}: expected an OpenVINO graph, found: {found}. The file is damaged or foreign: fetch or export it again."
    )


class _Reader:
    """expat's handlers and what they gather."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._types: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._consts: dict[str, Const] = {}
        self._inputs: dict[str, list[tuple[int, str]]] = {}
        self._consumers: dict[str, list[tuple[int, str]]] = {}
        self._parameters: list[Port] = []
        self._results: list[Port] = []
        self._states: list[Port] = []
        self._info: dict[str, str] = {}
        self._path: list[str] = []
        self._scopes = [""]
        self._bodies = 0
        self._layers: list[tuple[str, str, dict[str, str]]] = []
        self._dims: list[int | None] = []
        self._text = ""
        self._needed = 0
        self._parser = expat.ParserCreate("UTF-8")  # whatever the file declares: no other codec is looked up
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.StartDoctypeDeclHandler = self._doctype

    @property
    def line(self) -> int:
        return self._parser.CurrentLineNumber

    def feed(self, chunk: bytes, fed: int) -> None:
        self._parser.Parse(chunk)
        if fed - max(self._parser.CurrentByteIndex, 0) > MAX_TOKEN:
            _refuse(self._file, f"an element of over {MAX_TOKEN} bytes at line {self.line}")

    def close(self) -> Graph:
        self._parser.Parse(b"", True)
        if not self._types:
            _refuse(self._file, "no layer")
        return Graph(
            file=self._file,
            types=self._types,
            names=self._names,
            consts=self._consts,
            inputs=self._inputs,
            consumers=self._consumers,
            parameters=tuple(self._parameters),
            results=tuple(self._results),
            states=tuple(self._states),
            info=self._info,
            needed=self._needed,
        )

    def _doctype(self, *_: object) -> None:
        _refuse(self._file, "a document type declaration")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._path.append(tag)
        depth = len(self._path)
        if depth > MAX_DEPTH:
            _refuse(self._file, f"elements nested over {MAX_DEPTH} deep")
        if tag == "port":
            return
        if tag == "dim":
            if self._layers and self._layers[-1][1] == "Result":
                self._text = ""
                self._parser.CharacterDataHandler = self._characters
        elif tag == "layer":
            self._layer(attributes)
        elif tag == "edge" and self._path[-2:-1] == ["edges"]:
            self._edge(attributes)
        elif tag == "data":
            self._data(attributes)
        elif tag in _BODIES:
            self._bodies += 1
            self._scopes.append(f"{self._bodies}/")
        elif depth == 1 and tag != "net":
            _refuse(self._file, f"<{tag[:40]}>")
        elif depth > 2 and self._path[1] == "rt_info" and "value" in attributes:
            if len(self._info) >= MAX_INFO:
                _refuse(self._file, f"over {MAX_INFO} entries of runtime information")
            self._info["/".join([*self._path[2:-1], attributes.get("name", tag)])] = attributes["value"]

    def _end(self, tag: str) -> None:
        self._path.pop()
        if tag == "port":
            return
        if tag == "dim":
            if self._parser.CharacterDataHandler is not None:
                self._parser.CharacterDataHandler = None
                self._dims.append(_side(self._text))
        elif tag == "layer":
            key, kind, attributes = self._layers.pop()
            if kind == "Result" and "/" not in key:
                name = attributes.get("output_names", attributes.get("name", ""))
                self._results.append(Port(name=name[:200], type="", shape=tuple(self._dims)))
        elif tag in _BODIES:
            self._scopes.pop()

    def _characters(self, text: str) -> None:
        self._text = (self._text + text)[:32]

    def _layer(self, attributes: dict[str, str]) -> None:
        key = self._scopes[-1] + attributes["id"]
        if key in self._types:
            _refuse(self._file, f"two layers with id {key[:40]}")
        if len(self._types) >= MAX_LAYERS:
            _refuse(self._file, f"over {MAX_LAYERS} layers")
        kind = attributes["type"]
        self._types[key] = kind
        self._names[key] = attributes.get("name", "")
        self._layers.append((key, kind, attributes))
        self._dims = []

    def _edge(self, attributes: dict[str, str]) -> None:
        scope = self._scopes[-1]
        source, to = scope + attributes["from-layer"], scope + attributes["to-layer"]
        if source not in self._types or to not in self._types:
            _refuse(self._file, f"an edge to a layer that isn't there, at line {self.line}")
        port = int(attributes["to-port"])
        self._inputs.setdefault(to, []).append((port, source))
        self._consumers.setdefault(source, []).append((port, to))

    def _data(self, attributes: dict[str, str]) -> None:
        if self._path[-2:-1] != ["layer"]:
            return
        key, kind, layer = self._layers[-1]
        if kind == "Const":
            shape = tuple(int(side) for side in attributes["shape"].split(",") if side.strip())
            const = Const(
                name=layer.get("name", ""),
                type=attributes["element_type"],
                shape=shape,
                offset=int(attributes["offset"]),
                size=int(attributes["size"]),
            )
            self._check(const)
            self._consts[key] = const
            self._needed = max(self._needed, const.offset + const.size)
        elif kind == "Parameter" and "/" not in key:
            self._parameters.append(
                Port(layer.get("name", ""), attributes["element_type"], _shape(attributes["shape"]))
            )
        elif kind == "ReadValue":
            shown = _shape(attributes.get("variable_shape", ""))
            self._states.append(Port(attributes["variable_id"], attributes.get("variable_type", ""), shown))

    def _check(self, const: Const) -> None:
        name = const.name[-80:]
        if const.offset < 0 or const.size < 0 or len(const.shape) > 16:
            _refuse(self._file, f"constant {name} at offset {const.offset} with {const.size} bytes")
        if any(not 0 <= side < MAX_SIDE for side in const.shape):
            _refuse(self._file, f"constant {name} of shape {list(const.shape)[:8]}")
        bits = BITS.get(const.type)
        if bits is None and const.type not in _SIZELESS:
            _refuse(self._file, f"constant {name} of type {const.type[:40]}, which isn't one of OpenVINO's")
        if bits and const.size != math.ceil(const.elements * bits / 8):
            found = f"constant {name} of shape {list(const.shape)} {const.type} with {const.size} bytes"
            _refuse(self._file, found)


def _shape(text: str) -> tuple[int | None, ...]:
    return tuple(_side(side) for side in text[:512].split(",") if side.strip())


def _side(text: str) -> int | None:
    """A side's length, None where it is free ("?", "-1", a range)."""
    text = text.strip()
    if text.isascii() and text.isdigit() and len(text) < 16:
        return int(text)
    return None
