"""Our detectors with the interface of pytorch-ood, and its detectors as methods here, where it is installed."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from adascale import AdascaleError, InputError, OODDetector, detectors
from adascale.interop.pytorch_ood import as_pytorch_ood, plugin
from adascale.testing import example_outputs
from tests.bench.runs import bench, table
from tests.conftest import SmallNet, images, seeded


@pytest.fixture(scope="module")
def theirs() -> Any:
    try:
        plugin("x", lambda head: None)
    except (AdascaleError, RuntimeError) as error:
        pytest.skip(f"pytorch-ood is not installed: {error}")
    return importlib.import_module("pytorch_ood")


def test_ours_with_their_interface(theirs: Any) -> None:
    net, labels = seeded(SmallNet), torch.arange(60) % 5
    labels[:10] = -1
    detector = as_pytorch_ood(OODDetector(net, "scale", alpha=0.2))
    assert isinstance(detector, theirs.api.Detector)
    with pytest.raises(theirs.api.RequiresFittingException):
        detector(images(2))
    with pytest.warns(match="10 images have a label below 0"):
        detector.fit(DataLoader(TensorDataset(images(60), labels), batch_size=16))
    direct = OODDetector(net, "scale", alpha=0.2).fit(images(60)[10:])
    assert torch.allclose(detector(images(7, seed=1)), direct.score(images(7, seed=1)))
    assert detector.ours.threshold == pytest.approx(direct.threshold)


def test_a_loader_is_read_twice_by_a_method_whose_view_is_learned(theirs: Any) -> None:
    net, labels = seeded(SmallNet), torch.arange(60) % 5
    labels[:10] = -1
    detector = as_pytorch_ood(OODDetector(net, "mds_odin", alpha=0.2))
    with pytest.warns(match="10 images have a label below 0"):
        detector.fit(DataLoader(TensorDataset(images(60), labels), batch_size=16))
    direct = OODDetector(net, "mds_odin", alpha=0.2).fit((images(60)[10:], labels[10:]))
    assert torch.allclose(detector(images(7, seed=1)), direct.score(images(7, seed=1)), rtol=1e-3)


def test_their_metrics_take_our_scores(theirs: Any) -> None:
    detector = as_pytorch_ood(OODDetector(seeded(SmallNet), "mls", alpha=0.2).fit(images(60)))
    metrics = theirs.metrics.OODMetrics()
    metrics.update(detector(images(20)), torch.zeros(20))
    metrics.update(detector(images(20, seed=1) * 9), -torch.ones(20))
    assert 0 <= metrics.compute()["AUROC"] <= 1


@pytest.mark.parametrize(
    ("name", "ours", "make"),
    [
        ("their_entropy", "entropy", lambda package, head: package.Entropy(None)),
        ("their_knn", "knn", lambda package, head: package.KNN(None, 50)),
        (
            "their_react",
            "react",
            lambda package, head: package.ReAct(None, torch.nn.Sequential(torch.nn.Flatten(), head)),
        ),
    ],
)
def test_theirs_as_a_method(theirs: Any, name: str, ours: str, make: Any) -> None:
    cls = plugin(name, lambda head: make(theirs.detector, head))
    assert cls.name == name
    reference, head = example_outputs(300, ())
    test, _ = example_outputs(40, (), seed=3)
    found = cls().fit(reference, head).score(test)
    assert torch.allclose(found, detectors.get(ours)().fit(reference, head).score(test), rtol=1e-3, atol=1e-4)
    with pytest.raises(InputError, match="cannot be saved"):
        cls().fit(reference, head).state()


def test_theirs_that_needs_the_network_is_refused(theirs: Any) -> None:
    reference, head = example_outputs(20, ())
    cls = plugin("odin_of_theirs", lambda layer: theirs.detector.ODIN(layer))
    with pytest.raises(InputError, match="ODIN takes neither logits nor features"):
        cls().fit(reference, head)


def test_theirs_in_a_benchmark(theirs: Any, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One extraction serves their method and ours; the figures agree."""
    draw = np.random.default_rng(0)
    for name, n, spread in (("id", 40, 40), ("val", 30, 40), ("train", 40, 40), ("far", 20, 120)):
        pixels = (128 + spread * draw.standard_normal((n, 20, 20, 3))).clip(0, 255).astype(np.uint8)
        np.savez(place / f"{name}.npz", images=pixels, labels=np.arange(n) % 4)
    (place / "suite.toml").write_text('id = "id.npz"\nval = "val.npz"\ntrain = "train.npz"\n[far]\nf = "far.npz"\n')
    (place / "theirs.py").write_text(
        "from pytorch_ood.detector import KNN\nfrom adascale.interop.pytorch_ood import plugin\n\n"
        'Theirs = plugin("their_knn", lambda head: KNN(None, k=5))\n'
    )
    chosen = ["--method", f"{place / 'theirs.py'}:Theirs", "--method", "knn", "--set", "knn.k=5"]
    bench(place, monkeypatch, "a", *chosen)
    figures = {(row["method"], row["dataset"]): row["AUROC"] for row in table(place, "a")}
    assert figures["their_knn", "f"] == figures["knn", "f"]
