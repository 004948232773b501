"""The fitting procedure: which images choose, fit and set the threshold, and where outliers come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from adascale import InputError, Outputs, View, detectors
from adascale.decision.fitting import Plan
from adascale.detectors import Detector
from adascale.testing import example_outputs

N = 100
OUTPUTS, HEAD = example_outputs(N, (View(),), seed=1)
OTHERS = example_outputs(80, (View(),), seed=2)[0]
TRAIN = example_outputs(120, (View(),), seed=3)[0]


class Seen:
    """Outliers that remember for which images and views they were asked."""

    def __init__(self) -> None:
        self.chosen: list[int] = []
        self.views: list[View] = []

    def __call__(self, chosen: Sequence[int], views: Sequence[View]) -> dict[str, Outputs]:
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


def test_every_image_has_one_use(monkeypatch: pytest.MonkeyPatch) -> None:
    outliers, seen = Seen(), remembered(monkeypatch, detectors.ReAct)
    plan = Plan(detectors.ReAct(), tune=True, alpha=0.05)
    fitted = plan.fit(OUTPUTS, HEAD, None, outliers)
    chosen = rows_of(OUTPUTS[torch.tensor(outliers.chosen)])
    fits = [rows_of(part) for use, part in seen if use == "fit"]
    assert all(part == fits[-1] for part in fits)  # during the search and in the end
    held_out = rows_of(seen[-1][1])
    assert fitted.calibration is not None
    assert (len(chosen), len(fits[-1]), len(held_out)) == (30, fitted.reference_images, len(fitted.calibration.scores))
    assert len(chosen) + len(fits[-1]) + len(held_out) == len(chosen | fits[-1] | held_out) == N
    assert fitted.tuning is not None
    assert fitted.method.parameters["percentile"] == fitted.tuning.chosen["percentile"]


def test_without_a_threshold_all_images_are_fitted_on_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    outliers, seen = Seen(), remembered(monkeypatch, detectors.ReAct)
    fitted = Plan(detectors.ReAct(), tune=True).fit(OUTPUTS, HEAD, None, outliers)
    fits = [rows_of(part) for use, part in seen if use == "fit"]
    assert len(fits[-1]) == fitted.reference_images == N
    assert all(len(part) == N - 30 for part in fits[:-1])  # during the search the chosen images are left out
    assert fitted.calibration is None


@pytest.mark.parametrize("overlaps", [False, True])
def test_training_images_take_the_place_of_a_part(monkeypatch: pytest.MonkeyPatch, overlaps: bool) -> None:
    seen = remembered(monkeypatch, detectors.KNN)
    plan = Plan(detectors.KNN(k=5), tune=True, points=[{"k": 1}, {"k": 5}], train_overlaps=overlaps)
    plan.fit(OUTPUTS, HEAD, TRAIN, Seen())
    sizes = [len(part) for use, part in seen if use == "fit"]
    assert sizes[-1] == len(TRAIN)
    assert set(sizes[:-1]) == {N - 30 if overlaps else len(TRAIN)}  # no image that judges may have been learned from
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
