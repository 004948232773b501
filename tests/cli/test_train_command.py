"""`adascale train`: what it must not forget, and what it must refuse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torch.optim.optimizer import register_optimizer_step_pre_hook

from adascale import InputError
from adascale.cli.groups import NetworksOptions
from adascale.cli.networks import networks
from adascale.images.sources import ImageSet
from adascale.training.augment import epoch_images
from adascale.training.checkpoint import settings_of
from adascale.training.train import Training
from tests.conftest import SmallNet, seeded
from tests.shell import inside
from tests.training.test_train import COMMAND, NETWORK, PREPROCESS, SHORT, arrays, some


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Arrays, a folder of classes with one broken image, and a list of the same images."""
    monkeypatch.chdir(tmp_path)
    Path("nets.py").write_text(NETWORK + "def flat():\n    return nn.Sequential(nn.Flatten(), nn.Linear(12, 3))\n")
    np.savez("data.npz", **arrays())
    lines = []
    for number, name in enumerate("abc"):
        Path("set", name).mkdir(parents=True)
        for i in range(6):
            Image.new("RGB", (20, 20), (30 * i, 80 * number, 0)).save(Path("set", name, f"{i}.png"))
            lines.append(f"{name}/{i}.png {2 - number}")
    Path("set", "a", "0.png").write_text("no picture")
    Path("set", "list.txt").write_text("\n".join(lines))
    return tmp_path


def test_unreadable_images_are_named_again(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for finished in (False, True):
        assert inside(monkeypatch, *COMMAND, "--data", "set", "-o", "out") == 3
        message = capsys.readouterr().err
        assert "skipped set/a/0.png: not an image" in message
        assert "1 of 18 images could not be read" in message
        assert ("is there already" in message) == finished


def test_unreadable_images_of_before_a_kill_are_kept(place: Path) -> None:
    images = labelled_files(place)
    recipe = replace(SHORT, epochs=1, batch_size=6)
    order = list(epoch_images(images, PREPROCESS, 0, 0, 6)[0].names)
    last = len(order) // 6 - 1
    Image.new("RGB", (20, 20)).save(place / "set" / "a" / "0.png")
    for name in (order[0], order[-1]):
        images.paths[images.names.index(name)].write_text("no picture")

    class Stop(Exception):
        pass

    def job() -> Training:
        return Training(seeded(lambda: SmallNet(3)), images, PREPROCESS, recipe, save_every=0)

    steps = iter(range(last))

    def stop(*_: Any) -> None:
        if next(steps, None) is None:
            raise Stop

    handle = register_optimizer_step_pre_hook(stop)
    try:
        with pytest.raises(Stop):
            job().run(place / "x.safetensors")
    finally:
        handle.remove()
    resumed = job()
    record = resumed.run(place / "x.safetensors")
    assert set(resumed.failures) == {order[0], order[-1]}  # only the last batch was left
    assert record["failures"] == resumed.failures


def labelled_files(place: Path) -> ImageSet:
    files = sorted((place / "set").glob("*/*.png"))
    return ImageSet([path.name + path.parent.name for path in files], files, labels=[i // 6 for i in range(18)])


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (("--eps", "0.05"), "--eps belongs to --loss adversarial; this is --loss cross-entropy"),
        (("--loss", "ish", "--eps", "0.05"), "--eps belongs to --loss adversarial; this is --loss ish"),
        (("--loss", "ish", "--attack-steps", "3"), "--attack-steps belongs to --loss adversarial"),
        (("--keep", "20"), "--keep belongs to --loss ish; this is --loss cross-entropy"),
        (("--loss", "adversarial", "--keep", "20"), "--keep belongs to --loss ish"),
        (("--classes", "7"), "The network has 3 classes and 7 were asked for"),
        (("--classes", "7", "--init", "start.safetensors"), "The network has 3 classes and 7 were asked for"),
        (("--data", "set/list.txt", "--val", "set"), "--val set is a folder of classes"),
        (("--val", "set"), "--val set is a folder of classes"),
        (("--data", "set", "--val", "set/list.txt"), "--val set/list.txt numbers its own classes"),
        (("--data", "set", "--val", "data.npz"), "--val data.npz numbers its own classes"),
        (("--size", "2"), "The network does not take images of 3x2x2 (Calculated padded input size"),
        (("--model", "nets.py:flat"), "The network does not take images of 3x16x16 (mat1 and mat2 shapes"),
    ],
)
def test_refused_in_one_line(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], extra: tuple[str, ...], words: str
) -> None:
    assert inside(monkeypatch, *COMMAND, "-o", "a") == 0
    (place / "a" / "seed0.safetensors").rename("start.safetensors")
    capsys.readouterr()
    assert inside(monkeypatch, *COMMAND, *extra, "-o", "b") == 2
    message = capsys.readouterr().err
    assert words in message
    assert message.count("\n") == 1
    assert not Path("b").exists()


def test_options_of_the_own_loss_and_the_right_number_are_taken(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = ("--classes", 3, "--val", "data.npz")
    assert inside(monkeypatch, *COMMAND, *good, "--loss", "ish", "--keep", 20, "-o", "a") == 0
    assert inside(monkeypatch, *COMMAND, *good, "--loss", "adversarial", "--eps", 0.1, "--attack-steps", 1) == 0
    settings = settings_of(Path("a", "seed0.safetensors"))
    assert (settings["loss"], settings["keep"], settings["classes"]) == ("ish", 20, 3)
    given = NetworksOptions(model=["nets.py:net"], weights=[Path("a", "seed0.safetensors")], device="cpu")
    (network,) = networks(given, None)
    assert network.trained == settings


def test_a_folder_is_numbered_as_the_folder_of_the_training_images(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "val" / "c").mkdir(parents=True)
    Image.new("RGB", (20, 20)).save(place / "val" / "c" / "x.png")
    assert inside(monkeypatch, *COMMAND, "--data", "set", "--val", "val", "-o", "out") == 3
    assert "validation" in capsys.readouterr().err


def test_a_finished_run_is_listed_as_it_was(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = []
    for _ in range(2):  # the second time, the record comes from the file
        assert inside(monkeypatch, *COMMAND, "--data", "set", "-o", "out") == 3
        listed.append((place / "out" / "networks.json").read_bytes())
    assert listed[0] == listed[1]


def test_weights_of_others_say_nothing(place: Path) -> None:
    assert settings_of(None) == {}
    assert settings_of(place / "none.safetensors") == {}
    assert settings_of(place / "data.npz") == {}


def test_without_augmentation_images_are_as_they_are() -> None:
    plain, preprocess = epoch_images(some(), PREPROCESS, 0, 1, 16, augment=False)
    moved, _ = epoch_images(some(), PREPROCESS, 0, 1, 16)
    assert preprocess == PREPROCESS
    assert list(plain.names) == list(moved.names)
    known = some()
    assert all(
        np.array_equal(np.asarray(plain.open(i)), np.asarray(known.open(int(name))))
        for i, name in enumerate(plain.names)
    )


def test_the_number_of_classes_is_checked_and_kept() -> None:
    with pytest.raises(InputError, match="has 3 classes and 5 were asked for"):
        Training(seeded(lambda: SmallNet(3)), some(), PREPROCESS, SHORT, classes=5)
    assert Training(seeded(lambda: SmallNet(4)), some(), PREPROCESS, SHORT).settings["classes"] == 4
