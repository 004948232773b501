"""Batches of decoded and preprocessed images, made by threads; an unreadable image is reported, never fatal."""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import torch
from PIL import Image
from torch import Tensor

from adascale.core.errors import AdascaleWarning, InputError
from adascale.images.pixels import READ_ERRORS, is_deep, shallow_hint, why_unreadable
from adascale.images.preprocess import Preprocess
from adascale.images.sources import ImageSet
from adascale.images.stored import Stored

_REMOTE_WORKERS = 16


@dataclass(frozen=True, eq=False)
class Loaded:
    """One batch: the images that could be read, their indices, and why the others could not."""

    images: Tensor
    indices: list[int]
    failures: dict[int, str] = field(default_factory=dict)
    labels: Tensor | None = None


def load_batches(
    images: ImageSet, preprocess: Preprocess, batch_size: int = 32, start: int = 0, workers: int | None = None
) -> Iterator[Loaded]:
    """The images in batches, in order, from index ``start`` on."""
    ranges = (range(i, min(i + batch_size, len(images))) for i in range(start, len(images), batch_size))
    return load_ranges(images, preprocess, ranges, workers)


def load_ranges(
    images: ImageSet, preprocess: Preprocess, ranges: Iterable[range], workers: int | None = None
) -> Iterator[Loaded]:
    """A batch for each of these ranges of indices, decoded ahead in threads (Pillow releases Python's lock)."""
    workers, depths = workers or _workers(images), _Depths()
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[tuple[range, list[Future[Tensor | str]]]] = deque()
        try:
            for indices in ranges:
                waiting.append((indices, [pool.submit(_read, images, i, preprocess, depths) for i in indices]))
                if len(waiting) > 2:
                    yield _gathered(images, *waiting.popleft())
            while waiting:
                yield _gathered(images, *waiting.popleft())
            depths.tell()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _workers(images: ImageSet) -> int:
    """One thread per core, at most 8; more for images that come over a network, because they mostly wait."""
    if images.items and isinstance(first := images.items[0], Stored) and first.remote:
        return _REMOTE_WORKERS
    return min(8, os.cpu_count() or 1)


def _gathered(images: ImageSet, indices: range, futures: list[Future[Tensor | str]]) -> Loaded:
    results = {index: future.result() for index, future in zip(indices, futures, strict=True)}
    tensors = {index: result for index, result in results.items() if isinstance(result, Tensor)}
    failures = {index: result for index, result in results.items() if isinstance(result, str)}
    shapes = {tuple(tensor.shape) for tensor in tensors.values()}
    if len(shapes) > 1:
        raise InputError(f"Images differ in shape after preprocessing: {sorted(shapes)}; give a crop, or HEIGHT,WIDTH.")
    stacked = torch.stack(list(tensors.values())) if tensors else torch.empty(0)
    if torch.cuda.is_available() and torch.cuda.memory_allocated():  # a network is on the GPU
        stacked = stacked.pin_memory()  # so that the copy to the GPU does not block
    labels = None if images.labels is None else torch.tensor([images.labels[i] for i in tensors], dtype=torch.int64)
    return Loaded(stacked, list(tensors), failures, labels)


def _read(images: ImageSet, index: int, preprocess: Preprocess, depths: _Depths) -> Tensor | str:
    try:
        with images.opened(index, preprocess.least if images.change is None else None) as image:
            depths.see(image, images.names[index])
            return preprocess.normalised(image)
    except READ_ERRORS as error:
        return why_unreadable(error)


class _Depths:
    """Watches for 16-bit images that hold 12-bit data. One dark image proves nothing; all of them being dark does."""

    def __init__(self) -> None:
        self._hint, self._all_dark = "", True

    def see(self, image: Image.Image, name: str) -> None:
        if self._all_dark and is_deep(image):
            found = shallow_hint(image, name)
            self._hint = self._hint or found
            if not found:  # never set back: another thread may have seen a bright image meanwhile
                self._all_dark = False

    def tell(self) -> None:
        """Warn, once, if every 16-bit image was so dark."""
        if self._hint and self._all_dark:
            warnings.warn(self._hint, AdascaleWarning, stacklevel=2)
