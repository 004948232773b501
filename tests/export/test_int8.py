"""int8: another network, so another fingerprint, and a method fitted and calibrated on its own features."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from adascale import InputError, OODDetector, load_exported, load_network, metrics
from adascale.images.loader import load_batches
from adascale.images.sources import find_images
from tests.conftest import DATA, SmallNet, needs_data, seeded
from tests.conftest import images as noise

pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")


@pytest.fixture(scope="module")
def known() -> Tensor:
    return noise(100, seed=1)


@pytest.fixture(scope="module")
def detector(known: Tensor) -> OODDetector:
    return OODDetector(seeded(SmallNet), "adascale_l", alpha=0.2, p_max=85, pixels="random").fit(known)


@pytest.fixture(scope="module")
def exported(detector: OODDetector, known: Tensor, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    path = tmp_path_factory.mktemp("int8") / "model.onnx"
    return path, str(detector.export(path, int8=known))


def test_the_network_is_int8_and_the_head_is_not(exported: Any) -> None:
    model = onnx.load(exported[0])
    found = {one.data_type: 0 for one in model.graph.initializer}
    for one in model.graph.initializer:
        found[one.data_type] += int(torch.tensor(one.dims).prod())
    weights = 128 * 3 * 3 * 3
    assert found[onnx.TensorProto.INT8] in range(weights, weights + 2 * 128)  # and zero points
    heads = [one for one in model.graph.initializer if sorted(one.dims) == [5, 128]]
    assert heads
    assert all(one.data_type != onnx.TensorProto.INT8 for one in heads)
    assert {node.op_type for node in model.graph.node} >= {"QuantizeLinear", "DequantizeLinear", "Conv"}


class TwoLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 16, 3), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.second(self.first(x).relu()).relu().mean((2, 3)))
        return y


def test_the_layer_that_reads_the_images_stays_in_floating_point(known: Tensor, tmp_path: Path) -> None:
    OODDetector(seeded(TwoLayers), "ebo").fit(known).export(tmp_path / "model.onnx", int8=known)
    initializers = onnx.load(tmp_path / "model.onnx").graph.initializer
    kinds = {tuple(one.dims): one.data_type for one in initializers if len(one.dims) == 4}
    assert kinds == {(8, 3, 3, 3): onnx.TensorProto.FLOAT, (16, 8, 3, 3): onnx.TensorProto.INT8}


def test_the_record_says_that_it_is_another_network(exported: Any, detector: OODDetector) -> None:
    record = load_exported(exported[0]).record
    assert record["network"]["precision"] == "int8"
    assert record["network"]["fingerprint"] != detector.classifier.fingerprint()
    assert record["int8"]["float"]["fingerprint"] == detector.classifier.fingerprint()
    assert record["int8"]["images"] == record["fitted"]["images"] == 100
    assert record["parameters"] == json.loads(json.dumps(detector.method.parameters))


def test_no_image_serves_two_purposes(exported: Any) -> None:
    record = load_exported(exported[0]).record
    parts = record["calibration"]["reference_images"], record["calibration"]["images"], record["int8"]["held_out"]
    assert parts == (20, 50, 30)
    assert record["calibration"]["reference_images"] == record["int8"]["ranges"]


def test_the_loss_is_reported(exported: Any) -> None:
    assert "int8 against shuffled, mixed, masked, blurred, zoomed made from 30 ID images: AUROC" in exported[1]
    assert "of 30 held-out ID images flagged" in exported[1]


def test_the_method_has_learned_from_the_quantised_network(exported: Any, detector: OODDetector, known: Tensor) -> None:
    file = load_exported(exported[0])
    before, after = detector(known), file(known)
    assert not torch.equal(before.score, after.score)
    assert file.record["calibration"]["threshold"] != detector.threshold
    correlation = torch.corrcoef(torch.stack([before.logits.flatten().double(), after.logits.flatten().double()]))
    assert correlation[0, 1] > 0.99


def test_images_with_nan_are_flagged(exported: Any) -> None:
    broken = noise(3)
    broken[1, 0, 0, 0] = torch.nan
    verdict = load_exported(exported[0])(broken)
    assert verdict.is_ood[1]
    assert verdict.score[1] == torch.inf
    assert verdict.score[[0, 2]].isfinite().all()


def test_too_few_images_and_other_formats_are_refused(detector: OODDetector, known: Tensor, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="int8 got 63 images; give at least 64"):
        detector.export(tmp_path / "a.onnx", int8=known[:63])
    trivial = OODDetector(seeded(SmallNet), "adascale_l", alpha=0.2, p_max=85, pixels="trivial").fit(known)
    with pytest.raises(InputError, match="needs a gradient, which int8 does not have"):
        trivial.export(tmp_path / "a.onnx", int8=known)
    with pytest.raises(InputError, match="int8 came with early='pair'"):
        detector.export(tmp_path / "a.onnx", int8=known, early="pair")
    with pytest.raises(InputError, match="int8 is for ONNX files alone, not for openvino"):
        detector.export(tmp_path / "a.xml", int8=known)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@needs_data
def test_a_real_network_loses_little(tmp_path: Path) -> None:
    model, preprocess = load_network(f"{DATA}/networks.py:cifar10_resnet20")
    assert preprocess is not None

    def rows(name: str, start: int, end: int) -> Tensor:
        found = find_images(DATA / "cifar" / name).subset(range(start, end))
        return torch.cat([batch.images for batch in load_batches(found, preprocess)])

    given, fresh = rows("cifar10_test.npz", 0, 300), rows("cifar10_test.npz", 300, 600)
    other = torch.cat([rows("textures32.npz", 0, 150), rows("cifar100_test.npz", 0, 150)])
    made = OODDetector(model).fit(given)
    made.export(tmp_path / "model.onnx", int8=given)
    file = load_exported(tmp_path / "model.onnx")
    before = metrics.auroc(made.score(fresh), made.score(other))
    after = metrics.auroc(file(fresh).score, file(other).score)
    assert after > before - 0.01
    assert float(file(fresh).is_ood.double().mean()) < 0.12
