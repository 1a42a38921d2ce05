"""Finds the program in an answer's text, or says why there is none.

Nothing of the text is run or compiled here. What stands at the left margin of a block (functions, classes, imports,
constants) decides which blocks belong to the program: the last one that defines the wanted function, and the earlier
ones that define what it uses. Recognition is deliberately partial: where it finds no definition, all blocks are joined
and the interpreter decides.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from evals.fences import Block, blocks
from evals.thinking import final_part
from tasks.types import Language

_MAX_BLOCKS: Final = 200
_TAGS: Final[dict[Language, re.Pattern[str]]] = {
    "python": re.compile(r"py(thon)?[0-9]?"),
    "lua": re.compile(r"lua[0-9]*"),
    "javascript": re.compile(r"js|javascript|node|nodejs|mjs|ecmascript"),
}
_NAME: Final = r"([A-Za-z_$][\w$]*)"
_DEFINES: Final[dict[Language, re.Pattern[str]]] = {
    "python": re.compile(
        rf"^(?:(?:async +)?def|class) +{_NAME}|^([A-Z][A-Z0-9_]*) *(?::[^=\n]*)?=(?!=)", re.MULTILINE
    ),
    "lua": re.compile(rf"^(?:local +)?function +{_NAME}|^(?:local +)?{_NAME} *=(?!=)", re.MULTILINE),
    "javascript": re.compile(
        rf"^(?:export +(?:default +)?)?(?:async +)?(?:function *\*?|class) *{_NAME}"
        rf"|^(?:export +)?(?:const|let|var) +{_NAME} *=|^(?:module\.)?exports\.{_NAME} *=",
        re.MULTILINE,
    ),
}
_ASSIGNED: Final[dict[Language, str]] = {
    "python": r"^{} *(?::[^=\n]*)?=(?!=)",
    "lua": r"^{} *=(?!=)",
    "javascript": r"^{} *=(?!=)",
}
_IMPORT: Final = re.compile(r"^(?:from +[\w.]+ +)?import +([^\n#(]+|\([^)]{0,2000}\))", re.MULTILINE)
_WORD: Final = re.compile(r"[A-Za-z_$][\w$]*")
_BARE: Final[dict[Language, re.Pattern[str]]] = {
    "python": re.compile(r"(?:import|from|def|async def|class|@|#|\"\"\"|''')"),
    "lua": re.compile(r"(?:local|function|--)"),
    "javascript": re.compile(
        r"(?:function|async function|const|let|var|class|//|/\*|\"use strict\"|'use strict')"
    ),
}


class Extracted(msgspec.Struct, frozen=True):
    """A program (line ends LF, one at its end), or None and the reason; truncated: the budget ended before it did."""

    program: str | None
    reason: str = ""
    truncated: bool = False


def extract(
    text: str, *, language: Language = "python", entry: str | None = None, truncated: bool = False
) -> Extracted:
    """The program in `text` that defines `entry` (or, without one, its last block). Never raises.

    truncated: the answer ended by its budget, not by itself.
    """
    try:
        final = final_part(text)
        found = [b for b in blocks(final.text) if b.content.strip() or not b.closed][-_MAX_BLOCKS:]
    except ValueError as error:
        return Extracted(None, f"no program was looked for: {error}")
    tagged = [b for b in found if _TAGS[language].fullmatch(b.tag)]
    untagged = [b for b in found if not b.tag]
    chosen = tagged or untagged
    if entry is not None and not any(_defines(b.content, entry, language) for b in chosen):
        chosen = sorted(tagged + untagged, key=lambda b: b.start)
    if not chosen:
        return _without_blocks(final.text, found, language, entry, truncated, final.open)
    main = _main(chosen, language, entry)
    if truncated and not final.open:
        if main is None:
            return Extracted(
                None, f"truncated: the budget ended before a code block that defines {entry}", True
            )
        if main.at_end and not main.closed:
            return Extracted(None, "truncated: the budget ended inside the code block", True)
        chosen = [b for b in chosen if b.closed or not b.at_end]
    program = _join(chosen if main is None else _needed(chosen, main, language))
    return Extracted(program) if program.strip() else Extracted(None, "the code block is empty")


def _without_blocks(
    text: str, found: list[Block], language: Language, entry: str | None, truncated: bool, thinking: bool
) -> Extracted:
    if thinking:
        return Extracted(
            None, "truncated in thinking" if truncated else "the thinking never closed", truncated
        )
    bare = text.strip("\n") + "\n"
    if not found and _BARE[language].match(bare) and (entry is None or _defines(bare, entry, language)):
        if truncated:
            return Extracted(None, "truncated: the budget ended inside the code", True)
        return Extracted(bare)
    if truncated:
        return Extracted(None, f"truncated: the budget ended before a {language} code block", True)
    others = sorted({b.tag for b in found if b.tag})
    tail = f", but {', '.join(others)[:80]}" if others else ""
    return Extracted(None, f"no {language} code block in the answer{tail}")


def _main(chosen: list[Block], language: Language, entry: str | None) -> Block | None:
    if entry is None:
        return chosen[-1]
    return next((b for b in reversed(chosen) if _defines(b.content, entry, language)), None)


def _needed(chosen: list[Block], main: Block, language: Language) -> list[Block]:
    """`main` and the blocks that define what it uses, in the order of the text."""
    names = {id(b): _defined(b.content, language) for b in chosen}
    at = chosen.index(main)
    nearest = chosen[:at][::-1] + chosen[at + 1 :]
    taken = [main]
    defined = set(names[id(main)])
    pending = set(_WORD.findall(main.content)) - defined
    while pending:
        block = next((b for b in nearest if b not in taken and names[id(b)] & pending), None)
        if block is None:
            break
        taken.append(block)
        defined |= names[id(block)]
        pending = (pending | set(_WORD.findall(block.content))) - defined
    return sorted(taken, key=lambda b: b.start)


def _defined(code: str, language: Language) -> set[str]:
    names = {name for groups in _DEFINES[language].findall(code) for name in groups if name}
    if language == "python":
        for imported in _IMPORT.findall(code):
            for part in imported.strip("() \n").split(","):
                words = _WORD.findall(part)
                names.update(words[-1:] if " as " in part else words[:1])
    return names


def _defines(code: str, entry: str, language: Language) -> bool:
    if entry in _defined(code, language):
        return True
    assigned = _ASSIGNED[language].format(re.escape(entry))
    return re.search(assigned, code, re.MULTILINE) is not None


def _join(parts: list[Block]) -> str:
    return "\n".join(b.content if b.content.endswith("\n") else b.content + "\n" for b in parts)
