"""Pictures that a prompt may show: PNG or JPEG, bounded before they are unpacked, and the same pixels for every arm.

A folder may come from anybody: a small file can unpack to gigabytes, and a cut one to half a picture.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tasks.errors import TaskError
from tasks.reading import read_bytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FORMATS: Final = ("PNG", "JPEG")
MIN_SIDE: Final = 8
MAX_SIDE: Final = 4_096
"""Pixels. The vision part makes the picture smaller where it wants to; a page of text at 300 dpi fits."""
MAX_RATIO: Final = 100
"""Longer side by shorter: Qwen's preprocessor refuses 200 and more."""
THUMBNAIL_SIDE: Final = 320
THUMBNAIL_QUALITY: Final = 75


class _Unfit(ValueError):
    """What was found in place of a picture, for the end of a sentence."""


def check_image(folder: Path, relative: str, place: str) -> None:
    """Raise TaskError unless the file is a whole PNG or JPEG of 8 to 4,096 pixels a side. place: who names it."""
    try:
        _open(read_bytes(folder, relative))
    except _Unfit as error:
        raise TaskError(
            f"{place}: expected the image {folder / relative} to be a PNG or JPEG of {MIN_SIDE} to {MAX_SIDE:,} pixels "
            f"a side, found {error}; save it as one"
        ) from None


def pixels(data: bytes) -> NDArray[np.uint8]:
    """[height, width, 3], RGB, turned as the file's orientation says; transparency is laid on white.

    Raises ValueError for what `check_image` refuses.
    """
    import numpy as np

    return np.ascontiguousarray(np.asarray(_open(data), dtype=np.uint8))


def thumbnail(data: bytes) -> bytes:
    """A JPEG of at most 320 pixels a side, without what else the file holds. Raises ValueError as `pixels` does."""
    image = _open(data)
    image.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    made = io.BytesIO()
    image.save(made, "JPEG", quality=THUMBNAIL_QUALITY)
    return made.getvalue()


def _open(data: bytes) -> Any:
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with warnings.catch_warnings(), Image.open(io.BytesIO(data), formats=FORMATS) as image:
            warnings.simplefilter("ignore")
            _check_size(*image.size)
            turned = ImageOps.exif_transpose(image)
            if turned.mode.startswith("I"):  # 16 bits of grey, which convert would cut off at 255
                turned = turned.point(lambda grey: grey / 257).convert("L")
            if turned.mode in ("RGBA", "LA", "PA", "P") or "transparency" in turned.info:
                turned = turned.convert("RGBA")
                turned = Image.alpha_composite(Image.new("RGBA", turned.size, "white"), turned)
            return turned.convert("RGB")
    except _Unfit:
        raise
    except UnidentifiedImageError:
        raise _Unfit("no such picture") from None
    except (
        Exception
    ) as error:  # Pillow raises OSError, SyntaxError, ValueError, struct.error and others for bad bytes
        raise _Unfit(f"a broken one ({type(error).__name__})") from None


def _check_size(width: int, height: int) -> None:
    if not all(MIN_SIDE <= side <= MAX_SIDE for side in (width, height)):
        raise _Unfit(f"one of {width} x {height} pixels")
    if max(width, height) > MAX_RATIO * min(width, height):
        raise _Unfit(f"one of {width} x {height} pixels, too long for its width")
