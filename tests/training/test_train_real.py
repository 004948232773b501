"""Training on real images, and with several processes."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from adascale import load_network
from adascale.images.sources import ImageSet, find_images
from adascale.training.attack import accuracy
from adascale.training.recipes import RECIPES, Recipe
from adascale.training.train import Training
from tests.conftest import DATA, needs_data
from tests.shell import run
from tests.training.test_train import arrays

RESNET20 = f"{DATA / 'networks.py'}:cifar10_resnet20"
PLAIN = """
from torch import nn
PREPROCESS = {"size": 16, "crop": 16, "mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25]}
def net():
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))
"""


def cifar10(part: str, count: int) -> ImageSet:
    return find_images(DATA / "cifar" / f"cifar10_{part}.npz").subset(range(count))


@needs_data
@pytest.mark.slow
def test_an_epoch_of_ish_keeps_the_accuracy(tmp_path: Path) -> None:
    network, preprocess = load_network(RESNET20)
    assert preprocess is not None
    test = cifar10("test", 500)
    before = accuracy(network, test, preprocess)
    recipe = Recipe("ish", epochs=1, lr=RECIPES["ish"].lr, head_weight_decay=RECIPES["ish"].head_weight_decay)
    job = Training(network, cifar10("train", 1000), preprocess, recipe, val=test)
    after = job.run(tmp_path / "ish.safetensors")["history"][-1]["val_accuracy"]
    assert after == accuracy(load_network(RESNET20, tmp_path / "ish.safetensors")[0], test, preprocess)
    assert abs(after - before) <= 0.02


@needs_data
@pytest.mark.slow
def test_adversarial_training_raises_robust_accuracy(tmp_path: Path) -> None:
    network, preprocess = load_network(RESNET20)
    assert preprocess is not None
    recipe = Recipe("adversarial", epochs=2, batch_size=32, lr=0.01, attack_steps=2)
    job = Training(network, cifar10("train", 384), preprocess, recipe, val=cifar10("test", 128))
    record = job.run(tmp_path / "adversarial.safetensors")
    assert record["end_robust_accuracy"] > record["start_robust_accuracy"] + 0.1


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="needs accelerate (extra train)")
def test_two_processes_train_as_one_does(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(PLAIN)
    np.savez(tmp_path / "data.npz", **arrays())
    command = ["train", "--model", "nets.py:net", "--data", "data.npz", "--epochs", "2", "--batch-size", "16"]
    command += ["--device", "cpu", "--lr", "0.05", "-o"]
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "adascale",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([*launcher, *command, "two"], cwd=tmp_path, check=True, timeout=120, env=environment)
    assert run(tmp_path, *command, "one").returncode == 0
    one, two = (load_file(tmp_path / name / "seed0.safetensors") for name in ("one", "two"))
    assert all(torch.allclose(one[name], two[name], atol=1e-5) for name in one)
