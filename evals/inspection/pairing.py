"""Do head, target, embeddings and tokenizer belong together? By the shapes of their graphs.

Another model's head of the same shape can't be told here: acceptance tells. What shapes rule out is refused before
anything is decoded.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from evals.inspection.graph import Graph, Port, read_graph
from evals.inspection.types import Problem
from evals.inspection.weights import Weight, embedding, find_weights, lm_head
from evals.model_dir import EMBEDDINGS, ModelDir, ModelDirError, of_a_head

MAX_TOKENIZER = 64 << 20
HEAD_INPUTS = (("hidden_states",), ("inputs_embeds", "input_embeds"))
"""What an MTP layer takes beside mask, positions and beam index: as optimum-intel 2.2 names it, or published heads."""


class Graphs(msgspec.Struct, frozen=True):
    """The graphs that must fit. embeddings: None where the target holds its own. lm_head: the split layout's second
    graph, None where the target's is shared."""

    target: Graph
    head: Graph | None = None
    lm_head: Graph | None = None
    embeddings: Graph | None = None


class Fit(msgspec.Struct, frozen=True):
    """hidden_size, vocabulary: of the target (None where its graphs don't say). target_lm_head, table: the weights that
    make logits and embeddings, each with its graph."""

    hidden_size: int | None
    vocabulary: int | None
    target_lm_head: Weight | None
    table: tuple[Graph, Weight] | None
    problems: tuple[Problem, ...]


def require_pairing(model: ModelDir, head_at: Path | None = None) -> None:
    """Raise ModelDirError where the head doesn't fit the target, the embeddings or the tokenizer, by shapes alone.

    head_at: the directory that the head's graphs are read from; the model's own where it is None.
    """
    home = head_at or model.path
    graphs = Graphs(
        target=read_graph(model.path / f"{model.target}.xml"),
        head=None if model.layer is None else read_graph(home / f"{model.layer}.xml"),
        lm_head=None if model.lm_head is None else read_graph(home / f"{model.lm_head}.xml"),
        embeddings=_optional(model.path / f"{EMBEDDINGS}.xml"),
    )
    for problem in fit(graphs, count_tokens(model.path)).problems:
        if problem.severity == "error":
            place = home if of_a_head(problem.where) else model.path
            raise ModelDirError(f"{place / problem.where}: {problem.message}")


def fit(graphs: Graphs, tokens: int | None) -> Fit:
    """Compare shapes. tokens: one more than the tokenizer's highest id. What a graph doesn't say raises no problem."""
    target, head = graphs.target, graphs.head
    problems: list[Problem] = []
    target_weights = find_weights(target)
    logits = lm_head(target, target_weights)
    vocabulary = _last(_result(target, "logits"))
    table = _table(graphs, target_weights)
    hidden = _hidden_size(graphs, table)
    if vocabulary is None or len(target.results[0].shape) < 2:
        problems.append(
            _error(
                "no-logits",
                target,
                "expected a target with logits [.., tokens], found none. Export it again.",
            )
        )
    if table is not None and vocabulary is not None and table[1].const.shape[0] != vocabulary:
        problems.append(
            _error(
                "vocabulary-mismatch",
                table[0],
                f"embeddings of {table[1].const.shape[0]} tokens, but the target's logits have {vocabulary}: files of "
                "two models. Take all from one export.",
            )
        )
    if graphs.embeddings is not None:
        problems += _sides(
            graphs.embeddings, [("its output", _last(_first(graphs.embeddings.results)))], hidden
        )
    if head is not None:
        problems += _head_fits(head, hidden, bare=graphs.lm_head is None)
    if graphs.lm_head is not None:
        problems += _lm_head_fits(graphs.lm_head, hidden, vocabulary)
    if tokens is not None and vocabulary is not None and tokens > vocabulary:
        problems.append(
            Problem(
                "tokenizer-mismatch",
                "error",
                f"the tokenizer gives ids up to {tokens - 1}, the target has {vocabulary} tokens: another model's "
                "tokenizer. Take all from one export.",
                "tokenizer.json",
            )
        )
    return Fit(
        hidden_size=hidden,
        vocabulary=vocabulary,
        target_lm_head=logits,
        table=table,
        problems=tuple(problems),
    )


def count_tokens(root: Path) -> int | None:
    """One more than the highest id in tokenizer.json; None without one. Raises ModelDirError."""
    path = root / "tokenizer.json"
    try:
        if not path.is_file():
            return None
        if path.stat().st_size > MAX_TOKENIZER:
            raise ModelDirError(
                f"{path}: expected at most {MAX_TOKENIZER} bytes, found {path.stat().st_size}."
            )
        read = msgspec.json.decode(path.read_bytes(), type=_Tokenizer)
    except OSError as error:
        raise ModelDirError(f"{path}: cannot be read ({error}).") from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ModelDirError(
            f"{path}: expected a tokenizer, found: {error}. Copy it from the export."
        ) from error
    vocab = read.model.vocab
    ids = list(vocab.values()) if isinstance(vocab, dict) else [len(vocab) - 1]
    return max([-1, *ids, *(token.id for token in read.added_tokens)]) + 1


class _Added(msgspec.Struct, frozen=True):
    id: int


class _Words(msgspec.Struct, frozen=True):
    vocab: dict[str, int] | list[msgspec.Raw]


class _Tokenizer(msgspec.Struct, frozen=True):
    model: _Words
    added_tokens: tuple[_Added, ...] = ()


def _optional(file: Path) -> Graph | None:
    return read_graph(file) if file.is_file() else None


def _error(code: str, graph: Graph, message: str) -> Problem:
    return Problem(code, "error", message, graph.file.name)


def _head_fits(head: Graph, hidden: int | None, *, bare: bool) -> list[Problem]:
    inputs = {port.name: port for port in head.parameters}
    taken = [[name for name in names if name in inputs] for names in HEAD_INPUTS]
    lacking = [names[0] for names, found in zip(HEAD_INPUTS, taken, strict=True) if not found]
    if lacking:
        found = ", ".join(sorted(inputs)[:8]) or "none"
        wanted = " and ".join(names[0] for names in HEAD_INPUTS)
        message = f"no MTP head: expected the inputs {wanted}, found {found}. Take the head's graph."
        return [_error("no-mtp-head", head, message)]
    sides = [(f"its input {found[0]}", _last(inputs[found[0]])) for found in taken]
    result = _last(_first(head.results))
    problems = _sides(head, [*sides, ("its output", result)], hidden)
    if not head.states:
        message = "the head keeps no key-value cache (no state): it was exported without one and would draft blindly."
        problems.append(Problem("stateless-head", "warning", message, head.file.name))
    if len(head.results) != 1 and bare:
        message = f"expected one output (hidden states), found {len(head.results)}."
        problems.append(Problem("head-outputs", "warning", message, head.file.name))
    return problems


def _lm_head_fits(graph: Graph, hidden: int | None, vocabulary: int | None) -> list[Problem]:
    problems = _sides(graph, [("its input", _last(_first(graph.parameters)))], hidden)
    own = _last(_first(graph.results))
    if own is not None and vocabulary is not None and own != vocabulary:
        message = f"the head's lm_head gives {own} tokens, the target has {vocabulary}: another model's head."
        problems.append(_error("vocabulary-mismatch", graph, message))
    return problems


def _sides(graph: Graph, sides: list[tuple[str, int | None]], hidden: int | None) -> list[Problem]:
    wrong = [f"{name} has {side}" for name, side in sides if None not in (side, hidden) and side != hidden]
    if not wrong:
        return []
    message = (
        f"another model's: {', '.join(wrong)}, the target's hidden size is {hidden}. Take target and head from one "
        "export."
    )
    return [_error("hidden-size-mismatch", graph, message)]


def _table(graphs: Graphs, target_weights: tuple[Weight, ...]) -> tuple[Graph, Weight] | None:
    if graphs.embeddings is not None:
        table = embedding(find_weights(graphs.embeddings))
        return None if table is None else (graphs.embeddings, table)
    if not any(port.name == "input_ids" for port in graphs.target.parameters):
        return None
    table = embedding(target_weights)
    return None if table is None else (graphs.target, table)


def _hidden_size(graphs: Graphs, table: tuple[Graph, Weight] | None) -> int | None:
    for port in graphs.target.parameters:
        if port.name == "inputs_embeds" and _last(port) is not None:
            return _last(port)
    if table is not None:
        return table[1].const.elements // max(table[1].const.shape[0], 1)
    return None


def _result(graph: Graph, name: str) -> Port | None:
    named = [port for port in graph.results if name in port.name.split(",")]
    return named[0] if named else _first(graph.results)


def _first(ports: tuple[Port, ...]) -> Port | None:
    return ports[0] if ports else None


def _last(port: Port | None) -> int | None:
    return port.shape[-1] if port is not None and port.shape else None
