"""The seeded split into images to choose on, to fit on and to calibrate with."""

from __future__ import annotations

import pytest
import torch

from adascale.maths.split import split


@pytest.mark.parametrize("n", [2, 3, 10, 25, 100, 5000])
def test_the_split_is_disjoint_complete_and_repeatable(n: int) -> None:
    for choosing in (0, n // 4):
        parts = split(n, seed=3, choosing=choosing)
        assert sorted(torch.cat(parts).tolist()) == list(range(n))
        assert len(parts.chosen) == choosing
        assert len(parts.fitted) >= 1
        assert torch.equal(parts.fitted, split(n, seed=3, choosing=choosing).fitted)
        assert n < 10 or not torch.equal(parts.fitted, split(n, seed=4, choosing=choosing).fitted)
