"""Where a training run stands, in one safetensors file: weights, momenta, position. Whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from adascale.core.errors import InputError
from adascale.storage.tensors import digest, umask

_KEY = "adascale-training"


class Saved(NamedTuple):
    """What a file holds: its tensors and its record, of which ``settings`` tell one run from another."""

    tensors: dict[str, Tensor]
    record: dict[str, Any]


def save(path: Path, tensors: Mapping[str, Tensor], record: Mapping[str, Any]) -> None:
    """Written beside the file and moved onto it, so that a kill at any moment leaves the old one or the new one."""
    copies = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    text = json.dumps(record, sort_keys=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.part")  # one name: what a kill leaves is overwritten by the next
    save_file(copies, temporary, {_KEY: json.dumps({"record": text, "sha256": digest(copies, text)})})
    os.chmod(temporary, 0o666 & ~umask())
    os.replace(temporary, path)


def load(path: Path) -> Saved | None:
    """The file's content, None if there is none; damage and foreign files are refused."""
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            envelope = json.loads((file.metadata() or {})[_KEY])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        intact = envelope["sha256"] == digest(tensors, envelope["record"])
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise InputError(f"{path} is no intact file of adascale train; delete it, or give another --out.") from error
    if not intact:
        raise InputError(f"{path} is damaged: its content does not match its checksum; delete it to start over.")
    return Saved(tensors, json.loads(envelope["record"]))


def settings_of(path: Path | None) -> dict[str, Any]:
    """How ``adascale train`` made these weights, by the file's own word; nothing of files that are not its."""
    try:
        with safe_open(path, framework="pt") as file:
            record: dict[str, Any] = json.loads(json.loads((file.metadata() or {})[_KEY])["record"])
            return dict(record["settings"])
    except (SafetensorError, OSError, KeyError, ValueError, TypeError):
        return {}


def check_settings(path: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """A run goes on only as it began."""
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            raise InputError(
                f"{path} was begun with {name}={before.get(name)}, now it is {now.get(name)}; give the same settings, "
                "another --out, or delete the file."
            )


def state_of(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Weights, buffers and momenta under names of their own."""
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
