"""The networks at hand, and which images they are measured on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch

from adascale import Classifier, InputError, Preprocess, load_network
from adascale.bench.opening import open_source
from adascale.bench.suites import Source
from adascale.images.sources import ImageSet

Kind = Literal["val", "train", "id", "near", "far"]
Sets = dict[str, tuple[Kind, ImageSet]]

FACTORIES = Path(__file__).parents[1] / "networks.py"
GIVEN = (
    "cifar10_densenet101",
    "cifar100_densenet101",
    "cifar10_resnet20",
    "imagenet_resnet50",
    "cifar10_vit",
    "imagenet_efficientnet_lite0",
)
TRAINED = ("narrow_resnet", "wide_resnet", "silu_resnet", "convnext")
NAMES = ("digits", *GIVEN, *TRAINED)


def opened(name: str, trained: Path | None) -> tuple[Classifier, Preprocess]:
    """A network: the digits', one of ADASCALE_DATA, or one of `benchmarks.networks` with weights in ``trained``."""
    if name in GIVEN:
        model, preprocess = load_network(f"{_data()}/networks.py:{name}")
    elif name in TRAINED:
        if trained is None:
            raise InputError(f"{name} has to be trained first; say where its weights are with --trained.")
        model, preprocess = load_network(f"{FACTORIES}:{name}", trained / name / "seed0.safetensors")
    else:
        model, preprocess = load_network("digits")
    assert preprocess is not None
    return Classifier(model), preprocess


def sets_of(name: str) -> Sets:
    """The sets of a network, by name. No image is in two of them."""
    if name == "digits":
        return _digits()
    return _imagenet(name) if name.startswith("imagenet") else _cifar(name)


def _digits() -> Sets:
    parts: Mapping[str, tuple[Kind, str]] = {
        "val": ("val", "fit"),
        "train": ("train", "train"),
        "id": ("id", "test"),
        "digits 8 and 9": ("near", "near"),
        "photographs": ("far", "far"),
    }
    return {name: (kind, open_source(Source(f"digits:{part}"), None, 0)) for name, (kind, part) in parts.items()}


def _cifar(name: str) -> Sets:
    own, other = ("cifar100", "cifar10") if name.startswith("cifar100") else ("cifar10", "cifar100")
    near, far = (f"{other}_test", "imagenet_tinyclasses32"), ("mnist32", "textures32", "sun_scenes32", "svhn32_mini")
    sets: Sets = {
        "val": ("val", _array(f"{own}_test", 0, 300)),
        "train": ("train", _array(f"{own}_train", 0, 1000)),
        "id": ("id", _array(f"{own}_test", 300, 1100)),
    }
    sets |= {name: ("near", _array(name, 0, 400)) for name in near}
    return sets | {name: ("far", _array(name, 0, 100 if "mini" in name else 400)) for name in far}


def _imagenet(name: str) -> Sets:
    """Files lie in the order of the classes, so ID images are drawn. There are no training images.

    ResNet-50 is the slowest of all networks here and is tested on fewer images.
    """
    tested, near, far = (300, 150, 150) if "resnet50" in name else (400, 197, 300)
    return {
        "val": ("val", _drawn("calib", 200)),
        "id": ("id", _drawn("val", tested)),
        "ninco_caltech": ("near", _folder("ninco_caltech", near)),
        "textures": ("far", _folder("textures", far)),
        "sun_nature": ("far", _folder("sun_nature", far)),
    }


def _array(name: str, start: int, stop: int) -> ImageSet:
    return open_source(Source(f"{_data()}/cifar/{name}.npz", rows=(start, stop)), None, 0)


def _folder(name: str, count: int) -> ImageSet:
    return open_source(Source(f"{_data()}/imagenet/{name}", rows=(0, count)), None, 0)


def _drawn(name: str, count: int) -> ImageSet:
    folder = f"{_data()}/imagenet/{name}"
    found = open_source(Source(folder, labels=f"{folder}.csv"), None, 0)
    order = torch.randperm(len(found), generator=torch.Generator().manual_seed(0))
    return found.subset(order[:count].tolist())


def _data() -> str:
    if "ADASCALE_DATA" not in os.environ:
        raise InputError("The networks and images are in a folder that ADASCALE_DATA must name; set it.")
    return os.environ["ADASCALE_DATA"]
