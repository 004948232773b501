"""What the tests of studies share: a small experiment, each study once, and how its tables are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from adascale import Preprocess
from adascale.bench.run import Network
from adascale.bench.suites import load_suite, open_suite
from adascale.extraction.batches import Passes
from adascale.network import digits
from adascale.network.classifier import Classifier
from adascale.paper import published as paper
from adascale.paper import studies
from adascale.paper.studies.base import Block, Result
from adascale.paper.studies.experiment import Experiment, Subject

Run = Callable[[str], Result]


@pytest.fixture(scope="session")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    """The digits with 110 images of each set and a quickly trained network."""
    suite = load_suite("digits")
    images, preprocess = open_suite(suite, limit=110, limit_fit=110), Preprocess(**digits.PREPROCESS)
    network = digits.train_network(digits.digit_images("train"), epochs=3)
    subject = Subject(Network("digits", Classifier(network), preprocess))
    return Experiment(suite, images, [subject], tmp_path_factory.mktemp("cache"), passes=Passes(110))


@pytest.fixture(scope="session")
def run(experiment: Experiment) -> Run:
    """Each study once."""
    found: dict[str, Result] = {}
    return lambda name: found[name] if name in found else found.setdefault(name, studies.get(name).run(experiment))


def named(experiment: Experiment, *places: str) -> Experiment:
    """The same network under these names of the paper, on images that are said to be the paper's."""
    network = experiment.subjects[0].network
    subjects = [Subject(replace(network, name=text), paper.place(text)) for text in places]
    return replace(experiment, subjects=subjects, suite=replace(experiment.suite, name="mine", shipped=False))


def line(block: Block, label: str) -> dict[str, float | None]:
    (found,) = (each for each in block.lines if each.label == label)
    return {key: cell.measured for key, cell in found.cells.items()}


def papers(result: Result, block: int = 0) -> dict[str, float | None]:
    """The paper's near FPR@95 by label."""
    return {each.label: each.cells["ood.near.fpr95"].paper for each in result.blocks[block].lines}
