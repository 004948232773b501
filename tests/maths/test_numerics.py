"""Corners of the arithmetic where other implementations, or an earlier one of ours, went wrong."""

from __future__ import annotations

import inspect
from dataclasses import fields

import numpy as np
import pytest
import torch

from adascale import Classifier, Head, OODDetector, Outputs, View, detectors
from adascale.maths.stats import generalised_entropy
from tests.conftest import SmallNet, images, needs_precision, seeded


def plain(features: torch.Tensor, head: Head, labels: torch.Tensor | None = None) -> Outputs:
    return Outputs(head(features), features, labels=labels)


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


@pytest.mark.parametrize("gap", [1.0, 20.0, 36.0, 38.0, 60.0])
def test_generalised_entropy_of_a_certain_prediction(gap: float) -> None:
    p = np.exp(-gap) / (1 + np.exp(-gap))  # of the other class; 1 - p of the first, without rounding
    expected = 2 * ((1 - p) * p) ** 0.1
    assert generalised_entropy(torch.tensor([[gap, 0.0]], dtype=torch.float64)).item() == pytest.approx(expected, 1e-9)


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
    from adascale import InputError

    model = seeded(SmallNet)
    with pytest.raises(InputError, match="are among the training images"):
        OODDetector(model, "knn").fit(images(80), train=images(80))
    OODDetector(model, "knn").fit(images(80), train=images(80, seed=1))


def test_replacing_the_method_forgets_the_threshold() -> None:
    from adascale import NotFittedError

    detector = OODDetector(seeded(SmallNet), "scale").fit(images(40))
    detector.method = detectors.MSP().fit(None, detector.classifier.head)
    with pytest.raises(NotFittedError):
        detector(images(2))


def test_labels_of_any_whole_type() -> None:
    outputs = Outputs(torch.zeros(3, 2), torch.zeros(3, 4), labels=torch.tensor([1, 0, 1], dtype=torch.uint8))
    assert outputs.labels is not None
    assert outputs.labels.dtype == torch.int64


def test_a_reference_of_another_network_is_refused_at_once() -> None:
    from adascale import InputError

    outputs = Outputs(torch.zeros(60, 3), torch.rand(60, 8), {View(): torch.rand(60, 8)})
    for cls in detectors.ALL:
        if cls.fits_on in ("val", "train"):
            with pytest.raises(InputError, match="the head has"):
                cls().fit(outputs, Head(torch.zeros(3, 9)))
