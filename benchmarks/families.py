"""Signatures of the classifiers of torchvision, timm and this package, by which weights are recognised.

    python -m benchmarks.families            # writes src/adascale/network/data/families.csv (some minutes)

Networks are built without memory for their weights where they can be. One that cannot be built is left out and named.
Networks that the file has already are kept: delete it after an update of the packages.
"""

from __future__ import annotations

import csv
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from torch import nn

from adascale.core.extras import optional
from adascale.network import cifar
from adascale.network.families import Family, known, signature
from adascale.network.loading import shapes_only

FILE = Path(__file__).parents[1] / "src" / "adascale" / "network" / "data" / "families.csv"


def makers() -> Iterator[tuple[str, str, Callable[[], nn.Module]]]:
    """Source, name and maker of every classifier."""
    models, timm = optional("torchvision.models", "torchvision"), optional("timm", "timm")
    for name in models.list_models(module=models):
        yield "torchvision", name, partial(models.get_model, name, weights=None)
    for name in cifar.NETWORKS:
        yield "adascale", name, partial(cifar.make, name)
    for name in timm.list_models():
        yield "timm", name, partial(timm.create_model, name, pretrained=False)


def family(source: str, name: str, make: Callable[[], nn.Module]) -> Family:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        state = shapes_only(make).state_dict()
    return Family(source, name, signature({key: tuple(tensor.shape) for key, tensor in state.items()}))


def main() -> None:
    FILE.parent.mkdir(exist_ok=True)
    begun = {(row.source, row.name) for row in known()} if FILE.is_file() else set()
    with open(FILE, "a", encoding="utf8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if not begun:
            writer.writerow(["source", "name", "names", "shapes"])
        for source, name, make in makers():
            if (source, name) in begun:
                continue
            try:
                found = family(source, name, make)
            except Exception as error:
                print(f"left out {source} {name}: {' '.join(str(error).split())[:120]}", file=sys.stderr)
                continue
            writer.writerow([found.source, found.name, *found.signature])
            file.flush()


if __name__ == "__main__":
    main()
