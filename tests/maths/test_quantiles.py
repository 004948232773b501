"""Exact quantiles of values that come in chunks, against NumPy."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from adascale.maths.quantiles import quantiles


@pytest.mark.parametrize("share", [0, 0.001, 0.3, 0.5, 0.9, 0.95, 0.999, 1])
def test_quantiles_in_pieces_equal_quantiles_at_once(share: float) -> None:
    generator = torch.Generator().manual_seed(1)
    for values in (
        torch.randn(300, 11, generator=generator),
        torch.randn(40, 3, generator=generator).double() * 1e6,
        torch.randn(300, 7, generator=generator).clamp_min(0),
        torch.tensor([[-0.0, 1.0, 1.0, 2.0]]),
    ):
        ours, half = quantiles(partial(torch.split, values, 13), [share, 0.5])
        assert half == pytest.approx(float(np.quantile(values.double().numpy(), 0.5)), rel=1e-12)
        assert ours == pytest.approx(float(np.quantile(values.double().numpy(), share)), rel=1e-12, abs=1e-300)
