"""A small suite on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from adascale.bench.results import Run
from tests.made_up_run import made_up_run


@pytest.fixture
def suite(place: Path) -> Path:
    """A TOML suite of noise images of several contrasts: 40 ID, 70 val, 40 labelled train, 20 + 20 OOD."""
    draw = np.random.default_rng(0)
    for name, n, spread in (("id", 40, 40), ("val", 70, 40), ("train", 40, 40), ("near", 20, 60), ("far", 20, 120)):
        pixels = (128 + spread * draw.standard_normal((n, 20, 20, 3))).clip(0, 255).astype(np.uint8)
        np.savez(place / f"{name}.npz", images=pixels, labels=np.arange(n) % 4)
    (place / "suite.toml").write_text(
        'id = "id.npz"\nval = "val.npz"\ntrain = "train.npz"\n[near]\nn = "near.npz"\n[far]\nf = "far.npz"\n'
    )
    return place


@pytest.fixture(scope="module")
def run() -> Run:
    return made_up_run(images=300)
