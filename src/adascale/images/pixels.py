"""One image, from whatever holds it: opened by Pillow, with 8 bits a channel."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from adascale.core.errors import InputError
from adascale.images.limits import DECODED, MAX_PIXELS, check_pixels
from adascale.images.stored import Stored

# What counts as one image besides a path. An array is uint8 (H, W), (H, W, 1), (H, W, 3) or (H, W, 4).
Item = Path | Stored | bytes | Image.Image | np.ndarray[Any, Any]
# What the decoders raise for a file that is missing, damaged or no image.
_BOMBS = (Image.DecompressionBombError, Image.DecompressionBombWarning)
READ_ERRORS = (OSError, SyntaxError, ValueError, MemoryError, *_BOMBS)
_DRAFTED = "adascale: size and box before draft"
_DEEP = "adascale: 16 bits a channel"
_BAND = 2**20  # pixels
if "PILLOW_BLOCK_SIZE" not in os.environ:
    # Blocks above 32 MiB go back to the system when they are freed; smaller ones stay with the thread that decoded.
    Image.core.set_block_size(2**26)  # type: ignore[attr-defined]
_MAGIC = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*")
_HINT = (
    "All values of {name} are below {limit} of 65535, so it is seen as almost black. If it holds {bits}-bit data in a "
    "16-bit file, multiply its values by {factor} and save it again."
)


@contextmanager
def opened(
    item: Item | str, least: int | None = None, max_pixels: int = MAX_PIXELS, formats: tuple[str, ...] | None = None
) -> Iterator[Image.Image]:
    """The decoded image, the first frame if there are several. While the context lasts, it counts as memory in use.

    least: the decoder may save time by a smaller image, with sides of at least this length. max_pixels: pictures with
    more pixels are refused when their header is read, before they are decoded. formats: those of Pillow that may be
    read, by default all.
    """
    image: Image.Image
    if isinstance(item, Stored):
        with item.held(max_pixels) as read, opened(read, least, max_pixels, formats) as image:
            yield image
        return
    if isinstance(item, Image.Image | np.ndarray):  # it is in memory already
        yield _from_array(item) if isinstance(item, np.ndarray) else item
        return
    if not isinstance(item, bytes | bytearray | memoryview):
        _check_regular(item)
    _let_pillow_open(max_pixels)
    data = io.BytesIO(item) if isinstance(item, bytes | bytearray | memoryview) else item
    with Image.open(data, formats=formats) as image:
        if image.format == "EPS":
            raise ValueError("an EPS file is a program; convert it to a picture")
        with DECODED.share(check_pixels(*image.size, max_pixels)):
            deep = any(";16" in str(tile[3]) for tile in getattr(image, "tile", ()))
            if least is not None:
                draft(image, least)
            image.load()
            if deep:
                image.info[_DEEP] = True
            yield image


def _check_regular(path: Any) -> None:
    """Refuse what is neither a file nor a folder: reading a pipe would wait for someone to write to it."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise ValueError("it is no regular file but a pipe, socket or device")


def _let_pillow_open(max_pixels: int) -> None:
    """A limit above Pillow's own, which refuses twice its value, takes its place in this process."""
    if max_pixels > MAX_PIXELS and Image.MAX_IMAGE_PIXELS is not None:
        Image.MAX_IMAGE_PIXELS = max(Image.MAX_IMAGE_PIXELS, max_pixels)


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
    if isinstance(error, _BOMBS):
        return f"more pixels than max_pixels={Image.MAX_IMAGE_PIXELS}"
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
    small = image.mode == "I" and max(int(band.max(initial=0)) for band in _bands(image)) <= 255
    scale = 1 if small else 257
    bands = [(band / scale).round().clip(0, 255).astype(np.uint8) for band in _bands(image)]
    return Image.fromarray(np.concatenate(bands))


def _bands(image: Image.Image) -> Iterator[np.ndarray[Any, Any]]:
    """The values of an image in bands of rows, so that no other copy of all of them is in memory."""
    rows = max(1, _BAND // max(1, image.width))
    for top in range(0, image.height, rows):
        yield np.asarray(image.crop((0, top, image.width, min(top + rows, image.height))))


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
    if not is_deep(image):
        return ""
    most = max(int(band.max(initial=0)) for band in _bands(image)) * (1 if image.mode.startswith("I") else 257)
    if not 0 < most < 4096:
        return ""
    bits = 8 if most < 256 else 10 if most < 1024 else 12
    return _HINT.format(name=name, limit=2**bits, bits=bits, factor=2 ** (16 - bits))
