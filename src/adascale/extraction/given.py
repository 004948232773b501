"""What people have, as batches of inputs: paths, folders, Pillow images, arrays and bytes, or tensors as ever."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from adascale.core.errors import InputError
from adascale.extraction.batches import IMAGE_KEYS, LABEL_KEYS, Passes, batches
from adascale.images.loader import load_batches
from adascale.images.pixels import Item, is_pixels, name_of
from adascale.images.preprocess import Preprocess
from adascale.images.sources import ImageSet, find_images
from adascale.images.stored import RemoteFile
from adascale.storage.remote import Url, as_place

NEEDS_PREPROCESS = (
    "Images need to be turned into inputs, and the detector does not say how; make it with "
    "preprocess=Preprocess(size=, crop=, mean=, std=) or by OODDetector.from_spec, or give normalised tensors."
)


class Given(NamedTuple):
    """A batch of inputs. names: those of the images, empty for tensors. failures: why others could not be read.

    raw: whether these are tensors as the user gave them, not images that were preprocessed here.
    """

    images: Tensor
    labels: Tensor | None
    names: list[str]
    failures: Mapping[str, str]
    raw: bool


def given_batches(source: Any, preprocess: Preprocess | None, batch_size: int = 32) -> Iterator[Given]:
    """Batches from images of any kind, which ``preprocess`` turns into inputs, or from what `batches` takes.

    Images are a path or a URL, a folder, a glob, an image list, an .npz, bytes, a Pillow image, a uint8 array (H, W, C)
    or (N, H, W, C), a list or iterable of such, with labels if they are ``(image, label)`` or ``{"image": ..., "label":
    ...}``, or the pair ``(images, labels)``.
    """
    batch_size = Passes(batch_size).batch_size  # checked
    found = _image_set(source, 3 if preprocess is None else len(preprocess.mean))
    if found is not None:
        yield from _loaded(found, preprocess, batch_size)
        return
    if isinstance(source, Tensor | np.ndarray | Mapping) or _is_tensor_pair(source) or not _can_iterate(source):
        yield from _tensors(source, batch_size)
        return
    entries = iter(source)
    first = list(islice(entries, 1))
    rest = chain(first, entries)
    if not first or _entry(first[0]) is None:
        yield from _tensors(rest, batch_size)
    elif isinstance(first[0], str | os.PathLike | Url):
        yield from _loaded(find_images(list(rest)), preprocess, batch_size)
    else:
        yield from _streamed(rest, preprocess, batch_size)


def images_of(source: Any, channels: int = 3) -> ImageSet | None:
    """The images of a folder, paths, an array or a list, not yet preprocessed; None for tensors and other iterables."""
    return _image_set(source, channels) or _item_list(source)


def _image_set(source: Any, channels: int) -> ImageSet | None:
    """The images of a source that is complete in itself; None for tensors and for iterables."""
    if isinstance(source, ImageSet):
        return source
    if isinstance(source, str | os.PathLike | Url):
        return find_images(source)
    if isinstance(source, tuple) and len(source) == 2 and _entry(source[1]) is None:
        return _labelled(_image_set(source[0], channels) or _item_list(source[0]), source[1])
    if _is_item(source):
        return ImageSet([name_of(source, "image 0")], items=[_item(source)])
    if isinstance(source, np.ndarray) and source.dtype == np.uint8 and _is_stack(source, channels):
        return ImageSet([f"image {i}" for i in range(len(source))], array=source)
    return None


def _is_stack(array: np.ndarray[Any, Any], channels: int) -> bool:
    """Whether a uint8 array holds several images: (N, H, W, C), or grey ones (N, H, W).

    (3, H, W) for a network of colour images is one image with the channels first.
    """
    if array.ndim == 4:
        return array.shape[3] in (1, 3, 4)
    return array.ndim == 3 and array.shape[2] not in (1, 3, 4) and not array.shape[0] == channels == 3


def _labelled(found: ImageSet | None, labels: Any) -> ImageSet | None:
    if found is None:
        return None
    classes = torch.as_tensor(labels).reshape(-1).tolist()
    if len(classes) != len(found) or not all(isinstance(label, int) for label in classes):
        raise InputError(f"{len(found)} images came with {len(classes)} labels; give one whole number for each.")
    return replace(found, labels=classes)


def _item_list(source: Any) -> ImageSet | None:
    if not isinstance(source, list | tuple) or not source or not all(map(_is_item, source)):
        return None
    if all(isinstance(item, str | os.PathLike | Url) for item in source):
        return find_images(source)
    names = [name_of(item, f"image {i}") for i, item in enumerate(source)]
    return ImageSet(names, items=list(map(_item, source)))


def _is_item(value: Any) -> bool:
    """Whether this is one image, not a tensor."""
    if isinstance(value, np.ndarray):
        return is_pixels(value)
    return isinstance(value, str | os.PathLike | Url | bytes | bytearray | memoryview | Image.Image)


def _item(value: Any) -> Item:
    if isinstance(value, str | os.PathLike | Url):
        place = as_place(value)
        return RemoteFile(place, None, None) if isinstance(place, Url) else place
    kept: Item = bytes(value) if isinstance(value, bytearray | memoryview) else value
    return kept


def _entry(value: Any) -> tuple[Any, Any] | None:
    """``(image, label or None)`` if this is an image, ``(image, label)`` or a dict of both."""
    if isinstance(value, Mapping):
        image = next((value[key] for key in IMAGE_KEYS if key in value), None)
        label = next((value[key] for key in LABEL_KEYS if key in value), None)
        return (image, label) if _is_item(image) else None
    if isinstance(value, tuple | list) and len(value) == 2 and _is_item(value[0]):
        return (value[0], value[1]) if isinstance(value[1], int | np.integer) else None
    return (value, None) if _is_item(value) else None


def _is_tensor_pair(source: Any) -> bool:
    return isinstance(source, tuple) and len(source) == 2 and isinstance(source[0], Tensor | np.ndarray)


def _can_iterate(source: Any) -> bool:
    return isinstance(source, Iterable) or hasattr(source, "__getitem__")


def _tensors(source: Any, batch_size: int) -> Iterator[Given]:
    return (Given(images, labels, [], {}, True) for images, labels in batches(source, batch_size))


def _loaded(images: ImageSet, preprocess: Preprocess | None, batch_size: int) -> Iterator[Given]:
    if preprocess is None:
        raise InputError(NEEDS_PREPROCESS)
    for batch in load_batches(images, preprocess, batch_size):
        failures = {images.names[i]: reason for i, reason in batch.failures.items()}
        yield Given(batch.images, batch.labels, [images.names[i] for i in batch.indices], failures, False)


def _streamed(source: Iterator[Any], preprocess: Preprocess | None, batch_size: int) -> Iterator[Given]:
    """Images from an iterable, ``batch_size`` of them in memory at a time."""
    count = 0
    while chunk := list(islice(source, batch_size)):
        entries = [_entry(value) for value in chunk]
        if None in entries:
            place = entries.index(None)
            raise InputError(
                f"Image {count + place} came as {type(chunk[place]).__name__}, the first as an image; give one kind."
            )
        known = [entry for entry in entries if entry is not None]
        names = [name_of(image, f"image {count + i}") for i, (image, _) in enumerate(known)]
        labels = [int(label) for _, label in known if label is not None]
        items = [_item(image) for image, _ in known]
        yield from _loaded(
            ImageSet(names, items=items, labels=labels if len(labels) == len(items) else None), preprocess, batch_size
        )
        count += len(chunk)
