"""Files that take pixels: sizes, crops and rounding are Pillow's; what ONNX cannot do is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image

from adascale import InputError, OODDetector, Preprocess, load_exported, load_network
from adascale.core.errors import DetectorFileError
from tests.conftest import DATA, SmallNet, needs_data, seeded
from tests.images.pictures import picture

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

MEAN, STD = (0.5, 0.4, 0.3), (0.25, 0.2, 0.3)


def smooth(width: int, height: int, seed: int = 0) -> Image.Image:
    """A picture with soft edges, as photographs have."""
    return picture(9, 7, seed).resize((width, height), Image.Resampling.BICUBIC)


def prepared(preprocess: Preprocess, pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """What the graph makes of a batch (N, H, W, C)."""
    from adascale.export.engines import session_run
    from adascale.export.pixels import INPUT, pixels_graph

    model = pixels_graph(preprocess, 20, 10)
    found: npt.NDArray[np.float32] = session_run(model.SerializeToString(), [INPUT], 1)({"images": pixels})[INPUT]
    return found


def levels_off(preprocess: Preprocess, image: Image.Image) -> npt.NDArray[np.float64]:
    """How many of 255 levels the graph is off, for each pixel of the input."""
    pixels = np.asarray(image)
    pixels = pixels if pixels.ndim == 3 else pixels[:, :, None]
    found, expected = prepared(preprocess, pixels[None])[0], preprocess(image).numpy()
    assert found.shape == expected.shape
    scale = 255 * np.array(preprocess.std).reshape(-1, 1, 1)
    off: npt.NDArray[np.float64] = np.abs(found.astype(np.float64) - expected) * scale
    return off


@pytest.mark.parametrize("size", [(40, 31), (31, 40), (53, 53), (20, 90), (91, 17), (12, 15), (24, 33)])
@pytest.mark.parametrize("crop", [24, 19, (10, 23)])
def test_bicubic_is_pillows(size: tuple[int, int], crop: Any) -> None:
    off = levels_off(Preprocess(24, crop, MEAN, STD, "bicubic"), picture(*size))
    assert off.max() < 1.5
    assert (off > 0.5).mean() < 0.01


@pytest.mark.parametrize("size", [(40, 31), (31, 40), (53, 53), (20, 90), (12, 15), (25, 33)])
@pytest.mark.parametrize("crop", [18, 13, (10, 17)])
def test_bilinear_is_pillows_away_from_the_edge(size: tuple[int, int], crop: Any) -> None:
    off = levels_off(Preprocess(24, crop, MEAN, STD), picture(*size))
    inside = off[:, 2:-2, 2:-2]
    assert inside.max() < 1.5
    assert (inside > 0.5).mean() < 0.15  # one level, where a mean of few pixels ends in a half


def test_pixels_that_need_no_resizing_are_equal() -> None:
    for interpolation in ("bilinear", "bicubic"):
        for size, crop in ((24, 24), (24, 17), (24, None), ((24, 30), (11, 30))):
            preprocess = Preprocess(size, crop, MEAN, STD, interpolation)
            image = picture(*((30, 24) if isinstance(size, tuple) else (24, 24)))
            assert levels_off(preprocess, image).max() == 0


def test_squashing_and_grey_pictures() -> None:
    assert levels_off(Preprocess((20, 28), None, MEAN, STD, "bicubic"), picture(50, 31)).max() < 1.5
    grey = Preprocess(20, 16, (0.5,), (0.25,), "bicubic")
    assert levels_off(grey, picture(41, 33).convert("L")).max() < 1.5


def test_a_batch_is_its_pictures() -> None:
    preprocess = Preprocess(24, 20, MEAN, STD, "bicubic")
    batch = np.stack([np.asarray(picture(33, 45, seed)) for seed in range(3)])
    assert (prepared(preprocess, batch) == np.concatenate([prepared(preprocess, one[None]) for one in batch])).all()


def detector(**changes: Any) -> OODDetector:
    given: dict[str, Any] = {"size": 20, "crop": 16, "mean": MEAN, "std": STD, "interpolation": "bicubic"}
    made = OODDetector(seeded(SmallNet), "ebo", alpha=0.2, preprocess=Preprocess(**{**given, **changes}))
    return made.fit([smooth(30 + seed % 5, 26 + seed % 3, seed) for seed in range(30)])


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[OODDetector, Path, str]:
    made, path = detector(), tmp_path_factory.mktemp("pixels") / "model.onnx"
    proof = made.export(path, pixels=True, verify=[smooth(31, 47, seed) for seed in range(40, 50)])
    return made, path, str(proof)


def test_the_file_takes_arrays_paths_and_pillow_images(exported: Any, tmp_path: Path) -> None:
    made, path, _ = exported
    file = load_exported(path)
    assert file.record["export"]["pixels"] is True
    image = smooth(41, 33, seed=99)
    image.save(tmp_path / "a.png")
    expected = made([image]).score
    pixels = np.asarray(image)
    for given in (image, tmp_path / "a.png", str(tmp_path / "a.png"), pixels, pixels[None], [image]):
        torch.testing.assert_close(file(given).score, expected, rtol=0.02, atol=0.02)
    assert len(file([image, smooth(41, 33, seed=98)])) == 2
    assert file(pixels, alpha=0.999).is_ood.all()


def test_the_difference_to_pillow_is_stated(exported: Any) -> None:
    assert "against the resizing of Pillow, 10 given images: 0 decisions differ, scores by at most" in exported[2]


def test_alpha_may_be_left_out(exported: Any) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(exported[1]), providers=["CPUExecutionProvider"])
    pixels = np.asarray(smooth(41, 33))[None]
    names = [given.name for given in session.get_inputs()]
    default, moved = (
        session.run(["p_value", "is_ood"], {"images": pixels, **more})
        for more in ({}, {"alpha": np.array(0.999, np.float32)})
    )
    assert names == ["images"]
    assert default[0] == moved[0]
    assert moved[1].all()


def test_a_file_of_a_pair_that_takes_other_inputs_is_refused(exported: Any, tmp_path: Path) -> None:
    made, path, _ = exported
    (tmp_path / "model.onnx").write_bytes(path.read_bytes())
    made.export(tmp_path / "model.clean.onnx")
    with pytest.raises(DetectorFileError, match=r"not of the same export as model.onnx \(input differs\)"):
        load_exported(tmp_path / "model.onnx").decide(np.zeros((1, 40, 40, 3), np.uint8))


def test_a_file_that_is_no_image_is_named(exported: Any, tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"broken.png cannot be read as an image"):
        load_exported(exported[1])(tmp_path / "broken.png")


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (np.zeros((1, 9, 9, 4), np.uint8), "C = 3"),
        (np.zeros((1, 9, 9, 3), np.float32), "float32"),
        ([smooth(41, 33), smooth(33, 41)], "2 sizes"),
        (torch.zeros(3, 9, 9), "takes uint8"),
    ],
)
def test_other_inputs_are_refused(exported: Any, given: Any, what: str) -> None:
    with pytest.raises(InputError, match=what):
        load_exported(exported[1])(given)


@pytest.mark.parametrize("interpolation", ["lanczos", "box", "hamming", "nearest"])
def test_filters_that_onnx_lacks_are_refused(interpolation: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"interpolation='{interpolation}' has no equal in ONNX"):
        detector(interpolation=interpolation).export(tmp_path / "a.onnx", pixels=True)
    assert list(tmp_path.iterdir()) == []


def test_what_a_file_with_pixels_cannot_be_is_refused(tmp_path: Path) -> None:
    made = detector()
    for name, kind in (("a.xml", "openvino"), ("a.pt2", "pt2")):
        with pytest.raises(InputError, match=f"pixels=True is for ONNX files alone, not for {kind}"):
            made.export(tmp_path / name, pixels=True)
    with pytest.raises(InputError, match="verify came as tensors"):
        made.export(tmp_path / "a.onnx", pixels=True, verify=torch.zeros(2, 3, 16, 16))
    with pytest.raises(InputError, match="crop=28 is larger than size=20"):
        detector(crop=28).export(tmp_path / "a.onnx", pixels=True)
    bare = OODDetector(seeded(SmallNet), "ebo", alpha=0.2).fit(torch.randn(20, 3, 16, 16))
    with pytest.raises(InputError, match="says how images become inputs"):
        bare.export(tmp_path / "a.onnx", pixels=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@needs_data
def test_imagenet_decisions_are_pillows(tmp_path: Path) -> None:
    model, preprocess = load_network(f"{DATA}/networks.py:imagenet_efficientnet_lite0")
    files = sorted((DATA / "imagenet" / "val").iterdir())[:60]
    made = OODDetector(model, "adascale_l", p_max=85, pixels="random", preprocess=preprocess).fit(files[:40])
    proof = made.export(tmp_path / "model.onnx", pixels=True, verify=files[40:])
    assert "20 given images: 0 decisions differ" in str(proof)
