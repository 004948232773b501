"""Networks trained against attacks and with ISH."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from adascale.bench.suites import load_suite
from adascale.paper import published as paper
from adascale.paper import studies
from adascale.paper.studies.experiment import Experiment
from adascale.paper.studies.retrained import retrain
from adascale.training.recipes import RECIPES
from tests.paper.conftest import Run, line, named

pytestmark = pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")


def test_adversarial_on_the_digits(experiment: Experiment, run: Run) -> None:
    before = {
        name: tensor.clone() for name, tensor in experiment.subjects[0].network.classifier.model.state_dict().items()
    }
    ratios, methods = run("adversarial").blocks
    assert [column.key for column in ratios.columns] == ["as given", "eps=0.01", "eps=0.05"]
    assert line(ratios, "photographs (Far-OOD)")["as given"] == pytest.approx(
        line(run("q-ratio").blocks[0], "photographs (Far-OOD)")["q"]
    )
    assert ratios.note.count("under PGD") == 2
    assert [each.label for each in methods.lines] == [
        f"{network} {method}"
        for network in ("as given", "eps=0.01", "eps=0.05")
        for method in ("scale", "optfs", "adascale_a")
    ]
    assert line(methods, "eps=0.05 scale") != line(methods, "as given scale")
    after = experiment.subjects[0].network.classifier.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_network_is_made_once(experiment: Experiment) -> None:
    recipe = replace(RECIPES["ish"], epochs=1, batch_size=32, augment=False)
    first, record = retrain(experiment, experiment.subjects[0], recipe)
    folder = Path(str(experiment.cache)) / "trained"
    times = {path: os.stat(path).st_mtime_ns for path in folder.iterdir()}
    second, again = retrain(experiment, experiment.subjects[0], recipe)
    assert {path: os.stat(path).st_mtime_ns for path in folder.iterdir()} == times
    assert record == again
    prints = {made.network.classifier.fingerprint() for made in (first, second)}
    assert len(prints) == 1
    assert prints != {experiment.subjects[0].network.classifier.fingerprint()}


def test_a_network_that_says_how_it_was_trained(experiment: Experiment) -> None:
    here = named(experiment, "imagenet/resnet-50")
    (subject,) = here.subjects
    trained = {"loss": "adversarial", "eps": 0.05}
    known = replace(subject, network=replace(subject.network, trained=trained))
    images = replace(experiment.images, near={"ssb_hard": experiment.images.near["digits 8 and 9"]})
    ratios, methods = studies.get("adversarial").run(replace(here, subjects=[known], images=images)).blocks
    assert [column.key for column in ratios.columns] == ["eps=0.05"]
    assert [each.cells["eps=0.05"].paper for each in ratios.lines] == [1.73, None]
    assert [each.cells["ood.near.fpr95"].paper for each in methods.lines] == [66.99, 70.11, 60.21]
    assert paper.other("adversarial-ratio", known.place, "SSB-hard", "eps=0.05") == 1.73


def test_ish_on_the_digits(run: Run) -> None:
    (block,) = run("ish").blocks
    assert [each.label for each in block.lines] == [
        f"{network}: {method}" for network in ("digits", "digits (ISH)") for method in ("scale", "optfs", "adascale_a")
    ]
    assert line(block, "digits: optfs") == line(run("corruption").blocks[0], "optfs")
    assert line(block, "digits (ISH): scale") != line(block, "digits: scale")
    assert block.note.count("accuracy") == 2


@pytest.mark.parametrize(("name", "words"), [("adversarial", "nothing says"), ("ish", "No network here says")])
def test_elsewhere_nothing_is_trained(experiment: Experiment, tmp_path: Path, name: str, words: str) -> None:
    """A suite that is called digits is not the package's."""
    (tmp_path / "digits.toml").write_text('id = "digits:test"\n[far]\nphotographs = "digits:far"\n')
    suite = load_suite(str(tmp_path / "digits.toml"))
    assert suite.name == experiment.suite.name
    other = replace(experiment, suite=suite, cache=tmp_path)
    result = studies.get(name).run(other)
    assert not (tmp_path / "trained").exists()
    assert len(result.blocks[-1].lines) == 3
    assert words in result.notes[0]
