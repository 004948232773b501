"""``adascale train``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer
from torch import nn

from adascale.cli import options
from adascale.cli.console import AsJson, Crop, Device, Mean, Model, Root, Size, Std, Workers, app, end, resumable, say
from adascale.core.errors import InputError
from adascale.images.preprocess import Preprocess
from adascale.images.sources import ImageSet, find_labelled
from adascale.network import trained as registry
from adascale.network.loading import load_network, new_network
from adascale.training.processes import engine
from adascale.training.recipes import OWN, RECIPES, Recipe, budgeted
from adascale.training.train import Training


@app.command()
def train(
    model: Model,
    data: Annotated[
        str, typer.Option(help="Folder with a subfolder for each class, image list with labels, or .npz with labels.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the weights.")] = Path("adascale-train"),
    loss: Annotated[Literal["cross-entropy", "ish", "adversarial"], typer.Option(help="What is minimised.")] = (
        "cross-entropy"
    ),
    val: Annotated[str | None, typer.Option(help="Images like --data, for the accuracy after each epoch.")] = None,
    init: Annotated[
        str | None,
        typer.Option(help="Weights file to start from, or pretrained for the source's own [default: random]."),
    ] = None,
    classes: Annotated[int | None, typer.Option(min=1, help="Number of classes [default: as many as labels].")] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Passes over the images [default: 100, for ish 10].")
    ] = None,
    lr: Annotated[float | None, typer.Option(help="First learning rate [default: 0.1, for ish 0.003].")] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Images a step, of all processes [default: 128].")
    ] = None,
    weight_decay: Annotated[
        float | None, typer.Option(help="Of every layer [default: 5e-4, for the last layer of ish 5e-5].")
    ] = None,
    eps: Annotated[
        float | None, typer.Option(help="Adversarial: furthest move of a pixel in 0..1 [default: 0.01].")
    ] = None,
    attack_steps: Annotated[int | None, typer.Option(min=1, help="Adversarial: steps of PGD [default: 7].")] = None,
    keep: Annotated[float | None, typer.Option(help="ISH: percent of the features kept [default: 15].")] = None,
    augment: Annotated[bool, typer.Option(help="Random crops and mirrors.")] = True,
    width: Annotated[float | None, typer.Option(help="Share of an adascale: network's channels [default: 1].")] = None,
    budget: Annotated[
        float,
        typer.Option(
            help="Share of the full cost, for a CPU: untrained adascale: networks get epochs x sqrt(SHARE) and width x "
            "SHARE^(1/4), others epochs x SHARE; --epochs and --width take precedence."
        ),
    ] = 1.0,
    seed: Annotated[int, typer.Option(min=0, max=2**31, help="Of weights, order and augmentation.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="Train so many, from --seed on.")] = 1,
    precision: Annotated[
        Literal["auto", "fp32", "bf16", "fp16"], typer.Option(help="auto: bf16 or fp16 on a GPU, fp32 on a CPU.")
    ] = "auto",
    save_every: Annotated[float, typer.Option(min=0, help="Minutes between checkpoints within an epoch.")] = 10.0,
    head: Annotated[str | None, typer.Option(help="Name of the last linear layer, if it is not found.")] = None,
    size: Size = None,
    crop: Crop = None,
    mean: Mean = None,
    std: Std = None,
    root: Root = None,
    workers: Workers = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Train a network: cross-entropy, ISH or adversarial. The same command goes on where a killed one stopped.

    Several GPUs: torchrun --nproc-per-node 4 -m adascale train ... (needs the extra train).
    """
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file; give a folder for the weights.")
    images, names = find_labelled(data, root)
    validation = _validation(val, root, names)
    count = classes or (len(names) if names else max(1, 1 + max(images.labels or [0])))
    given = {"lr": lr, "batch_size": batch_size, "eps": eps, "attack_steps": attack_steps, "keep": keep}
    given["augment"] = augment
    recipe, scale = _recipe(loss, budget, epochs, width, model.startswith("adascale:") and init is None, given)
    if weight_decay is not None:
        recipe = replace(recipe, weight_decay=weight_decay, head_weight_decay=weight_decay)
    process = engine(options.device(device))
    if loss == "ish" and init is None and ".py:" not in model:
        say("note: ISH's recipe fine-tunes a trained network; this one starts from random weights (see --init).")
    about = {"model": options.absolute(model), "width": scale}
    found: list[registry.Registered] = []
    failures: dict[str, str] = {}
    for number in range(seed, seed + seeds):
        network, known = _start(model, init, count, scale, number)
        job = Training(
            network,
            images,
            options.preprocess(known, size, crop, mean, std),
            recipe,
            number,
            validation,
            head,
            process,
            precision,
            workers,
            60 * save_every,
            about,
            classes,
            tell=say if process.rank == 0 else _silent,
        )
        with resumable():
            record = job.run(out / f"seed{number}.safetensors")
        failures |= job.failures
        found.append(_registered(out, number, record, job.preprocess))
    if process.rank:
        return
    file = registry.register(out, found)
    _report(found, file, as_json)
    for image, reason in failures.items():
        say(f"skipped {image}: {reason}")
    end(len(failures), len(images))


def _validation(val: str | None, root: Path | None, names: list[str] | None) -> ImageSet | None:
    """Numbered as the training images are: a list or .npz has numbers of its own, a folder those of its names."""
    if val is not None and names is not None and not Path(val).is_dir():
        raise InputError(
            f"--val {val} numbers its own classes, --data is a folder of classes; give --val as such a folder too."
        )
    if val is not None and names is None and Path(val).is_dir():
        raise InputError(
            f"--val {val} is a folder of classes, --data a list that numbers its own; give --val as a list or .npz too."
        )
    return find_labelled(val, root, names)[0] if val else None


def _recipe(
    loss: str, budget: float, epochs: int | None, width: float | None, scalable: bool, given: dict[str, Any]
) -> tuple[Recipe, float]:
    for name, own in OWN.items():
        if given[name] is not None and loss != own:
            raise InputError(f"--{name.replace('_', '-')} belongs to --loss {own}; this is --loss {loss}.")
    recipe, scale = budgeted(RECIPES[loss], budget, scalable and width is None)
    asked = {name: value for name, value in {**given, "epochs": epochs}.items() if value is not None}
    if width is not None and not scalable:
        raise InputError(f"--width {width} is for adascale: networks that start untrained; this one has its width.")
    return replace(recipe, **asked), scale if width is None else width


def _start(spec: str, init: str | None, classes: int, width: float, seed: int) -> tuple[nn.Module, Preprocess | None]:
    """The network before training: random by its seed, or with the weights to start from."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if init is None:
            return new_network(spec, classes, width)
        return load_network(spec, None if init == "pretrained" else Path(init))


def _registered(out: Path, seed: int, record: dict[str, Any], preprocess: Preprocess) -> registry.Registered:
    settings = record["settings"]
    about = {"seed": seed, **record["history"][-1], "preprocess": settings["preprocess"], "settings": settings}
    about |= {key: value for key, value in record.items() if key.endswith("robust_accuracy")}
    return registry.Registered(f"seed{seed}", settings["model"], out / f"seed{seed}.safetensors", about)


def _report(found: list[registry.Registered], file: Path, as_json: bool) -> None:
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


def _silent(_: str) -> None:
    """What the other processes have to say."""
