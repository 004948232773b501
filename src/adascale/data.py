"""Images from folders, lists, arrays and files, decoded and normalised in batches. Bad files are named, never fatal."""

from __future__ import annotations

import hashlib
import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol, get_args

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from adascale.errors import InputError

SUFFIXES = frozenset((".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"))
_MOST_PIXELS = 50_000_000
_DRAFTED = "adascale: size and box before draft"
LIST_SUFFIXES = frozenset((".txt", ".lst", ".list"))
Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"]


@dataclass(frozen=True)
class Preprocess:
    """How an image becomes a network's input: resize, centre crop, scale to [0, 1], normalise.

    size: length of the shorter side, or (height, width) to squash to. crop: side or (height, width), None for no crop.
    mean, std: one value per channel; a single value means greyscale input. draft: decode large JPEGs at a half, a
    quarter or an eighth of their size, never below twice ``size``: faster, and pixels differ slightly (docs/speed.md).
    """

    size: int | tuple[int, int]
    crop: int | tuple[int, int] | None
    mean: tuple[float, ...]
    std: tuple[float, ...]
    interpolation: Interpolation = "bilinear"
    draft: bool = False

    def __post_init__(self) -> None:
        for name in ("size", "crop", "mean", "std"):  # JSON and TOML bring lists
            value = getattr(self, name)
            object.__setattr__(self, name, tuple(value) if isinstance(value, list) else value)
        if min(_sides(self.size) + _sides(self.crop)) < 1:
            raise InputError(f"size={self.size} and crop={self.crop}; every side must be at least 1.")
        if len(self.mean) != len(self.std) or len(self.mean) not in (1, 3):
            raise InputError(f"mean={self.mean} and std={self.std}; give both 3 values (RGB) or both 1 (greyscale).")
        if min(self.std) <= 0:
            raise InputError(f"std={self.std}; every value must be above 0.")
        if self.interpolation not in get_args(Interpolation):
            known = ", ".join(get_args(Interpolation))
            raise InputError(f"interpolation={self.interpolation!r}; choose one of {known}.")

    def __call__(self, image: Image.Image) -> Tensor:
        """The normalised tensor (C, H, W)."""
        image = eight_bit(image).convert("RGB" if len(self.mean) == 3 else "L")
        pixels = np.array(self._crop(self._resize(image)), dtype=np.uint8)
        tensor = torch.from_numpy(pixels if pixels.ndim == 3 else pixels[:, :, None])
        tensor = tensor.permute(2, 0, 1).contiguous().float().div_(255)
        shape = (-1, 1, 1)
        return tensor.sub_(torch.tensor(self.mean).view(shape)).div_(torch.tensor(self.std).view(shape))

    def _resize(self, image: Image.Image) -> Image.Image:
        (width, height), box = image.info.get(_DRAFTED, (image.size, None))
        if isinstance(self.size, int):
            short, long = sorted((width, height))
            new_long = max(1, int(self.size * long / short))
            target = (self.size, new_long) if width <= height else (new_long, self.size)
        else:
            target = (self.size[1], self.size[0])
        if target[0] * target[1] > _MOST_PIXELS:
            raise ValueError(f"{width} x {height} would be resized to {target[0]} x {target[1]}: too long and thin")
        if target == image.size and box is None:
            return image
        return image.resize(target, Image.Resampling[self.interpolation.upper()], box=box)

    def _crop(self, image: Image.Image) -> Image.Image:
        if self.crop is None:
            return image
        height, width = (self.crop, self.crop) if isinstance(self.crop, int) else self.crop
        left, top = round((image.width - width) / 2), round((image.height - height) / 2)
        return image.crop((left, top, left + width, top + height))


def _sides(value: int | tuple[int, int] | None) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else () if value is None else (value,)


def eight_bit(image: Image.Image) -> Image.Image:
    """Pillow clips deeper images to 255 when it converts them; scale them instead."""
    if image.mode == "F":
        raise ValueError("a floating point image has no defined white; convert it to 8 or 16 bit")
    if image.mode == "P" and "transparency" in image.info:
        return image.convert("RGBA")
    if not image.mode.startswith("I"):
        return image
    values = np.asarray(image).astype(np.float64)
    scale = 1 if values.max(initial=0) <= 255 and image.mode == "I" else 257
    return Image.fromarray((values / scale).round().clip(0, 255).astype(np.uint8))


def _draft(image: Image.Image, least: int) -> None:
    """Ask the decoder for a smaller image; only JPEG's can.

    The box says which part of the result is the picture, where its size cannot be divided.
    """
    size = image.size
    answer = image.draft(None, (least, least))
    if answer is not None and image.size != size:
        image.info[_DRAFTED] = (size, answer[1])


class Change(Protocol):
    """What is done to every image after it is opened. Its ``repr`` says all that shapes the result."""

    def __call__(self, image: Image.Image, name: str) -> Image.Image: ...


@dataclass(frozen=True)
class ImageSet:
    """Named images in a fixed order: files, or the rows of an array; with class labels where they are known."""

    names: Sequence[str]
    paths: Sequence[Path] = ()
    array: np.ndarray[tuple[int, ...], np.dtype[np.uint8]] | None = None
    labels: Sequence[int] | None = None
    change: Change | None = None

    def __len__(self) -> int:
        return len(self.names)

    def open(self, index: int, least: int | None = None) -> Image.Image:
        """One image. least: its sides may come smaller, not below this, where the decoder saves time by it."""
        image: Image.Image
        if self.array is not None:
            image = Image.fromarray(self.array[index])
        else:
            with Image.open(self.paths[index]) as image:
                if least is not None:
                    _draft(image, least)
                image.load()  # of several frames the first
        return image if self.change is None else self.change(image, self.names[index])

    def subset(self, indices: Sequence[int]) -> ImageSet:
        """These images, in this order."""
        return replace(
            self,
            names=[self.names[i] for i in indices],
            paths=[self.paths[i] for i in indices] if self.paths else (),
            array=None if self.array is None else self.array[list(indices)],
            labels=None if self.labels is None else [self.labels[i] for i in indices],
        )

    def fingerprint(self) -> str:
        """Changes when a name, a file's place, size or time, an array's content or the change made to images does."""
        digest = hashlib.sha256("\n".join(self.names).encode("utf8", "surrogateescape"))
        digest.update(repr((self.labels, self.change)).encode())
        if self.array is not None:
            digest.update(np.ascontiguousarray(self.array).data)
        for path in self.paths:
            try:
                status = path.stat()
                identity = f"{path.resolve()} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
                digest.update(identity.encode("utf8", "surrogateescape"))
            except OSError:
                digest.update(b"missing")
        return digest.hexdigest()


def find_images(source: str | Path, root: str | Path | None = None) -> ImageSet:
    """A folder (recursive), an image list, an .npz, one image file, or ``-`` for a list on standard input.

    List lines are ``path`` or ``path label`` (OpenOOD's format); relative paths start at ``root``, by default the
    list's folder. An .npz holds ``images`` (uint8: N, H, W or N, H, W, 3) and, if known, ``labels``.
    """
    if str(source) == "-":
        return _from_list(sys.stdin.read(), Path(root or "."), "standard input")
    path = Path(source)
    if path.is_dir():
        found = sorted(p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
        if not found:
            raise InputError(f"The folder {path} holds no image ({', '.join(sorted(SUFFIXES))}).")
        return ImageSet([str(p.relative_to(path)) for p in found], found)
    if not path.exists():
        raise InputError(f"There is no file or folder {path}; give a folder, an image, an image list or an .npz.")
    if path.suffix.lower() == ".npz":
        return _from_npz(path)
    if path.suffix.lower() in LIST_SUFFIXES:
        return _from_list(path.read_text("utf8", "surrogateescape"), Path(root) if root else path.parent, str(path))
    return ImageSet([path.name], [path])


def _from_list(text: str, root: Path, origin: str) -> ImageSet:
    names, labels = [], []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _, last = line.rpartition(" ")
        labelled = name and last.lstrip("-").isdigit()
        names.append(name if labelled else line)
        if labelled:
            labels.append(int(last))
    if not names:
        raise InputError(f"The image list {origin} is empty; it needs one path a line, a label may follow.")
    return ImageSet(names, [root / name for name in names], labels=labels if len(labels) == len(names) else None)


def _from_npz(path: Path) -> ImageSet:
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {key: file[key] for key in ("images", "labels") if key in file.files}
    except Exception as error:  # a damaged archive raises almost anything
        raise InputError(f"{path} cannot be read as .npz ({error}).") from error
    images = arrays.get("images")
    if images is None or images.dtype != np.uint8 or not (images.ndim == 3 or images.shape[3:] == (3,)):
        given = "no array 'images'" if images is None else f"images of {images.dtype} {images.shape}"
        raise InputError(f"{path} has {given}; it needs uint8 (N, H, W) or (N, H, W, 3) under 'images'.")
    if not len(images):
        raise InputError(f"{path} holds no image; its array 'images' is empty.")
    labels = arrays["labels"].tolist() if "labels" in arrays else None
    if labels is not None and len(np.shape(labels)[:1]) and len(labels) != len(images):
        raise InputError(f"{path} has {len(images)} images and {len(labels)} labels; give one for each.")
    return ImageSet([f"{path.name}[{i}]" for i in range(len(images))], array=images, labels=labels)


@dataclass(frozen=True, eq=False)
class Loaded:
    """One batch: the images that could be read, their indices, and the reasons for the others."""

    images: Tensor
    indices: list[int]
    failures: dict[int, str] = field(default_factory=dict)
    labels: Tensor | None = None


def load_batches(
    images: ImageSet, preprocess: Preprocess, batch_size: int = 32, start: int = 0, workers: int | None = None
) -> Iterator[Loaded]:
    """Batches in order, from index ``start`` on."""
    ranges = (range(i, min(i + batch_size, len(images))) for i in range(start, len(images), batch_size))
    return load_ranges(images, preprocess, ranges, workers)


def load_ranges(
    images: ImageSet, preprocess: Preprocess, ranges: Iterable[range], workers: int | None = None
) -> Iterator[Loaded]:
    """A batch for each of these ranges of indices, decoded ahead in threads (Pillow releases the lock)."""
    workers = workers or min(8, os.cpu_count() or 1)
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[tuple[range, list[Future[Tensor | str]]]] = deque()
        try:
            for indices in ranges:
                waiting.append((indices, [pool.submit(_read, images, i, preprocess) for i in indices]))
                if len(waiting) > 2:
                    yield _gathered(images, *waiting.popleft())
            while waiting:
                yield _gathered(images, *waiting.popleft())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _gathered(images: ImageSet, indices: range, futures: list[Future[Tensor | str]]) -> Loaded:
    results = {index: future.result() for index, future in zip(indices, futures, strict=True)}
    tensors = {index: result for index, result in results.items() if isinstance(result, Tensor)}
    failures = {index: result for index, result in results.items() if isinstance(result, str)}
    shapes = {tuple(tensor.shape) for tensor in tensors.values()}
    if len(shapes) > 1:
        raise InputError(f"Images differ in shape after preprocessing: {sorted(shapes)}; give a crop, or HEIGHT,WIDTH.")
    stacked = torch.stack(list(tensors.values())) if tensors else torch.empty(0)
    if torch.cuda.is_available() and torch.cuda.memory_allocated():  # a network is on the GPU
        stacked = stacked.pin_memory()  # then the copy to the GPU does not wait
    labels = None if images.labels is None else torch.tensor([images.labels[i] for i in tensors], dtype=torch.int64)
    return Loaded(stacked, list(tensors), failures, labels)


def _read(images: ImageSet, index: int, preprocess: Preprocess) -> Tensor | str:
    try:
        least = 2 * max(_sides(preprocess.size)) if preprocess.draft and images.change is None else None
        return preprocess(images.open(index, least))
    except FileNotFoundError:
        return "there is no such file"
    except UnidentifiedImageError:
        return "not an image, or a format that Pillow cannot read"
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError, MemoryError) as error:
        return " ".join(str(error).split()) or type(error).__name__
