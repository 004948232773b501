"""MDS-ODIN against a transcription of its own by autograd, and the view that it learns."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from adascale import Classifier, InputError, NotFittedError, Outputs, View, detectors, extract_batch
from adascale.core.centres import Centres
from adascale.detectors.mds_odin import MDSODIN
from adascale.testing import example_outputs
from tests.conftest import SmallNet, images, needs_precision, seeded


class TinyNet(nn.Module):
    """Two convolutions, 10 features, a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.maps = nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1), nn.ReLU(), nn.Conv2d(6, 10, 3, 2, 1), nn.Tanh())
        self.fc = nn.Linear(10, 4)

    def features(self, x: Tensor) -> Any:
        return self.maps(x).mean((2, 3))

    def forward(self, x: Tensor) -> Any:
        return self.fc(self.features(x))


def transcribed(net: Any, train: Tensor, labels: Tensor, test: Tensor, eta: float, std: tuple[float, ...]) -> Any:
    """Image by image in float64, with the gradient of the quadratic form itself."""
    with torch.no_grad():
        known = net.features(train).numpy()
    means = np.stack([known[labels.numpy() == c].mean(0) for c in range(4)])
    centred = known - means[labels.numpy()]
    precision = torch.from_numpy(np.linalg.inv(centred.T @ centred / len(known)))
    scores = []

    def distances(x: Tensor) -> Tensor:
        away = net.features(x[None]) - torch.from_numpy(means)
        return torch.stack([row @ precision @ row for row in away])

    for x in test:
        leaf = x.clone().requires_grad_()
        each = distances(leaf)
        (gradient,) = torch.autograd.grad(each[each.argmin()] / 2, leaf)
        step = eta * gradient.sign() / (torch.tensor(std, dtype=torch.float64)[:, None, None] if std else 1)
        with torch.no_grad():
            scores.append(float(distances(x - step).min()))
    return np.array(scores)


@pytest.mark.parametrize(("eta", "std"), [(0.002, ()), (0.05, (0.2, 0.25, 0.4)), (-0.02, ()), (0, ())])
def test_scores_are_those_of_the_definition(eta: float, std: tuple[float, ...]) -> None:
    net = seeded(TinyNet).double()
    train, test, labels = images(200).double(), 1.5 * images(30, seed=1).double(), torch.arange(200) % 4
    classifier = Classifier(net).locate(test)
    method = detectors.MDSODIN(eta=eta, std=std).fit(extract_batch(classifier, train, (), labels), classifier.head)
    found = method.score(extract_batch(classifier, test, method.views))
    assert found.numpy() == pytest.approx(transcribed(net, train, labels, test, eta, std), rel=1e-9)
    plain = detectors.MDS().fit(extract_batch(classifier, train, (), labels), classifier.head)
    before = plain.score(extract_batch(classifier, test))
    if eta == 0:
        assert torch.allclose(found, before, rtol=1e-12)
    else:  # towards the nearest class, or away from it
        assert ((found - before).sign() == -np.sign(eta)).double().mean() > 0.9


def test_half_precision_moves_the_right_way() -> None:
    needs_precision("fp16")
    model, x = seeded(SmallNet), images(4, size=32)
    learned = extract_batch(Classifier(model).locate(x), images(200), (), torch.arange(200) % 5)
    method = detectors.MDSODIN().fit(learned, Classifier(model).locate(x).head)
    (goal,) = (view.goal for view in method.views)
    _, _, (exact,) = Classifier(model).locate(x).forward_with_gradients(x, [goal])
    _, _, (half,) = Classifier(model.half()).locate(x).forward_with_gradients(x, [goal])
    assert half.isfinite().all()
    assert float((exact.sign() != half.float().sign()).float().mean()) < 0.05


def test_a_class_far_away_keeps_the_gradient_in_the_range_of_half_precision() -> None:
    """The distance itself may be huge: what is differentiated has slopes of at most 1."""
    from adascale.network.running import objective

    centres = Centres(torch.zeros(3), 1e6 * torch.eye(3).double(), torch.tensor([[1e9, 0.0, 0.0]]).double())
    features = torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0], [1e3, 0.0, 0.0]], requires_grad=True)
    (slope,) = torch.autograd.grad(objective(features, features, centres), features)
    expected = centres.slope(features)
    assert torch.equal(slope.sign().double(), expected.sign())
    assert slope.abs().amax(1).tolist() == [1, 1, 0]  # the third is at the centre


def test_the_view_is_known_after_the_fit_alone_and_follows_from_the_state() -> None:
    reference, head = example_outputs(300, ())
    method = MDSODIN(std=(0.2, 0.3, 0.4))
    assert (method.views, method.wants, MDSODIN.learns_view) == ((), (), True)
    (view,) = method.fit(reference, head).views
    assert str(view) == f"all/o=1.0/eps=-0.002/towards={view.towards}/std=0.2,0.3,0.4"
    assert MDSODIN(std=(0.2, 0.3, 0.4)).restore(method.state(), head).views == (view,)
    assert copy.deepcopy(method).views == pickle.loads(pickle.dumps(method)).views == (view,)
    assert method.fit(reference[:200], head).views != (view,)
    method.eta = 0.01
    assert method.views == ()
    (other,) = method.fit(reference, head).views
    assert (other == view, other.towards == view.towards) == (False, True)
    with pytest.raises(InputError, match="mds_odin needs the view all/"):
        method.score(reference)
    method.std = ()
    with pytest.raises(NotFittedError):
        method.score(reference)


def test_views_with_centres_are_equal_if_all_numbers_are() -> None:
    parts = torch.zeros(2), torch.eye(2), torch.tensor([[0.0, 0.0], [4.0, 0.0]])
    one, same = Centres(*parts), Centres(*(part.double() for part in parts))
    assert one == same
    assert {View("all", towards=one), View("all", towards=same)} == {View("all", towards=one, temperature=3.0)}
    assert View("all", towards=one) != View("all") != View("all", towards=Centres(*parts[:2], parts[2] + 1e-6))
    assert View("all", towards=one).goal is one
    assert (View("random", towards=one), View(network="dropout", towards=one)) == (
        View("random"),
        View(network="dropout"),
    )
    assert repr(one) == f"Centres({one})"
    assert one != "another kind"


def test_it_cannot_be_a_member_of_combined() -> None:
    with pytest.raises(InputError, match=r"^mds_odin cannot be a member: it perturbs .* use mds\.$"):
        detectors.Combined(members=("gen", "mds_odin"))


def test_rows_whose_view_is_not_finite_are_out_of_distribution() -> None:
    reference, head = example_outputs(300, ())
    method = MDSODIN().fit(reference, head)
    moved = reference.features.clone()
    moved[3, 5] = torch.nan
    scores = method.score(Outputs(reference.logits, reference.features, {method.views[0]: moved}))
    assert scores[3] == torch.inf
    assert scores.isfinite().sum() == 299
