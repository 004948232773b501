"""Networks by their text, ready to use: on a device, with preprocessing and class names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from adascale.core.engines import TORCH
from adascale.core.errors import InputError
from adascale.images.preprocess import Preprocess
from adascale.network.class_names import names_from_source
from adascale.network.classifier import Classifier
from adascale.network.loading import load_network


def ready_network(
    spec: str, weights: str | Path | None = None, device: str = "auto", head: str | None = None, **running: Any
) -> tuple[Classifier, Preprocess | None]:
    """The network of this text on its device, with the names of its classes, and its preprocessing if it is known.

    running: options of `Classifier`, such as ``compiled``. An engine other than torch runs on the processor.
    """
    elsewhere = running.get("engine", TORCH) != TORCH
    place = usable_device("cpu" if device == "auto" and elsewhere else device)
    model, preprocess = load_network(spec, weights)
    names = names_from_source(spec, model)
    return Classifier(model.to(place), head, class_names=names, **running), preprocess


def usable_device(name: str) -> torch.device:
    """``auto`` is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # torch has all three for a missing device
        raise InputError(f"device={name!r} cannot be used here: {str(error).splitlines()[0]}") from error
