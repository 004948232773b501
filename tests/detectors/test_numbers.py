"""Where the arithmetic of a method could go wrong: tiny variances, missing rank, huge activations."""

from __future__ import annotations

import inspect
from dataclasses import fields

import numpy as np
import pytest
import torch

from adascale import Classifier, Detector, Head, InputError, NotFittedError, OODDetector, Outputs, View, detectors
from adascale.testing import example_outputs
from tests.conftest import SmallNet, images, needs_precision, seeded
from tests.inside import INSIDE


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
    reference, head = example_outputs(1000, detector.wants)
    detector.fit(reference, head)
    rows = torch.rand(3, 128, generator=torch.Generator().manual_seed(0)).double()
    rows[1] *= size
    rows[2, 5] = -size
    shown = {tap: tuple(1.1 * layer[:3] for layer in found) for tap, found in reference.taps.items()}
    made = Outputs(head(rows), rows, {view: rows * 1.1 for view in detector.views}, taps=shown)
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


def test_no_parameter_of_a_method_is_taken_for_one_of_the_detector() -> None:
    """``OODDetector(model, "nci", alpha=...)`` must not be two things."""
    taken = set(inspect.signature(OODDetector.__init__).parameters) - {"parameters"}
    for cls in detectors.ALL:
        assert not taken & {field.name for field in fields(cls)}, cls.name


def test_knn_counts_all_zero_rows_as_the_origin() -> None:
    head = Head(torch.ones(2, 2))
    bank = plain(torch.tensor([[0.0, 0.0], [1.0, 0.0]]), head)
    queries = plain(torch.tensor([[0.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [2.0, 0.0]]), head)
    assert detectors.KNN(k=1).fit(bank, head).score(queries).tolist() == [0, 1, 1, 0]


def test_knn_against_all_distances() -> None:
    generator = torch.Generator().manual_seed(0)
    head = Head(torch.ones(2, 6))
    bank, queries = (torch.randn(n, 6, generator=generator) for n in (5000, 40))
    units = [x.double() / x.double().norm(dim=1, keepdim=True) for x in (queries, bank)]
    expected = torch.cdist(*units).sort(1).values[:, 6]
    scores = detectors.KNN(k=7).fit(plain(bank, head), head).score(plain(queries, head))
    assert torch.allclose(scores, expected, rtol=1e-9)


def test_mahalanobis_far_from_the_origin() -> None:
    generator = torch.Generator().manual_seed(0)
    features, labels = torch.randn(400, 6, generator=generator).double(), torch.arange(400) % 3
    head = Head(torch.randn(3, 6, generator=generator))
    near = detectors.MDS().fit(plain(features, head, labels), head).score(plain(features, head))
    moved = features + 1e6
    far = detectors.MDS().fit(plain(moved, head, labels), head).score(plain(moved, head))
    assert torch.allclose(near, far, rtol=1e-6)


def test_boundary_distance_without_a_scale_is_not_very_in_distribution() -> None:
    head = Head(torch.eye(3), torch.tensor([5.0, 0.0, 0.0]))
    reference = plain(torch.rand(30, 3, generator=torch.Generator().manual_seed(0)), head)
    zero = plain(torch.zeros(1, 3), head)
    assert detectors.FDBD("norm").fit(reference, head).score(zero).item() == 0


def test_optfs_range_is_closed() -> None:
    head = Head(torch.ones(2, 4))
    features = torch.rand(500, 4, generator=torch.Generator().manual_seed(0)).mul(2).clamp_max(1)
    detector = detectors.OptFS().fit(plain(features, head), head)
    assert float(detector.high_) == 1.0
    top, below = detector.score(plain(torch.tensor([[1.0] * 4, [0.999] * 4]), head)).tolist()
    assert top == pytest.approx(below / 0.999, rel=1e-6)  # one bin, one factor
    assert top < 0


def test_odin_in_half_precision_moves_the_right_way() -> None:
    needs_precision("fp16")
    model = seeded(SmallNet)
    x = images(2, size=32)
    _, _, (exact,) = Classifier(model).locate(x).forward_with_gradients(x, [1000.0])
    _, _, (half,) = Classifier(model.half()).locate(x).forward_with_gradients(x, [1000.0])
    assert float((exact.sign() != half.float().sign()).float().mean()) < 0.02


def test_training_images_must_not_set_the_threshold() -> None:
    model = seeded(SmallNet)
    with pytest.raises(InputError, match="are among the training images"):
        OODDetector(model, "knn").fit(images(80), train=images(80))
    OODDetector(model, "knn").fit(images(80), train=images(80, seed=1))


def test_replacing_the_method_forgets_the_threshold() -> None:
    detector = OODDetector(seeded(SmallNet), "scale").fit(images(40))
    detector.method = detectors.MSP().fit(None, detector.classifier.head)
    with pytest.raises(NotFittedError):
        detector(images(2))


def test_labels_of_any_whole_type() -> None:
    outputs = Outputs(torch.zeros(3, 2), torch.zeros(3, 4), labels=torch.tensor([1, 0, 1], dtype=torch.uint8))
    assert outputs.labels is not None
    assert outputs.labels.dtype == torch.int64


def test_a_reference_of_another_network_is_refused_at_once() -> None:
    outputs = Outputs(torch.zeros(60, 3), torch.rand(60, 8), {View(): torch.rand(60, 8)})
    for cls in detectors.ALL:
        if cls.fits_on in ("val", "train") and cls.name not in INSIDE:
            with pytest.raises(InputError, match="the head has"):
                cls().fit(outputs, Head(torch.zeros(3, 9)))
