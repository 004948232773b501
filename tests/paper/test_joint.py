"""Two parameters at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from adascale.paper import published as paper
from adascale.paper import studies
from adascale.paper.studies.experiment import Experiment
from tests.paper.conftest import Run, line, named

pytestmark = pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")


def test_joint_grids(run: Run) -> None:
    first, second, third, validation = run("joint").blocks
    assert [len(block.lines) for block in (first, second, third, validation)] == [12, 15, 20, 81]
    assert line(first, "lambda=10 p_max=85") == line(run("lambda").blocks[0], "lambda=10")
    assert (
        line(first, "lambda=10 p_max=95") == line(second, "k1=1 p_max=95") == line(run("p-max").blocks[0], "p_max=95")
    )
    assert line(third, "k1=50 lambda=10") == line(run("k1").blocks[0], "k1=50")
    assert "outliers made from them" in validation.note
    chart = validation.charts[0]
    assert (len(chart.series), len(chart.labels)) == (9, 9)
    assert all(value is not None for series in chart.series for value in series.y)


def test_contradictions_of_the_paper_are_told(experiment: Experiment) -> None:
    """With the values that the tables have."""

    def near(table: str, row: str) -> str:
        found = paper.figure(table, paper.place("imagenet/resnet-50"), row, "near")
        assert found is not None
        return f"{found.fpr95:.2f} / {found.auroc:.2f}"

    (note,) = (each for each in _joint(experiment, "imagenet/resnet-50") if "contradict" in each)
    assert near("joint", "k1=100 p_max=85") == near("joint", "k1=100 lambda=10")
    texts = [near("k1", "k1=100"), near("joint", "k1=100 p_max=85")]
    texts += [near("joint", "lambda=10 p_max=90"), near("joint", "k1=1 p_max=90")]
    assert re.findall(r"\d+\.\d+ / \d+\.\d+", note) == texts
    assert not any("contradict" in each for each in _joint(experiment, "imagenet/vit-b-16"))


def _joint(experiment: Experiment, place: str) -> Sequence[str]:
    return studies.get("joint").notes(named(experiment, place))
