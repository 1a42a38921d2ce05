"""Threat: a picture of somebody's task folder fills memory, is another one than the grade's, or is half a picture.

A small file can unpack to gigabytes; a cut one decodes to grey; a link can show what lies elsewhere; a wording made
from a template can lose its picture and ask another question.
"""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tasks.errors import TaskError
from tasks.folder import load_task
from tasks.images import pixels, thumbnail
from tasks.variants import variants

TASK = """schema = 1
name = "colour"
title = "Colour"
summary = "Say what colour a picture has."
kind = "prose"
judge = "constraints"
max_new_tokens = 30
gold = "gold.txt"

[[mutant]]
file = "mutant.txt"
fails = ["short"]
"""
PROMPTS = """[[prompt]]
id = "p1"
text = "What colour is this picture?"
image = "red.png"
"""
VARIANTS = """
[variants]
template = "{{ask}} colour is it?"
image = "red.png"

[variants.choices]
ask = ["What", "Which"]
"""


def drawn(
    kind: str = "PNG", size: tuple[int, int] = (32, 16), mode: str = "RGB", colour: object = "red"
) -> bytes:
    made = io.BytesIO()
    Image.new(mode, size, colour).save(made, kind)
    return made.getvalue()


def write(path: Path, image: bytes, prompts: str = PROMPTS) -> Path:
    path.mkdir()
    (path / "task.toml").write_text(TASK)
    (path / "prompts.toml").write_text(prompts)
    (path / "cases.jsonl").write_text('{"name": "short", "constraint": "words", "min": 1, "max": 9}\n')
    (path / "gold.txt").write_text("The picture is red.\n")
    (path / "mutant.txt").write_text("a b c d e f g h i j k\n")
    (path / "red.png").write_bytes(image)
    return path


def bomb() -> bytes:
    """A PNG of a few kB that says it has 100,000 x 100,000 pixels."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1 << 20)))


def test_the_picture_is_part_of_the_task_and_of_its_digest(tmp_path: Path) -> None:
    one = load_task(write(tmp_path / "one", drawn()))
    other = load_task(write(tmp_path / "other", drawn(colour="blue")))
    assert one.prompts[0].image == "red.png"
    assert one.digest != other.digest


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_pixels_are_rows_of_rgb(kind: str) -> None:
    found = pixels(drawn(kind))
    assert (found.shape, found.dtype) == ((16, 32, 3), np.uint8)
    assert abs(found.astype(int) - [255, 0, 0]).max() <= 3


def saved(image: Image.Image, **settings: object) -> bytes:
    made = io.BytesIO()
    image.save(made, "PNG", **settings)
    return made.getvalue()


def test_sixteen_bits_of_grey_keep_their_shade() -> None:
    grey = np.full((16, 16), 30_000, np.uint16)
    assert abs(pixels(saved(Image.fromarray(grey))).astype(int) - 30_000 // 257).max() <= 1


@pytest.mark.parametrize(("mode", "colour"), [("RGB", (10, 20, 30)), ("L", 7), ("1", 0)])
def test_a_colour_that_counts_as_transparent_is_laid_on_white(mode: str, colour: object) -> None:
    image = Image.new(mode, (16, 16), colour)
    assert (pixels(saved(image)) < 31).all()
    assert (pixels(saved(image, transparency=colour)) == 255).all()


def test_transparency_is_laid_on_white_and_a_turned_photograph_is_turned_back() -> None:
    assert (pixels(drawn(mode="RGBA", colour=(255, 0, 0, 0))) == 255).all()
    made, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (32, 16)).save(made, "JPEG", exif=exif)
    assert pixels(made.getvalue()).shape == (32, 16, 3)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no such picture"),
        (b"<svg onload='alert(1)'/>", "no such picture"),
        (drawn("GIF"), "no such picture"),
        (drawn()[:60], "a broken one"),
        (drawn("JPEG", (400, 400))[:-300], "a broken one"),
        (bomb(), "a broken one"),
        (drawn(size=(5_000, 16)), "5000 x 16"),
        (drawn(size=(7, 7)), "7 x 7"),
        (drawn(size=(4_000, 8)), "too long for its width"),
    ],
    ids=["empty", "svg", "gif", "cut", "cut-jpeg", "bomb", "large", "tiny", "line"],
)
def test_what_is_no_picture_within_bounds_is_refused(data: bytes, words: str, tmp_path: Path) -> None:
    with pytest.raises(TaskError) as caught:
        load_task(write(tmp_path / "t", data))
    for part in ("expected", "prompt p1", "red.png", words):
        assert part in str(caught.value), caught.value


@pytest.mark.parametrize("name", ["../red.png", "/etc/hostname", "nothing.png", ".hidden.png"])
def test_a_picture_lies_in_the_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="expected"):
        load_task(write(tmp_path / "t", drawn(), PROMPTS.replace("red.png", name)))


def test_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "t", drawn())
    (tmp_path / "outside.png").write_bytes(drawn())
    (folder / "red.png").unlink()
    (folder / "red.png").symlink_to(tmp_path / "outside.png")
    with pytest.raises(TaskError, match="leads out"):
        load_task(folder)


def test_a_wording_from_the_template_shows_its_picture(tmp_path: Path) -> None:
    task = load_task(write(tmp_path / "t", drawn(), PROMPTS + VARIANTS))
    assert [prompt.image for prompt in variants(task, 2, 0)] == ["red.png", "red.png"]
    with pytest.raises(TaskError, match="one that a prompt shows"):
        load_task(write(tmp_path / "u", drawn(), PROMPTS + VARIANTS.replace("red.png", "gold.txt")))


def test_a_thumbnail_is_small_and_holds_nothing_but_the_picture() -> None:
    made, exif = io.BytesIO(), Image.Exif()
    exif[0x010E] = "taken at home"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (900, 1200, 3), np.uint8)).save(
        made, "JPEG", exif=exif
    )
    small = thumbnail(made.getvalue())
    assert Image.open(io.BytesIO(small)).size == (320, 240)
    assert len(small) < 100_000 and b"taken at home" in made.getvalue() and b"taken at home" not in small


@settings(max_examples=200, deadline=None)
@given(at=st.integers(0, 10_000), byte=st.integers(0, 255), cut=st.integers(0, 10_000))
def test_damaged_bytes_give_a_picture_or_a_sentence(at: int, byte: int, cut: int) -> None:
    for whole in (drawn(mode="P", colour=3), drawn("JPEG", (64, 64))):
        data = bytearray(whole)
        data[at % len(data)] = byte
        try:
            assert pixels(bytes(data[: cut or None])).ndim == 3
        except ValueError as error:
            assert str(error)
