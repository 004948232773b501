"""Where the paper's figures stand beside measured ones, and where they must not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from adascale.bench import SUITES
from adascale.bench.suites import load_suite
from adascale.paper import published as paper
from adascale.paper import studies
from adascale.paper.studies.base import Result, has_paper
from adascale.paper.studies.comparisons import MethodComparison
from adascale.paper.studies.experiment import Experiment
from tests.paper.conftest import Run, named, papers
from tests.shell import inside

pytestmark = pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")
IMAGENET = ("imagenet", "imagenet-paper")


def on(experiment: Experiment, suite: str, *places: str) -> Experiment:
    """The small experiment as if its images were those of a suite of the package."""
    return replace(named(experiment, *places), suite=load_suite(suite))


@pytest.mark.parametrize("suite", SUITES)
def test_a_suite_of_the_package_has_figures_of_its_own_data_only(experiment: Experiment, suite: str) -> None:
    for data in ("cifar10", "cifar100", "imagenet"):
        network = paper.paper_networks(data)[0]
        here = on(experiment, suite, f"{data}/{network}")
        (subject,) = here.subjects
        matches = suite == data or (data == "imagenet" and suite in IMAGENET)
        assert here.compared(subject) == (paper.Place(data, network) if matches else None)
        assert here.adascale(subject).parameters["k2"] == (5 if data == "imagenet" else 80)  # the preset's all the same


def test_no_column_of_the_paper_on_other_data(experiment: Experiment) -> None:
    for name in ("lambda", "n-val", "joint", "corruption", "distance"):
        assert has_paper(studies.get(name).run(named(experiment, "imagenet/resnet-50")).blocks), name
        assert not has_paper(studies.get(name).run(on(experiment, "digits", "imagenet/resnet-50")).blocks), name
    two = ("imagenet/resnet-50", "imagenet/resnet-50")
    assert not has_paper(studies.get("lambda").run(on(experiment, "digits", *two)).blocks)


def lacking(result: Result) -> Sequence[str]:
    return [note for note in result.notes if "not comparable one to one" in note]


def test_sets_of_the_paper_that_are_missing_are_named(experiment: Experiment) -> None:
    near, far = experiment.images.near["digits 8 and 9"], experiment.images.far["photographs"]
    names = load_suite("imagenet")
    images = replace(experiment.images, near=dict.fromkeys(names.near, near), far=dict.fromkeys(names.far, far))
    study, place = studies.get("lambda"), "imagenet/resnet-50"
    for suite in IMAGENET:
        (note,) = lacking(study.run(replace(on(experiment, suite, place), images=images)))
        assert "imagenet_o (near), places (far), which are not here" in note
    whole = replace(images, near={**images.near, "imagenet_o": near}, far={**images.far, "places": far})
    assert not lacking(study.run(replace(on(experiment, "imagenet-paper", place), images=whole)))
    assert not lacking(study.run(replace(on(experiment, "imagenet", "cifar10/wrn-28-10"), images=images)))
    assert not lacking(study.run(named(experiment, place)))


def test_other_data_are_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ["--suite", "digits", "--limit", "20", "--preset", "imagenet/resnet-50", "--out", tmp_path, "--no-report"]
    assert inside(monkeypatch, "study", "k1", *own) == 0
    captured = capsys.readouterr()
    assert captured.err.count("digits has other images than the paper for imagenet/resnet-50") == 1
    assert "p_min=80, p_max=85" in captured.out
    assert "paper" not in captured.out.replace("(Paper:", "")


def test_what_was_changed_has_no_figure_beside_it(experiment: Experiment) -> None:
    here = replace(named(experiment, "imagenet/resnet-50"), given={"k2": 20})
    result = studies.get("distance").run(here)
    assert papers(result)["adascale_a (preset, changed)"] is None
    assert papers(result)["mds"] is not None
    assert any("k2=20 was given; what this changes has no figure" in note for note in result.notes)
    assert not has_paper(studies.get("lambda").run(here).blocks)
    assert not has_paper(studies.get("joint").run(here).blocks)
    assert not has_paper(studies.get("n-val").run(here).blocks)
    assert papers(studies.get("k2").run(here)) == papers(studies.get("k2").run(replace(here, given={})))
    corrupted = papers(studies.get("corruption").run(here), 3)
    assert [name for name, value in corrupted.items() if value is None] == ["adascale_a", "adascale_a, ID alone"]
    one_knob = studies.get("one-knob")
    assert papers(one_knob.run(here))["adascale_a"] is None
    assert papers(one_knob.run(here))["optfs"] is not None
    assert papers(one_knob.run(replace(here, given={"p_max": 90})))["adascale_a"] is not None  # p_max is chosen anyway
    same = studies.get("distance").run(replace(here, given={"k2": 5}))
    assert papers(same)["adascale_a (preset)"] is not None
    assert not any("was given" in note for note in same.notes)


def test_the_papers_columns_only_where_network_and_data_match(experiment: Experiment, run: Run) -> None:
    assert all(not column.part for column in run("lambda").blocks[0].shown())
    here = named(experiment, "imagenet/resnet-50", "cifar10/densenet-101")
    resnet, densenet, mean = studies.get("lambda").run(here).blocks
    assert [column.part for column in resnet.shown()] == ["paper", "measured", "difference"] * 4
    assert all(not column.part for block in (densenet, mean) for column in block.shown())
    cells = {each.label: each.cells["ood.near.fpr95"] for each in resnet.lines}
    assert cells["lambda=10"].paper == 58.97
    assert cells["lambda=10"].difference == pytest.approx((cells["lambda=10"].measured or 0) - 58.97)
    assert cells["lambda=20"].paper is None


def test_averages_of_the_paper_only_over_its_networks(experiment: Experiment) -> None:
    every = [f"imagenet/{network}" for network in paper.paper_networks("imagenet")]
    study = studies.get("q-vs-qprime")
    *each, mean = study.run(named(experiment, *every)).blocks
    assert [block.lines[1].cells["ood.far.auroc"].paper for block in each[:2]] == [96.14, 95.95]
    assert mean.lines[1].cells["ood.far.auroc"].paper == 92.73
    *_, some = study.run(named(experiment, *every[:2])).blocks
    assert some.lines[1].cells["ood.far.auroc"].paper is None
    *_, mixed = study.run(named(experiment, every[0], "cifar10/densenet-101")).blocks
    assert mixed.lines[1].cells["ood.far.auroc"].paper is None


def test_the_mean_counts_every_network_of_the_paper_alike(experiment: Experiment) -> None:
    """The paper's average is beside the mean over its networks, not beside one that leans to a network."""
    both = [f"cifar10/{network}" for network in paper.paper_networks("cifar10")]

    distance = studies.get("distance")
    assert isinstance(distance, MethodComparison)
    comparison = replace(distance, methods=("scale",), table="main")

    def mean(*places: str) -> dict[str, float | None]:
        here = named(experiment, *places)
        subjects = [replace(one, network=replace(one.network, name=f"{i}")) for i, one in enumerate(here.subjects)]
        return papers(comparison.run(replace(here, subjects=subjects)), -1)

    assert mean(*both)["scale"] == mean(*both, *both)["scale"] is not None
    assert mean(*both, both[0])["scale"] is None
    assert mean(*both, "imagenet/resnet-50")["scale"] is None
