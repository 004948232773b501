"""A fit on shards has the bits of the fit in memory, whoever looks at the shards, and however they are cut."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from adascale import Detector, Head, InputError, NotFittedError, Outputs, Shards, detectors, fit_shards
from adascale.core.types import Need
from adascale.detectors import gmm, learning
from adascale.detectors.mds import MDS
from adascale.maths.activations import row_norms
from adascale.testing import example_outputs

LEARNING = [name for name in detectors.names() if detectors.get(name).fits_on != "nothing"]
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "sirc": [{"second": "residual", "dim": 20}],
    "vim": [{"dim": 20}],
    "cadref": [{"logit_score": "gen"}],
    "nnguide": [{"k": 10, "fraction": 0.2}],
    "combined": [{"members": ("vim", "knn", "react"), "learn_from": "train"}],
}
CASES = [(name, given) for name in LEARNING for given in ({}, *SETTINGS.get(name, []))]
BLOCK = 128
SIZES = (200, 1, 7, 0, 300, 127, 130)

pytestmark = pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "BLOCK_ROWS", BLOCK)
    monkeypatch.setattr(gmm, "MOST_POINTS", 400)


def samples(views: Sequence[Need]) -> tuple[Outputs, Head]:
    """Samples of which some cannot be used, and whose first shard lacks a class."""
    outputs, head = example_outputs(sum(SIZES), views, seed=3)
    assert outputs.labels is not None
    late = outputs.labels.argsort(stable=True)
    first = (outputs.labels[late] > 0).nonzero().flatten()[: SIZES[0]]
    outputs = outputs[torch.cat([late[first], late[~torch.isin(torch.arange(len(late)), first)]])]
    outputs.features[[5, 201, 500]] = torch.nan
    outputs.logits[[5, 201, 500]] = torch.nan
    return outputs, head


def cut(outputs: Outputs, sizes: Sequence[int] = SIZES) -> list[Callable[[], Outputs]]:
    ends = np.cumsum(sizes).tolist()
    return [partial(lambda a, b: outputs[a:b], end - size, end) for size, end in zip(sizes, ends, strict=True)]


def same(one: Detector, other: Detector, test: Outputs) -> None:
    state, expected = one.state(), other.state()
    assert state.keys() == expected.keys()
    assert [name for name in state if not torch.equal(state[name], expected[name])] == []
    assert torch.equal(one.score(test), other.score(test))


@pytest.mark.parametrize(("name", "given"), CASES)
def test_any_number_of_workers_gives_the_bits_of_one_fit(name: str, given: dict[str, Any]) -> None:
    make = partial(detectors.get(name), **given)
    outputs, head = samples(make().wants)
    alone = make().fit(outputs, head)
    test, _ = example_outputs(16, alone.wants, seed=8)
    for workers in (1, 2, 5):
        with ThreadPoolExecutor(workers) as pool:
            same(fit_shards(make(), cut(outputs), head, rows=SIZES, run=pool.map), alone, test)
    same(fit_shards(make(), cut(outputs, (len(outputs),)), head), alone, test)


def test_more_than_one_block_was_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bits above say something only if the sums of several blocks are rounded differently from those of one."""
    outputs, head = samples(())
    blocked = detectors.PNML().fit(outputs, head).score(outputs[:4])
    monkeypatch.setattr(learning, "BLOCK_ROWS", 10**6)
    whole = detectors.PNML().fit(outputs, head).score(outputs[:4])
    assert not torch.equal(blocked, whole)
    assert torch.allclose(blocked, whole, rtol=1e-12)


@pytest.mark.parametrize("name", ["combined", "mds"])
def test_training_shards_reach_the_members(name: str) -> None:
    members = ("mds", "vim")
    make = partial(detectors.Combined, members=members, learn_from="train") if name == "combined" else detectors.MDS
    outputs, head = samples(())
    known, _ = example_outputs(60, (), seed=4)
    own, more = (known, [outputs]) if name == "combined" else (outputs, [])
    shards = Shards(cut(outputs), SIZES)
    lazily = make().fit(known, head, shards) if name == "combined" else make().fit(shards, head)
    same(lazily, make().fit(own, head, *more), known)


@dataclass(frozen=True)
class Slice:
    """A shard that another process can read."""

    first: int
    last: int
    views: tuple[Need, ...] = ()

    def __call__(self) -> Outputs:
        return samples(self.views)[0][self.first : self.last]


def test_processes_can_share_a_fit() -> None:
    ends = np.cumsum(SIZES).tolist()
    test, head = example_outputs(16, (), seed=8)
    with ProcessPoolExecutor(2) as pool:
        for name in ("rmds", "optfs", "neco", "weiper", "sirc", "adascale_a", "gmm", "klm", "openmax", "cadref"):
            method = detectors.get(name)()
            shards = [Slice(end - size, end, method.views) for size, end in zip(SIZES, ends, strict=True)]
            alone = detectors.get(name)().fit(samples(method.views)[0], head)
            test, _ = example_outputs(16, method.views, seed=8)
            same(fit_shards(method, shards, head, rows=SIZES, run=pool.map), alone, test)


def held(method: Detector, count: int) -> int:
    """The most bytes that a fit has kept after a pass over so many blocks. Each block may go when the next is read."""
    fitting = method.fitting(Head(torch.randn(10, 32, generator=torch.Generator().manual_seed(0))))
    alive: list[weakref.ref[Outputs]] = []
    most = 0

    def block(i: int) -> Outputs:
        assert sum(ref() is not None for ref in alive) < 2
        drawn = torch.Generator().manual_seed(i)
        features, labels = torch.rand(64, 32, generator=drawn), torch.arange(64) % 10
        logits = torch.rand(64, 10, generator=drawn) + 2 * torch.nn.functional.one_hot(labels, 10)
        made = Outputs(logits, features, {}, labels)
        alive.append(weakref.ref(made))
        return made

    while fitting.step is not None:
        states = (fitting.partial(block(i), 64 * i).state for i in range(count))
        merged = fitting.step.statistic.merged(states)
        most = max(most, sum(part.untyped_storage().nbytes() for part in merged.values()))
        fitting.merge([learning.Part(64 * count, merged)])
    return most


SUMS = (
    *("mds", "rmds", "mahalanobis_pp", "pnml", "she", "caref", "dice", "line", "nci", "fdbd", "laps", "neco", "vim"),
    *("residual", "klm", "weiper", "openmax", "react", "bfact", "vra", "optfs", "class_gmm", "mds_odin"),
)


@pytest.mark.parametrize("name", SUMS)
def test_sums_hold_no_more_for_more_samples(name: str) -> None:
    assert held(detectors.get(name)(), 4) == held(detectors.get(name)(), 12)


def test_draws_hold_their_share_and_a_bank_holds_all() -> None:
    samples = 32 * 64 * 42 * 4  # bytes of 32 blocks
    assert held(detectors.NNGuide(k=10, fraction=0.01), 32) < 0.02 * samples
    assert held(detectors.CFOOD(fraction=0.1), 32) < 0.15 * samples
    assert held(detectors.GMM(components=5, dim=4), 32) < 0.1 * samples + 32 * 32 * 8 + 1000  # 400 points; moments
    assert held(detectors.KNN(), 32) == samples * 32 // 42


def test_partial_merge_and_finish_by_hand() -> None:
    outputs, head = samples(())
    method = detectors.NNGuide(k=10, fraction=0.2)
    blocks = Shards(cut(outputs), SIZES).blocks(BLOCK)
    fitting = method.fitting(head)
    with pytest.raises(NotFittedError, match="another pass"):
        fitting.finish()
    while fitting.step is not None:
        starts = fitting.starts(blocks)
        fitting.merge([fitting.partial(block.read(), start) for block, start in zip(blocks, starts, strict=True)])
    with pytest.raises(NotFittedError, match="call finish"):
        fitting.partial(outputs)
    same(fitting.finish(), detectors.NNGuide(k=10, fraction=0.2).fit(outputs, head), outputs)


@dataclass
class Old(Detector):
    """A method of someone else, which knows ``_fit`` alone."""

    name = "old"
    summary = "made before fits could merge"
    fits_on = "train"

    def _fit(self, reference: Outputs, head: Head) -> None:
        self.length_ = row_norms(reference.features.double()).mean()

    def _score(self, outputs: Outputs) -> Tensor:
        return -row_norms(outputs.features.double()) / self.length_


@dataclass
class OwnFit(Old):
    """One that has a ``fit`` of its own, which knows outputs in memory alone."""

    name = "own_fit"

    def fit(self, reference: Any, head: Head, train: Any = None) -> OwnFit:
        self.length_ = row_norms(reference.features.double()).nanmean()
        self.head_ = head
        return self


@dataclass
class Derived(MDS):
    """One that adds to the ``_fit`` of a method of ours."""

    name = "derived"

    def _fit(self, reference: Outputs, head: Head) -> None:
        super()._fit(reference, head)
        self.mean_ = self.mean_ + 1


@pytest.mark.parametrize("cls", [Old, OwnFit, Derived])
def test_methods_that_only_know_fit_keep_working(cls: type[Detector]) -> None:
    outputs, head = samples(())
    alone = cls().fit(outputs, head)
    assert alone.score(outputs[:4]).isfinite().all()
    same(fit_shards(cls(), cut(outputs), head), alone, outputs)
    if cls is Derived:
        assert torch.allclose(alone.state()["mean_"], detectors.MDS().fit(outputs, head).state()["mean_"] + 1)


def refused() -> Iterator[tuple[str, Callable[[Outputs, Head], Any]]]:
    yield "got none", lambda outputs, head: fit_shards(detectors.MDS(), [], head)
    yield "got none", lambda outputs, head: fit_shards(detectors.KNN(), cut(outputs, (0,)), head)
    yield "NaN or infinite", lambda outputs, head: fit_shards(detectors.KNN(k=1), cut(outputs[5:6], (1,)), head)
    yield (
        "200 samples in place of 3",
        lambda outputs, head: fit_shards(detectors.MDS(), cut(outputs)[:1], head, rows=[3]),
    )
    yield "1 parts and 2 counts", lambda outputs, head: fit_shards(detectors.MDS(), cut(outputs)[:1], head, rows=[3, 4])
    yield (
        "the training labels",
        lambda outputs, head: fit_shards(detectors.MDS(), cut(Outputs(outputs.logits, outputs.features)), head),
    )


@pytest.mark.parametrize(("words", "call"), list(refused()))
def test_bad_shards_get_one_clear_line(words: str, call: Callable[[Outputs, Head], Any]) -> None:
    with pytest.raises(InputError, match=words):
        call(*samples(()))
