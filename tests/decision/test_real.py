"""Real networks on real images, where they are at hand (see ``needs_data``)."""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from adascale import Classifier, OODDetector, Outputs, Preprocess, View, detectors, extract_batch, metrics
from adascale.cli import console
from adascale.images.loader import load_batches
from adascale.images.sources import ImageSet, find_images
from tests.conftest import DATA, needs_data
from tests.shell import inside

pytestmark = needs_data


@lru_cache(maxsize=1)
def networks() -> Any:
    spec = importlib.util.spec_from_file_location("shared_networks", DATA / "networks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@lru_cache(maxsize=1)
def network(name: str) -> nn.Module:
    model = getattr(networks(), name)()
    assert isinstance(model, nn.Module)
    return model


def outputs(name: str, images: ImageSet, views: list[View], batch_size: int = 25) -> Outputs:
    classifier = Classifier(network(name))
    loaded = load_batches(images, Preprocess(**networks().PREPROCESS[name]), batch_size)
    return Outputs.cat([extract_batch(classifier, batch.images, views) for batch in loaded])


def cifar(name: str, rows: slice) -> tuple[ImageSet, np.ndarray[Any, Any]]:
    with np.load(DATA / "cifar" / f"{name}.npz") as file:
        images = file["images"][rows]
        labels = file["labels"][rows] if "labels" in file.files else np.full(len(images), -1)
    return ImageSet([str(i) for i in range(len(images))], array=images), labels


def inputs(name: str, part: str, most: int) -> torch.Tensor:
    """The first images of a CIFAR-sized set, as this network takes them."""
    loaded = load_batches(cifar(part, slice(0, most))[0], Preprocess(**networks().PREPROCESS[name]), 250)
    return torch.cat([batch.images for batch in loaded])


def imagenet(folder: str, count: int) -> ImageSet:
    found = find_images(DATA / "imagenet" / folder)
    return ImageSet(found.names[:count], found.paths[:count])


def auroc(detector: detectors.Detector, name: str, fit: Outputs, known: Outputs, unknown: Outputs) -> float:
    detector.fit(fit, Classifier(network(name)).locate(torch.zeros(1, *SHAPES[name])).head)
    return 100 * metrics.auroc(detector.score(known), detector.score(unknown))


SHAPES = {"imagenet_resnet50": (3, 224, 224), "cifar10_densenet101": (3, 32, 32)}


@pytest.fixture(scope="module")
def resnet20() -> Outputs:
    return outputs("cifar10_resnet20", cifar("cifar10_test", slice(None))[0], [View()], 250)


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.1])
@pytest.mark.parametrize("method", ["adascale_a", "adascale_l", "scale"])
def test_false_alarms_on_4000_unseen_images(resnet20: Outputs, alpha: float, method: str) -> None:
    """The promise is about the mean over draws of the calibration images; one draw of 1,000 scatters by a point."""
    detector = OODDetector(network("cifar10_resnet20"), method, head="linear", alpha=alpha)
    rates = []
    for draw in range(10):
        order = torch.randperm(5000, generator=torch.Generator().manual_seed(draw))
        verdict = detector.fit_outputs(resnet20[order[:1000]]).judge(resnet20[order[1000:]])
        rates.append(float(verdict.is_ood.double().mean()))
    assert alpha - 0.01 <= sum(rates) / len(rates) <= alpha + 0.005
    if method == "adascale_a":
        assert max(rates) <= alpha + 0.02
        as_stored = detector.fit_outputs(resnet20[:1000], tune=False).judge(resnet20[1000:])  # 60 and 85
        assert float(as_stored.is_ood.double().mean()) <= alpha + 0.01


def test_accuracy_is_untouched(resnet20: Outputs) -> None:
    labels = cifar("cifar10_test", slice(None))[1]
    detector = OODDetector(network("cifar10_resnet20"), "adascale_a", head="linear").fit_outputs(resnet20[:1000])
    verdict = detector.judge(resnet20)
    assert float((verdict.prediction == torch.from_numpy(labels)).double().mean()) == pytest.approx(0.917, abs=0.01)


def test_fit_on_all_5000_and_score_from_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, spec = DATA / "cifar" / "cifar10_test.npz", f"{DATA / 'networks.py'}:cifar10_resnet20"
    file = tmp_path / "d.safetensors"
    assert inside(monkeypatch, "fit", source, "--model", spec, "-o", file, "--set", "pixels=random") == 0
    assert inside(monkeypatch, "score", DATA / "cifar" / "mnist32.npz", "-d", file, "-o", tmp_path / "s.csv") == 0
    rows = (tmp_path / "s.csv").read_text().splitlines()
    assert len(rows) == 1001
    flagged = sum(",true," in row for row in rows) / 1000
    assert flagged > 0.05  # more than the false alarms that are allowed
    assert console.SOME_UNREADABLE == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "count", "each"),
    [pytest.param("cifar10_resnet20", 5000, 1000, marks=pytest.mark.long), ("cifar10_vit", 1500, 200)],
)
def test_early_decisions_of_the_default(name: str, count: int, each: int) -> None:
    """The default, tuned; so many ID images, and up to so many of each OOD set: every decision is that of the verdict.

    All images of the transformer take minutes; they were compared once, with the same result.
    """
    detector = OODDetector(network(name), batch_size=250)
    known = inputs(name, "cifar10_test", count)
    detector.fit(known[:1000])
    unknown = ("cifar100_test", "imagenet_tinyclasses32", "mnist32", "textures32", "sun_scenes32", "svhn32_mini")
    for part in (known, *(inputs(name, other, each) for other in unknown)):
        decision, verdict = detector.decide(part), detector(part)
        assert torch.equal(decision.is_ood, verdict.is_ood)
        assert verdict.is_ood.any()
        if part is known:
            assert float(decision.early.double().mean()) > 0.9


@pytest.mark.long
@pytest.mark.slow
def test_cifar10_near_ood() -> None:
    name = "cifar10_densenet101"
    fit, known = (outputs(name, cifar("cifar10_test", rows)[0], [View()]) for rows in (slice(200), slice(1000, 1400)))
    for unknown in ("cifar100_test", "imagenet_tinyclasses32"):
        ood = outputs(name, cifar(unknown, slice(250))[0], [View()])
        scale = auroc(detectors.SCALE(85), name, fit, known, ood)
        assert auroc(detectors.AdaSCALE_A(p_min=80, p_max=85), name, fit, known, ood) >= scale - 0.3


@pytest.mark.long
@pytest.mark.slow
def test_imagenet_near_ood() -> None:
    name, views = "imagenet_resnet50", [View(), View("random")]
    fit, known, ood = (
        outputs(name, imagenet(folder, count), views)
        for folder, count in (("calib", 80), ("val", 120), ("ninco_caltech", 100))
    )
    scale = auroc(detectors.SCALE(85), name, fit, known, ood)
    trivial = auroc(detectors.AdaSCALE_A(p_min=80, p_max=85), name, fit, known, ood)
    random = auroc(detectors.AdaSCALE_A(p_min=80, p_max=85, pixels="random"), name, fit, known, ood)
    logits = auroc(detectors.AdaSCALE_L(p_min=70, p_max=85, k2=10), name, fit, known, ood)
    assert trivial >= scale + 1.5
    assert abs(trivial - random) <= 1
    assert logits > trivial
