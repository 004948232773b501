"""Networks that are not classifiers of exclusive classes are told apart; one logit is taken as two classes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from adascale import AdascaleWarning, Classifier, HeadNotFoundError, OODDetector, View, extract_batch
from adascale.extraction.batches import batches
from tests.conftest import SmallNet, images, seeded

QUIET = "ignore::adascale.AdascaleWarning"


class OneLogit(SmallNet):
    """A binary classifier as people train it with binary cross-entropy."""

    def __init__(self, form: str = "(N, 1)") -> None:
        super().__init__(1)
        self.form = form

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.fc(self.features(x))
        forms = {"(N, 1)": z, "(N,)": z[:, 0], "sigmoid": z.sigmoid(), "sigmoid (N,)": z.sigmoid()[:, 0]}
        return forms[self.form]


class TwoClasses(SmallNet):
    """The same network with the two classes written out."""

    def __init__(self, one: OneLogit) -> None:
        super().__init__(2)
        self.load_state_dict({**one.state_dict(), "fc.weight": self.fc.weight, "fc.bias": self.fc.bias})
        with torch.no_grad():
            for name, value in one.fc.named_parameters():
                getattr(self.fc, name).copy_(torch.cat([-value / 2, value / 2]))


def one_logit(form: str = "(N, 1)") -> Any:
    model: Any = seeded(lambda: OneLogit(form))
    with torch.no_grad():
        z = model.features(images(200)) @ model.fc.weight[0]
        model.fc.bias.fill_(-float(z.median()))  # both classes occur
    return model


@pytest.mark.filterwarnings(QUIET)
@pytest.mark.parametrize("form", ["(N, 1)", "(N,)", "sigmoid", "sigmoid (N,)"])
def test_one_logit_is_two_classes_everywhere(form: str, tmp_path: Path) -> None:
    model = one_logit(form)
    given, views = images(40, seed=1), [View(), View("salient"), View(temperature=10.0), View("random")]
    ours, theirs = (extract_batch(Classifier(net), given, views) for net in (model, TwoClasses(model)))
    assert torch.allclose(ours.logits, theirs.logits, atol=1e-6)
    assert all(torch.allclose(ours.views[view], theirs.views[view], atol=1e-6) for view in views)
    z = model.fc(model.features(given)).detach()
    assert torch.allclose(ours.logits.softmax(1)[:, 1:], z.sigmoid(), atol=1e-6)
    for method in ("adascale_a", "ebo", "odin", "react"):
        one, two = (OODDetector(net, method).fit(images(60)) for net in (model, TwoClasses(model)))
        verdict = one(given)
        assert torch.allclose(verdict.score, two(given).score, rtol=1e-4), method
        assert torch.equal(verdict.prediction, (z[:, 0] > 0).long())
        assert torch.equal(one.is_ood(given), verdict.is_ood)
        one.save(tmp_path / "d.safetensors")
        assert torch.equal(OODDetector.load(tmp_path / "d.safetensors", model)(given).score, verdict.score)


def test_one_logit_is_said_once() -> None:
    detector = OODDetector(one_logit())
    with pytest.warns(AdascaleWarning, match="one logit z, which is taken as two classes"):
        detector.fit(images(60))
    detector.fit(images(60))(images(3))  # a second warning would be an error


def test_sure_and_unsure_images_differ_in_both_classes() -> None:
    """With the logits [0, z] every energy of class 0 would be that of an unsure image."""
    model = one_logit()
    with pytest.warns(AdascaleWarning, match="one logit"):
        outputs = extract_batch(Classifier(model), images(200, seed=2))
    energy = -outputs.logits.double().logsumexp(1)
    sure = outputs.logits.max(1).values
    for predicted in (0, 1):
        ones = outputs.logits.argmax(1) == predicted
        assert sure[ones].argsort().tolist() == energy[ones].argsort(descending=True).tolist()


class Ending(SmallNet):
    def __init__(self, ending: str) -> None:
        super().__init__()
        self.ending = ending

    def forward(self, x: Tensor) -> Any:
        z, maps = self.fc(self.features(x)), self.conv(x)[:, :21]
        if self.ending == "maps":
            return maps
        if self.ending == "segmentation":
            return {"out": maps, "aux": maps[:, :3]}
        if self.ending == "detection":
            return [{"boxes": one[0, :2, :4], "labels": one[0, 0, :2].long(), "scores": one[0, 0, :2]} for one in maps]
        return getattr(z, self.ending)(*([1] if "softmax" in self.ending else []))


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        ("maps", r"The output of Ending is of shape \(2, 21, 8, 8\): this is not a classifier"),
        ("segmentation", r"a dict with out of shape \(2, 21, 8, 8\), aux .*: this is not a classifier"),
        ("sigmoid", r"Ending ends in a sigmoid: .* \(multi-label\).*return the logits before the sigmoid.*head='fc'"),
    ],
)
def test_other_networks_are_told_apart(ending: str, words: str) -> None:
    with pytest.raises(HeadNotFoundError, match=words) as caught:
        OODDetector(seeded(lambda: Ending(ending))).fit(images(30))
    assert "Candidates" not in str(caught.value)


def test_a_detection_network_is_told_apart() -> None:
    with pytest.raises(
        HeadNotFoundError, match=r"a list of 2, the first a dict with boxes of shape .*not a classifier"
    ):
        Classifier(seeded(lambda: Ending("detection"))).locate(images(2))


@pytest.mark.parametrize("ending", ["softmax", "log_softmax"])
def test_a_softmax_at_the_end_is_said(ending: str) -> None:
    model: Any = seeded(lambda: Ending(ending))
    with pytest.warns(AdascaleWarning, match="ends in a (log-)?softmax; the logits are those before it"):
        _, logits = Classifier(model).locate(images(2)).forward(images(2))
    assert torch.allclose(logits, model.fc(model.features(images(2))), atol=1e-6)


def test_a_multi_label_network_can_be_overruled() -> None:
    model: Any = seeded(lambda: Ending("sigmoid"))
    _, logits = Classifier(model, "fc").locate(images(2)).forward(images(2))
    assert torch.allclose(logits, model.fc(model.features(images(2))), atol=1e-6)


def test_the_configuration_of_a_network_says_multi_label() -> None:
    model: Any = seeded(SmallNet)
    model.config = SimpleNamespace(problem_type="multi_label_classification")
    with pytest.raises(HeadNotFoundError, match="problem_type='multi_label_classification': each class has"):
        Classifier(model).locate(images(2))


def test_labels_of_several_classes_are_said_and_left_out() -> None:
    several = torch.tensor([[1, 0, 1], [0, 1, 0]])
    with pytest.warns(AdascaleWarning, match=r"of shape \(2, 3\), name several classes for one image"):
        ((_, labels),) = batches([(images(2), several)])
    assert labels is None
    ((_, labels),) = batches([(images(2), several.new_zeros(2, 4))])  # something else, such as boxes
    assert labels is None
