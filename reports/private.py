"""Keeps the user's home directory and keys out of whatever is shown: a report is made to be passed on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_END = r"(?=/|$|[\s'\":,;)\]])"
_HOME = re.compile(rf"(?<![\w.~-])(?:/home/[^/\s'\":,;)\]]+|/Users/[^/\s'\":,;)\]]+|/root){_END}")
_SECRET_VALUE = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|sk-[\w-]{16,}|glpat-[\w-]{16,}"
    r"|AKIA[A-Z0-9]{16}|xox[abp]-[\w-]{10,}|(?i:bearer)\s+[\w.~+/-]{16,}=*)"
)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_SECRET_ANYWHERE = {"secret", "secrets", "password", "passwd", "credential", "credentials", "apikey"}
_SECRET_LAST = {"token", "key", "authorization", "cookie", "auth"}

LEFT_OUT = "[left out]"


def scrubbed(text: str) -> str:
    """`text` of the machine (not of a model) without home directories (`~` instead) and without keys."""
    home = str(Path.home())
    if len(home) > 1:
        text = re.sub(rf"(?<![\w.~-]){re.escape(home)}{_END}", "~", text)
    return _SECRET_VALUE.sub(LEFT_OUT, _HOME.sub("~", text))


def secret_name(name: str) -> bool:
    """True where a setting's name says that its value is a key (`HF_TOKEN`, not `stop_token_ids`)."""
    words = [word.lower() for word in _WORD.findall(name)]
    return bool(words) and (words[-1] in _SECRET_LAST or not _SECRET_ANYWHERE.isdisjoint(words))


def shareable(value: Any, depth: int = 6) -> Any:
    """JSON-like `value` with every string scrubbed and the values of secret names left out."""
    if isinstance(value, str):
        return scrubbed(value)
    if isinstance(value, dict):
        if depth == 0:
            return LEFT_OUT
        return {
            scrubbed(str(k)): LEFT_OUT if secret_name(str(k)) else shareable(v, depth - 1)
            for k, v in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [shareable(v, depth - 1) for v in value] if depth else LEFT_OUT
    return value
