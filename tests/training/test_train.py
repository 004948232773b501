"""Training: the same weights after a kill, recipes, data, refusals."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from adascale import InputError, Preprocess, load_network
from adascale.images.sources import ImageSet
from adascale.network.trained import registered
from adascale.training.recipes import RECIPES, Recipe
from adascale.training.train import Training
from tests.conftest import SmallNet, seeded
from tests.shell import inside, run

PREPROCESS = Preprocess(16, 16, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
SHORT = Recipe(epochs=3, batch_size=16, lr=0.05)
NETWORK = """
import os, time, torch
from torch import nn
PREPROCESS = {"size": 16, "crop": 16, "mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25]}
class Wait(nn.Module):
    def forward(self, x):
        time.sleep(float(os.environ.get("SLOW", 0)) if self.training else 0)
        return x
def net():
    return nn.Sequential(Wait(), nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))
"""


def arrays(n: int = 50) -> dict[str, Any]:
    """Three classes, told apart by their colour."""
    draw = np.random.default_rng(0)
    labels = np.arange(n) % 3
    images = draw.integers(0, 120, (n, 16, 16, 3))
    images[np.arange(n), :, :, labels] += 100
    return {"images": images.astype(np.uint8), "labels": labels}


def some(n: int = 50) -> ImageSet:
    found = arrays(n)
    return ImageSet([str(i) for i in range(n)], array=found["images"], labels=found["labels"].tolist())


def trained(out: Path, recipe: Recipe = SHORT, seed: int = 0, **options: Any) -> dict[str, Any]:
    return Training(seeded(lambda: SmallNet(3)), some(), PREPROCESS, recipe, seed, **options).run(out)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "nets.py").write_text(NETWORK)
    np.savez(tmp_path / "data.npz", **arrays())
    return tmp_path


COMMAND = ("train", "--model", "nets.py:net", "--data", "data.npz", "--epochs", 3, "--batch-size", 16, "--lr", 0.05)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_killed_and_resumed_gives_the_same_weights(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    assert inside(monkeypatch, *COMMAND, "-o", "whole") == 0
    command = [sys.executable, "-m", "adascale", *map(str, COMMAND), "-o", "killed", "--save-every", "0"]
    process = subprocess.Popen(command, cwd=place, env={**os.environ, "SLOW": "0.15"}, stderr=subprocess.DEVNULL)
    half, end = place / "killed" / "seed0.checkpoint.safetensors", time.monotonic() + 60
    while not half.exists() and time.monotonic() < end:
        time.sleep(0.02)
    time.sleep(0.3)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert half.exists()
    assert not (place / "killed" / "seed0.safetensors").exists()
    assert inside(monkeypatch, *COMMAND, "-o", "killed", "--lr", 0.01) == 2
    assert "seed0.checkpoint.safetensors was begun with --lr 0.05, now it is 0.01" in capsys.readouterr().err
    again = run(place, *COMMAND, "-o", "killed", "--save-every", 0)
    assert again.returncode == 0, again.stderr
    assert "resuming at step" in again.stderr
    assert not half.exists()
    assert same(place / "whole" / "seed0.safetensors", place / "killed" / "seed0.safetensors")
    histories = [registered(place / name)[0].about["loss"] for name in ("whole", "killed")]
    assert histories[0] == histories[1]


def same(first: Path, second: Path) -> bool:
    one, two = load_file(first), load_file(second)
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


class Stop(Exception):
    """A run ends here."""


class StoppingNet(SmallNet):
    """Ends a run in the training step of this number."""

    def __init__(self, steps: float = math.inf) -> None:
        super().__init__(3)
        self.left = steps

    def forward(self, x: Tensor) -> Any:
        self.left -= self.training
        if self.left < 0:
            raise Stop
        return super().forward(x)


@pytest.mark.parametrize("loss", ["cross-entropy", "ish", "adversarial"])
def test_every_place_of_interruption_is_as_good(loss: str, tmp_path: Path) -> None:
    recipe = replace(RECIPES[loss], epochs=2, batch_size=16, lr=0.02)

    def run(name: str, steps: float = math.inf) -> Path:
        network = seeded(lambda: StoppingNet(steps))
        Training(network, some(), PREPROCESS, recipe, save_every=0).run(tmp_path / name)
        return tmp_path / name

    whole = run("whole.safetensors")
    for steps in (2, 3, 5):  # within an epoch, at its end, within the next
        with pytest.raises(Stop):
            run(f"{steps}.safetensors", steps)
        assert same(whole, run(f"{steps}.safetensors")), steps


def test_the_loss_falls_and_seeds_differ(tmp_path: Path) -> None:
    record = trained(tmp_path / "a.safetensors", replace(SHORT, epochs=8), val=some())
    losses = [entry["loss"] for entry in record["history"]]
    assert losses[-1] < losses[0]
    assert record["history"][-1]["val_accuracy"] > 0.6
    trained(tmp_path / "b.safetensors", replace(SHORT, epochs=8), seed=1)
    assert not same(tmp_path / "a.safetensors", tmp_path / "b.safetensors")


def test_adversarial_training_says_both_accuracies(tmp_path: Path) -> None:
    said: list[str] = []
    recipe = Recipe("adversarial", epochs=6, batch_size=16, lr=0.05, eps=0.05, attack_steps=2)
    record = trained(tmp_path / "a.safetensors", recipe, val=some(), tell=said.append)
    assert record["end_robust_accuracy"] > record["start_robust_accuracy"]
    assert any("under PGD with eps 0.05" in line for line in said)


def test_a_finished_or_other_run(tmp_path: Path) -> None:
    first = trained(tmp_path / "a.safetensors")
    assert trained(tmp_path / "a.safetensors") == first
    with pytest.raises(InputError, match=r"begun with lr=0\.05, now it is 0\.01; give the same") as caught:
        trained(tmp_path / "a.safetensors", replace(SHORT, lr=0.01))
    assert "\n" not in str(caught.value)
    (tmp_path / "b.safetensors").write_bytes(b"garbage")
    with pytest.raises(InputError, match="no intact file"):
        trained(tmp_path / "b.safetensors")


def test_a_loss_that_is_no_number_stops_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"The loss is (nan|inf) at step .*\(lr\)"):
        trained(tmp_path / "a.safetensors", replace(SHORT, lr=1e30))
    assert not (tmp_path / "a.safetensors").exists()


def test_seeds_are_registered_and_load(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    out = place / "out"
    options = ("--val", "data.npz", "--seeds", 3, "-o", out, "--json")
    model = ("train", "--model", "adascale:resnet-18", "--width", 0.05, "--size", 16, "--data", "data.npz")
    assert inside(monkeypatch, *model, "--epochs", 1, "--batch-size", 25, *options) == 0
    found = registered(out)
    assert [n.name for n in found] == ["seed0", "seed1", "seed2"]
    assert not same(found[0].weights, found[1].weights)
    for entry in found:
        network, _ = load_network(entry.model, entry.weights)
        assert isinstance(network, nn.Module)
        assert 0 <= entry.about["val_accuracy"] <= 1
    assert len(json.loads((out / "networks.json").read_text())["networks"]) == 3
    with pytest.raises(InputError, match="no list of networks"):
        registered(place / "nets.py")


def test_fine_tuning_starts_from_the_weights(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    assert inside(monkeypatch, *COMMAND, "-o", "a") == 0
    start = place / "a" / "seed0.safetensors"
    assert inside(monkeypatch, *COMMAND, "-o", "b", "--init", start, "--loss", "ish", "--lr", 1e-9) == 0
    before, after = load_file(start), load_file(place / "b" / "seed0.safetensors")
    assert torch.allclose(before["7.weight"], after["7.weight"], atol=1e-6)


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (("--data", "bare.npz"), "no class for each image"),
        (("--data", "wide.npz"), "class 7; the network has 3 classes"),
        (("--data", "minus.npz"), "class -1; the network has 3 classes"),
        (("--data", "empty"), "no subfolders with images"),
        (("--val", "wide.npz"), "The validation set has the class 7"),
        (("--init", "none.safetensors"), "no weights file"),
        (("--budget", "2"), "budget 2.0"),
        (("--lr", "0"), "--lr 0.0"),
        (("--loss", "adversarial", "--eps", "3"), "--eps 3.0"),
        (("--width", "0.5"), "--width 0.5 is for adascale:"),
        (("--model", "adascale:vgg"), "has no network 'vgg'"),
        (("--model", "hf:some/where"), "pretrained"),
        (("--precision", "fp16", "--device", "cpu"), "needs a CUDA GPU"),
    ],
)
def test_mistakes_are_told_in_one_line(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], extra: tuple[str, ...], words: str
) -> None:
    monkeypatch.chdir(place)
    good = arrays()
    np.savez(place / "bare.npz", images=good["images"])
    np.savez(place / "wide.npz", images=good["images"], labels=good["labels"] + 7)
    np.savez(place / "minus.npz", images=good["images"], labels=good["labels"] - 1)
    (place / "empty" / "class").mkdir(parents=True)
    assert inside(monkeypatch, *COMMAND, *extra, "-o", place / "out") == 2
    message = capsys.readouterr().err
    assert words in message
    assert message.count("\n") == 1


def test_help_shows_the_defaults(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert inside(monkeypatch, "train", "--help") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "[default: 0.1, for ish 0.003]" in text
    assert "epochs x sqrt(SHARE) and width x SHARE^(1/4)" in text
