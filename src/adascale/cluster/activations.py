"""Activations made by workers, into the cache that the commands read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from adascale.cluster.executor import Executor
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
    """Make these batches and write their shards. images: those of the batches alone."""

    recipe: _Passes
    images: ImageSet
    key: str
    wanted: Sequence[Wanted]
    tamper: Tamper | None

    @property
    def name(self) -> str:
        return f"images {self.images.names[0]} to {self.images.names[-1]}"

    def run(self, held: Held) -> int:
        extractor = held.once(self.recipe)
        extractor.fill(self.images, ShardCache(self.recipe.folder, self.key), self.wanted, self.tamper)
        return len(self.images)


@dataclass(frozen=True, eq=False)
class SpreadOver:
    """Has the missing batches of an extraction made by the workers of an executor: see `adascale.extraction.cache`.

    All workers must see the images and the folder of the cache. Batches are the same as without workers, and so are
    the activations.
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
            lost = self.executor.lost
            advance(outcome.value, f"{self.executor.workers} workers" + (f", {lost} lost" if lost else ""))

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
            yield ExtractBatches(recipe, subset, key, parts, tamper)
