"""One parameter of AdaSCALE at a time: rows, and relations that hold by construction."""

from __future__ import annotations

import pytest

from adascale.paper import studies
from adascale.paper.studies.experiment import Experiment
from tests.paper.conftest import Run, line, named

pytestmark = pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")


def test_one_parameter_at_a_time(run: Run) -> None:
    (block,) = run("lambda").blocks
    assert [each.label for each in block.lines] == [f"lambda={v}" for v in ("0", "0.1", "1", "10", "20", "30", "100")]
    assert [column.key for column in block.columns] == [
        f"ood.{kind}.{figure}" for kind in ("near", "far") for figure in ("fpr95", "auroc")
    ]
    assert line(block, "lambda=10") == line(run("epsilon").blocks[0], "epsilon=0.5")
    assert line(block, "lambda=10") == line(run("k2").blocks[0], "k2=5")
    assert all(
        50 < (cell.measured or 0) <= 100 for each in block.lines for k, cell in each.cells.items() if "auroc" in k
    )


def test_no_range_of_percentiles_is_scale_or_lts(run: Run) -> None:
    """By construction, to the last bit."""
    (lower,), (upper,) = run("p-min").blocks, run("p-max").blocks
    assert line(lower, "p_min=85") == line(lower, "scale at 85")
    assert line(lower, "L: p_min=85") == line(lower, "lts at 85")
    assert line(upper, "p_max=60") == line(upper, "scale at 60")
    assert line(upper, "L: p_max=60") == line(upper, "lts at 60")
    assert line(lower, "p_min=60") == line(upper, "p_max=85")
    assert line(lower, "p_min=60") != line(lower, "p_min=85")


def test_without_q_the_statistic_is_c_o(run: Run) -> None:
    statistic = run("statistic").blocks[0]
    assert line(run("lambda").blocks[0], "lambda=0") == line(statistic, "C_o")
    assert line(run("lambda").blocks[0], "lambda=10") == line(statistic, "lambda Q + C_o")
    assert line(run("q-vs-qprime").blocks[0], "Q") == line(statistic, "Q")
    assert line(run("q-vs-qprime").blocks[0], "Q'") == line(statistic, "lambda Q + C_o")
    assert [each.label for each in statistic.lines] == [
        *("Q as the score", "Q", "C_o", "lambda Q + C_o", "top k2 of a", "lambda Q + top k2 of a")
    ]
    assert len({tuple(each.cells.items()) for each in statistic.lines}) == 6


def test_pixels_and_the_full_spectrum(experiment: Experiment, run: Run) -> None:
    result = run("perturbation")
    (block,) = result.blocks
    assert [each.label for each in block.lines] == [
        *(f"{pixels} {share} %" for pixels in ("random", "trivial", "salient") for share in (1, 5, 10, 50)),
        "all",
    ]
    assert len(block.columns) == 8
    assert line(block, "trivial 5 %")["ood.far.auroc"] == line(run("lambda").blocks[0], "lambda=10")["ood.far.auroc"]
    assert line(block, "all")["ood.near.auroc"] == line(run("o").blocks[0], "o=100")["ood.near.auroc"]
    assert line(block, "trivial 5 %") != line(block, "salient 5 %")
    assert list(experiment.full_spectrum.shifted) == ["noise:3", "blur:3", "jpeg:3", "brightness:3", "contrast:3"]
    assert sum(map(len, experiment.full_spectrum.shifted.values())) == len(experiment.images.id)
    assert any("corrupted, a fifth of them each" in note for note in result.notes)
    full = run("fsood").blocks[0]
    assert line(full, "adascale_a")["full.near.auroc"] == line(block, "trivial 5 %")["full.near.auroc"]


@pytest.mark.parametrize("name", ["lambda", "epsilon", "k1", "k2", "o", "p-max", "p-min", "joint"])
def test_the_sensitivity_of_vit_starts_where_the_papers_does(experiment: Experiment, name: str) -> None:
    """Its reference row has k2=5, its headline row k2=100; the usual value of each parameter is the reference row."""
    here, study = named(experiment, "imagenet/vit-b-16"), studies.get(name)
    result, reference = study.run(here), studies.get("k2").run(here)
    assert result.about["settings"] == {here.subjects[0].name: {**here.adascale(here.subjects[0]).parameters, "k2": 5}}
    assert "the preset, of its headline row, has k2=100 %" in result.notes[0]
    usual = {
        "lambda": "lambda=10",
        "epsilon": "epsilon=0.5",
        "k1": "k1=1",
        "k2": "k2=5",
        "o": "o=5",
        "p-max": "p_max=85",
    }
    usual |= {"p-min": "p_min=60", "joint": "lambda=10 p_max=85"}
    assert line(result.blocks[0], usual[name]) == line(reference.blocks[0], "k2=5")


def test_other_studies_and_networks_keep_their_preset(experiment: Experiment) -> None:
    for name, place, k2 in (("q-vs-qprime", "imagenet/vit-b-16", 100), ("lambda", "imagenet/densenet-201", 10)):
        here = named(experiment, place)
        result = studies.get(name).run(here)
        assert result.about["settings"][here.subjects[0].name]["k2"] == k2
        assert not any("reference row" in note for note in result.notes)
