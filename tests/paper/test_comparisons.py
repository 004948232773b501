"""The headline tables: their lines, and which of them the paper has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from adascale import InputError, detectors
from adascale.paper import studies
from adascale.paper.studies.comparisons import MethodComparison
from adascale.paper.studies.experiment import Experiment
from tests.paper.conftest import Run, line, named, papers
from tests.shell import inside

pytestmark = pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")


def test_the_headline_table(experiment: Experiment, run: Run) -> None:
    (block,) = run("main").blocks
    tuned = {"adascale_a (tuned)", "adascale_l (tuned)"}
    shown_ones = {each.label for each in block.lines}
    # these networks have no dropout
    assert shown_ones | {"vim", "residual", "mc_dropout"} == {cls.name for cls in detectors.ALL} | tuned
    assert "Left out: vim: vim with dim=256 got 110 samples" in block.note
    assert [column.title for column in block.columns] == ["FPR@95", "AUROC", "FPR@95-ID"] * 2
    here = named(experiment, "cifar100/densenet-101", "cifar100/wrn-28-10")
    comparison = studies.get("main")
    assert isinstance(comparison, MethodComparison)
    comparison = replace(comparison, methods=("scale", "adascale_a"))
    densenet, wrn, mean = comparison.run(here).blocks
    labels = ["scale", "adascale_a (preset)", "adascale_a (k2=5 %)", "adascale_a", "adascale_a (tuned)"]
    assert [each.label for each in densenet.lines] == [each.label for each in mean.lines] == labels
    known = {each.label: each.cells["ood.near.fpr95"].paper for each in densenet.lines}
    assert [known[label] for label in labels] == [58.38, 57.33, 57.33, None, None]
    assert "means over wrn-28-10, densenet-101, three training seeds each" in densenet.note
    assert line(densenet, "adascale_a (k2=5 %)") != line(densenet, "adascale_a (preset)")
    assert line(mean, "scale") == pytest.approx(line(wrn, "scale"))
    assert mean.lines[0].cells["ood.near.auroc"].spread == pytest.approx(0, abs=1e-9)
    assert (mean.lines[1].cells["ood.near.auroc"].spread or 0) > 0.01  # another preset
    assert any("k2=5 % serves all" in note for note in comparison.run(here).notes)


def test_a_line_of_some_networks_has_no_average_beside_it(experiment: Experiment) -> None:
    """k2=10 is the preset of one of the two networks, and changes the other's."""
    here = replace(named(experiment, "cifar10/wrn-28-10", "cifar10/densenet-101"), given={"k2": 10})
    result = studies.get("cifar").run(here)
    assert papers(result)["adascale_a (preset, 1 of 2 networks)"] is None
    assert papers(result)["scale"] is not None
    assert papers(result, 2)["adascale_a (preset)"] is not None


def test_a_changed_line_of_the_headline_table(experiment: Experiment) -> None:
    here = replace(named(experiment, "imagenet/swin-b"), given={"k2": 20})
    main = studies.get("main")
    assert isinstance(main, MethodComparison)
    found = papers(replace(main, methods=("adascale_a",)).run(here))
    assert found["adascale_a (preset, changed)"] is None
    assert found["adascale_a (k2=5 %)"] is not None  # which is the paper's all the same
    found = papers(replace(main, methods=("adascale_a",)).run(replace(here, given={"lam": 20})))
    assert list(found)[:2] == ["adascale_a (preset, changed)", "adascale_a (k2=5 %, changed)"]
    assert set(found.values()) == {None}


def test_what_was_given_need_only_go_with_the_preset(
    experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ["--suite", "digits", "--limit", "20", "--out", tmp_path, "--no-report", "--set", "p_min=88"]
    assert inside(monkeypatch, "study", "k1", *own, "--preset", "imagenet/swin-b") == 0
    assert "p_min=88, p_max=99" in capsys.readouterr().out
    for preset in ([], ["--preset", "imagenet/resnet-50"]):
        assert inside(monkeypatch, "study", "k1", *own, *preset) == 2
        assert "p_min=88 is above p_max=85" in capsys.readouterr().err
    here = replace(named(experiment, "imagenet/swin-b"), given={"p_min": 88})
    main = studies.get("main")
    assert isinstance(main, MethodComparison)
    result = replace(main, methods=("adascale_a",)).run(here)
    assert [each.label for each in result.blocks[0].lines] == [
        *("adascale_a (preset, changed)", "adascale_a (k2=5 %, changed)")
    ]
    assert any("does not go with the defaults" in note for note in result.notes)


def test_what_goes_with_one_method_only(experiment: Experiment) -> None:
    """A is (80, 85) there and L (70, 80)."""
    here = replace(named(experiment, "imagenet/resnet-101"), given={"p_min": 82})
    assert studies.get("lambda").run(here).blocks
    with pytest.raises(InputError, match="adascale_l: p_min=82 is above p_max=80"):
        studies.get("cifar").run(here)


def test_what_contradicts_the_defaults_is_refused_without_a_preset(experiment: Experiment) -> None:
    here = replace(experiment, given={"p_min": 88})
    with pytest.raises(InputError, match="adascale_a: p_min=88 is above p_max=85"):
        studies.get("cifar").run(here)
