"""Further calibration images: the threshold, the log of images, the warning about a biased sample."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from adascale import AdascaleWarning, InputError, NotFittedError, OODDetector, Preprocess
from adascale.decision.detector_file import DetectorFile
from adascale.monitoring import Monitor
from adascale.storage.tensors import save_tensors
from tests.conftest import images
from tests.images.pictures import picture

PREPROCESS = Preprocess(size=16, crop=16, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    for name, first, count in (("id", 0, 40), ("more", 100, 30)):
        (tmp_path / name).mkdir()
        for i in range(count):
            picture(seed=first + i).save(tmp_path / name / f"{i:02d}.png")
    return tmp_path


def test_added_images_set_the_threshold_with_those_before(net: nn.Module) -> None:
    detector = OODDetector(net, "mls").fit(images(60))
    before, further = detector.calibration, images(50, seed=1)
    assert before is not None
    detector.recalibrate(further)
    after = detector.calibration
    assert after is not None
    assert torch.equal(after.scores, torch.cat([before.scores, detector.score(further)]).sort().values)
    assert "110 calibration images" in detector.guarantee
    assert detector.calibration_classes is not None
    assert torch.equal(detector.calibration_classes[60:], detector(further).prediction)
    detector.recalibrate(further, replace=True)
    assert "50 calibration images" in detector.guarantee
    assert [(one.change, one.images) for one in detector.audit] == [("fit", 60), ("added", 50), ("replaced", 50)]


def test_the_log_names_the_images_and_is_saved(net: nn.Module, folders: Path) -> None:
    detector = OODDetector(net, "adascale_a", preprocess=PREPROCESS).fit(folders / "id")
    (first,) = detector.audit
    held_out = {name.rpartition("/")[2] for name in first.names}
    assert first.images == len(held_out) == 30  # 10 of 40 were fitted on
    assert held_out < {f"{i:02d}.png" for i in range(40)}
    (folders / "more" / "bad.png").write_bytes(b"no image")
    with pytest.warns(AdascaleWarning, match=r"1 of 31 images could not be read .*bad\.png"):
        detector.recalibrate(folders / "more")
    detector.save(folders / "d.safetensors")
    loaded = OODDetector.load(folders / "d.safetensors", net)
    assert loaded.audit == detector.audit
    assert loaded.audit[1].source == str(folders / "more")
    assert len(loaded.audit[1].names) == 30
    assert re.match(r"\d{4}-.* UTC: 30 calibration images added, from ", str(loaded.audit[1]))
    assert loaded.threshold == detector.threshold
    assert torch.equal(loaded.calibration_classes, detector.calibration_classes)  # type: ignore[arg-type]
    assert [len(one["names"]) for one in DetectorFile.read(folders / "d.safetensors").described()["audit"]] == [30, 30]


def test_an_image_counts_once(net: nn.Module, folders: Path) -> None:
    detector = OODDetector(net, "mls", preprocess=PREPROCESS).fit(folders / "id")
    detector.recalibrate(folders / "more")
    with (
        pytest.warns(AdascaleWarning, match="30 images are calibration images already"),
        pytest.raises(InputError, match="no new images"),
    ):
        detector.recalibrate(folders / "more")
    assert len(detector.audit) == 2


def test_images_confirmed_because_they_were_flagged_stand_out(net: nn.Module) -> None:
    detector, traffic = OODDetector(net, "mls").fit(images(200)), images(600, seed=1)
    flagged = traffic[detector.is_ood(traffic)]
    assert len(flagged) > 10
    before = detector.threshold
    with pytest.warns(AdascaleWarning, match=f"{len(flagged)} of the {len(flagged)} images would be flagged"):
        detector.recalibrate(flagged)
    assert detector.threshold > before  # too high: this is what the warning is about
    fair = OODDetector(net, "mls").fit(images(200))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fair.recalibrate(traffic)


def test_a_detector_must_be_fitted_first(net: nn.Module) -> None:
    with pytest.raises(NotFittedError):
        OODDetector(net).recalibrate(images(3))


def test_files_of_earlier_versions_have_a_log_and_start_a_monitor(net: nn.Module, tmp_path: Path) -> None:
    path = tmp_path / "d.safetensors"
    OODDetector(net, "mls").fit(images(50)).save(path)
    file = DetectorFile.read(path)
    made = Monitor(file.calibration.scores, file.calibration_classes)
    assert made.calibration_classes == made.calibration_images == 50
    tensors = {name: tensor for name, tensor in file.tensors.items() if name != "calibration.classes"}
    record = {name: value for name, value in file.record.items() if name not in ("audit", "format", "format_version")}
    save_tensors(path, tensors, record, file.record["format"])
    old = DetectorFile.read(path)
    (entry,) = OODDetector.load(path, net).audit
    assert (entry.change, entry.images, entry.names) == ("fit", 50, ())
    made = Monitor(old.calibration.scores, old.calibration_classes)
    assert made.calibration_classes == 0
    assert made.watches_classes
    detector = OODDetector.load(path, net).recalibrate(images(20, seed=1))
    assert detector.calibration_classes is None  # those of the first 50 are not known
