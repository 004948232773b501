"""Early decisions in exported files are those of the full computation."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from adascale import InputError, OODDetector, load_exported
from adascale.core.errors import DetectorFileError
from adascale.export.early import Early
from tests.export.fitted import fitted, varied

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
pytestmark = pytest.mark.usefixtures("unguarded")


@pytest.fixture(scope="module")
def detector() -> OODDetector:
    return fitted("adascale_l", p_min=60, p_max=95)


@pytest.mark.parametrize("early", ["pair", "if"])
def test_decisions_are_those_of_the_detector(detector: OODDetector, early: Early, tmp_path: Path) -> None:
    proof = detector.export(tmp_path / "model.onnx", early=early)
    assert proof.early is not None
    given, loaded = 2 * varied(60, 4), load_exported(tmp_path / "model.onnx")
    before = detector.alpha
    for alpha in (0.05, 0.3):
        detector.alpha = alpha
        expected, ours = detector(given).is_ood, detector.decide(given).early
        detector.alpha = before
        found = loaded.decide(given, alpha)
        assert torch.equal(found.is_ood, expected)
        assert int(found.early.sum()) <= int(ours.sum())
        assert found.early.any() or alpha > 0.05  # far from most scores, the threshold leaves few images open


def test_a_pair_is_two_files_and_the_first_gives_scores_too(detector: OODDetector, tmp_path: Path) -> None:
    detector.export(tmp_path / "model.onnx", early="pair")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.clean.onnx", "model.onnx"]
    assert torch.equal(load_exported(tmp_path / "model.onnx")(varied(5, 4)).is_ood, detector(varied(5, 4)).is_ood)
    other = fitted("adascale_l", p_min=60, p_max=90)
    other.export(tmp_path / "model.onnx")
    with pytest.raises(DetectorFileError, match=r"not of the same export as model.onnx \(parameters differs"):
        load_exported(tmp_path / "model.onnx").decide(varied(5, 4))
    (tmp_path / "model.clean.onnx").unlink()
    assert not load_exported(tmp_path / "model.onnx").decide(varied(5, 4)).early.any()


def test_a_file_with_a_branch_has_its_weights_once(detector: OODDetector, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    detector.export(tmp_path / "model.onnx", early="if")
    model = onnx.load(tmp_path / "model.onnx")
    weights = [tuple(one.dims) for one in model.graph.initializer]
    assert weights.count((128, 3, 3, 3)) == 1
    with pytest.raises(InputError, match="call decide"):
        load_exported(tmp_path / "model.onnx")(varied(1, 1))


@pytest.mark.parametrize("early", ["pair", "if"])
@pytest.mark.parametrize(("method", "reason"), [("ebo", "needs no perturbed pass"), ("activation_shift", "no bounds")])
def test_what_cannot_be_decided_early_is_said_before_anything_is_traced(
    early: Early, method: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("adascale.export.graph.DecisionGraph.__init__")
    with pytest.raises(InputError, match=reason):
        fitted(method).export(tmp_path / "model.onnx", early=early)
    assert list(tmp_path.iterdir()) == []
