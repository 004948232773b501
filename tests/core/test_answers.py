"""Answers of several batches become one, and predictions have names."""

from __future__ import annotations

import torch
from torch import Tensor

from adascale.core.answers import Decision, Verdict, joined


def verdict(rows: list[int], evidence: dict[str, Tensor]) -> Verdict:
    prediction = torch.tensor(rows)
    score = prediction.double()
    return Verdict(score > 1, score, score / 10, torch.eye(4)[prediction], prediction, evidence, ("cat", "dog"))


def test_answers_are_joined_in_order() -> None:
    first, second = (verdict(rows, {"gen": torch.tensor(rows).double() / 2}) for rows in ([0, 1], [3]))
    both = joined([first, second])
    assert both.score.tolist() == [0, 1, 3]
    assert both.is_ood.tolist() == [False, False, True]
    assert both.evidence["gen"].tolist() == [0, 0.5, 1.5]
    assert both.class_names == ("cat", "dog")


def test_a_class_without_a_name_is_shown_by_its_number() -> None:
    assert verdict([1, 0, 3], {}).label == ["dog", "cat", "3"]
    prediction = torch.tensor([2, 0])
    assert Decision(prediction > 0, prediction > 0, torch.eye(3)[prediction], prediction).label == ["2", "0"]
