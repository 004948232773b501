"""What cannot be exported is refused by its name, in one line, and no file is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

from adascale import InputError, OODDetector
from adascale.export import writing
from tests.conftest import SmallNet, seeded
from tests.export.fitted import fitted

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
pytestmark = pytest.mark.usefixtures("unguarded")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mds_ensemble", "reads inner layers.*use mds"),
        ("gaia_z", "use gradnorm"),
        ("mds_odin", "by the gradient of what was learned.*use mds"),
    ],
)
def test_methods_that_need_more_than_features_are_refused_by_name(name: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"{name} cannot be exported: .*{words}"):
        fitted(name).export(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("model.bin", {}, "no suffix"),
        ("model.onnx", {"format": "openvino"}, "no suffix for format='openvino'"),
        ("model.onnx", {"format": "tflite"}, "choose one of onnx, openvino, pt2"),
        ("model.xml", {"early": "pair"}, "for .onnx files"),
    ],
)
def test_what_cannot_be_written_is_said_at_once(
    detector: OODDetector, path: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        detector.export(tmp_path / path, **options)


class Branching(SmallNet):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x if x.mean() > 0 else -x)


class Sized(SmallNet):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x if x.shape[0] < 64 else -x)


@pytest.mark.parametrize("kind", [Branching, Sized])
def test_a_network_that_cannot_be_traced_is_refused_by_its_name_and_in_one_line(
    kind: type[nn.Module], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    detector = fitted("ebo", seeded(kind))
    with pytest.raises(InputError, match=f"cannot trace {kind.__name__} with a free number of images") as caught:
        detector.export(tmp_path / "model.onnx")
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_a_large_bank_is_refused_with_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "_LARGEST_STATE", 2**15)
    with pytest.raises(InputError, match=r"knn keeps 0 MB of training samples"):
        fitted("knn").export(tmp_path / "model.onnx")


def test_a_folder_is_no_file(detector: OODDetector, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").mkdir()
    with pytest.raises(InputError, match=r"model.onnx is a folder; give the name of a file"):
        detector.export(tmp_path / "model.onnx")
