"""The number of images that AdaSCALE is fitted on."""

from __future__ import annotations

import pytest

from tests.paper.conftest import Run, line

pytestmark = pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")


def test_more_images_differ_less_from_draw_to_draw(run: Run) -> None:
    (block,) = run("n-val").blocks
    few, _, many = block.lines
    assert [each.label for each in block.lines] == ["n=10", "n=100", "n=110"]
    assert all((cell.spread or 0) > 0 for cell in few.cells.values())
    assert all(cell.spread == pytest.approx(0, abs=1e-9) for cell in many.cells.values())
    whole = {key: cell.measured for key, cell in many.cells.items()}
    assert whole == pytest.approx(line(run("lambda").blocks[0], "lambda=10"))
