"""Where the arithmetic of a method could go wrong: tiny variances, missing rank, huge activations."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from adascale import Detector, Head, InputError, Outputs, detectors
from adascale.testing import example_outputs


def plain(features: torch.Tensor, head: Head, labels: torch.Tensor | None = None) -> Outputs:
    return Outputs(head(features), features, labels=labels)


@pytest.mark.parametrize("spread", [1e-3, 1e-6, 3e-7])
def test_mahalanobis_keeps_a_direction_of_little_variance(spread: float) -> None:
    """Down to D eps of the largest variance, as the pseudo-inverse of the reference: 3e-7 squared is 9e-14."""
    generator = torch.Generator().manual_seed(0)
    head, labels = Head(torch.randn(3, 6, generator=generator)), torch.arange(300) % 3
    features = torch.randn(300, 6, generator=generator).double()
    features[:, 5] *= spread
    scores = detectors.MDS().fit(plain(features, head, labels), head).score(plain(features, head))
    means = torch.stack([features[labels == c].mean(0) for c in range(3)])
    centred = (features - means[labels]).numpy()
    precision = np.linalg.pinv(centred.T @ centred / 300, rcond=6 * np.finfo(float).eps, hermitian=True)
    from_each = (features[:, None] - means).numpy()
    expected = np.einsum("ncd,de,nce->nc", from_each, precision, from_each).min(1)
    assert scores.numpy() == pytest.approx(expected, rel=1e-3)
    assert scores.mean() == pytest.approx(6, rel=0.1)  # six directions count, not five


@pytest.mark.parametrize("name", ["vim", "residual"])
def test_features_without_the_rank_for_a_residual_get_a_sentence(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    head = Head(torch.randn(3, 8, generator=generator))  # no bias: the origin is 0
    flat = torch.randn(200, 4, generator=generator) @ torch.randn(4, 8, generator=generator)
    with pytest.raises(InputError, match=f"{name} with dim=4 got 200 samples whose features span 4 of 8 dimensions"):
        detectors.get(name)().fit(plain(flat.double(), head), head)
    detectors.get(name)(dim=3).fit(plain(flat.double(), head), head)
    with pytest.raises(InputError, match="got 3 samples whose features span 3 of 8"):
        detectors.get(name)().fit(plain(torch.rand(3, 8, generator=generator), head), head)


@pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")
@pytest.mark.parametrize("size", [1e38, 1e160, 1e300])
@pytest.mark.parametrize("cls", detectors.ALL, ids=lambda cls: cls.name)
def test_huge_activations_never_score_nan_or_minus_infinity(cls: type[Detector], size: float) -> None:
    detector = cls()
    reference, head = example_outputs(1000, detector.views)
    detector.fit(reference, head)
    rows = torch.rand(3, 128, generator=torch.Generator().manual_seed(0)).double()
    rows[1] *= size
    rows[2, 5] = -size
    made = Outputs(head(rows), rows, {view: rows * 1.1 for view in detector.views})
    scores = detector.score(made)
    assert not scores.isnan().any()
    assert (scores > -torch.inf).all()
    assert torch.allclose(scores[:1], detector.score(made[:1]))


def test_an_overflow_counts_as_ood() -> None:
    reference, head = example_outputs(1000, ())
    rows = reference.features[:2].double()
    rows[1] *= 1e160
    scores = detectors.RMDS().fit(reference, head).score(plain(rows, head))
    assert scores[0].isfinite()
    assert scores[1] == torch.inf
