"""The studies of the paper's plots: values worked out by hand on a network that squares its pixels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from adascale import InputError, Preprocess, metrics
from adascale.bench.run import Network
from adascale.bench.suites import Source, Suite, SuiteImages
from adascale.images.sources import ImageSet
from adascale.network.classifier import Classifier
from adascale.paper import studies
from adascale.paper.studies.activations_seen import profiled_run
from adascale.paper.studies.base import Block
from adascale.paper.studies.experiment import Experiment, Subject
from adascale.report.document import Chart
from tests.paper.conftest import Run

pytestmark = pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")
STEP = 0.25
FIGURES = ("shift", "perturbed-activations", "q-ratio", "separation")
DARK, BRIGHT = (60, 70, 80), (120, 130, 200)  # grey levels of whole images


class Squares(nn.Module):
    """Each feature is the square of a pixel; all weights are positive, so that every pixel's gradient is."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(16, 2)
        nn.init.constant_(self.fc.weight, 0.5)
        nn.init.zeros_(self.fc.bias)

    def forward(self, x: Tensor) -> Any:
        return self.fc(x.flatten(1).square())


def flat(levels: tuple[int, ...]) -> ImageSet:
    array = np.repeat(np.array(levels, dtype=np.uint8), 16).reshape(-1, 4, 4)
    return ImageSet([str(level) for level in levels], array=array)


@pytest.fixture
def by_hand(tmp_path: Path) -> Experiment:
    """Flat images x: every activation is x^2 and becomes (x + STEP)^2."""
    suite = Suite("flat", Source("id"), near={"bright": Source("near")})
    images = SuiteImages(flat(DARK), flat(DARK), None, {"bright": flat(BRIGHT)}, {}, {}, {})
    network = Network("squares", Classifier(Squares().eval()), Preprocess(4, 4, (0.0,), (1.0,)))
    return Experiment(suite, images, [Subject(network)], tmp_path, given={"pixels": "all", "epsilon": STEP})


def x_of(levels: tuple[int, ...]) -> Tensor:
    return torch.tensor(levels, dtype=torch.float64) / 255


def measured(block: Block, column: str) -> list[float]:
    values = [each.cells[column].measured for each in block.lines]
    return [value for value in values if value is not None]


def test_shift_by_hand(by_hand: Experiment) -> None:
    (block,) = studies.get("shift").run(by_hand).blocks
    for name, levels in (("id", DARK), ("bright", BRIGHT)):
        shift = (x_of(levels) + STEP).square() - x_of(levels).square()
        assert measured(block, name) == pytest.approx([float(shift.mean())] * len(block.lines), rel=1e-5)
        spreads = [each.cells[name].spread for each in block.lines]
        assert spreads == pytest.approx([float(shift.std(correction=0))] * len(block.lines), rel=1e-4)
    assert all(ratio > 1 for ratio in measured(block, "bright/id"))
    (chart,) = block.charts
    known, bright = chart.series
    assert (known.name, bright.name) == ("id", "bright")
    assert known.y[0] == block.lines[0].cells["id"].measured
    assert bright.spread[0] == block.lines[0].cells["bright"].spread
    assert list(known.x) == [100 * (i + 1) / 16 for i in range(16)]


def test_perturbed_activations_by_hand(by_hand: Experiment) -> None:
    (block,) = studies.get("perturbed-activations").run(by_hand).blocks
    expected = float((x_of(BRIGHT) + STEP).square().mean())
    assert measured(block, "bright") == pytest.approx([expected] * len(block.lines), rel=1e-5)
    assert all(ratio > 1 for ratio in measured(block, "bright/id"))


def test_q_ratio_by_hand(by_hand: Experiment) -> None:
    """One activation counts for Q and for C_o: 1 % and 5 % of 16 are less than one."""
    (block,) = studies.get("q-ratio").run(by_hand).blocks
    (bright,) = block.lines
    q, after = ([f(x_of(levels)).mean() for levels in (BRIGHT, DARK)] for f in (_shift, lambda x: (x + STEP).square()))
    assert bright.cells["q"].measured == pytest.approx(float(q[0] / q[1]), rel=1e-5)
    expected = (10 * q[0] + after[0]) / (10 * q[1] + after[1])
    assert bright.cells["q_prime"].measured == pytest.approx(float(expected), rel=1e-5)
    assert (bright.cells["q"].measured or 0) > 1
    (chart,) = block.charts
    assert [list(one.y) for one in chart.series] == [[bright.cells[key].measured] for key in ("q", "q_prime")]


def _shift(x: Tensor) -> Tensor:
    return (x + STEP).square() - x.square()


def test_unreadable_images_are_said(by_hand: Experiment, tmp_path: Path) -> None:
    """Left out of the figures, named under them."""
    for level in BRIGHT:
        Image.new("L", (4, 4), level).save(tmp_path / f"{level}.png")
    (tmp_path / "broken.png").write_text("no picture")
    names = [*(f"{level}.png" for level in BRIGHT), "broken.png"]
    images = replace(by_hand.images, near={"bright": ImageSet(names, [tmp_path / name for name in names])})
    whole = {name: studies.get(name).run(by_hand).blocks[0] for name in FIGURES}
    for name in FIGURES:
        block = studies.get(name).run(replace(by_hand, images=images)).blocks[0]
        assert "1 image of bright could not be read, such as broken.png" in block.note
        assert block.unreadable == 1
        assert block.lines == whole[name].lines


def test_nothing_to_show(by_hand: Experiment) -> None:
    with pytest.raises(InputError, match=r"squares: nothing to show.*no perturbed view"):
        studies.get("shift").run(replace(by_hand, given={"statistic": "top"}))


def test_separation(experiment: Experiment, run: Run) -> None:
    (block,) = run("separation").blocks
    scores = profiled_run(experiment, experiment.subjects[0]).scores
    for name, each in zip(("digits 8 and 9", "photographs"), block.lines, strict=True):
        assert each.label.startswith(name)
        for method in ("scale", "adascale_a"):
            expected = 100 * metrics.auroc(scores[method]["id"], scores[method][name])
            assert each.cells[f"{method}.auroc"].measured == pytest.approx(expected)
    assert [chart.title for chart in block.charts] == [
        f"{method}: {name}" for name in ("digits 8 and 9", "photographs") for method in ("scale", "adascale_a")
    ]
    for chart in block.charts:
        assert all(len(one.x) == len(one.y) + 1 and 0.9 < _sum(chart, i) <= 1 for i, one in enumerate(chart.series))
    assert _mean(block.charts[0], 1) > _mean(block.charts[0], 0)  # OOD to the right


def _sum(chart: Chart, place: int) -> float:
    return sum(value or 0 for value in chart.series[place].y)


def _mean(chart: Chart, place: int) -> float:
    one = chart.series[place]
    return sum((value or 0) * x for value, x in zip(one.y, one.x[:-1], strict=True))
