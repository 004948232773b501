"""The opening of the report: what is best, what to deploy, what it flags."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from adascale import Calibration, metrics
from adascale.bench.answer import advice, answers, deployed_table, ranking
from adascale.bench.figures import figures
from adascale.bench.headline import standing
from adascale.bench.page import report_page
from adascale.bench.results import ModelRun, Run, SetInfo
from adascale.maths.binomial import at_most, share_interval

N = 300


def made(near: dict[str, float], far: dict[str, float], calibrated: bool = True) -> Run:
    """Methods that see the near and the far images so and so clearly; ``combined`` is the deployed one."""
    generator = torch.Generator().manual_seed(0)

    def noise() -> Tensor:
        return torch.randn(N, generator=generator, dtype=torch.float64)

    base = {"id": noise(), "n1": noise(), "n2": noise(), "f": noise()}
    scores = {
        method: {
            name: part + 0.1 * noise() + {"i": 0.0, "n": near[method], "f": far[method]}[name[0]]
            for name, part in base.items()
        }
        for method in near
    }
    kinds = {"id": "id", "n1": "near", "n2": "near", "f": "far"}
    sets = {name: SetInfo(kind, N) for name, kind in kinds.items()}  # type: ignore[arg-type]
    calibration = Calibration(noise(), 0.1) if calibrated else None
    model = ModelRun("net", sets, None, scores, {}, "combined", deployed="combined", calibration=calibration)
    found = standing(model)
    assert found is not None
    return Run("suite", [model], figures(model), {}, {"net": found})


@pytest.mark.parametrize(
    ("near", "far", "chosen", "why"),
    [
        ({"combined": 2.0, "msp": 1.0}, {"combined": 3.0, "msp": 3.0}, "combined", "and the best here"),
        ({"combined": 1.0, "msp": 1.0}, {"combined": 3.0, "msp": 3.0}, "combined", ""),
        ({"combined": 1.0, "msp": 2.0}, {"combined": 1.0, "msp": 1.0}, "msp", "confirm it on others"),
        ({"combined": 1.0, "msp": 2.0}, {"combined": 3.0, "msp": 1.0}, "combined", "points behind on far-OOD"),
    ],
)
def test_the_default_is_deployed_unless_another_is_better_and_nowhere_worse(
    near: dict[str, float], far: dict[str, float], chosen: str, why: str
) -> None:
    run = made(near, far)
    name, reason = advice(run.models[0], run.standings["net"])
    assert name == chosen
    assert why in reason


def test_the_page_opens_with_answers_that_the_scores_confirm() -> None:
    run = made({"combined": 1.0, "msp": 2.0}, {"combined": 3.0, "msp": 1.0})
    (model,) = run.models
    cards = {card.question: card for card in answers(run, model)}
    assert cards["Best here"].answer == "msp"
    assert cards["What to deploy"].answer == "combined"
    assert model.calibration is not None
    flags = {name: float((scores > model.calibration.threshold).double().mean())
             for name, scores in model.scores["combined"].items()}  # fmt: skip
    assert cards["False alarms"].answer == f"{100 * flags['id']:.1f} %"
    assert cards["What it catches"].answer == f"{50 * (flags['n1'] + flags['n2']):.1f} % / {100 * flags['f']:.1f} %"
    assert cards["What it costs"].answer == "2 forward passes"
    table = deployed_table(model)
    assert table is not None
    assert {line.label: line.cells["flagged"].measured for line in table.lines} == pytest.approx(
        {name: 100 * share for name, share in flags.items()}
    )
    page = report_page(run)
    assert page.index("The answer") < page.index("What to deploy") < page.index("<table")
    assert 'title="largest softmax probability"' in page  # what the registry says about msp
    assert deployed_table(made({"combined": 1.0}, {"combined": 1.0}, calibrated=False).models[0]) is None


def test_rankings_have_the_interval_of_the_mean_over_sets() -> None:
    run = made({"combined": 1.0, "msp": 2.0}, {"combined": 3.0, "msp": 1.0})
    (model,) = run.models
    charts = ranking(run, model)
    assert {kind: list(chart.labels) for kind, chart in charts.items()} == {
        "near": ["msp", "combined"],
        "far": ["combined", "msp"],
    }
    scores = model.scores["msp"]
    low, high = metrics.bootstrap_mean([scores["id"], scores["n1"], scores["n2"]])
    (others,) = (one for one in charts["near"].series if one.name == "other methods")
    assert others.intervals == [(100 * low, 100 * high), None]
    assert low < (others.y[0] or 0) / 100 < high
    assert metrics.bootstrap_mean([scores["id"], scores["f"]]) == metrics.bootstrap(scores["id"], scores["f"])


def test_exact_intervals_of_shares() -> None:
    low, high = share_interval(3, 20)
    assert 1 - at_most(2, 20, low) == pytest.approx(0.025)
    assert at_most(3, 20, high) == pytest.approx(0.025)
    assert share_interval(0, 10)[0] == 0
    assert share_interval(10, 10)[1] == 1
