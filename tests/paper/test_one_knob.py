"""One parameter to choose, without OOD data."""

from __future__ import annotations

import re

import pytest

from tests.paper.conftest import Run, line

pytestmark = pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")


def test_one_knob_and_distances(run: Run) -> None:
    result = run("one-knob")
    methods, grid = result.blocks
    assert [each.label for each in methods.lines] == ["optfs", "adascale_a", "adascale_l"]
    assert [each.label for each in grid.lines] == [f"p_max={p}" for p in (65, 70, 75, 80, 85, 90, 95, 99)]
    chosen = re.search(r"adascale_a p_min=60, p_max=(\d+)", methods.note)
    assert chosen is not None
    best = line(grid, f"p_max={chosen[1]}")
    judged = [each.cells["judge.auroc"].measured or 0 for each in grid.lines]
    assert (best.pop("judge.auroc") or 0) >= max(judged)
    assert best == line(methods, "adascale_a")
    assert result.about["settings"]["digits"]["k2"] == 5
    assert [each.label for each in run("distance").blocks[0].lines] == ["line", "nnguide", "mds", "adascale_a"]
    assert len(run("cifar").blocks[0].lines) == 11
