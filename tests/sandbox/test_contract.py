"""The threat: a path or a limit from an untrusted place that a backend passes on to a mount or a command line."""

from __future__ import annotations

import pytest

from sandbox.contract import MAX_FILE_BYTES, MAX_FILES, InvalidProgram, Limits, Program


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../x", "a/../../x", "", ".", "a//b", "a/", "./a", "a\0b", ".."]
)
def test_paths_outside_of_code_are_refused(name: str) -> None:
    with pytest.raises(InvalidProgram, match="relative path"):
        Program(files={name: b"", "main.py": b""}, entry="main.py")


def test_sizes_are_bounded() -> None:
    with pytest.raises(InvalidProgram, match="at most"):
        Program(files={"main.py": b"x" * (MAX_FILE_BYTES + 1)}, entry="main.py")
    with pytest.raises(InvalidProgram, match="at most"):
        Program(files={f"f{number}": b"" for number in range(MAX_FILES + 1)}, entry="f0")


def test_entry_language_and_texts_are_checked() -> None:
    with pytest.raises(InvalidProgram, match="entry"):
        Program(files={"a.py": b""}, entry="b.py")
    with pytest.raises(InvalidProgram, match="language"):
        Program(files={"a.py": b""}, entry="a.py", language="perl")
    with pytest.raises(InvalidProgram, match="NUL"):
        Program(files={"a.py": b""}, entry="a.py", argv=("a\0b",))
    with pytest.raises(InvalidProgram, match="'='"):
        Program(files={"a.py": b""}, entry="a.py", environment={"A=B": "c"})


@pytest.mark.parametrize("field", ["wall_s", "cpu_s", "memory_bytes", "processes", "output_bytes", "cores"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), 1 << 60])
def test_limits_are_positive_and_finite(field: str, value: float) -> None:
    with pytest.raises(InvalidProgram, match=field):
        Limits(**{field: value})  # type: ignore[arg-type]
