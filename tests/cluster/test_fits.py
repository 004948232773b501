"""Fits by workers have the bits of the fit of one process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from adascale import detectors, fit_shards
from adascale.cluster.executor import Executor
from adascale.cluster.local import LocalCrew
from adascale.cluster.mapping import mapped
from adascale.decision.detector_file import DetectorFile
from adascale.detectors import learning
from adascale.testing import example_outputs
from tests.cluster.crews import Here
from tests.detectors.test_merging import BLOCK, CASES, SIZES, Slice, same, samples
from tests.images.pictures import picture
from tests.shell import inside


class Doubled:
    """Twice a number; what was sent to a worker lacks something, and refuses 3."""

    def __init__(self, sent: bool = False) -> None:
        self.sent = sent

    def __reduce__(self) -> tuple[Any, ...]:
        return Doubled, (True,)

    def __call__(self, number: int) -> int:
        if number == 3 and self.sent:
            raise ImportError("no such method")
        return 2 * number


@pytest.mark.parametrize("function", [Doubled(), lambda number: 2 * number], ids=["refused", "cannot be sent"])
def test_results_come_in_order_and_what_workers_cannot_do_is_done_here(function: Any) -> None:
    assert list(mapped(Executor(Here()), function, range(7))) == [0, 2, 4, 6, 8, 10, 12]


def test_few_results_wait_for_their_turn() -> None:
    made = list[int]()
    crew = Here(lambda: made.append(1))
    results = mapped(Executor(crew), Doubled(), range(100))
    assert (next(results), len(made)) == (0, 2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")
@pytest.mark.parametrize(
    "workers", [pytest.param(1, marks=pytest.mark.long), 2, pytest.param(5, marks=pytest.mark.long)]
)
def test_every_method_that_learns(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "BLOCK_ROWS", BLOCK)
    ends = np.cumsum(SIZES).tolist()
    with Executor(LocalCrew(workers)) as executor:
        for name, given in CASES:
            make = partial(detectors.get(name), **given)
            wants = make().wants
            outputs, head = samples(wants)
            shards = [Slice(end - size, end, tuple(wants)) for size, end in zip(SIZES, ends, strict=True)]
            found = fit_shards(make(), shards, head, rows=SIZES, run=partial(mapped, executor))
            same(found, make().fit(outputs, head), example_outputs(16, found.wants, seed=8)[0])


@pytest.mark.slow
def test_fit_spreads_what_exceeds_the_memory(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same detectors from the command line: in memory, and in blocks by two workers."""
    monkeypatch.chdir(place)
    methods = ("vim", "react", "knn", "residual")
    files = [f"{name}.safetensors" for name in methods]
    (place / "train").mkdir()
    for i in range(40):
        picture(seed=100 + i).save(place / "train" / f"{i}.png")
    settings = ("--set", "vim.dim=20", "--set", "residual.dim=20", "--set", "knn.k=5")
    command = ("fit", "id", "--train", "train", "--model", "nets.py:Net", "--method", ",".join(methods), *settings)
    assert inside(monkeypatch, *command, "-o", "here") == 0
    asked = list[int]()

    def watched(executor: Executor, function: Any, items: Sequence[Any]) -> Iterator[Any]:
        asked.append(len(items))
        return mapped(executor, function, items)

    monkeypatch.setattr("adascale.extraction.cache.memory_bytes", lambda: 100)
    monkeypatch.setattr("adascale.cluster.activations.mapped", watched)
    assert inside(monkeypatch, *command, "-o", "there", "--on", "local", "--workers", "2") == 0
    assert len(asked) >= len(methods)
    for file in files:
        here, there = (dict(DetectorFile.read(place / folder / file).tensors) for folder in ("here", "there"))
        assert here.keys() == there.keys()
        assert all(torch.equal(here[name], there[name]) for name in here if name.startswith("method."))
