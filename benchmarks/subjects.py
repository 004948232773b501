"""What is measured: the real networks and images that ADASCALE_DATA names, else networks of the same shapes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from adascale import Classifier, Preprocess, load_network
from adascale.bench.suites import load_suite, open_suite
from adascale.images.loader import load_batches
from adascale.images.sources import ImageSet
from adascale.network.cifar import make
from adascale.network.loading import new_network
from benchmarks.tuning import SUITES

REAL = ("cifar10_densenet101", "cifar100_densenet101", "imagenet_resnet50")
MADE = ("resnet18-shaped", "resnet50-shaped")
SMALL = "cifar10_resnet20"  # of ADASCALE_DATA; compiled in a minute
# Further networks of ADASCALE_DATA, and whose suite they share.
FURTHER = {SMALL: REAL[0], "cifar10_vit": REAL[0], "imagenet_efficientnet_lite0": REAL[2]}


@dataclass(frozen=True, eq=False)
class Subject:
    """A network with ID images to fit on and to test, and OOD images. batch: at which its plain forward is fastest."""

    name: str
    model: nn.Module
    batch: int
    val: Tensor
    known: Tensor
    unknown: Tensor

    def classifier(self) -> Classifier:
        return Classifier(self.model).locate(self.known)


def names() -> tuple[str, ...]:
    return REAL if os.environ.get("ADASCALE_DATA") else MADE


def further_names() -> tuple[str, ...]:
    """Networks that the default is measured on besides."""
    return tuple(FURTHER) if os.environ.get("ADASCALE_DATA") else ()


def subject(name: str, count: int, val: int) -> Subject:
    """With ``count`` ID and as many OOD images, and ``val`` to fit on."""
    if name in (*REAL, *FURTHER):
        return _real(name, count, val)
    large = name == "resnet50-shaped"
    model = _resnet50() if large else make("resnet-18")
    side, generator = 224 if large else 32, torch.Generator().manual_seed(0)
    val_images, known = (torch.randn(n, 3, side, side, generator=generator) for n in (val, count))
    unknown = 2 * torch.rand(count, 3, side, side, generator=generator)
    return Subject(name, model.eval(), 16 if large else 32, val_images, known, unknown)


def _real(name: str, count: int, val: int) -> Subject:
    images = open_suite(load_suite(str(SUITES / f"{FURTHER.get(name, name)}.toml")))
    model, preprocess = load_network(f"{os.environ['ADASCALE_DATA']}/networks.py:{name}")
    assert preprocess is not None
    unknown = [*images.near.values(), *images.far.values()]
    each = -(-count // len(unknown))
    mixed = torch.cat([loaded(part, preprocess, each) for part in unknown])[:count]
    batch = 16 if "imagenet" in name else 32
    return Subject(name, model, batch, loaded(images.val, preprocess, val), loaded(images.id, preprocess, count), mixed)


def loaded(images: ImageSet, preprocess: Preprocess, count: int) -> Tensor:
    some = images.subset(range(min(count, len(images))))
    return torch.cat([batch.images for batch in load_batches(some, preprocess)])


def jpegs(folder: Path, count: int, name: str) -> Preprocess:
    """Fills a folder with JPEG files for this network; how they become its input."""
    if name in REAL:
        pictures = open_suite(load_suite(str(SUITES / f"{name}.toml"))).id
        _, preprocess = load_network(f"{os.environ['ADASCALE_DATA']}/networks.py:{name}")
        assert preprocess is not None
    else:
        noise = torch.randint(0, 256, (count, 300, 400, 3), generator=torch.Generator().manual_seed(0)).byte()
        pictures = ImageSet([f"{i:04d}" for i in range(count)], array=noise.numpy())
        preprocess = Preprocess(256, 224, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    for i in range(min(count, len(pictures))):
        pictures.open(i).convert("RGB").save(folder / f"{i:04d}.jpg", quality=90)
    return preprocess


def _resnet50() -> nn.Module:
    return new_network("torchvision:resnet50", 1000)[0]
