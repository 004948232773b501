"""An exported file answers as the detector does; a file that does not is never put in place."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from adascale import InputError, OODDetector, detectors, load_exported
from adascale.core.errors import DetectorFileError
from adascale.decision.exporting import exportable
from adascale.export import proof
from adascale.export.engines import read_record, runner
from adascale.export.graph import OUTPUTS, DecisionGraph
from tests.conftest import SmallNet, images, seeded
from tests.export.fitted import fitted, varied
from tests.inside import INSIDE

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
pytestmark = pytest.mark.usefixtures("unguarded")


@pytest.fixture(scope="module")
def exported(detector: OODDetector, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "model.onnx"
    detector.export(path, verify=varied(40, 3))
    return path


def assert_same(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found.score, expected.score, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(found.logits, expected.logits, rtol=1e-4, atol=1e-4)
    assert torch.equal(found.is_ood, expected.is_ood)
    assert torch.equal(found.prediction, expected.prediction)


@pytest.mark.parametrize("batch", [1, 7, 32])
def test_the_file_gives_the_detectors_verdicts(detector: OODDetector, exported: Path, batch: int) -> None:
    given = 3 * varied(batch, 4)  # some of them are flagged
    assert_same(load_exported(exported)(given), detector(given))


def test_p_values_are_those_of_the_detector(detector: OODDetector, exported: Path) -> None:
    given = varied(50, 5)
    assert torch.equal(load_exported(exported)(given).p_value, detector(given).p_value)


@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.3, 0.9])
def test_the_false_alarm_rate_can_be_moved_at_deployment(exported: Path, detector: OODDetector, alpha: float) -> None:
    given = varied(60, 6)
    before = detector.alpha
    detector.alpha = alpha
    expected = detector(given).is_ood
    detector.alpha = before
    assert torch.equal(load_exported(exported)(given, alpha=alpha).is_ood, expected)


def test_alpha_may_be_left_out_with_onnxruntime_alone(detector: OODDetector, exported: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(exported)
    given = varied(9, 7)
    names = ["logits", "prediction", "score", "p_value", "is_ood"]
    assert [one.name for one in session.get_outputs()] == names
    found = dict(zip(names, session.run(None, {"images": given.numpy()}), strict=True))
    assert found["is_ood"].tolist() == detector(given).is_ood.tolist()


@pytest.mark.parametrize("broken", [torch.nan, torch.inf, -torch.inf])
def test_broken_images_are_flagged_with_the_smallest_p_value(exported: Path, broken: float) -> None:
    given = varied(3, 8)
    given[1, 0, 2, 2] = broken
    verdict = load_exported(exported)(given)
    assert verdict.score.isinf().tolist() == [False, True, False]
    assert bool(verdict.is_ood[1])
    assert float(verdict.p_value[1]) == pytest.approx(1 / (verdict_count(exported) + 1))


def verdict_count(path: Path) -> int:
    return int(load_exported(path).record["calibration"]["images"])


def test_the_record_travels_in_the_file(detector: OODDetector, exported: Path) -> None:
    loaded = load_exported(exported)
    assert loaded.class_names == ("a", "b", "c", "d", "e")
    assert loaded.record["network"]["fingerprint"] == detector.network.fingerprint
    assert loaded.record["calibration"]["guarantee"] == detector.guarantee
    assert loaded(varied(2, 1)).label == detector(varied(2, 1)).label


def test_a_damaged_file_is_refused(exported: Path, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    model = onnx.load(exported)
    weight = next(one for one in model.graph.initializer if len(one.raw_data) > 1000)
    weight.raw_data = bytes(len(weight.raw_data))
    onnx.save(model, tmp_path / "changed.onnx")
    with pytest.raises(DetectorFileError, match="does not match its checksum"):
        load_exported(tmp_path / "changed.onnx")
    (tmp_path / "cut.onnx").write_bytes(exported.read_bytes()[:1000])
    with pytest.raises(DetectorFileError, match="damaged"):
        load_exported(tmp_path / "cut.onnx")


def test_no_file_is_left_where_the_proof_fails(
    detector: OODDetector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = DecisionGraph.judged

    def wrong(self: DecisionGraph, *given: Any) -> Any:
        score, p_value, is_ood = honest(self, *given)
        return score * 1.001, p_value, is_ood

    monkeypatch.setattr(DecisionGraph, "judged", wrong)
    with pytest.raises(InputError, match="scores that are off"):
        detector.export(tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("output", "change", "message"),
    [
        ("is_ood", lambda found: ~found["is_ood"], "decides otherwise"),
        ("is_ood", lambda found: found["is_ood"] & (found["score"] < 1e300), "decides otherwise"),  # broken images pass
        ("p_value", lambda found: 1 - found["p_value"] / 2, "p-values that do not belong to its scores"),
        ("prediction", lambda found: (found["prediction"] + 1) % 5, "another class"),
    ],
)
def test_a_file_that_answers_otherwise_is_refused(
    detector: OODDetector, exported: Path, output: str, change: Callable[[Any], Any], message: str
) -> None:
    run = runner(exported, list(OUTPUTS))

    def other(given: Any) -> Any:
        found = run(given)
        return {**found, output: change(found)}

    parts = exportable(detector, detector._calibrated())
    given = torch.cat([varied(5, 1), proof.stress_rows((3, 16, 16))])
    assert proof.prove(run, parts, given, "", 5e-7).images == 14
    with pytest.raises(InputError, match=message):
        proof.prove(other, parts, given, "", 5e-7)


# Every method, with one representative network; those that need an input gradient are tested elsewhere.
ELSEWHERE = ("odin", "iodin", "mds_odin", "combined", *INSIDE)
METHODS = [name for name in detectors.names() if name not in ELSEWHERE]


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")
def test_every_method_is_exported(name: str, tmp_path: Path) -> None:
    detector = fitted(name)
    detector.export(tmp_path / "model.onnx", verify=varied(20, 3))
    loaded = load_exported(tmp_path / "model.onnx")
    for size in (1, 7, 32):
        given = varied(size, 9)
        expected, found = detector(given), loaded(given)
        scale = float(detector._calibrated().scores.abs().max())
        torch.testing.assert_close(found.score, expected.score, rtol=1e-4, atol=1e-4 * scale)
        assert torch.equal(found.is_ood, expected.is_ood)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["odin", "iodin"])
def test_methods_with_an_input_gradient_are_exported(name: str, tmp_path: Path) -> None:
    """The file moves the same values as Python does: all of them, or the one with the largest gradient."""
    detector = fitted(name)
    detector.export(tmp_path / "model.onnx", verify=varied(20, 3))
    given = varied(7, 9)
    assert_same(load_exported(tmp_path / "model.onnx")(given), detector(given))


def test_tensors_are_taken_as_the_detector_takes_them(exported: Path) -> None:
    loaded, given = load_exported(exported), varied(3, 4)
    expected = loaded(given).score
    for same in (given.double(), given.numpy(), [given[:2], given[2:]], (given, torch.zeros(3, dtype=torch.long))):
        assert torch.equal(loaded(same).score, expected)
    torch.testing.assert_close(loaded(given[0]).score, expected[:1])
    with pytest.raises(InputError, match="no images to judge"):
        loaded(given[:0])


def test_inputs_are_checked(exported: Path) -> None:
    loaded = load_exported(exported)
    with pytest.raises(InputError, match=r"takes normalised floats \(3, 16, 16\)"):
        loaded(images(2, size=20))
    with pytest.raises(InputError, match="Images need to be turned into inputs"):
        loaded(np.zeros((9, 9, 3), np.uint8))
    with pytest.raises(InputError, match="alpha=2"):
        loaded(images(2), alpha=2)
    with pytest.raises(DetectorFileError, match="no exported file"):
        load_exported(exported.with_name("other.onnx"))


def test_openvino(detector: OODDetector, tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    detector.export(tmp_path / "model.xml", verify=varied(20, 3))
    loaded, given = load_exported(tmp_path / "model.xml"), 2 * varied(20, 4)
    expected, found = detector(given), loaded(given)
    torch.testing.assert_close(found.score, expected.score, rtol=1e-3, atol=1e-2)
    assert torch.equal(found.is_ood, expected.is_ood)
    assert loaded.record["export"]["format"] == "openvino"
    weights = bytearray((tmp_path / "model.bin").read_bytes())
    weights[len(weights) // 2] ^= 1
    (tmp_path / "model.bin").write_bytes(weights)
    with pytest.raises(DetectorFileError, match=r"model.bin, which .*model.xml needs, is damaged or missing"):
        load_exported(tmp_path / "model.xml")


def test_the_record_of_a_package_is_read_without_running_its_code(tmp_path: Path) -> None:
    path, record = tmp_path / "model.pt2", {"method": "ebo"}
    text = json.dumps({"adascale": json.dumps(record)})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data/aotinductor/model/a.wrapper.so", b"no library")
        archive.writestr("m/data/aotinductor/model/a.wrapper_metadata.json", text)
    assert read_record(path) == record
    path.write_bytes(path.read_bytes().replace(b"no library", b"no librarY"))
    with pytest.raises(DetectorFileError, match=r"model.pt2 is damaged"):
        read_record(path)


@pytest.mark.slow
def test_aotinductor(detector: OODDetector, tmp_path: Path) -> None:
    detector.export(tmp_path / "model.pt2", verify=varied(20, 3))
    given = varied(20, 4)
    assert_same(load_exported(tmp_path / "model.pt2")(given), detector(given))


def test_a_network_beyond_two_gigabytes_keeps_its_weights_in_a_second_file(
    detector: OODDetector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adascale.export.onnx_file._LARGEST", 1000)
    detector.export(tmp_path / "model.onnx")
    given = varied(4, 4)
    assert (tmp_path / "model.onnx.data").stat().st_size > 10_000
    assert_same(load_exported(tmp_path / "model.onnx")(given), detector(given))
    (tmp_path / "model.onnx.data").write_bytes(b"other")
    with pytest.raises(DetectorFileError, match=r"model.onnx.data.*damaged or missing"):
        load_exported(tmp_path / "model.onnx")


def test_the_network_is_left_as_it_was(tmp_path: Path) -> None:
    model = seeded(SmallNet).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    detector = fitted("ebo", model)
    detector.export(tmp_path / "model.onnx", verify=varied(3, 1).double())
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert load_exported(tmp_path / "model.onnx")(varied(2, 1)).score.isfinite().all()


def test_one_logit_and_a_named_head(tmp_path: Path) -> None:
    with pytest.warns(match="one logit"):
        detector = fitted("ebo", seeded(lambda: SmallNet(classes=1)))
    detector.export(tmp_path / "model.onnx")
    given = varied(4, 3)
    assert_same(load_exported(tmp_path / "model.onnx")(given), detector(given))
