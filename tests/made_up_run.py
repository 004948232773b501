"""A benchmark's result that nobody measured, of the shape and size of a real one."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from adascale import metrics
from adascale.bench.columns import MEANS, Kind, Spectrum
from adascale.bench.results import Example, ModelRun, Profile, Row, Run, SetInfo

SETS: dict[str, Kind] = {
    "imagenet_200": "id",
    "imagenet_v2": "shifted",
    "ssb_hard": "near",
    "ninco": "near",
    "inaturalist": "far",
    "textures": "far",
    "openimage_o": "far",
}
APART = {"id": 0.0, "shifted": 0.3, "near": 1.1, "far": 1.9}
METHODS = ("adascale_a", "scale", "msp", "ebo", "react", "knn")


def made_up_run(
    models: Sequence[str] = ("torchvision:resnet50",),
    methods: Sequence[str] = METHODS,
    sets: Mapping[str, Kind] = SETS,
    images: int = 200,
    labels: bool = True,
    profiles: bool = True,
    full: bool = True,
) -> Run:
    """Scores with a long tail, better for methods that come first; rows with the real metrics."""
    made = [_model(name, place, methods, sets, images, labels, profiles) for place, name in enumerate(models)]
    spectra: tuple[Spectrum, ...] = ("ood", "full") if full else ("ood",)
    rows = [row for model in made for method in methods for each in spectra for row in _rows(model, method, each)]
    reproduce = {"versions": {"adascale": "0.1.0", "torch": "2.13.0"}, "arguments": ["--suite", "<made up>"], "seed": 0}
    return Run("ImageNet-200 (made up)", made, rows, reproduce)


def _model(
    name: str, seed: int, methods: Sequence[str], sets: Mapping[str, Kind], images: int, labels: bool, profiles: bool
) -> ModelRun:
    generator = torch.Generator().manual_seed(seed)
    scores = {method: _scores(sets, images, 1 - 0.6 * place / len(methods), generator)
              for place, method in enumerate(methods)}  # fmt: skip
    return ModelRun(
        model=name,
        sets={
            part: SetInfo(kind, images, {"broken.png": "cannot identify image file"} if kind == "shifted" else {})
            for part, kind in sets.items()
        },
        accuracy=0.7613 - 0.01 * seed if labels else None,
        scores=scores,
        left_out={"line": "It needs training images with labels (--train)."},
        shown=methods[0],
        profiles={part: _profile(kind, images, generator) for part, kind in sets.items()} if profiles else {},
        examples={"id": _examples(sets, "id", 8), "ood": _examples(sets, "far", 8)},
    )


def _scores(sets: Mapping[str, Kind], images: int, skill: float, generator: torch.Generator) -> dict[str, Tensor]:
    found = {}
    for place, (name, kind) in enumerate(sets.items()):
        tail = torch.empty(images, dtype=torch.float64).exponential_(3, generator=generator) ** 2
        noise = torch.randn(images, dtype=torch.float64, generator=generator)
        found[name] = -18 + 5 * (skill * (APART[kind] + 0.1 * (place % 3)) + 0.8 * noise + tail)
    return found


def _profile(kind: Kind, images: int, generator: torch.Generator) -> Profile:
    ranks = torch.logspace(-1, 2, 60, dtype=torch.float64)
    strength = (2.4 - 0.3 * APART[kind]) * torch.exp(-ranks / 18) + 0.15
    moved = (0.5 + 0.22 * APART[kind]) * torch.exp(-ranks / 9) + 0.08
    q = (0.4 + 0.12 * APART[kind]) * (1 + 0.25 * torch.randn(images, generator=generator, dtype=torch.float64)).abs()
    p = (85 - 12 * (q - 0.3)).clamp(60, 85)
    return Profile(
        ranks, moved, 0.35 * moved, strength, 0.3 * strength,
        q, 2 * q + 1, p, 1.5 + (p - 60) / 25 + 0.2 * q**2,
    )  # fmt: skip


def _examples(sets: Mapping[str, Kind], kind: Kind, count: int) -> list[Example]:
    dice, names = random.Random(kind), [name for name, own in sets.items() if own == kind]
    found = []
    for place in range(count):
        size = 300 if place % 2 else 28
        x, y = np.meshgrid(np.linspace(0, 1, size), np.linspace(0, 1, size // 2 + 8))
        pixels = np.stack([x, y, (x * (place + 1)) % 1], -1) * dice.uniform(120, 255)
        picture = Image.fromarray(pixels.astype(np.uint8))
        name = f"n0{place}/photo_{place:05d}.JPEG"
        found.append(Example(names[place % len(names)], name, dice.uniform(-30, -10), place, picture))
    return found


def _rows(run: ModelRun, method: str, spectrum: Spectrum) -> list[Row]:
    own: tuple[Kind, ...] = ("id", "shifted") if spectrum == "full" else ("id",)
    known = torch.cat([run.scores[method][name] for name, info in run.sets.items() if info.kind in own])
    found = []
    for name, info in run.sets.items():
        if info.kind in ("near", "far"):
            got = metrics.evaluate(known, run.scores[method][name])
            found.append(Row(run.model, method, name, info.kind, spectrum, got.fpr95, got.auroc, got.aupr_in,
                             got.aupr_out, run.accuracy, got.fpr95_id, got.auroc - 0.01, min(1.0, got.auroc + 0.01),
                             len(known), info.images))  # fmt: skip
    return found + [_mean([row for row in found if row.kind == kind]) for kind in MEANS]


def _mean(rows: Sequence[Row]) -> Row:
    figures = ("fpr95", "auroc", "aupr_in", "aupr_out", "fpr95_id")
    means = {name: sum(getattr(row, name) for row in rows) / len(rows) for name in figures}
    one = rows[0]
    return Row(**means, model=one.model, method=one.method, dataset=MEANS[one.kind], kind=one.kind,
               spectrum=one.spectrum, accuracy=one.accuracy, low=None, high=None, id_images=one.id_images,
               ood_images=sum(row.ood_images for row in rows))  # fmt: skip
