"""Order and augmentation depend on seed, epoch and image alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from adascale.training.augment import Augment, epoch_images
from tests.training.test_train import PREPROCESS, some


@pytest.mark.parametrize("side", [32, 96])
def test_augmentation_depends_on_seed_epoch_and_name(side: int) -> None:
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (120, 100, 3), dtype=np.uint8))

    def view(seed: int = 0, epoch: int = 0, name: str = "a") -> Tensor:
        return torch.from_numpy(np.array(Augment((side, side), PREPROCESS, seed, epoch)(picture, name)))

    assert view().shape == (side, side, 3)
    assert torch.equal(view(), view())
    assert not any(torch.equal(view(), other) for other in (view(seed=1), view(epoch=1), view(name="b")))


def test_small_images_are_shifted_by_an_eighth() -> None:
    plain = Image.fromarray(np.random.default_rng(0).integers(1, 256, (32, 32, 3), dtype=np.uint8))
    margins = set()
    for i in range(60):
        view = np.array(Augment((32, 32), PREPROCESS)(plain, str(i)))
        rows = (view.sum((1, 2)) == 0).sum()
        margins.add(int(rows))
        assert rows <= 4
    assert margins == {0, 1, 2, 3, 4}


def test_parts_of_batches_make_the_whole() -> None:
    whole, _ = epoch_images(some(), PREPROCESS, 0, 3, 16)
    halves = [epoch_images(some(), PREPROCESS, 0, 3, 16, (i, 2))[0].names for i in (0, 1)]
    assert len(whole) == 48
    assert [*halves[0][:8], *halves[1][:8]] == list(whole.names[:16])
    assert list(whole.names) != list(epoch_images(some(), PREPROCESS, 0, 4, 16)[0].names)
    assert len(epoch_images(some(5), PREPROCESS, 0, 0, 16)[0]) == 5
