"""Where the paper's figures stand beside measured ones, and where they must not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from adascale import InputError
from adascale.bench.suites import SUITES, load_suite
from adascale.paper import figures as paper
from adascale.paper import studies
from adascale.paper.studies.base import Result, has_paper
from adascale.paper.studies.headline import Comparison
from adascale.paper.studies.setting import Setting
from tests.shell import inside
from tests.studying import line, named

pytestmark = pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")
IMAGENET = ("imagenet", "imagenet-paper")


def on(setting: Setting, suite: str, *places: str) -> Setting:
    """The small setting as if its images were those of a suite of the package."""
    return replace(named(setting, *places), suite=load_suite(suite))


@pytest.mark.parametrize("suite", SUITES)
def test_a_suite_of_the_package_has_figures_of_its_own_data_only(setting: Setting, suite: str) -> None:
    for data in ("cifar10", "cifar100", "imagenet"):
        network = paper.networks(data)[0]
        here = on(setting, suite, f"{data}/{network}")
        (subject,) = here.subjects
        matches = suite == data or (data == "imagenet" and suite in IMAGENET)
        assert here.compared(subject) == (paper.Place(data, network) if matches else None)
        assert here.base(subject).parameters["k2"] == (5 if data == "imagenet" else 80)  # the preset's all the same


def test_no_column_of_the_paper_on_other_data(setting: Setting) -> None:
    for name in ("lambda", "n-val", "joint", "corruption", "distance"):
        assert has_paper(studies.get(name).run(named(setting, "imagenet/resnet-50")).blocks), name
        assert not has_paper(studies.get(name).run(on(setting, "digits", "imagenet/resnet-50")).blocks), name
    two = ("imagenet/resnet-50", "imagenet/resnet-50")
    assert not has_paper(studies.get("lambda").run(on(setting, "digits", *two)).blocks)


def lacking(result: Result) -> Sequence[str]:
    return [note for note in result.notes if "not comparable one to one" in note]


def test_sets_of_the_paper_that_are_missing_are_named(setting: Setting) -> None:
    near, far = setting.images.near["digits 8 and 9"], setting.images.far["photographs"]
    names = load_suite("imagenet")
    images = replace(setting.images, near=dict.fromkeys(names.near, near), far=dict.fromkeys(names.far, far))
    study, place = studies.get("lambda"), "imagenet/resnet-50"
    for suite in IMAGENET:
        (note,) = lacking(study.run(replace(on(setting, suite, place), images=images)))
        assert "imagenet_o (near), places (far), which are not here" in note
    whole = replace(images, near={**images.near, "imagenet_o": near}, far={**images.far, "places": far})
    assert not lacking(study.run(replace(on(setting, "imagenet-paper", place), images=whole)))
    assert not lacking(study.run(replace(on(setting, "imagenet", "cifar10/wrn-28-10"), images=images)))
    assert not lacking(study.run(named(setting, place)))


def test_other_data_are_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ["--suite", "digits", "--limit", "20", "--preset", "imagenet/resnet-50", "--out", tmp_path, "--no-report"]
    assert inside(monkeypatch, "study", "k1", *own) == 0
    captured = capsys.readouterr()
    assert captured.err.count("digits has other images than the paper for imagenet/resnet-50") == 1
    assert "p_min=80, p_max=85" in captured.out
    assert "paper" not in captured.out.replace("(Paper:", "")


@pytest.mark.parametrize("name", ["lambda", "epsilon", "k1", "k2", "o", "p-max", "p-min", "joint"])
def test_the_sensitivity_of_vit_starts_where_the_papers_does(setting: Setting, name: str) -> None:
    """Its reference row has k2=5, its headline row k2=100; the usual value of each parameter is the reference row."""
    here, study = named(setting, "imagenet/vit-b-16"), studies.get(name)
    result, reference = study.run(here), studies.get("k2").run(here)
    assert result.about["settings"] == {here.subjects[0].name: {**here.base(here.subjects[0]).parameters, "k2": 5}}
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


def test_other_studies_and_networks_keep_their_preset(setting: Setting) -> None:
    for name, place, k2 in (("q-vs-qprime", "imagenet/vit-b-16", 100), ("lambda", "imagenet/densenet-201", 10)):
        here = named(setting, place)
        result = studies.get(name).run(here)
        assert result.about["settings"][here.subjects[0].name]["k2"] == k2
        assert not any("reference row" in note for note in result.notes)


def papers(result: Result, block: int = 0) -> dict[str, float | None]:
    """The paper's near FPR@95 by label."""
    return {each.label: each.cells["ood.near.fpr95"].paper for each in result.blocks[block].lines}


def test_what_was_changed_has_no_figure_beside_it(setting: Setting) -> None:
    here = replace(named(setting, "imagenet/resnet-50"), given={"k2": 20})
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


def test_the_mean_counts_every_network_of_the_paper_alike(setting: Setting) -> None:
    """The paper's average is beside the mean over its networks, not beside one that leans to a network."""
    both = [f"cifar10/{network}" for network in paper.networks("cifar10")]

    distance = studies.get("distance")
    assert isinstance(distance, Comparison)
    comparison = replace(distance, methods=("scale",), table="main")

    def mean(*places: str) -> dict[str, float | None]:
        here = named(setting, *places)
        subjects = [replace(one, network=replace(one.network, name=f"{i}")) for i, one in enumerate(here.subjects)]
        return papers(comparison.run(replace(here, subjects=subjects)), -1)

    assert mean(*both)["scale"] == mean(*both, *both)["scale"] is not None
    assert mean(*both, both[0])["scale"] is None
    assert mean(*both, "imagenet/resnet-50")["scale"] is None


def test_a_line_of_some_networks_has_no_average_beside_it(setting: Setting) -> None:
    """k2=10 is the preset of one of the two networks, and changes the other's."""
    here = replace(named(setting, "cifar10/wrn-28-10", "cifar10/densenet-101"), given={"k2": 10})
    result = studies.get("cifar").run(here)
    assert papers(result)["adascale_a (preset) (1 of 2 networks)"] is None
    assert papers(result)["scale"] is not None
    assert papers(result, 2)["adascale_a (preset)"] is not None


def test_a_changed_line_of_the_headline_table(setting: Setting) -> None:
    here = replace(named(setting, "imagenet/swin-b"), given={"k2": 20})
    main = studies.get("main")
    assert isinstance(main, Comparison)
    found = papers(replace(main, methods=("adascale_a",)).run(here))
    assert found["adascale_a (preset, changed)"] is None
    assert found["adascale_a (k2=5 %)"] is not None  # which is the paper's all the same
    found = papers(replace(main, methods=("adascale_a",)).run(replace(here, given={"lam": 20})))
    assert list(found)[:2] == ["adascale_a (preset, changed)", "adascale_a (k2=5 %, changed)"]
    assert set(found.values()) == {None}


def test_what_was_given_need_only_go_with_the_preset(
    setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ["--suite", "digits", "--limit", "20", "--out", tmp_path, "--no-report", "--set", "p_min=88"]
    assert inside(monkeypatch, "study", "k1", *own, "--preset", "imagenet/swin-b") == 0
    assert "p_min=88, p_max=99" in capsys.readouterr().out
    for preset in ([], ["--preset", "imagenet/resnet-50"]):
        assert inside(monkeypatch, "study", "k1", *own, *preset) == 2
        assert "p_min=88 is above p_max=85" in capsys.readouterr().err
    here = replace(named(setting, "imagenet/swin-b"), given={"p_min": 88})
    main = studies.get("main")
    assert isinstance(main, Comparison)
    result = replace(main, methods=("adascale_a",)).run(here)
    assert [each.label for each in result.blocks[0].lines] == [
        *("adascale_a (preset, changed)", "adascale_a (k2=5 %, changed)")
    ]
    assert any("does not go with the defaults" in note for note in result.notes)


def test_what_goes_with_one_method_only(setting: Setting) -> None:
    """A is (80, 85) there and L (70, 80)."""
    here = replace(named(setting, "imagenet/resnet-101"), given={"p_min": 82})
    assert studies.get("lambda").run(here).blocks
    with pytest.raises(InputError, match="adascale_l: p_min=82 is above p_max=80"):
        studies.get("cifar").run(here)


def test_contradictions_of_the_paper_are_told(setting: Setting) -> None:
    """With the values that the tables have."""

    def near(table: str, row: str) -> str:
        found = paper.figure(table, paper.place("imagenet/resnet-50"), row, "near")
        assert found is not None
        return f"{found.fpr95:.2f} / {found.auroc:.2f}"

    (note,) = (each for each in _joint(setting, "imagenet/resnet-50") if "contradict" in each)
    assert near("joint", "k1=100 p_max=85") == near("joint", "k1=100 lambda=10")
    texts = [near("k1", "k1=100"), near("joint", "k1=100 p_max=85")]
    texts += [near("joint", "lambda=10 p_max=90"), near("joint", "k1=1 p_max=90")]
    assert re.findall(r"\d+\.\d+ / \d+\.\d+", note) == texts
    assert not any("contradict" in each for each in _joint(setting, "imagenet/vit-b-16"))


def _joint(setting: Setting, place: str) -> Sequence[str]:
    return studies.get("joint").notes(named(setting, place))
