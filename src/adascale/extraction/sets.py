"""The outputs of image sets on disk: extracted shard by shard, resumable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from torch import Tensor

from adascale.core.errors import AdascaleError, InputError
from adascale.core.progress import progress
from adascale.core.types import View
from adascale.extraction.batches import Passes
from adascale.extraction.cache import Extracted, ShardCache, ShardInfo, cache_key
from adascale.extraction.extract import extract_batch, extract_views
from adascale.images.loader import load_ranges
from adascale.images.outliers import Tamper
from adascale.images.preprocess import Preprocess
from adascale.images.sources import ImageSet
from adascale.network.classifier import Classifier


@dataclass(frozen=True, eq=False)
class Extractor:
    """Runs image sets through one network into shards under ``folder``, for one run.

    The network is hashed once and every shard is verified once, so make a new extractor after weights have changed.
    """

    classifier: Classifier
    preprocess: Preprocess
    folder: Path
    passes: Passes = Passes()
    _caches: dict[str, ShardCache] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def fingerprint(self) -> str:
        """The hash of the network's weights."""
        return self.classifier.fingerprint()

    @cached_property
    def _network(self) -> tuple[object, ...]:
        network = self.classifier
        return self.fingerprint, network.code(), network.asked_for, network.precision

    def cache_of(self, images: ImageSet, tamper: Tamper | None = None) -> ShardCache:
        """Where the outputs of these images are kept: one place for each network, data, preprocessing, batch size."""
        made_by = (images.fingerprint(), self.preprocess, tamper, self.passes.batch_size)
        key = cache_key(*self._network, *made_by)
        return self._caches.setdefault(key, ShardCache(self.folder, key))

    def extract(
        self, images: ImageSet, views: Sequence[View], title: str = "Reading images", tamper: Tamper | None = None
    ) -> Extracted:
        """The outputs of an image set. Only what is not on disk yet costs a network pass."""
        views, size = list(dict.fromkeys(views)), self.passes.batch_size
        cache = self.cache_of(images, tamper)
        ranges = [range(i, min(i + size, len(images))) for i in range(0, len(images), size)]
        found = {index: cache.look_up(index, views) for index in range(len(ranges))}
        missing = {index: (info, lacking) for index, (info, lacking) in found.items() if info is None or lacking}
        left = sum(len(ranges[index]) for index in missing)
        with progress(title, len(images), len(images) - left) as advance:
            batches = load_ranges(images, self.preprocess, map(ranges.__getitem__, missing), self.passes.workers)
            for (index, (info, lacking)), batch in zip(missing.items(), batches, strict=True):
                inputs = batch.images
                if batch.indices:
                    _locate(self.classifier, inputs)
                    inputs = inputs if tamper is None else tamper(inputs)
                if info is not None:
                    for view, perturbed in extract_views(self.classifier, inputs, lacking).items():
                        cache.write_view(index, view, perturbed)
                else:
                    outputs = extract_batch(self.classifier, inputs, lacking, batch.labels) if batch.indices else None
                    failed = {images.names[i]: reason for i, reason in batch.failures.items()}
                    head, shape = (self.classifier.head_name, tuple(inputs.shape[1:])) if batch.indices else (None, ())
                    cache.write(index, outputs, ShardInfo(len(batch.indices), failed, head, shape))
                advance(len(ranges[index]))
        return self._extracted(images, cache, views, len(ranges))

    def _extracted(self, images: ImageSet, cache: ShardCache, views: Sequence[View], count: int) -> Extracted:
        shards = [info for index in range(count) if (info := cache.look_up(index, ())[0]) is not None]
        failures = {name: reason for shard in shards for name, reason in shard.failures.items()}
        used = next((shard for shard in shards if shard.rows), None)
        if used is None or used.head is None:
            name, reason = next(iter(failures.items()))
            raise InputError(f"None of the {len(images)} images can be read ({name}: {reason}).")
        if self.classifier.head_name is None:
            self.classifier.adopt(used.head)
        usable = [i for i, name in enumerate(images.names) if name not in failures]
        return Extracted(cache, views, [shard.rows for shard in shards], failures, usable, used.shape)


def _locate(classifier: Classifier, images: Tensor) -> None:
    """Find the head on the first batch, so that a network that cannot be used is refused before any long work."""
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
