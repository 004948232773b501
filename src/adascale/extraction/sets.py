"""The outputs of an image set on disk: extracted shard by shard, resumable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from adascale.core.errors import AdascaleError, InputError
from adascale.core.progress import progress
from adascale.core.types import View
from adascale.extraction.cache import Extracted, Shard, ShardCache, cache_key
from adascale.extraction.extract import extract_batch, extract_views
from adascale.images.loader import load_ranges
from adascale.images.outliers import Tamper
from adascale.images.preprocess import Preprocess
from adascale.images.sources import ImageSet
from adascale.network.classifier import Classifier


def extract_images(
    classifier: Classifier,
    images: ImageSet,
    preprocess: Preprocess,
    views: Sequence[View],
    folder: Path,
    *,
    tamper: Tamper | None = None,
    title: str = "Reading images",
    batch_size: int = 32,
    workers: int | None = None,
) -> Extracted:
    """The outputs of an image set, in shards under ``folder``. Only what is not there yet costs a network pass."""
    views = list(dict.fromkeys(views))
    cache = cache_of(classifier, images, preprocess, folder, tamper, batch_size)
    ranges = [range(i, min(i + batch_size, len(images))) for i in range(0, len(images), batch_size)]
    shards, missing = _known(cache, len(ranges), views)
    left = sum(len(ranges[index]) for index in missing)
    with progress(title, len(images), len(images) - left) as advance:
        batches = load_ranges(images, preprocess, (ranges[index] for index in missing), workers)
        for (index, lacking), batch in zip(missing.items(), batches, strict=True):
            if batch.indices:
                _locate(classifier, batch.images)
                inputs = batch.images if tamper is None else tamper(batch.images)
            if shards[index] is None:
                failed = {images.names[i]: reason for i, reason in batch.failures.items()}
                shard = Shard(None, failed)
                if batch.indices:
                    outputs = extract_batch(classifier, inputs, lacking, batch.labels)
                    shard = Shard(outputs, failed, classifier.head_name, tuple(inputs.shape[1:]))
                cache.write(index, shard)
                shards[index] = _only_numbers(shard)
            else:
                for view, perturbed in extract_views(classifier, inputs, lacking).items():
                    cache.write_view(index, view, perturbed)
            advance(len(ranges[index]))
    return _extracted(classifier, images, cache, views, [shard for shard in shards if shard is not None])


def cache_of(
    classifier: Classifier,
    images: ImageSet,
    preprocess: Preprocess,
    folder: Path,
    tamper: Tamper | None = None,
    batch_size: int = 32,
) -> ShardCache:
    """Where the outputs of these images are kept: one place for each network, data, preprocessing and batch size."""
    network = (classifier.fingerprint(), classifier.code(), classifier.asked_for)
    return ShardCache(folder, cache_key(*network, images.fingerprint(), preprocess, tamper, batch_size))


def _known(cache: ShardCache, count: int, views: Sequence[View]) -> tuple[list[_Summary | None], dict[int, list[View]]]:
    """What is there of each shard, and which views each incomplete one lacks; one shard in memory at a time."""
    shards, missing = list[_Summary | None](), dict[int, list[View]]()
    for index in range(count):
        shard, lacking = cache.read(index, views)
        shards.append(_only_numbers(shard))
        if shard is None or lacking:
            missing[index] = lacking
    return shards, missing


def _only_numbers(shard: Shard | None) -> _Summary | None:
    if shard is None:
        return None
    return _Summary(len(shard.outputs) if shard.outputs else 0, shard.failures, shard.head, shard.shape)


class _Summary(NamedTuple):
    rows: int
    failures: Mapping[str, str]
    head: str | None
    shape: tuple[int, ...]


def _extracted(
    classifier: Classifier, images: ImageSet, cache: ShardCache, views: Sequence[View], shards: Sequence[_Summary]
) -> Extracted:
    failures = {name: reason for shard in shards for name, reason in shard.failures.items()}
    used = next((shard for shard in shards if shard.rows), None)
    if used is None or used.head is None:
        name, reason = next(iter(failures.items()))
        raise InputError(f"None of the {len(images)} images can be read ({name}: {reason}).")
    if classifier.head_name is None:
        classifier.adopt(used.head)
    return Extracted(cache, views, [shard.rows for shard in shards], failures, used.shape)


def _locate(classifier: Classifier, images: Tensor) -> None:
    """Find the head on the first batch, before any long work."""
    if classifier.located:
        return
    try:
        classifier.locate(images)
    except AdascaleError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        shape = tuple(images.shape[1:])
        raise InputError(f"The network cannot take an input of shape {shape}: {reason}") from error
