"""Every metric against the golden file: values found by counting over all thresholds."""

from __future__ import annotations

import pytest
import torch

from adascale import metrics
from tests.golden import files

ARRAYS = files.arrays("metrics")
PAIRS = sorted({key.split(": ")[0] for key in ARRAYS})


@pytest.mark.parametrize("pair", PAIRS)
def test_figures(pair: str) -> None:
    known, unknown = ARRAYS[f"{pair}: id"], ARRAYS[f"{pair}: ood"]
    found = metrics.evaluate(known, unknown)._asdict()
    expected = {figure: float(ARRAYS[f"{pair}: {figure}"]) for figure in metrics.Metrics._fields}
    assert found == pytest.approx(expected, abs=1e-12)
    shuffled = known[torch.randperm(len(known), generator=torch.Generator().manual_seed(0))]
    assert metrics.evaluate(shuffled, unknown)._asdict() == found


@pytest.mark.parametrize("pair", PAIRS)
def test_each_function_alone(pair: str) -> None:
    known, unknown = ARRAYS[f"{pair}: id"], ARRAYS[f"{pair}: ood"]
    found = {
        "auroc": metrics.auroc(known, unknown),
        "fpr95": metrics.fpr_at_tpr(known, unknown),
        "fpr95_id": metrics.fpr_at_tpr(-unknown, -known),
        "aupr_in": metrics.aupr(-unknown, -known),
        "aupr_out": metrics.aupr(known, unknown),
    }
    for figure, value in found.items():
        assert value == pytest.approx(float(ARRAYS[f"{pair}: {figure}"]), abs=1e-12), figure


def test_the_sides_are_not_mixed_up() -> None:
    """Both meanings of FPR@95 and of AUPR differ in the golden file, so that swapping them is noticed."""
    for one, other in (("fpr95", "fpr95_id"), ("aupr_in", "aupr_out")):
        assert any(abs(ARRAYS[f"{pair}: {one}"] - ARRAYS[f"{pair}: {other}"]) > 0.05 for pair in PAIRS)
