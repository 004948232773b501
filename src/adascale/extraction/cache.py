"""The outputs of image sets on disk, in shards: long work resumes, and a new method costs no network pass."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import NamedTuple, Protocol

from torch import Tensor

from adascale.core.errors import AdascaleError, InputError
from adascale.core.memory import memory_bytes
from adascale.core.progress import Advance, progress
from adascale.core.shards import Run, Shards
from adascale.core.types import Layers, Need, Outputs, Tap, View
from adascale.extraction.batches import Passes
from adascale.extraction.extract import extract_batch, extract_needs, parted
from adascale.images.loader import load_ranges
from adascale.images.outliers import Tamper
from adascale.images.preprocess import Preprocess
from adascale.images.sources import ImageSet
from adascale.network.classifier import Classifier
from adascale.storage.entries import use
from adascale.storage.remote import Place, as_place
from adascale.storage.tensors import TensorFile, TensorFileError, load_tensors, save_tensors

KIND = "adascale-shard"


class UnreadableError(InputError):
    """None of the images of a set can be read. failures: every image, with the reason."""

    def __init__(self, failures: Mapping[str, str], where: str = "") -> None:
        name, reason = next(iter(failures.items()))
        super().__init__(f"{where}None of the {len(failures)} images can be read ({name}: {reason}).")
        self.failures = failures


def cache_key(*parts: object) -> str:
    """One hash of everything that shapes the outputs: network, data, preprocessing."""
    return hashlib.sha256("\0".join(map(str, parts)).encode("utf8", "surrogateescape")).hexdigest()


class ShardInfo(NamedTuple):
    """What is known about one batch without its outputs.

    rows: the number of images that could be read; failures: the others, with the reasons; head: the layer that the
    outputs come from; shape: that of an input.
    """

    rows: int
    failures: Mapping[str, str]
    head: str | None = None
    shape: tuple[int, ...] = ()


class Wanted(NamedTuple):
    """A batch to extract. shard: its index; rows: of its images; known: whether its clean outputs are on disk, so
    that only the views that are ``lacking`` have to be made.
    """

    shard: int
    rows: range
    known: bool
    lacking: Sequence[Need]


class ShardCache:
    """Shards 0, 1, 2, ... of one extraction, in the folder named by its key.

    A shard is one file with the clean outputs and the views and taps that were extracted with them; what is extracted
    later has a file of its own. A tap has a tensor for each layer, ``TAP#0``, ``TAP#1``, ... A damaged file, or one
    with another key, counts as missing. Every file is verified once, when it is first looked up; what this object has
    written itself is not verified again.
    """

    def __init__(self, folder: str | Place, key: str) -> None:
        self.folder, self.key = as_place(folder) / key[:32], key
        self._known: dict[int, ShardInfo] = {}
        self._tensors: set[tuple[int, str]] = set()

    def look_up(self, index: int, needs: Sequence[Need]) -> tuple[ShardInfo | None, list[Need]]:
        """What is on disk of a shard (None: nothing), and which of the views and taps are missing."""
        if index not in self._known:
            found = self._verified(self._path(index))
            if found is None:
                return None, list(needs)
            rows, record = len(found.tensors.get("logits", ())), found.record
            self._known[index] = ShardInfo(rows, record["failures"], record["head"], tuple(record["shape"]))
            self._tensors |= {(index, name) for name in found.tensors}
        info = self._known[index]
        return info, [need for need in needs if info.rows and not self._has(index, need)]

    def read(self, index: int, needs: Sequence[Need]) -> dict[str, Tensor]:
        """The tensors of a shard that was looked up or written: logits, features, labels if known, and what is asked
        for.
        """
        try:
            tensors = load_tensors(self._path(index), KIND, verify=False).tensors
            for need in needs:
                if _first(need) not in tensors:
                    tensors |= load_tensors(self._path(index, need), KIND, verify=False).tensors
            asked = [name for need in needs for name in _names(need, tensors)]
            names = ("logits", "features", *asked, *(["labels"] if "labels" in tensors else []))
            return {name: tensors[name] for name in names}
        except (TensorFileError, KeyError) as error:
            raise InputError(
                f"Shard {index} in {self.folder} was removed or damaged during the run; run again."
            ) from error

    def write(self, index: int, outputs: Outputs | None, info: ShardInfo) -> None:
        """Write a shard. outputs: None if no image of the batch could be read."""
        tensors = {}
        if outputs is not None:
            tensors = {"logits": outputs.logits, "features": outputs.features}
            tensors |= _named(outputs.views, outputs.taps)
            tensors |= {} if outputs.labels is None else {"labels": outputs.labels}
        record = {"key": self.key, "failures": info.failures, "head": info.head, "shape": info.shape}
        save_tensors(self._path(index), tensors, record, KIND)
        self._known[index] = info
        self._tensors |= {(index, name) for name in tensors}

    def write_needs(self, index: int, views: Mapping[View, Tensor], taps: Mapping[Tap, Layers]) -> None:
        """Write what was extracted later, each view and tap to a file of its own."""
        parts: dict[Need, dict[str, Tensor]] = {view: _named({view: found}, {}) for view, found in views.items()}
        parts |= {tap: _named({}, {tap: found}) for tap, found in taps.items()}
        for need, tensors in parts.items():
            save_tensors(self._path(index, need), tensors, {"key": self.key}, KIND)
            self._tensors |= {(index, name) for name in tensors}

    def _has(self, index: int, need: Need) -> bool:
        """Whether the shard has the view or tap, in its own file or in that of the need."""
        if (index, _first(need)) not in self._tensors:
            found = self._verified(self._path(index, need))
            if found and len(found.tensors.get(_first(need), ())) == self._known[index].rows:
                self._tensors.add((index, _first(need)))
        return (index, _first(need)) in self._tensors

    def _path(self, index: int, need: Need | None = None) -> Place:
        return self.folder / f"{index:06d}{'' if need is None else '.' + cache_key(need)[:12]}.safetensors"

    def _verified(self, path: Place) -> TensorFile | None:
        try:
            found = load_tensors(path, KIND)
        except TensorFileError:
            return None
        return found if found.record.get("key") == self.key else None


def _first(need: Need) -> str:
    """The name of the tensor of a view, or of the first of a tap."""
    return f"{need}#0" if isinstance(need, Tap) else str(need)


def _names(need: Need, tensors: Mapping[str, Tensor]) -> list[str]:
    """The names of the tensors of a view or tap among these; of a tap in the order of its layers."""
    if isinstance(need, View):
        return [str(need)]
    return [name for i in range(len(tensors)) if (name := f"{need}#{i}") in tensors]


def _named(views: Mapping[View, Tensor], taps: Mapping[Tap, Layers]) -> dict[str, Tensor]:
    layers = {f"{tap}#{i}": layer for tap, found in taps.items() for i, layer in enumerate(found)}
    return {**{str(view): tensor for view, tensor in views.items()}, **layers}


@dataclass(frozen=True, eq=False)
class Extracted:
    """The outputs of an image set, on disk.

    rows: the number of usable images of each shard; failures: the other images, with the reasons; usable: the indices
    of the usable images in the set; shape: that of an input.
    """

    cache: ShardCache
    needs: Sequence[Need]
    rows: Sequence[int]
    failures: Mapping[str, str]
    usable: Sequence[int]
    shape: tuple[int, ...]

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

    def shards(self, run: Run = map) -> Shards:
        """All outputs as shards that are read when they are needed. run: see `Shards`."""
        cache, used = self.cache, [index for index, rows in enumerate(self.rows) if rows]
        reads = [partial(_read_shard, cache.folder.parent, cache.key, index, tuple(self.needs)) for index in used]
        return Shards(reads, [self.rows[index] for index in used], run)

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
    layers = {tap: tuple(tensors[name] for name in _names(tap, tensors)) for tap in taps}
    return Outputs(tensors["logits"], tensors["features"], perturbed, tensors.get("labels"), layers)


class Spread(Protocol):
    """Has the missing batches of an extractor made by others, who write them to the same cache."""

    def __call__(
        self,
        extractor: Extractor,
        images: ImageSet,
        cache: ShardCache,
        wanted: Sequence[Wanted],
        tamper: Tamper | None,
        advance: Advance,
    ) -> None: ...


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
        shards = [info for index in range(count) if (info := cache.look_up(index, ())[0]) is not None]
        failures = {name: reason for shard in shards for name, reason in shard.failures.items()}
        used = next((shard for shard in shards if shard.rows), None)
        if used is None or used.head is None:
            raise UnreadableError(images.by_name(failures))
        if self.classifier.head_name is None:
            self.classifier.adopt(used.head)
        usable = [i for i, key in enumerate(images.keys) if key not in failures]
        rows = [shard.rows for shard in shards]
        return Extracted(cache, needs, rows, images.by_name(failures), usable, used.shape)


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
