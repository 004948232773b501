"""Pictures for tests: small random ones, and a folder of files that are broken in every way."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from adascale import Preprocess

RGB = Preprocess(size=16, crop=16, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
GREY = Preprocess(size=16, crop=16, mean=(0.5,), std=(0.25,))


def picture(width: int = 24, height: int = 18, seed: int = 0) -> Image.Image:
    values = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(values)


def saved(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def odd_folder(folder: Path) -> dict[str, str | None]:
    """One file of each kind that goes wrong elsewhere, and the reason we give where it cannot work."""
    folder.mkdir(parents=True, exist_ok=True)
    picture().save(folder / "fine.jpg")
    (folder / "text.jpg").write_text("I am no image at all")
    buffer = io.BytesIO()
    picture(64, 64).save(buffer, "JPEG")
    (folder / "truncated.jpg").write_bytes(buffer.getvalue()[: len(buffer.getvalue()) // 2])
    (folder / "empty.png").write_bytes(b"")
    picture().convert("L").save(folder / "grey.png")
    picture().convert("CMYK").save(folder / "cmyk.jpg")
    deep = (np.arange(24 * 18, dtype=np.uint16).reshape(18, 24) * 150).astype(np.uint16)
    Image.fromarray(deep).save(folder / "deep16.png")
    frames = [picture(seed=s) for s in range(3)]
    frames[0].save(folder / "animated.gif", save_all=True, append_images=frames[1:])
    picture(1, 1).save(folder / "one_pixel.png")
    picture().convert("RGBA").save(folder / "alpha.png")
    picture().convert("P").save(folder / "palette.png", transparency=b"\x00\x01")
    Image.fromarray(np.ones((4, 4), np.float32)).save(folder / "float.tiff")
    return {
        "alpha.png": None,
        "animated.gif": None,
        "cmyk.jpg": None,
        "deep16.png": None,
        "empty.png": "not an image",
        "fine.jpg": None,
        "float.tiff": "no defined white",
        "grey.png": None,
        "one_pixel.png": None,
        "palette.png": None,
        "text.jpg": "not an image",
        "truncated.jpg": "truncated",
    }
