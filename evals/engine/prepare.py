"""Before the first answer: prompts rendered by the model's own chat template, and what the device makes of settings.

Both need heavy imports (transformers, openvino), so they run side by side in two short-lived children. The template is
others' code: it runs in transformers' sandboxed jinja, in a process with a time limit, and nothing is fetched.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Literal, TypeVar

import msgspec

from evals.engine.child import child_environment, essence
from evals.engine.childside import die_with_parent
from evals.messages import Chat, user
from evals.model_dir import ModelDir

VERSIONS = ("openvino", "openvino-genai", "openvino-tokenizers")
ASKED_PROPERTIES = (
    "INFERENCE_PRECISION_HINT",
    "KV_CACHE_PRECISION",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE",
    "EXECUTION_MODE_HINT",
    "INFERENCE_NUM_THREADS",
    "NUM_STREAMS",
)
MAX_REPLY = 64 << 20
_ELEMENT_TYPE = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "uint8_t": "u8", "int8_t": "i8"} | {
    f"{sign}int{bits}_t": f"{sign[:1] or 'i'}{bits}" for sign in ("u", "") for bits in (2, 3, 4, 6)
}

_T = TypeVar("_T")


class PrepareError(ValueError):
    """A model or settings with which nothing can be decoded: says what was expected and found, and what to do."""


class Prepared(msgspec.Struct, frozen=True):
    """rendered: one text per prompt, ready for the engine, "" for a later turn of a conversation. in_force: the
    properties as the device really applies them (a bf16 hint on a machine without bf16 reads f32 here).
    device_name: the device's full name. versions: of the packages that decode. tools_left_out: a task has tools, and
    the template doesn't show them.
    """

    rendered: tuple[str, ...]
    in_force: dict[str, str]
    device_name: str
    versions: dict[str, str]
    tools_left_out: bool = False


class _Order(msgspec.Struct, frozen=True):
    """What a child is to do."""

    what: Literal["render", "device"]
    model: str
    graph: str
    chats: tuple[Chat, ...] = ()
    device: str = ""
    properties: dict[str, str] = {}


class _Rendered(msgspec.Struct, frozen=True):
    texts: tuple[str, ...]
    tools_left_out: bool = False


class _Device(msgspec.Struct, frozen=True):
    in_force: dict[str, str]
    name: str


class _Refusal(msgspec.Struct, frozen=True, tag="refusal"):
    message: str


def engine_versions() -> dict[str, str]:
    """Versions of the packages that decode, without importing them."""
    return {name: version(name) for name in VERSIONS}


def prepare(
    model: ModelDir,
    chats: Sequence[str | Chat],
    *,
    device: str = "CPU",
    properties: Mapping[str, str] | None = None,
    timeout_s: float = 180.0,
) -> Prepared:
    """Render chats (a text is one user turn; thinking off where the template has that switch) and ask the device.

    Raises PrepareError for a directory without a chat template, a template that fails, an unknown device, property or
    value (with the engine's own message), and a child that doesn't come back within timeout_s.
    """
    graph = str(model.path / f"{model.target}.xml")
    render = _Order(
        what="render",
        model=str(model.path),
        graph=graph,
        chats=tuple(user(chat) if isinstance(chat, str) else chat for chat in chats),
    )
    ask = _Order(
        what="device", model=str(model.path), graph=graph, device=device, properties=dict(properties or {})
    )
    with ThreadPoolExecutor(2) as pool:
        rendering = pool.submit(_child, render, _Rendered, timeout_s) if chats else None
        asking = pool.submit(_child, ask, _Device, timeout_s)
        facts = asking.result()
        rendered = rendering.result() if rendering else _Rendered(())
    return Prepared(
        rendered=rendered.texts,
        in_force=facts.in_force,
        device_name=facts.name,
        versions=engine_versions(),
        tools_left_out=rendered.tools_left_out,
    )


def _child(order: _Order, kind: type[_T], timeout_s: float) -> _T:
    """Run this module in a child; its reply comes in a file, since native libraries print on stdout."""
    with tempfile.TemporaryFile() as reply:
        try:
            ended = subprocess.run(
                [sys.executable, "-P", "-m", "evals.engine.prepare", str(reply.fileno())],
                input=msgspec.json.encode(order),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(reply.fileno(),),
                env=child_environment(),
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            doing = "rendering the prompts" if order.what == "render" else f"asking the device {order.device}"
            raise PrepareError(f"{order.model}: {doing} took over {timeout_s:.0f} s; it was ended.") from None
        reply.seek(0)
        data = reply.read(MAX_REPLY)
    with contextlib.suppress(msgspec.DecodeError):
        raise PrepareError(msgspec.json.decode(data, type=_Refusal).message)
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError:
        last = essence(ended.stdout[-2000:].decode("utf-8", "replace"))
        raise PrepareError(
            f"{order.model}: the engine ended with code {ended.returncode} at its start: {last}"
        ) from None


def main() -> None:
    """The child: read an order, write its result."""
    die_with_parent()
    order = msgspec.json.decode(sys.stdin.buffer.read(MAX_REPLY), type=_Order)
    result: msgspec.Struct
    try:
        result = _render(order) if order.what == "render" else _ask_device(order)
    except PrepareError as error:
        result = _Refusal(str(error))
    with os.fdopen(int(sys.argv[1]), "wb") as reply:
        reply.write(msgspec.json.encode(result))


def _render(order: _Order) -> _Rendered:
    from evals.engine.rendering import Renderer, RenderError

    try:
        texts, blind = Renderer(order.model).render_all(order.chats)
    except RenderError as error:
        raise PrepareError(str(error)) from error
    return _Rendered(tuple(texts), blind)


def _ask_device(order: _Order) -> _Device:
    """Compile a one-operation model that carries the target's own runtime options, and read the properties back."""
    import numpy as np
    import openvino as ov
    from openvino import opset13 as ops

    core = ov.Core()
    try:
        name = str(core.get_property(order.device, "FULL_DEVICE_NAME"))
    except RuntimeError as error:
        found = ", ".join(core.available_devices) or "none"
        raise PrepareError(
            f"--device {order.device}: expected one of the devices of this machine ({found}). {essence(str(error))}"
        ) from error
    value = ops.parameter([1], np.float32)
    tiny = ov.Model([ops.relu(value)], [value])
    target = core.read_model(order.graph)
    if target.has_rt_info("runtime_options"):
        for key, option in target.get_rt_info("runtime_options").value.items():
            tiny.set_rt_info(str(getattr(option, "value", option)), ["runtime_options", key])
    try:
        compiled = core.compile_model(tiny, order.device, order.properties)
    except RuntimeError as error:
        given = ", ".join(f"{k}={v}" for k, v in order.properties.items())
        raise PrepareError(f"--ov {given}: the engine refuses: {essence(str(error))}") from error
    in_force = {}
    for key in {*ASKED_PROPERTIES, *order.properties}:
        with contextlib.suppress(RuntimeError):
            in_force[key] = _plain(compiled.get_property(key))
    return _Device(in_force=dict(sorted(in_force.items())), name=name)


def _plain(value: object) -> str:
    text = str(value)
    if text.startswith("<Type: '"):
        text = text[8:-2]
    return _ELEMENT_TYPE.get(text, text)


if __name__ == "__main__":
    main()
