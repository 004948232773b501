"""Detector files with a right checksum and wrong content: one clear line, never a traceback, never a wrong answer."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from adascale import DetectorFileError, OODDetector
from adascale.decision.detector_file import KIND, DetectorFile
from adascale.storage.tensors import load_tensors, save_tensors
from tests.conftest import SmallNet, seeded

_DROP = object()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("crafted") / "d.safetensors"
    images = torch.rand(60, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    OODDetector(seeded(SmallNet), "knn", k=5).fit(images).save(path)
    return path


def crafted(saved: Path, record: dict[str, Any], tensors: dict[str, Any]) -> Path:
    """The file with these fields (``a.b``) and tensors in place of its own, and a checksum that fits."""
    found = load_tensors(saved, KIND)
    written = copy.deepcopy(found.record)
    for place, value in record.items():
        *way, last = place.split(".")
        section = written
        for part in way:
            section = section[part]
        section[last] = value
        if value is _DROP:
            del section[last]
    kept: dict[str, Tensor] = {**found.tensors, **tensors}
    path = saved.with_name("crafted.safetensors")
    clean = {key: value for key, value in written.items() if not key.startswith("format")}
    save_tensors(path, {name: tensor for name, tensor in kept.items() if tensor is not _DROP}, clean, KIND)
    return path


FIELDS = "method parameters calibration head network input about".split()
INNER = [
    *("calibration.alpha", "calibration.split_seed", "calibration.reference_images"),
    *("head.name", "head.fingerprint", "network.class", "network.fingerprint"),
]
WRONG: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    *(({name: _DROP}, {}, f"its {name} is missing") for name in (*FIELDS, *INNER)),
    *(({name: [1]}, {}, f"its {name} is a list") for name in (*FIELDS, *INNER)),
    ({"calibration.alpha": True}, {}, "its calibration.alpha is a bool"),
    ({"calibration.alpha": 7}, {}, "alpha"),
    ({"about.model": 5}, {}, "its about.model is a int"),
    ({"input.shape": [3, "x", 8]}, {}, "its input.shape is"),
    ({"input.preprocess": {"size": "a", "crop": 2, "mean": [1], "std": [1]}}, {}, "input.preprocess"),
    ({"input.preprocess": {"what": 1}}, {}, "does not know 'what'"),
    ({"class_names": [1, 2]}, {}, "class_names"),
    ({"method": "magic"}, {}, "magic"),
    ({"parameters.k": "five"}, {}, "k="),
    ({"parameters.what": 5}, {}, "what"),
    ({"origin": {"class": 1}}, {}, "cannot be used here"),
    ({}, {"calibration.scores": _DROP}, "no list of calibration.scores"),
    ({}, {"calibration.scores": torch.zeros(2, 2)}, "no list of calibration.scores"),
    ({}, {"calibration.scores": torch.zeros(0)}, "no list of calibration.scores"),
    ({}, {"calibration.scores": torch.tensor([1.0, float("nan")])}, "calibration.scores hold NaN"),
    ({"audit": 7}, {}, "its audit is a int"),
    ({"audit": [7]}, {}, "its audit.0 is a int"),
    ({"audit": [{"change": "fit", "date": "", "images": "3", "source": ""}]}, {}, "its audit.0.images is a str"),
    ({"audit": [{"change": "so", "date": "", "images": 3, "source": ""}]}, {}, "its audit.0.change is 'so'"),
    ({"audit": [{"change": "fit", "date": "", "images": 3, "source": "", "x": 1}]}, {}, "its audit cannot be read"),
    ({}, {"audit.0.names": torch.tensor([91, 49], dtype=torch.uint8)}, "its audit cannot be read"),
    ({}, {"audit.0.names": torch.tensor([91, 49, 93], dtype=torch.uint8)}, "names of its audit"),
    ({}, {"calibration.classes": torch.zeros(3)}, "its calibration.classes are no list"),
    ({}, {"probe.features": _DROP}, "probe is incomplete"),
    ({}, {"probe.images": torch.zeros(2, 1, 1, 1)}, "cannot take the probe"),
    ({}, {"probe.images": torch.zeros(0, 3, 8, 8)}, "probe is incomplete"),
    ({}, {"method.bank_": _DROP}, "has learned does not fit it"),
    ({}, {"method.bank_": torch.zeros(3)}, "has learned does not fit it"),
    ({}, {"method.score": torch.zeros(3)}, "has learned no 'score'"),
]


@pytest.mark.parametrize(("record", "tensors", "reason"), WRONG, ids=[f"{i}" for i in range(len(WRONG))])
def test_a_crafted_file_is_refused_in_one_line(
    record: dict[str, Any], tensors: dict[str, Any], reason: str, saved: Path
) -> None:
    path = crafted(saved, record, tensors)
    with pytest.raises(DetectorFileError) as caught:
        OODDetector.load(path, seeded(SmallNet))
    message = str(caught.value)
    assert reason in message
    assert "\n" not in message


def test_the_same_file_unchanged_is_read(saved: Path) -> None:
    assert OODDetector.load(crafted(saved, {}, {}), seeded(SmallNet)).method.name == "knn"
    assert DetectorFile.read(saved).record["method"] == "knn"
    lacking = crafted(saved, {"input.preprocess": _DROP, "input.shape": _DROP}, {})
    assert OODDetector.load(lacking, seeded(SmallNet)).preprocess is None
