"""What is timed, and which of the paper's times stand beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adascale import detectors
from adascale.paper import studies
from adascale.paper.studies.experiment import Experiment
from adascale.paper.studies.latency import BATCHES, SIZES, Latency
from tests.paper.conftest import named

pytestmark = pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")


def test_latency(experiment: Experiment) -> None:
    study = studies.get("latency")
    assert isinstance(study, Latency)
    result = replace(study, repeats=1).run(replace(named(experiment, "imagenet/vit-b-16"), given={"lam": 3}))
    single, many, total = result.blocks
    (settings,) = result.about["settings"].values()
    plain = detectors.AdaSCALE_A().parameters  # the preset and what was given are not timed
    assert settings["timed"] == {"after the network": plain, "random": {**plain, "pixels": "random"}, "trivial": plain}
    assert set(settings) == {"threads", "repeats", "timed"}
    assert not any("was given" in note for note in result.notes)
    assert BATCHES == (1, 256)
    for block in (single, many):
        assert [each.label for each in block.lines] == [f"D={size}" for size in SIZES]
        for each in block.lines:
            assert len(each.cells) == 6
            assert all((cell.measured or 0) > 0 for cell in each.cells.values())
    papers = [each.cells["scale.ratio"].paper for each in single.lines]
    assert papers == [4.66, 3.76, 3.42, 3.14, 3.02]
    others = [cell.paper for each in many.lines for cell in each.cells.values()]
    assert set(others) == {None}
    assert [each.label for each in total.lines] == ["plain forward", "random", "trivial"]
    assert [each.cells["forwards"].paper for each in total.lines] == [None, 1.56, 2.91]
    assert total.lines[0].cells["forwards"].measured == 1
