"""What the report shows inside AdaSCALE: whose figures these are, and whether its premise and its percentiles hold."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from adascale.bench import diagnostics, plots
from adascale.bench.columns import Kind
from adascale.bench.figures import run_jobs
from adascale.bench.page import report_page
from adascale.bench.premise import premise
from adascale.bench.results import ModelRun, Profile, Run
from adascale.bench.run import DEFAULT
from adascale.bench.scoring import Scored
from adascale.core.progress import Advance
from adascale.detectors import AdaSCALE_A, AdaSCALE_L, Detector
from adascale.detectors.adaptive import Adaptive
from adascale.extraction.cache import Extracted
from adascale.report.charts import plot
from tests.bench.runs import bench
from tests.made_up_run import made_up_run

SETS: dict[str, Kind] = {"digits": "id", "letters": "near", "noise": "far"}
AGAINST = "works against telling them apart there"


def profile(q: float, q_prime: float, percentile: float) -> Profile:
    """Of 50 images with about these means."""
    spread = torch.linspace(0.9, 1.1, 50, dtype=torch.float64)
    ranks = torch.tensor([1.0, 10.0, 100.0], dtype=torch.float64)
    curves, percentiles = (ranks, ranks, ranks, ranks), percentile + spread
    return Profile(ranks, *curves, q * spread, q_prime * spread, percentiles, 1 + percentiles / 100)


def told(**sets: tuple[float, float, float]) -> str:
    """The premise where ID has a Q of 1, a Q' of 10 and a percentile of 70."""
    return premise(judged(**sets).models[0])


def judged(**sets: tuple[float, float, float]) -> Run:
    run = made_up_run(methods=["adascale_a"], sets=SETS, images=50, full=False)
    known = {"digits": profile(1, 10, 70), "letters": profile(2, 20, 60), "noise": profile(2, 20, 60)}
    found = known | {name: profile(*values) for name, values in sets.items()}
    return dataclasses.replace(run, models=[dataclasses.replace(run.models[0], profiles=found)])


def test_the_premise_is_about_q_and_named_where_it_does_not_hold() -> None:
    assert told() == "It holds here: on every set the mean Q is above that of ID, 2.00 times on letters."
    found = told(letters=(0.5, 20, 60))
    assert found.startswith("Here it holds on 1 of 2 sets:")
    assert found.endswith("not above that of ID by more than chance on letters (0.50 times).")
    assert "no set" in told(letters=(0.5, 20, 60), noise=(0.9, 20, 60))


def test_sets_with_a_larger_q_and_a_smaller_statistic_get_the_larger_percentile() -> None:
    run = judged(letters=(1.86, 8.3, 80))
    found = premise(run.models[0])
    assert found.startswith("It holds here: on every set the mean Q is above that of ID, 1.86 times on letters. Q")
    assert "is on average no larger on letters (0.83 times) than on ID images: they get the larger percentile" in found
    assert "are scaled more than they would be at the percentile of ID images" in found
    assert AGAINST in found
    assert "noise" not in found
    assert found in report_page(run)
    both = told(letters=(0.5, 8.3, 80), noise=(2, 9.9, 71))
    assert "by more than chance on letters (0.50 times). Q" in both
    assert "no larger on letters (0.83 times) and noise (0.99 times) than" in both


@pytest.mark.parametrize("letters", [(1.86, 10.1, 69), (0.5, 20, 60), (2, 8.3, 70)])
def test_nothing_works_against_it_where_the_statistic_is_larger_or_the_percentile_is_one(
    letters: tuple[float, float, float],
) -> None:
    """The last: as with ``p_min`` = ``p_max``, where the statistic has no effect."""
    assert AGAINST not in told(letters=letters)


def test_the_factor_is_that_of_the_method() -> None:
    page = report_page(judged())
    assert "<i>e</i><sup>r</sup> times the activations in AdaSCALE-A" in page
    assert "r<sup>2</sup> times the logits in\nAdaSCALE-L" in page


def test_parameters_are_named_in_words() -> None:
    one = AdaSCALE_A(p_max=90, lam=5)
    assert diagnostics.setting(one) == (
        "p_min = 60, p_max = 90, λ = 5, k1 = 1 %, k2 = 5 %, ε = 0.5 on 5 % of the channel values (trivial)"
    )
    several = diagnostics.setting(AdaSCALE_L(more_pairs=(60, 90, 60, 99), pixels="all", statistic="c_o"))
    assert several.startswith("mean over 3 pairs of p_min (60) and p_max (85 to 99), λ = 10, ")
    assert several.endswith("c_o in the place of Q\N{PRIME}, ε = 0.5 on all channel values")
    assert "the channel value with" in diagnostics.setting(AdaSCALE_A(pixels="largest"))


def measured(suite: Path, monkeypatch: pytest.MonkeyPatch, *arguments: Any) -> tuple[ModelRun, list[Adaptive]]:
    """The network's results, and the method that was profiled on each set, with the percentiles that it gives there."""
    runs, seen = list[Run](), list[Adaptive]()

    class Watched(Scored):
        def __init__(self, methods: Any, profiled: Detector | None, extracted: Extracted, advance: Advance) -> None:
            super().__init__(methods, profiled, extracted, advance)
            assert isinstance(profiled, Adaptive)
            assert self.profile is not None
            assert self.profile.percentile.tolist() == pytest.approx(profiled.percentiles(extracted.load()).tolist())
            seen.append(profiled)

    def kept(*given: Any) -> Run:
        runs.append(run_jobs(*given))
        return runs[0]

    monkeypatch.setattr("adascale.cli.bench.run_jobs", kept)
    monkeypatch.setattr("adascale.bench.run.Scored", Watched)
    bench(suite, monkeypatch, "a", *arguments)
    return runs[0].models[0], seen


@pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")
def test_the_figures_are_those_of_the_member_of_the_deployed_method(
    suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, (member, *others) = measured(suite, monkeypatch, "--method", f"adascale_a,{DEFAULT},msp")
    assert isinstance(member, AdaSCALE_L)
    assert [one is member for one in others] == [True, True]
    assert model.profiled == f"adascale_l, a member of {DEFAULT} (tuned)"
    assert model.profiled_with == diagnostics.setting(member)
    assert "(random)" in model.profiled_with
    assert set(model.profiles) == {"id", "n", "f"}


@pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")
def test_without_such_a_member_they_are_those_of_the_first_line(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    methods = f"{DEFAULT},msp,adascale_a"
    model, (line, *_) = measured(
        suite, monkeypatch, "--method", methods, "--set", f"{DEFAULT}.members=gen,msp", "--tune", "none"
    )
    assert isinstance(line, AdaSCALE_A)
    assert (model.deployed, model.profiled) == (DEFAULT, "adascale_a")
    assert set(model.profiles) == {"id", "n", "f"}


def test_no_text_stands_on_the_line_of_the_ratios() -> None:
    run = judged(letters=(1.86, 8.3, 80), noise=(0.1, 10, 70))
    figure = plot(*plots.q_ratios(run.models[0]))
    figure.canvas.draw()
    (axes,) = figure.axes
    line = axes.transData.transform((1, 0))[0]
    boxes = {text.get_text(): text.get_window_extent() for text in axes.texts}
    assert set(boxes) == {"Q 1.86", "Q\N{PRIME} 0.83", "Q 0.10", "Q\N{PRIME} 1.00"}
    assert [text for text, box in boxes.items() if box.x0 <= line <= box.x1] == []
    assert boxes["Q 0.10"].x1 < line < boxes["Q\N{PRIME} 0.83"].x0
    assert max(box.x1 for box in boxes.values()) <= axes.get_window_extent().x1
