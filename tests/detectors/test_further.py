"""What single methods promise beyond the contract: directions, invariances, degenerate samples."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from adascale import Head, InputError, Outputs, detectors
from adascale.maths.histograms import shares, smoothed, symmetric_divergence
from adascale.maths.mixture import fit_tied
from adascale.maths.tracing import torch_alone
from adascale.maths.weibull import SHIFT, fit_weibull
from adascale.testing import example_outputs


def scores(name: str, reference: Outputs, head: Head, test: Outputs, **parameters: object) -> Tensor:
    return detectors.get(name)(**parameters).fit(reference, head).score(test)


def with_labels(outputs: Outputs, labels: Tensor | None) -> Outputs:
    return Outputs(outputs.logits, outputs.features, labels=labels)


def test_the_temperature_is_that_of_the_labels() -> None:
    """Labels drawn from softmax(z / 2): T comes out near 2, and the order stays that of the largest probability."""
    generator = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(20_000, 5, generator=generator)
    labels = torch.multinomial((logits / 2).softmax(1), 1, generator=generator).squeeze(1)
    head, features = Head(torch.zeros(5, 3)), torch.zeros(20_000, 3)
    method = detectors.TempScale().fit(Outputs(logits, features, labels=labels), head)
    assert method.temperature_.item() == pytest.approx(2, rel=0.03)
    given = Outputs(logits[:50], features[:50])
    assert torch.allclose(method.score(given), -(logits[:50].double() / method.temperature_).softmax(1).amax(1))


def test_without_a_mistake_the_temperature_is_one() -> None:
    """Also where two logits are equal and the label has the second of them."""
    outputs, head = example_outputs(50, ())
    right = with_labels(outputs, outputs.logits.argmax(1))
    assert right.labels is not None
    right.logits[0] = torch.zeros(10)
    right.labels[0] = 3
    assert torch.allclose(scores("temp_scale", right, head, outputs), scores("msp", right, head, outputs))
    with pytest.raises(InputError, match="needs the labels of the ID images"):
        detectors.TempScale().fit(with_labels(outputs, None), head)


@pytest.mark.parametrize("name", ["mahalanobis_pp", "pnml", "cfood"])
def test_only_the_direction_of_a_feature_counts(name: str) -> None:
    reference, head = example_outputs(300, ())
    test, _ = example_outputs(20, (), seed=3)
    longer = Outputs(test.logits, 3 * test.features)
    assert torch.allclose(scores(name, reference, head, test), scores(name, reference, head, longer), rtol=1e-6)


def test_a_weibull_tail_is_found_again() -> None:
    """x = 10000 (-log u)^(1/k) s has shape k and scale 10000 s."""
    u = torch.rand(20_000, generator=torch.Generator().manual_seed(0)).double()
    x = SHIFT * (-u.log()) ** (1 / 40)
    shape, scale = fit_weibull(x - SHIFT)
    assert shape.item() == pytest.approx(40, rel=0.02)
    assert scale.exp().item() == pytest.approx(1, rel=1e-3)


def test_openmax_sends_far_logits_to_the_unknown_class() -> None:
    outputs, head = example_outputs(400, ())
    known = with_labels(outputs, outputs.logits.argmax(1))
    method = detectors.OpenMax().fit(known, head)
    far = Outputs(5 * outputs.logits[:20], outputs.features[:20])
    assert (method.score(far) > 0.99).all()
    assert (method.score(known) < 0.5).double().mean() > 0.7
    one = known[known.logits.argmax(1) != 0]
    with pytest.raises(InputError, match="class 0 has 0 of them"):
        detectors.OpenMax().fit(one, head)


def test_openmax_of_two_classes_and_of_large_logits() -> None:
    """Three classes are revised: of two, the second by 2/3. A tail that starts beyond 10,000 does not reach 0."""
    generator = torch.Generator().manual_seed(0)
    head, features = Head(torch.eye(2)), torch.rand(60, 2, generator=generator)
    known = Outputs(features, features, labels=features.argmax(1))
    far = Outputs(torch.tensor([[-8.0, -9.0]]), features[:1])  # zh = (0, -3), u = -8 - 6
    found = detectors.OpenMax().fit(known, head).score(far).item()
    assert found == pytest.approx(1 / (math.exp(14) * (1 + math.exp(-3)) + 1), rel=1e-6)
    large = Outputs(1e6 * features, features, labels=known.labels)
    assert detectors.OpenMax().fit(large, head).score(large).isfinite().all()


def test_openmax_revises_the_first_of_equal_logits() -> None:
    """Far beyond the tail of class 0 alone, which is the one that is revised: u = 5, zh = (0, 5). Else u would be 0."""
    features = torch.rand(60, 2, generator=torch.Generator().manual_seed(0))
    known = Outputs(features, features, labels=features.argmax(1))
    method = detectors.OpenMax(top=1).fit(known, Head(torch.eye(2)))
    method.starts_[1] = 1e9
    found = method.score(Outputs(torch.tensor([[5.0, 5.0]]), features[:1])).item()
    assert found == pytest.approx(math.exp(5) / (math.exp(0) + 2 * math.exp(5)), rel=1e-6)


def test_histograms_by_hand() -> None:
    edges = torch.tensor([0.0, 1.0, 2.0, 3.0], dtype=torch.float64)
    values = torch.tensor([[0.0, 0.5, 1.0, 3.0, -1.0, 2.5, 2.0, 0.9]], dtype=torch.float64)
    expected = [[3 / 8, 1 / 8, 2 / 8]]  # the third edge and beyond, and below 0: in no bin
    assert shares(values, edges).tolist() == expected
    with torch_alone():
        assert shares(values, edges).tolist() == expected
    row = torch.tensor([[0.0, 4.0, 8.0]], dtype=torch.float64)
    assert smoothed(row, 4).tolist() == [[3.0, 5.0, 7.0]]  # 0 0 4 8 8 8: one end more to the right
    assert smoothed(row, 3).tolist() == [[4 / 3, 4.0, 20 / 3]]
    assert smoothed(row, 1).tolist() == row.tolist()
    assert symmetric_divergence(row[0], row, 0.01).item() == 0


def test_weiper_is_the_same_whatever_the_batch_and_another_with_another_seed() -> None:
    reference, head = example_outputs(200, ())
    test, _ = example_outputs(30, (), seed=3)
    method = detectors.WeiPer(repeats=5).fit(reference, head)
    assert torch.allclose(method.score(test)[7:9], method.score(test[7:9]), rtol=1e-12)
    other = detectors.WeiPer(repeats=5, seed=1).fit(reference, head)
    assert not torch.allclose(method.score(test), other.score(test), rtol=1e-6)


def test_a_mixture_finds_two_clouds() -> None:
    generator = torch.Generator().manual_seed(0)
    clouds = torch.randn(600, 2, generator=generator).double()
    clouds[:200] += torch.tensor([10.0, 0.0])
    found = fit_tied(clouds, 2, seed=0)
    order = found.means[:, 0].argsort()
    assert torch.allclose(found.means[order][:, 0], torch.tensor([0.0, 10.0], dtype=torch.float64), atol=0.3)
    assert torch.allclose(found.log_weights.exp()[order], torch.tensor([2 / 3, 1 / 3], dtype=torch.float64), atol=0.02)
    precision = found.root @ found.root.T
    assert torch.allclose(precision, torch.eye(2, dtype=torch.float64), atol=0.2)


def test_classes_that_are_never_predicted_have_the_mean_of_all() -> None:
    head = Head(torch.eye(3))
    reference = Outputs(torch.tensor([[1.0, 0, 0], [0, 1, 0]]), torch.tensor([[2.0, 0, 0], [0, 4.0, 0]]))
    test = Outputs(torch.tensor([[0.0, 0, 1]]), torch.tensor([[1.0, 2.0, 1.0]]))
    assert scores("caref", reference, head, test).item() == pytest.approx(1 / 4)  # the mean is (1, 2, 0)


def test_sirc_is_confidence_where_the_second_score_is_typical() -> None:
    reference, head = example_outputs(300, ())
    large = Outputs(reference.logits, 50 * reference.features)
    found = scores("sirc", reference, head, large)
    confidence = torch.log1p(-large.logits.double().softmax(1).amax(1).clamp_max(1 - 1e-12))
    plain = found > -20
    assert torch.allclose(found[plain], confidence[plain], rtol=1e-4)
    same = Outputs(reference.logits[:1].repeat(3, 1), reference.features[:1].repeat(3, 1))
    with pytest.raises(InputError, match="differ in its second score"):
        detectors.SIRC().fit(same, head)


@pytest.mark.parametrize(
    "name", ["entropy", "sirc", "pnml", "neco", "caref", "cadref", "gmm", "class_gmm", "weiper", "laps", "cfood"]
)
def test_a_network_with_one_logit_has_finite_scores(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    head, features = Head(torch.ones(1, 6), torch.ones(1)), torch.rand(80, 6, generator=generator)
    outputs = Outputs(head(features).float(), features, labels=torch.zeros(80, dtype=torch.int64))
    assert scores(name, outputs, head, outputs).isfinite().all()


def test_cfood_counts_equal_distances_whatever_rounding_makes_of_them() -> None:
    """A training sample without any activation is at the distance 1 of all others, and they are its neighbours."""
    generator = torch.Generator().manual_seed(0)
    features = torch.rand(40, 7, generator=generator)
    features[:20] = 0
    head = Head(torch.ones(2, 7))
    outputs = Outputs(head(features).float(), features)
    method = detectors.CFOOD(fraction=1.0, rho=0.5).fit(outputs, head)
    test = torch.randn(30, 7, generator=generator)
    # The rows of zeros reach 1 at the place 20 = int(0.5 * 40 - 1) + 1, and are half of the bank.
    assert method.score(Outputs(head(test).float(), test)).tolist() == pytest.approx([0.5] * 30)
