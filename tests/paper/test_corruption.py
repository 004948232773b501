"""Corrupted images: nothing is fitted again, and only tested images are corrupted."""

from __future__ import annotations

import pytest

from adascale import detectors
from adascale.paper import studies
from adascale.paper.studies import corruption
from adascale.paper.studies.experiment import Experiment
from tests.paper.conftest import Run, line, named

pytestmark = pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")


def test_corruption_of_nothing_is_clean(experiment: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sigma of a hundredth of a pixel moves nothing: had anything been fitted again, the figures would move."""
    monkeypatch.setattr(corruption, "SIGMAS", ((0.01, 0.01), (2.0, 2.0)))
    clean, same, blurred, jpeg = studies.get("corruption").run(experiment).blocks
    for method in ("scale", "optfs", "adascale_a"):
        assert line(same, method) == line(same, f"{method}, ID alone") == line(clean, method)
        assert line(blurred, method) != line(clean, method)
        assert line(blurred, method) != line(blurred, f"{method}, ID alone")
        assert line(jpeg, method) != line(clean, method)
        assert (line(blurred, f"{method}, ID alone")["ood.far.auroc"] or 0) < (
            line(clean, method)["ood.far.auroc"] or 0
        )


def test_only_what_is_tested_is_corrupted(experiment: Experiment) -> None:
    images, (_, change) = experiment.images, corruption.papers_corruptions(seed=0)[1]
    both, alone = corruption.corrupt_tested(images, change), corruption.corrupt_id(images, change)
    for found in (both, alone):
        assert found.val is images.val
        assert found.train is images.train
        assert found.id.change == change
    assert all(found.change == change for found in (*both.near.values(), *both.far.values()))
    assert all(found.change is None for found in (*alone.near.values(), *alone.far.values()))


def test_the_papers_corruptions(experiment: Experiment, run: Run) -> None:
    result = run("corruption")
    assert [block.title for block in result.blocks] == [
        f"digits: {text}" for text in ("clean", "blur, sigma 0.01 to 0.5", "blur, sigma 0.1 to 2", "JPEG, quality 50")
    ]
    assert result.about["settings"] == {"digits": detectors.AdaSCALE_A().parameters}
    clean, mild, strong, _ = (line(block, "scale, ID alone" if i else "scale") for i, block in enumerate(result.blocks))
    assert (strong["ood.far.auroc"] or 0) < (mild["ood.far.auroc"] or 0) <= (clean["ood.far.auroc"] or 0) + 1
    place = named(experiment, "imagenet/resnet-50")
    cells = studies.get("corruption").run(place).blocks[3].lines[-1].cells
    assert [cells[f"ood.{kind}.auroc"].paper for kind in ("near", "far")] == [77.59, 94.06]
