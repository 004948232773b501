"""Images in, answers out: what people have is taken as it is, and mistakes are told."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from adascale import AdascaleWarning, DetectorFileError, InputError, OODDetector, Preprocess
from adascale.core.extras import optional
from tests.conftest import SmallNet, images, seeded
from tests.images.pictures import GREY, RGB, picture
from tests.shell import NETWORK, fit


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i in range(40):
        picture(seed=i).save(tmp_path / f"{i:02d}.png")
    return tmp_path


def inputs(folder: Path) -> Tensor:
    return torch.stack([RGB(path) for path in sorted(folder.glob("*.png"))])


@pytest.fixture
def detector(net: nn.Module, folder: Path) -> OODDetector:
    return OODDetector(net, preprocess=RGB, classes="ant bee cat dog elk".split()).fit(folder)


KINDS: dict[str, Callable[[Path], Any]] = {
    "path": lambda p: p,
    "text": str,
    "glob": lambda p: f"{p.parent}/0[3]*",
    "list of paths": lambda p: [p],
    "iterator of paths": lambda p: p.parent.glob("03.*"),
    "bytes": lambda p: p.read_bytes(),
    "Pillow image": Image.open,
    "list of Pillow images": lambda p: [Image.open(p)],
    "generator of Pillow images": lambda p: (Image.open(path) for path in [p]),
    "HWC array": lambda p: np.array(Image.open(p)),
    "NHWC array": lambda p: np.array(Image.open(p))[None],
    "list of arrays": lambda p: [np.array(Image.open(p))],
    "image and label": lambda p: [(Image.open(p), 2)],
    "dicts": lambda p: [{"image": Image.open(p), "label": 2}],
    "tensor": lambda p: RGB(p),
    "tensor of its bytes": lambda p: RGB(p.read_bytes())[None],
    "tensor of its pixels": lambda p: RGB(np.array(Image.open(p))),
}


@pytest.mark.parametrize("kind", KINDS)
def test_one_image_in_every_form(detector: OODDetector, folder: Path, kind: str) -> None:
    expected = detector(RGB(Image.open(folder / "03.png"))[None])
    for answer in (detector, detector.decide):
        verdict = answer(KINDS[kind](folder / "03.png"))
        torch.testing.assert_close(verdict.logits, expected.logits)  # up to rounding: batches differ in size
        assert torch.equal(verdict.is_ood, expected.is_ood)
    assert torch.equal(detector.score(KINDS[kind](folder / "03.png")), expected.score)
    assert torch.equal(detector.is_ood(KINDS[kind](folder / "03.png")), expected.is_ood)


def test_fit_on_a_folder_is_fit_on_its_tensors(detector: OODDetector, net: nn.Module, folder: Path) -> None:
    same = OODDetector(net, preprocess=RGB).fit(inputs(folder))
    assert (same.threshold, same.method) == (detector.threshold, detector.method)
    arrays = np.stack([np.array(picture(seed=i)) for i in range(40)])
    assert OODDetector(net, preprocess=RGB).fit(arrays).threshold == same.threshold


def test_answers_know_their_images_and_classes(detector: OODDetector, folder: Path) -> None:
    detector.batch_size = 16
    names = [f"{folder}/{i:02d}.png" for i in range(40)]
    verdict, decision = detector(folder), detector.decide(str(folder))
    assert verdict.names == decision.names == names
    assert [name for part in detector.stream(folder) for name in part.names] == names
    letters = dict(enumerate("ant bee cat dog elk".split()))
    assert verdict.label == decision.label == [letters[i] for i in verdict.prediction.tolist()]
    assert detector([names[7], names[2]]).names == [names[7], names[2]]
    assert detector(inputs(folder)).names == []


def test_training_images_with_labels_in_every_form(net: nn.Module, folder: Path) -> None:
    paths, labels = sorted(folder.glob("*.png")), [i % 5 for i in range(40)]
    (folder / "list.txt").write_text("".join(f"{p.name} {c}\n" for p, c in zip(paths, labels, strict=True)))
    known, held_out = inputs(folder), images(30, seed=1)
    expected = OODDetector(net, "mds").fit(held_out, train=(known, torch.tensor(labels))).threshold
    for train in (
        folder / "list.txt",
        (paths, labels),
        (np.stack([np.array(Image.open(p)) for p in paths]), np.array(labels)),
        [(Image.open(p), c) for p, c in zip(paths, labels, strict=True)],
    ):
        assert OODDetector(net, "mds", preprocess=RGB).fit(held_out, train=train).threshold == expected
    with pytest.raises(InputError, match="40 images came with 39 labels"):
        OODDetector(net, "mds", preprocess=RGB).fit(held_out, train=(paths, labels[1:]))


def test_grey_networks_take_stacks_of_grey_images() -> None:
    net = seeded(lambda: nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 3)))
    stack = np.random.default_rng(0).integers(0, 256, (30, 18, 20), dtype=np.uint8)
    detector = OODDetector(net, "ebo", preprocess=GREY).fit(stack)
    assert detector.score(stack).tolist() == pytest.approx([float(detector.score(one)) for one in stack], rel=1e-5)


def test_unreadable_images(detector: OODDetector, net: nn.Module, folder: Path) -> None:
    (folder / "05.png").write_text("no image")
    (folder / "06.png").write_bytes((folder / "07.png").read_bytes()[:300])
    with pytest.raises(InputError, match=r"05\.png cannot be read as an image: not an image.*skip_unreadable=True"):
        detector(folder)
    with pytest.raises(InputError, match=r"05\.png cannot be read"):
        detector.is_ood(folder)
    with pytest.warns(AdascaleWarning, match=r"2 of 40 images could not be read and were skipped \(.*05\.png.*06\.png"):
        verdict = detector(folder, skip_unreadable=True)
    assert len(verdict.names) == len(verdict) == 38
    with pytest.warns(AdascaleWarning, match=r"2 of 40 images could not be read"):
        fitted = OODDetector(net, "ebo", preprocess=RGB).fit(folder)
    assert fitted.calibration is not None
    assert len(fitted.calibration.scores) == 38
    with pytest.raises(InputError, match=r"None of the 1 images can be read \(.*05\.png"):
        OODDetector(net, preprocess=RGB).fit([folder / "05.png"])
    with pytest.raises(InputError, match=r"05\.png cannot be read as an image"):
        RGB(folder / "05.png")
    with pytest.raises(InputError, match=r"nothing\.png cannot be read as an image: there is no such file"):
        RGB("nothing.png")


def test_without_preprocess_one_sentence_says_how_to_give_it(net: nn.Module, folder: Path) -> None:
    for given in (folder, np.zeros((4, 20, 20, 3), np.uint8), [picture()]):
        with pytest.raises(InputError, match=r"make it with preprocess=Preprocess\(") as caught:
            OODDetector(net).fit(given)
        assert "\n" not in str(caught.value)
    for wrong in (np.zeros((4, 4), np.float32), 7):
        with pytest.raises(InputError, match="uint8"):
            RGB(wrong)  # type: ignore[arg-type]


def test_inputs_of_a_wrong_kind_are_told_what_is_wrong(detector: OODDetector, net: nn.Module, folder: Path) -> None:
    pixels = np.array(picture())
    wrong: dict[str, Any] = {
        r"Images are float32 \(.*, 3\), with the channels last; give pixels as uint8": pixels.astype(np.float32) / 255,
        r"Images are uint16 \(.*, 3\), with the channels last": pixels.astype(np.uint16),
        r"Images are bool \(.*, 3\), with the channels last": pixels > 9,
        r"Images are uint16 \(3, .*; give pixels as uint8 with": pixels.astype(np.uint16).transpose(2, 0, 1),
        r"Images came as NoneType; give paths, a folder, Pillow images": None,
        r"Images came as int; give paths, a folder, Pillow images": 5,
    }
    for message, given in wrong.items():
        with pytest.raises(InputError, match=message):
            detector(given)
        with pytest.raises(InputError, match=message):
            OODDetector(net, "ebo", preprocess=RGB).fit(given)
    bare = OODDetector(net, "ebo").fit(inputs(folder))
    with pytest.raises(InputError, match=r"calibrated on \(3, 16, 16\)\. Put the channels first\."):
        bare(inputs(folder).movedim(1, -1))
    with pytest.raises(InputError, match="cannot be read as an image: it is a folder; give one image"):
        RGB(folder)


def test_arrays_that_cannot_be_shared_are_copied(detector: OODDetector, folder: Path) -> None:
    shared = np.asarray(Image.open(folder / "03.png"))  # Pillow's own memory, which must not be written to
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", AdascaleWarning)
        score = detector.score(shared.transpose(2, 0, 1))
        flipped = detector.score(RGB(shared).numpy()[None, :, :, ::-1])
    assert torch.equal(score, detector.score(folder / "03.png"))
    assert torch.equal(flipped, detector.score(RGB(shared).flip(-1)[None]))


def test_preprocess_as_a_dict_or_refused_in_one_sentence(net: nn.Module, folder: Path) -> None:
    settings = {"size": 20, "crop": 16, "mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25]}
    detector = OODDetector(net, "ebo", preprocess=settings)
    assert detector.preprocess == Preprocess(20, 16, (0.5,) * 3, (0.25,) * 3)
    assert len(detector.fit(folder)(folder)) == 40
    wrong: dict[str, Any] = {
        r"preprocess=\{.*\} lacks 'std'; give Preprocess\(": {"size": 32, "crop": 32, "mean": [0.5]},
        r"does not know 'sice' and lacks 'size'; give": {
            ("sice" if key == "size" else key): value for key, value in settings.items()
        },
        r"preprocess came as a function; give Preprocess\(": lambda image: image,
        r"preprocess came as int; give Preprocess\(": 224,
    }
    for message, given in wrong.items():
        with pytest.raises(InputError, match=message):
            OODDetector(net, preprocess=given)
    for spec in (None, 5):
        with pytest.raises(InputError, match=r"The network came as \w+; give a text, one of torchvision:NAME"):
            OODDetector.from_spec(spec)  # type: ignore[arg-type]


def test_unsigned_bytes_are_preprocessed_and_told(detector: OODDetector, folder: Path) -> None:
    pixels = np.stack([np.array(picture(seed=i)) for i in range(3)])
    expected = detector.score(pixels)
    for given in (torch.from_numpy(pixels), torch.from_numpy(pixels).permute(0, 3, 1, 2), pixels.transpose(0, 3, 1, 2)):
        detector = OODDetector(detector.classifier, preprocess=RGB).fit(folder)
        with pytest.warns(AdascaleWarning, match="uint8 tensors; they are taken as pixels"):
            assert torch.equal(detector.score(given), expected)


def test_twelve_bits_in_sixteen(net: nn.Module, tmp_path: Path) -> None:
    deep = np.random.default_rng(0).integers(0, 4096, (30, 18, 20)).astype(np.uint16)
    for i, values in enumerate(deep):
        Image.fromarray(values).save(tmp_path / f"{i:02d}.png")
    hint = r"below 4096 of 65535.*12-bit data in a 16-bit file, multiply its values by 16"
    with pytest.warns(AdascaleWarning, match=hint) as caught:
        OODDetector(net, "ebo", preprocess=RGB).fit(tmp_path)
    assert len(caught) == 1
    with pytest.warns(AdascaleWarning, match=rf"All values of {tmp_path}/00\.png are {hint}"):
        RGB(tmp_path / "00.png")
    Image.fromarray(deep[0] * 16).save(tmp_path / "30.png")  # one image uses all the bits: the others are just dark
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        OODDetector(net, "ebo", preprocess=RGB).fit(tmp_path)


def test_three_lines_from_a_jpeg_to_a_verdict(tmp_path: Path) -> None:
    models = optional("torchvision.models", "torchvision")
    torch.save(seeded(lambda: models.shufflenet_v2_x0_5(weights=None)).state_dict(), tmp_path / "weights.pth")
    (tmp_path / "my").mkdir()
    for i in range(30):
        picture(seed=i).save(tmp_path / "my" / f"{i}.jpg")
    picture(seed=99).save(tmp_path / "photo.jpg")
    program = """
from adascale import OODDetector
detector = OODDetector.from_spec("torchvision:shufflenet_v2_x0_5", "ebo", weights="weights.pth").fit("my")
verdict = detector("photo.jpg"); print(float(verdict.score), *verdict.label); detector.save("d.safetensors")
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = OODDetector.load(tmp_path / "d.safetensors")  # with the network and the weights that the file names
    verdict = loaded(tmp_path / "photo.jpg")
    assert done.stdout.split()[0] == str(float(verdict.score))
    categories = models.get_model_weights("shufflenet_v2_x0_5").DEFAULT.meta["categories"]
    assert done.stdout.strip().endswith(categories[int(verdict.prediction)])
    assert verdict.label == [categories[int(verdict.prediction)]]
    (tmp_path / "weights.pth").rename(tmp_path / "moved.pth")
    with pytest.raises(
        DetectorFileError, match=r"names the weights .*weights\.pth, which are not there; pass weights="
    ):
        OODDetector.load(tmp_path / "d.safetensors")
    again = OODDetector.load(tmp_path / "d.safetensors", weights=tmp_path / "moved.pth")
    assert again.threshold == loaded.threshold


def test_a_python_file_is_run_only_if_it_is_trusted(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = fit(place, monkeypatch)
    (place / "nets.py").write_text(f"import pathlib\npathlib.Path({str(place / 'ran')!r}).touch()\n" + NETWORK)
    with pytest.raises(DetectorFileError, match=r"nets\.py:Net, and loading it runs that Python file; pass trust=True"):
        OODDetector.load(file)
    assert not (place / "ran").exists()
    assert len(OODDetector.load(file, trust=True)(place / "id")) == 30
    assert (place / "ran").exists()


def test_a_file_that_names_no_network(detector: OODDetector, tmp_path: Path, folder: Path) -> None:
    detector.save(tmp_path / "d.safetensors")
    with pytest.raises(DetectorFileError, match="does not say which network it belongs to"):
        OODDetector.load(tmp_path / "d.safetensors")
    loaded = OODDetector.load(tmp_path / "d.safetensors", seeded(SmallNet))
    assert loaded(folder / "03.png").label == detector(folder / "03.png").label
