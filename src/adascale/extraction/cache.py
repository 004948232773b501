"""The outputs of image sets on disk, in shards: long work resumes, and a new method costs no network pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from adascale.core.errors import AdascaleError, InputError
from adascale.core.memory import memory_bytes
from adascale.core.progress import Advance, progress
from adascale.core.shards import Run, Shards
from adascale.core.types import Need, Outputs, Tap
from adascale.extraction.batches import Passes
from adascale.extraction.extract import extract_batch, extract_needs, parted
from adascale.extraction.shard_cache import ShardCache, ShardInfo, cache_key, names_of
from adascale.images.loader import load_ranges
from adascale.images.outliers import Tamper
from adascale.images.preprocess import Preprocess
from adascale.images.sources import ImageSet
from adascale.network.classifier import Classifier
from adascale.storage.entries import use
from adascale.storage.remote import Place


class UnreadableError(InputError):
    """None of the images of a set can be read. failures: every image, with the reason."""

    def __init__(self, failures: Mapping[str, str], where: str = "") -> None:
        name, reason = next(iter(failures.items()))
        super().__init__(f"{where}None of the {len(failures)} images can be read ({name}: {reason}).")
        self.failures = failures


class Wanted(NamedTuple):
    """A batch to extract. shard: its index; rows: of its images; known: whether its clean outputs are on disk, so
    that only the views that are ``lacking`` have to be made.
    """

    shard: int
    rows: range
    known: bool
    lacking: Sequence[Need]


@dataclass(frozen=True, eq=False)
class Extracted:
    """The outputs of an image set, on disk.

    rows: the number of usable images of each shard; failures: the other images, with the reasons; usable: the indices
    of the usable images in the set; shape: that of an input. run: what runs the work of a fit on shards (see `Shards`).
    """

    cache: ShardCache
    needs: Sequence[Need]
    rows: Sequence[int]
    failures: Mapping[str, str]
    usable: Sequence[int]
    shape: tuple[int, ...]
    run: Run = map

    def __len__(self) -> int:
        return sum(self.rows)

    def _shards(self) -> Iterator[dict[str, Tensor]]:
        """The tensors of the shards in order, those of one shard in memory at a time."""
        return (self.cache.read(index, self.needs) for index, rows in enumerate(self.rows) if rows)

    def chunks(self, rows: int = 1024) -> Iterator[Outputs]:
        """The shards joined to pieces of at least ``rows`` rows; the last piece may have fewer."""
        waiting: list[Outputs] = []
        for tensors in self._shards():
            waiting.append(_outputs(tensors, self.needs))
            if sum(map(len, waiting)) >= rows:
                yield Outputs.cat(waiting)
                waiting = []
        if waiting:
            yield Outputs.cat(waiting)

    def load(self) -> Outputs:
        """All outputs in memory, with one copy of them at any time."""
        whole: dict[str, Tensor] = {}
        start = 0
        for tensors in self._shards():
            stop = start + len(tensors["logits"])
            for name, part in tensors.items():
                if name not in whole:
                    whole[name] = part.new_empty(len(self), *part.shape[1:])
                whole[name][start:stop] = part
            start = stop
        return _outputs(whole, self.needs)

    def shards(self) -> Shards:
        """All outputs as shards that are read when they are needed."""
        used, folder = [index for index, rows in enumerate(self.rows) if rows], self.cache.folder.parent.resolve()
        reads = [partial(_read_shard, folder, self.cache.key, index, tuple(self.needs)) for index in used]
        return Shards(reads, [self.rows[index] for index in used], self.run)

    def learnable(self) -> Outputs | Shards:
        """All outputs for a fit: in memory if they take at most half of it, else as shards. The fit is the same."""
        first = next(self._shards())
        row = sum(part[:1].numel() * part.element_size() for part in first.values())
        return self.load() if row * len(self) <= memory_bytes() // 2 else self.shards()


def _read_shard(folder: Place, key: str, index: int, needs: tuple[Need, ...]) -> Outputs:
    return _outputs(ShardCache(folder, key).read(index, needs), needs)


def _outputs(tensors: Mapping[str, Tensor], needs: Sequence[Need]) -> Outputs:
    views, taps = parted(needs)
    perturbed = {view: tensors[str(view)] for view in views}
    layers = {tap: tuple(tensors[name] for name in names_of(tap, tensors)) for tap in taps}
    return Outputs(tensors["logits"], tensors["features"], perturbed, tensors.get("labels"), layers)


class Spread(Protocol):
    """Others that make the missing batches of an extractor and write them to the same cache; they also run fits."""

    def __call__(
        self,
        extractor: Extractor,
        images: ImageSet,
        cache: ShardCache,
        wanted: Sequence[Wanted],
        tamper: Tamper | None,
        advance: Advance,
    ) -> None: ...

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        """Like the built-in ``map``."""


@dataclass(frozen=True, eq=False)
class Extractor:
    """Runs image sets through one network into shards under ``folder``, for one run.

    The network is hashed once and every shard is verified once, so make a new extractor after weights have changed.
    spread: others that make the passes, into the same folder.
    """

    classifier: Classifier
    preprocess: Preprocess
    folder: Place
    passes: Passes = Passes()
    spread: Spread | None = None
    _caches: dict[str, ShardCache] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def fingerprint(self) -> str:
        """The hash of the network's weights."""
        return self.classifier.fingerprint()

    @cached_property
    def network(self) -> tuple[object, ...]:
        """What tells this network from others: its weights, its code, and how it is run."""
        network = self.classifier
        return self.fingerprint, network.code(), network.asked_for, network.precision

    def cache_of(self, images: ImageSet, tamper: Tamper | None = None) -> ShardCache:
        """Where the outputs of these images are kept: one place for each network, data, preprocessing, batch size."""
        made_by = (images.fingerprint(), self.preprocess, tamper, self.passes.batch_size)
        key = cache_key(*self.network, *made_by)
        return self._caches.setdefault(key, ShardCache(self.folder, key))

    def cannot(self, images: ImageSet, needs: Sequence[Need]) -> dict[Need, str]:
        """Which of the views and taps the network cannot give, with the reason. The first images that can be read are
        loaded to find out, if any need concerns the inside of the network.
        """
        inside = [need for need in dict.fromkeys(needs) if isinstance(need, Tap) or need.network is not None]
        ranges = [range(i, min(i + 2, len(images))) for i in range(0, len(images), 2)] if inside else []
        for batch in load_ranges(images, self.preprocess, ranges, 1):
            if batch.indices:
                _locate(self.classifier, batch.images)
                return {need: reason for need in inside if (reason := self.classifier.cannot(need))}
        return {}

    def extract(
        self,
        images: ImageSet,
        needs: Sequence[Need],
        title: str = "Reading images",
        tamper: Tamper | None = None,
        about: Mapping[str, object] | None = None,
    ) -> Extracted:
        """The outputs of an image set. Only what is not on disk yet costs a network pass.

        about: what a cache that outlives the run records about them; while they are needed, no one removes them.
        """
        needs, size = list(dict.fromkeys(needs)), self.passes.batch_size
        cache = self.cache_of(images, tamper)
        if about is not None:
            use(self.folder, cache.folder.name, {**about, "images": len(images)}, cache)
        ranges = [range(i, min(i + size, len(images))) for i in range(0, len(images), size)]
        found = (cache.look_up(index, needs) for index in range(len(ranges)))
        wanted = [
            Wanted(index, ranges[index], info is not None, lacking)
            for index, (info, lacking) in enumerate(found)
            if info is None or lacking
        ]
        left = sum(len(one.rows) for one in wanted)
        with progress(title, len(images), len(images) - left) as advance:
            if wanted and self.spread is not None:
                self.spread(self, images, cache, wanted, tamper, advance)
            else:
                self.fill(images, cache, wanted, tamper, advance)
        return self._extracted(images, cache, needs, len(ranges))

    def fill(
        self,
        images: ImageSet,
        cache: ShardCache,
        wanted: Sequence[Wanted],
        tamper: Tamper | None = None,
        advance: Advance = lambda images, note="": None,
    ) -> None:
        """Run these batches through the network and write their shards."""
        batches = load_ranges(images, self.preprocess, (one.rows for one in wanted), self.passes.workers)
        for (index, rows, known, lacking), batch in zip(wanted, batches, strict=True):
            inputs = batch.images
            if batch.indices:
                _locate(self.classifier, inputs)
                inputs = inputs if tamper is None else tamper(inputs)
            if known:
                cache.write_needs(index, *extract_needs(self.classifier, inputs, lacking))
            else:
                outputs = extract_batch(self.classifier, inputs, lacking, batch.labels) if batch.indices else None
                failed = {images.keys[i]: reason for i, reason in batch.failures.items()}
                head, shape = (self.classifier.head_name, tuple(inputs.shape[1:])) if batch.indices else (None, ())
                cache.write(index, outputs, ShardInfo(len(batch.indices), failed, head, shape))
            advance(len(rows))

    def _extracted(self, images: ImageSet, cache: ShardCache, needs: Sequence[Need], count: int) -> Extracted:
        shards = list[ShardInfo]()
        for index in range(count):
            info, lacking = cache.look_up(index, needs)
            if info is None or lacking:
                raise cache.gone(index)
            shards.append(info)
        failures = {name: reason for shard in shards for name, reason in shard.failures.items()}
        used = next((shard for shard in shards if shard.rows), None)
        if used is None or used.head is None:
            raise UnreadableError(images.by_name(failures))
        if self.classifier.head_name is None:
            self.classifier.adopt(used.head)
        usable = [i for i, key in enumerate(images.keys) if key not in failures]
        rows = [shard.rows for shard in shards]
        run = map if self.spread is None else self.spread.map
        return Extracted(cache, needs, rows, images.by_name(failures), usable, used.shape, run)


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
