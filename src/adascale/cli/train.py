"""``adascale train``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from adascale.cli import options
from adascale.cli.console import end, resumable, say
from adascale.cli.research_commands import TrainCommand
from adascale.core.errors import InputError
from adascale.images.preprocess import Preprocess
from adascale.images.sources import ImageSet, find_labelled
from adascale.network.loading import load_network, new_network
from adascale.network.ready import usable_device
from adascale.network.specs import absolute
from adascale.network.trained import Registered, write_network_list
from adascale.training.processes import engine
from adascale.training.recipes import OWN, RECIPES, Recipe, budgeted
from adascale.training.train import Training

CHANGES = ("epochs", "lr", "batch_size", "weight_decay", "eps", "attack_steps", "keep", "augment")


def train(given: TrainCommand) -> None:
    """Train a network for each seed, list them in ``networks.json`` and print how well they learned."""
    images, validation, classes = _images(given)
    recipe, width = _recipe(given, given.model.startswith("adascale:") and given.init is None)
    process = engine(usable_device(given.device))
    if given.loss == "ish" and given.init is None and ".py:" not in given.model:
        say("note: ISH's recipe fine-tunes a trained network; this one starts from random weights (see --init).")
    found: list[Registered] = []
    failures: dict[str, str] = {}
    for seed in range(given.seed, given.seed + given.seeds):
        network, known = _start(given, classes, width, seed)
        job = Training(
            network,
            images,
            options.preprocess(known, given),
            recipe,
            seed,
            validation,
            given.head,
            process,
            given.precision,
            given.workers,
            60 * given.save_every,
            {"model": absolute(given.model), "width": width},
            given.classes,
            tell=say if process.rank == 0 else lambda _: None,
        )
        with resumable():
            record = job.run(given.out / f"seed{seed}.safetensors")
        failures |= job.failures
        found.append(_registered(given.out, seed, record))
    if process.rank:
        return
    _report(found, write_network_list(given.out, found), given.as_json)
    for image, reason in failures.items():
        say(f"skipped {image}: {reason}")
    end(len(failures), len(images))


def _images(given: TrainCommand) -> tuple[ImageSet, ImageSet | None, int]:
    """Training images, validation images numbered in the same way, and the number of classes."""
    found, names = find_labelled(given.data, given.root, max_pixels=given.max_pixels)
    count = given.classes or (len(names) if names else max(1, 1 + max(found.labels or [0])))
    val = given.val
    if val is None:
        return found, None, count
    if names is not None and not Path(val).is_dir():
        raise InputError(
            f"--val {val} numbers its own classes, --data is a folder of classes; give --val as such a folder too."
        )
    if names is None and Path(val).is_dir():
        raise InputError(
            f"--val {val} is a folder of classes, --data a list that numbers its own; give --val as a list or .npz too."
        )
    return found, find_labelled(val, given.root, names, given.max_pixels)[0], count


def _recipe(given: TrainCommand, scalable: bool) -> tuple[Recipe, float]:
    """The recipe and the width of the network. scalable: an ``adascale:`` network that starts untrained."""
    changes = {name: value for name in CHANGES if (value := getattr(given, name)) is not None}
    if given.weight_decay is not None:
        changes["head_weight_decay"] = given.weight_decay
    for name, loss in OWN.items():
        if name in changes and given.loss != loss:
            raise InputError(f"--{name.replace('_', '-')} belongs to --loss {loss}; this is --loss {given.loss}.")
    if given.width is not None and not scalable:
        raise InputError(
            f"--width {given.width} is for adascale: networks that start untrained; this one has its width."
        )
    found, width = budgeted(RECIPES[given.loss], given.budget, scalable and given.width is None)
    return replace(found, **changes), width if given.width is None else given.width


def _start(given: TrainCommand, classes: int, width: float, seed: int) -> tuple[nn.Module, Preprocess | None]:
    """The network before training: with random weights drawn by the seed, or with the weights to start from."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if given.init is None:
            return new_network(given.model, classes, width)
        return load_network(given.model, None if given.init == "pretrained" else Path(given.init))


def _registered(out: Path, seed: int, record: dict[str, Any]) -> Registered:
    """The entry of a trained network in ``networks.json``."""
    settings = record["settings"]
    about = {"seed": seed, **record["history"][-1], "preprocess": settings["preprocess"], "settings": settings}
    about |= {key: value for key, value in record.items() if key.endswith("robust_accuracy")}
    return Registered(f"seed{seed}", settings["model"], out / f"seed{seed}.safetensors", about)


def _report(found: list[Registered], file: Path, as_json: bool) -> None:
    if as_json:
        print(file.read_text("utf8"), end="")
        return
    for network in found:
        about = network.about
        line = f"{network.weights}: loss {about['loss']:.4f}, accuracy {100 * about['accuracy']:.2f} %"
        if "val_accuracy" in about:
            line += f", validation {100 * about['val_accuracy']:.2f} %"
        print(line)
    print(f"Use it: adascale fit ... --model {found[0].model} --weights {found[0].weights}")
    say(f"wrote {file}")
