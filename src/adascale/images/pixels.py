"""One image, from whatever holds it: opened by Pillow, with 8 bits a channel."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from adascale.core.errors import InputError

# What counts as one image besides a path. An array is uint8 (H, W), (H, W, 1), (H, W, 3) or (H, W, 4).
Item = Path | bytes | Image.Image | np.ndarray[Any, Any]
# What the decoders raise for a file that is missing, damaged or no image.
READ_ERRORS = (OSError, SyntaxError, ValueError, Image.DecompressionBombError, MemoryError)
_DRAFTED = "adascale: size and box before draft"
_DEEP = "adascale: 16 bits a channel"
_MAGIC = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*")
_HINT = (
    "All values of {name} are below {limit} of 65535, so it is seen as almost black. If it holds {bits}-bit data in a "
    "16-bit file, multiply its values by {factor} and save it again."
)


def open_image(
    item: Item | str, least: int | None = None, formats: tuple[str, ...] | None = None, most: int | None = None
) -> Image.Image:
    """The decoded image, the first frame if there are several.

    least: the decoder may save time by a smaller image, with sides of at least this length. formats: those of Pillow
    that may be read, by default all. most: the pixels that an image may have; more are refused before they are decoded.
    """
    if isinstance(item, Image.Image):
        return item
    if isinstance(item, np.ndarray):
        return _from_array(item)
    image: Image.Image
    data = io.BytesIO(item) if isinstance(item, bytes | bytearray | memoryview) else item
    with Image.open(data, formats=formats) as image:
        if most is not None and image.width * image.height > most:
            raise ValueError(f"it has {image.width} x {image.height} pixels, and at most {most} are taken")
        deep = any(";16" in str(tile[3]) for tile in getattr(image, "tile", ()))
        if least is not None:
            draft(image, least)
        image.load()
    if deep:
        image.info[_DEEP] = True
    return image


def name_of(item: Item | str, otherwise: str = "the image") -> str:
    """What a message calls this image: its path, if it has one."""
    if isinstance(item, str | os.PathLike):
        return str(item)
    return str(getattr(item, "filename", "") or otherwise)


def why_unreadable(error: BaseException) -> str:
    """Why an image could not be read, for one of `READ_ERRORS`."""
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, IsADirectoryError):
        return "it is a folder; give one image, or give the folder to a detector"
    if isinstance(error, UnidentifiedImageError):
        return "not an image, or a format that Pillow cannot read"
    return " ".join(str(error).split()) or type(error).__name__


def is_image_data(data: bytes) -> bool:
    """Whether these bytes are an image and not a text: they start like one, or hold a zero byte, as no text does."""
    start = data[:4096]
    webp = start[:4] == b"RIFF" and start[8:12] == b"WEBP"
    netpbm = start[:1] == b"P" and start[1:2] in b"123456" and start[2:3].isspace() and start[3:4] in b"0123456789#"
    return start.startswith(_MAGIC) or webp or netpbm or b"\0" in start


def is_pixels(value: Any) -> bool:
    """Whether an array has the type and shape of one image, (H, W) or (H, W, channels)."""
    return value.dtype == np.uint8 and (value.ndim == 2 or (value.ndim == 3 and value.shape[2] in (1, 3, 4)))


def _from_array(array: np.ndarray[Any, Any]) -> Image.Image:
    if array.ndim == 2 and array.dtype == np.uint16:
        return Image.fromarray(np.ascontiguousarray(array))
    if not is_pixels(array):
        raise InputError(
            f"The array is {array.dtype} {array.shape}; an image is uint8 (H, W), (H, W, 3) or (H, W, 4) "
            "with values from 0 to 255."
        )
    return Image.fromarray(np.ascontiguousarray(array[:, :, 0] if array.shape[2:] == (1,) else array))


def eight_bit(image: Image.Image) -> Image.Image:
    """The image with 8 bits a channel; deeper ones are scaled, where Pillow would clip them at 255."""
    if image.mode == "F":
        raise ValueError("a floating point image has no defined white; convert it to 8 or 16 bit")
    if image.mode == "P" and "transparency" in image.info:
        return image.convert("RGBA")
    if not image.mode.startswith("I"):
        return image
    values = np.asarray(image).astype(np.float64)
    scale = 1 if values.max(initial=0) <= 255 and image.mode == "I" else 257
    return Image.fromarray((values / scale).round().clip(0, 255).astype(np.uint8))


def draft(image: Image.Image, least: int) -> None:
    """Ask the decoder for a smaller image with sides of at least ``least``; only the JPEG decoder complies.

    The image then carries its full size, and the box of the result that holds the picture if the size is not divisible.
    """
    size = image.size
    answer = image.draft(None, (least, least))
    if answer is not None and image.size != size:
        image.info[_DRAFTED] = (size, answer[1])


def undrafted(image: Image.Image) -> tuple[tuple[int, int], Any]:
    """The size of the image before it was drafted, and the box that holds the picture (None: all of it)."""
    size, box = image.info.get(_DRAFTED, (image.size, None))
    return size, box


def is_deep(image: Image.Image) -> bool:
    """Whether the image came with 16 bits a channel."""
    return image.mode.startswith("I;16") or _DEEP in image.info


def shallow_hint(image: Image.Image, name: str) -> str:
    """A hint if this 16-bit image seems to hold 12-bit data (or fewer bits), which looks almost black; else empty."""
    values = np.asarray(image)
    most = int(values.max(initial=0)) if image.mode.startswith("I") else 257 * int(values.max(initial=0))
    if not is_deep(image) or not 0 < most < 4096:
        return ""
    bits = 8 if most < 256 else 10 if most < 1024 else 12
    return _HINT.format(name=name, limit=2**bits, bits=bits, factor=2 ** (16 - bits))
