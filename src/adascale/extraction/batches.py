"""Batches of images and labels from tensors, arrays, loaders and other iterables."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from adascale.core.errors import AdascaleWarning, InputError

IMAGE_KEYS = ("pixel_values", "image", "images", "img", "x", "data", "input", "inputs")
LABEL_KEYS = ("labels", "label", "target", "targets", "y")

_KINDS = "give paths, a folder, Pillow images, uint8 arrays (H, W, C), or tensors (N, C, H, W) or batches of them"

Batch = tuple[Tensor, "Tensor | None"]


@dataclass(frozen=True)
class Passes:
    """How images go through the network: ``batch_size`` at a time, decoded by ``workers`` threads (None: up to 8)."""

    batch_size: int = 32
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise InputError(f"batch_size={self.batch_size}; it counts images, at least 1.")


def batches(source: Any, batch_size: int = 32) -> Iterator[Batch]:
    """``(images, labels or None)`` from a tensor, an array, ``(images, labels)``, a DataLoader or any iterable.

    The items of an iterable may be batches (N, C, H, W) or single images (C, H, W), which are stacked. Each item is a
    tensor, a ``(images, labels, ...)`` pair or a dict such as ``{"pixel_values": ..., "labels": ...}``.
    """
    batch_size = Passes(batch_size).batch_size  # checked
    if isinstance(source, Tensor | np.ndarray | dict) or _is_pair(source):
        images, labels = _parts(source)
        if images.ndim == 3:
            images, labels = images[None], None if labels is None else labels.reshape(1)
        for start in range(0, len(images), batch_size):
            rows = slice(start, start + batch_size)
            yield images[rows], None if labels is None else labels[rows]
        return
    if not isinstance(source, Iterable) and not hasattr(source, "__getitem__"):
        raise InputError(f"Images came as {type(source).__name__}; {_KINDS}.")
    waiting: list[Batch] = []
    for item in source:
        images, labels = _parts(item)
        if images.ndim == 4:
            if len(images):
                yield images, labels
            continue
        waiting.append((images, labels))
        if len(waiting) == batch_size:
            yield _stacked(waiting)
            waiting = []
    if waiting:
        yield _stacked(waiting)


def _is_pair(source: Any) -> bool:
    """Whether this is ``(images, labels)`` and not a tuple of images or batches."""
    return isinstance(source, tuple) and len(source) == 2 and getattr(source[1], "ndim", 0) < 3


def _parts(item: Any) -> Batch:
    labels = None
    if isinstance(item, Mapping):
        labels = next((item[key] for key in LABEL_KEYS if key in item), None)
        found = next((item[key] for key in IMAGE_KEYS if key in item), None)
        if found is None:
            raise InputError(f"A batch has the keys {list(item)}; the images must be under one of {list(IMAGE_KEYS)}.")
        item = found
    elif isinstance(item, tuple | list) and item:
        item, labels = item[0], item[1] if len(item) > 1 else None
    if isinstance(item, np.ndarray):
        item = _from_array(item)
    if not isinstance(item, Tensor):
        raise InputError(f"Images came as {type(item).__name__}; {_KINDS}.")
    if item.ndim not in (3, 4):
        raise InputError(f"Images have shape {tuple(item.shape)}; they must be (N, C, H, W), or (C, H, W) for one.")
    return item, _as_labels(labels, len(item) if item.ndim == 4 else 1)


def _from_array(array: np.ndarray[Any, Any]) -> Tensor:
    """The array as a tensor; a copy where PyTorch cannot share it, as with views of Pillow images and flipped ones."""
    shared = array.flags.writeable and all(stride >= 0 for stride in array.strides)
    return torch.from_numpy(array if shared else array.copy())


def _as_labels(labels: Any, count: int) -> Tensor | None:
    """Class indices if the batch has one for each image. Anything else (file names, boxes) is not a label."""
    if labels is None or isinstance(labels, str) or (isinstance(labels, Sequence) and not len(labels)):
        return None
    try:
        tensor = _from_array(labels) if isinstance(labels, np.ndarray) else torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError):
        return None
    if tensor.ndim == 2 and len(tensor) == count and _several_at_once(tensor):
        warnings.warn(
            f"The labels, of shape {tuple(tensor.shape)}, name several classes for one image; they are left out. "
            "The methods here are for networks that choose one class for each image, not for multi-label networks.",
            AdascaleWarning,
            stacklevel=2,
        )
    if tensor.ndim > 1 or tensor.numel() != count or tensor.is_floating_point():
        return None
    return tensor.cpu().long().reshape(count)


def _several_at_once(labels: Tensor) -> bool:
    """Whether rows of zeros and ones name several classes for an image."""
    return bool(((labels == 0) | (labels == 1)).all() and (labels.sum(1) > 1).any())


def _stacked(items: list[Batch]) -> Batch:
    shapes = {tuple(images.shape) for images, _ in items}
    if len(shapes) > 1:
        raise InputError(f"Single images differ in shape: {sorted(shapes)}; resize them to one size first.")
    labels = [label.reshape(()) for _, label in items if label is not None]
    return torch.stack([images for images, _ in items]), torch.stack(labels) if len(labels) == len(items) else None
