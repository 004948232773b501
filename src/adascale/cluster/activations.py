"""Activations made by workers, into the cache that the commands read, and fits on what is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adascale.cluster.executor import Executor
from adascale.cluster.mapping import mapped
from adascale.cluster.shared import await_shard, check_seen, example_of
from adascale.cluster.tasks import Held
from adascale.core.errors import InputError
from adascale.core.progress import Advance
from adascale.extraction.batches import Passes
from adascale.extraction.cache import Extractor, Wanted
from adascale.extraction.shard_cache import ShardCache
from adascale.images.outliers import Tamper
from adascale.images.preprocess import Preprocess
from adascale.images.sources import ImageSet
from adascale.network.ready import ready_network
from adascale.storage.remote import Place

_MOST_BATCHES, _TASKS_PER_WORKER = 32, 4


@dataclass(frozen=True)
class NetworkRecipe:
    """How a worker gets a network: its text and weights, and the options of `Classifier` by name."""

    spec: str
    weights: str | None = None
    device: str = "auto"
    head: str | None = None
    running: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class _Passes:
    """The recipe of an extractor. identity: what the network must be, as `Extractor.network` says."""

    network: NetworkRecipe
    identity: tuple[object, ...]
    preprocess: Preprocess
    folder: Place
    passes: Passes

    def make(self) -> Extractor:
        wanted = self.network
        classifier, _ = ready_network(wanted.spec, wanted.weights, wanted.device, wanted.head, **dict(wanted.running))
        extractor = Extractor(classifier, self.preprocess, self.folder, self.passes)
        if extractor.network != self.identity:
            raise InputError(
                f"The network {wanted.spec} of a worker is another one than here; give --weights with a file that all "
                "machines see, and install the same versions on them."
            )
        return extractor


@dataclass(frozen=True)
class ExtractBatches:
    """Make these batches and write their shards. images: those of the batches alone; example: a file of them."""

    recipe: _Passes
    images: ImageSet
    key: str
    wanted: Sequence[Wanted]
    tamper: Tamper | None
    example: Path | None

    @property
    def name(self) -> str:
        return f"images {self.images.names[0]} to {self.images.names[-1]}"

    def run(self, held: Held) -> int:
        check_seen(self.example)  # else the cache would say for ever that they cannot be read
        extractor = held.once(self.recipe)
        extractor.fill(self.images, ShardCache(self.recipe.folder, self.key), self.wanted, self.tamper)
        return len(self.images)


@dataclass(frozen=True, eq=False)
class SpreadOver:
    """Has the missing batches of an extraction made by the workers of an executor: see `adascale.extraction.cache`.

    All workers must see the images and the folder of the cache, which is checked. Batches are the same as without
    workers, and so are the activations.
    """

    executor: Executor
    network: NetworkRecipe

    def __call__(
        self,
        extractor: Extractor,
        images: ImageSet,
        cache: ShardCache,
        wanted: Sequence[Wanted],
        tamper: Tamper | None,
        advance: Advance,
    ) -> None:
        folder = cache.folder.parent.resolve()
        recipe = _Passes(self.network, extractor.network, extractor.preprocess, folder, extractor.passes)
        for outcome in self.executor.run(self._tasks(recipe, images, cache.key, wanted, tamper)):
            if outcome.error:
                raise InputError(outcome.error)
            assert isinstance(outcome.task, ExtractBatches)
            await_shard(cache, outcome.task.wanted[0].shard)
            lost = self.executor.lost
            advance(outcome.value, f"{self.executor.workers} workers" + (f", {lost} lost" if lost else ""))

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        """What a fit asks of every block of activations, by the same workers."""
        return mapped(self.executor, function, items)

    def _tasks(
        self, recipe: _Passes, images: ImageSet, key: str, wanted: Sequence[Wanted], tamper: Tamper | None
    ) -> Iterator[ExtractBatches]:
        """Tasks of some batches each: several for each worker, so that all end at about the same time."""
        size = min(_MOST_BATCHES, max(1, len(wanted) // (_TASKS_PER_WORKER * self.executor.workers)))
        for start in range(0, len(wanted), size):
            chosen, stop, parts = wanted[start : start + size], 0, list[Wanted]()
            for one in chosen:
                parts.append(one._replace(rows=range(stop, stop + len(one.rows))))
                stop += len(one.rows)
            subset = images.subset([i for one in chosen for i in one.rows])
            yield ExtractBatches(recipe, subset, key, parts, tamper, example_of(subset))
