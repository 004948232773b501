"""The state of a training run in one checksummed tensor file: weights, momenta and position."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from adascale.core.errors import InputError
from adascale.storage.tensors import TensorFile, TensorFileError, load_record, load_tensors, save_tensors

KIND = "adascale-training"


def save_checkpoint(path: Path, tensors: Mapping[str, Tensor], record: Mapping[str, Any]) -> None:
    """Replace the file in one step: a run that is killed at any moment leaves the old file or the new one."""
    copies = {name: tensor.detach().clone() for name, tensor in tensors.items()}  # tied weights share their memory
    save_tensors(path, copies, record, KIND)


def load_checkpoint(path: Path) -> TensorFile | None:
    """The content of the file, or None if there is no file. Damaged and foreign files are refused.

    The ``settings`` in its record tell one run from another.
    """
    if not path.exists():
        return None
    try:
        found = load_tensors(path, KIND)
    except TensorFileError as error:
        advice = "Delete it, or choose another file."
        raise InputError(f"{path} is no intact file of a training run: {error} {advice}") from error
    return found._replace(record={k: value for k, value in found.record.items() if not k.startswith("format")})


def settings_of(path: Path | None) -> dict[str, Any]:
    """The settings with which ``adascale train`` made these weights; empty for files that it did not make."""
    return {} if path is None else dict(load_record(path, KIND).get("settings", {}))


def check_settings(path: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to resume a run with other settings than it was started with."""
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            raise InputError(
                f"{path} was begun with {name}={before.get(name)}, now it is {now.get(name)}; give the same settings, "
                "choose another file, or delete this one."
            )


def state_of(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Weights, buffers and momenta, each under a name of its own."""
    found = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for index, values in optimiser.state_dict()["state"].items():
        found |= {f"optimiser.{index}.{key}": value for key, value in values.items() if isinstance(value, Tensor)}
    return found


def restore(tensors: Mapping[str, Tensor], model: nn.Module, optimiser: torch.optim.Optimizer) -> None:
    """The opposite of ``state_of``; the optimiser must have the same groups of parameters."""
    model.load_state_dict({name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")})
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimiser."):
            _, index, key = name.split(".", 2)
            state.setdefault(int(index), {})[key] = tensor
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
