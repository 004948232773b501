"""The fitting procedure: which images choose, fit and set the threshold, and where outliers come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from adascale import InputError, Outputs, View, detectors
from adascale.core.types import Need
from adascale.decision.fitting import Plan
from adascale.detectors import Detector
from adascale.maths.split import split
from adascale.metrics import auroc
from adascale.testing import example_outputs

N = 100
OUTPUTS, HEAD = example_outputs(N, (View(),), seed=1)
OTHERS = example_outputs(80, (View(),), seed=2)[0]
TRAIN = example_outputs(120, (View(),), seed=3)[0]


class Seen:
    """Outliers that remember for which images and views they were asked."""

    def __init__(self) -> None:
        self.chosen: list[int] = []
        self.views: list[Need] = []

    def __call__(self, chosen: Sequence[int], views: Sequence[Need]) -> dict[str, Outputs]:
        self.chosen, self.views = list(chosen), list(views)
        moved = OUTPUTS[torch.tensor(chosen)]
        return {"moved": replace(moved, features=moved.features * 1.5)}


def rows_of(part: Outputs) -> set[tuple[float, ...]]:
    return {tuple(row) for row in part.features.tolist()}


def remembered(monkeypatch: pytest.MonkeyPatch, cls: type[Detector]) -> list[tuple[str, Outputs]]:
    """The outputs that methods of this class are fitted on and score, in order."""
    seen: list[tuple[str, Outputs]] = []
    fit, score = cls.fit, cls.score

    def fits(self: Detector, reference: Outputs | None, head: object) -> Detector:
        if reference is not None:
            seen.append(("fit", reference))
        return fit(self, reference, head)  # type: ignore[arg-type]

    def scores(self: Detector, outputs: Outputs) -> torch.Tensor:
        seen.append(("score", outputs))
        return score(self, outputs)

    monkeypatch.setattr(cls, "fit", fits)
    monkeypatch.setattr(cls, "score", scores)
    return seen


def test_what_sets_the_threshold_has_no_other_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the images choose and fit in turns: each half is fitted on while the other one judges."""
    outliers, seen = Seen(), remembered(monkeypatch, detectors.ReAct)
    plan = Plan(detectors.ReAct(), tune=True, alpha=0.05)
    fitted = plan.fit(OUTPUTS, HEAD, None, outliers)
    chosen = rows_of(OUTPUTS[torch.tensor(outliers.chosen)])
    *fits, last = [rows_of(part) for use, part in seen if use == "fit"]
    halves = [part for i, part in enumerate(fits) if part not in fits[:i]]
    assert [len(half) for half in halves] == [25, 25]
    assert last == chosen == halves[0] | halves[1]
    for place, (use, part) in enumerate(seen[:-1]):  # what is scored has not been fitted on
        if use == "score":
            learned = next(rows_of(before) for kind, before in reversed(seen[:place]) if kind == "fit")
            assert not rows_of(part) & learned
    held_out = rows_of(seen[-1][1])
    assert fitted.calibration is not None
    assert (len(last), len(held_out)) == (fitted.reference_images, len(fitted.calibration.scores)) == (50, 50)
    assert not chosen & held_out
    assert fitted.tuning is not None
    assert fitted.method.parameters["percentile"] == fitted.tuning.chosen["percentile"]


def test_at_most_200_images_judge_and_all_but_the_held_out_ones_are_fitted_on() -> None:
    outputs = example_outputs(1000, (View(),), seed=4)[0]
    asked: list[int] = []

    def outliers(chosen: Sequence[int], _: Sequence[Need]) -> dict[str, Outputs]:
        asked.extend(chosen)
        moved = outputs[torch.tensor(chosen)]
        return {"moved": replace(moved, features=moved.features * 1.5)}

    fitted = Plan(detectors.AdaSCALE_L(), alpha=0.05).fit(outputs, HEAD, None, outliers)
    assert fitted.calibration is not None
    assert (len(asked), fitted.reference_images, len(fitted.calibration.scores)) == (200, 400, 600)


def test_outliers_of_another_number_judge_in_both_turns() -> None:
    """They need not be made from the images that they are told from."""
    fitted = Plan(detectors.AdaSCALE_L(), alpha=0.05).fit(OUTPUTS, HEAD, None, lambda *_: {"x": OTHERS})
    assert fitted.tuning is not None
    parts = split(N, 0, 0.2, 30)
    rows = torch.cat([parts.chosen, parts.fitted])
    point, found = fitted.tuning.trials[7]
    by_hand = []
    for half in (0, 1):
        method = detectors.AdaSCALE_L(**point).fit(OUTPUTS[rows[1 - half :: 2]], HEAD)
        by_hand.append(auroc(method.score(OUTPUTS[rows[half::2]]), method.score(OTHERS)))
    assert found == pytest.approx(sum(by_hand) / 2)


def test_without_a_threshold_all_images_are_fitted_on_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    outliers, seen = Seen(), remembered(monkeypatch, detectors.ReAct)
    fitted = Plan(detectors.ReAct(), tune=True).fit(OUTPUTS, HEAD, None, outliers)
    fits = [rows_of(part) for use, part in seen if use == "fit"]
    assert len(fits[-1]) == fitted.reference_images == N
    assert all(len(part) == N // 2 for part in fits[:-1])  # during the search one half, then the other
    assert fitted.calibration is None


@pytest.mark.parametrize("overlaps", [False, True])
def test_training_images_take_the_place_of_a_part(monkeypatch: pytest.MonkeyPatch, overlaps: bool) -> None:
    seen = remembered(monkeypatch, detectors.KNN)
    plan = Plan(detectors.KNN(k=5), tune=True, points=[{"k": 1}, {"k": 5}], train_overlaps=overlaps)
    plan.fit(OUTPUTS, HEAD, TRAIN, Seen())
    sizes = [len(part) for use, part in seen if use == "fit"]
    assert sizes[-1] == len(TRAIN)
    assert set(sizes[:-1]) == {N // 2 if overlaps else len(TRAIN)}  # no image that judges may have been learned from
    with pytest.raises(InputError, match="are among the training images"):
        replace(plan, alpha=0.05).fit(OUTPUTS, HEAD, OUTPUTS, None)


def test_outliers_are_asked_for_once_with_the_views_of_the_grid() -> None:
    outliers = Seen()
    plan = Plan(detectors.AdaSCALE_A(), tune=None, alpha=0.05, seed=4)
    plan.fit(OUTPUTS, HEAD, None, outliers)
    assert outliers.chosen == plan.chosen(N)
    assert outliers.views == [View()]
    never = Seen()
    untuned = replace(plan, tune=False).fit(OUTPUTS, HEAD, None, never)
    assert (never.chosen, untuned.tuning, untuned.setting) == ([], None, "defaults")


def test_ood_validation_images_judge_on_half_of_the_images() -> None:
    plan = Plan(detectors.ReAct(), tune=True, judge="ood")
    fitted = plan.fit(OUTPUTS, HEAD, None, lambda *_: {"x": OTHERS})
    assert fitted.tuning is not None
    assert fitted.tuning.judged_by == "50 ID images against OOD validation images (x)"
    assert fitted.tuning.auroc == max(auroc for _, auroc in fitted.tuning.trials)
