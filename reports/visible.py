"""Makes untrusted text safe to look at: what can't be seen, or would rearrange the line, becomes a visible sign.

A model may emit NULs, escape sequences, bidirectional overrides or half a surrogate pair. None of them may reach a
terminal, a page or an XML file as they are: they can hide text, and two answers that differ only in them must look
different.
"""

from __future__ import annotations

import re
import unicodedata

from markupsafe import Markup, escape

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\xa0"
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\ud800-\udfff\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Control characters but tab and newline, format and bidi characters, fillers, variation selectors, tags, lone
surrogates, non-characters, and blanks that look like a space (Unicode: Cc, Cf, Cs, Zl, Zp, most of Zs, some Lo)."""


_NAMES = [
    "NUL",
    "SOH",
    "STX",
    "ETX",
    "EOT",
    "ENQ",
    "ACK",
    "BEL",
    "BS",
    "HT",
    "LF",
    "VT",
    "FF",
    "CR",
    "SO",
    "SI",
    "DLE",
    "DC1",
    "DC2",
    "DC3",
    "DC4",
    "NAK",
    "SYN",
    "ETB",
    "CAN",
    "EM",
    "SUB",
    "ESC",
    "FS",
    "GS",
    "RS",
    "US",
]
"""What the control characters below U+0020 are called."""


def sign(char: str) -> str:
    """What stands for one character that must not be shown as it is, e.g. "⟨NUL⟩" or "⟨U+202E⟩"."""
    code = ord(char)
    return f"\u27e8{_NAMES[code] if code < len(_NAMES) else f'U+{code:04X}'}\u27e9"


def visible(text: str) -> str:
    """`text` with a sign for each character that can't be seen. The result encodes as UTF-8."""
    return _INVISIBLE.sub(lambda m: sign(m.group()), text)


def one_line(text: str, limit: int = 200) -> str:
    """`text` visible, on one line ("↵" for a newline, "⇥" for a tab), cut to `limit` characters with an ellipsis."""
    cut = text[: limit + 1]
    line = visible(cut).replace("\n", "\u21b5").replace("\t", "\u21e5")
    return line[: limit - 1] + "\u2026" if len(text) > limit or len(line) > limit else line


def marked(text: str) -> Markup:
    """`text` escaped for HTML, each sign in a `<i class="c">` of its own that names the character."""
    if not _INVISIBLE.search(text):
        return escape(text)
    parts: list[Markup] = []
    end = 0
    for match in _INVISIBLE.finditer(text):
        char = match.group()
        name = f"U+{ord(char):04X} {unicodedata.name(char, 'control')}"
        parts.append(escape(text[end : match.start()]))
        parts.append(Markup('<i class="c" title="{}">{}</i>').format(name, sign(char)))
        end = match.end()
    parts.append(escape(text[end:]))
    return Markup("").join(parts)
