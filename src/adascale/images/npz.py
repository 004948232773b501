"""Images in an .npz file. The headers are checked before anything is unpacked."""

from __future__ import annotations

import math
import zipfile
from typing import IO, Any

import numpy as np

from adascale.core.errors import InputError
from adascale.images.limits import check_pixels, most_array_bytes
from adascale.storage.remote import Place, opened

Array = np.ndarray[tuple[int, ...], Any]
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_npz(path: Place, max_pixels: int) -> tuple[Array, list[int] | None]:
    """The images, uint8 (N, H, W) or (N, H, W, 3), and their labels, if there is one whole number for each.

    Labels of any other kind count as none; another number of them is refused.
    """
    try:
        headers = _headers(path)
    except Exception as error:  # damaged archives raise exceptions of many kinds
        raise _unreadable(path, error) from error
    _check_images(path, headers.get("images"), max_pixels)
    _check_labels(path, headers)
    usable = "labels" in headers and len(headers["labels"][0]) == 1 and headers["labels"][1].kind in "iu"
    kept = ("images", "labels") if usable else ("images",)
    try:
        with opened(path) as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in kept}
    except Exception as error:
        raise _unreadable(path, error) from error
    labels = arrays.get("labels")
    return arrays["images"], None if labels is None else labels.tolist()


def _headers(path: Place) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Shape and type of the arrays that matter here."""
    with opened(path) as raw, zipfile.ZipFile(raw) as archive:
        names = {name.removesuffix(".npy"): name for name in archive.namelist()}
        found = {}
        for array in {"images", "labels"} & set(names):
            with archive.open(names[array]) as member:
                found[array] = _header(member)
    return found


def _header(member: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(member)
    if version not in _HEADERS:
        raise ValueError(f"an array of the format {version}")
    shape, _, dtype = _HEADERS[version](member)
    return shape, dtype


def _check_images(path: Place, header: tuple[tuple[int, ...], np.dtype[Any]] | None, max_pixels: int) -> None:
    shape, dtype = header or ((), None)
    if header is None or dtype != np.uint8 or not (len(shape) == 3 or shape[3:] == (3,)):
        given = "no array 'images'" if header is None else f"images of {dtype} {shape}"
        raise InputError(f"{path} has {given}; it needs uint8 (N, H, W) or (N, H, W, 3) under 'images'.")
    if not shape[0]:
        raise InputError(f"{path} holds no image; its array 'images' is empty.")
    if not math.prod(shape):
        raise InputError(f"{path} has images of {shape[2]} x {shape[1]} pixels; each side must be at least 1.")
    most = most_array_bytes(max_pixels)
    if math.prod(shape) > most:
        raise InputError(
            f"{path} has images of {dtype} {shape}, {math.prod(shape)} bytes; max_pixels={max_pixels} allows {most} "
            "for one .npz. Split it, or raise the limit."
        )
    try:
        check_pixels(shape[2], shape[1], max_pixels)
    except ValueError as error:
        raise InputError(f"{path} has too large images: {error}.") from error


def _check_labels(path: Place, headers: dict[str, tuple[tuple[int, ...], np.dtype[Any]]]) -> None:
    """Their number must be that of the images, so that no more than that is unpacked."""
    if "labels" in headers and (labels := headers["labels"][0])[:1] != headers["images"][0][:1]:
        images = headers["images"][0][0]
        raise InputError(f"{path} has {images} images and {math.prod(labels)} labels; give one for each.")


def _unreadable(path: Place, error: Exception) -> InputError:
    reason = " ".join(str(error).split())[:200]
    return InputError(f"{path} cannot be read as .npz ({reason}); write it with numpy.savez.")
