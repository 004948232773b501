"""Weights files: read without running code, and compared with the network that they are meant for."""

from __future__ import annotations

import io
import pickletools
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from adascale.core.errors import InputError
from adascale.network.families import looks_like

_WRAPPERS = ("state_dict", "model_state_dict", "model")
_MOST_KEYS = 3
_LARGEST_PICKLE = 2**26  # bytes; that of a state dict has its keys alone
_MOST_PICKLES = 5  # files of old versions of PyTorch begin with some small ones


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """A state dict from disk; wrappers such as ``{"state_dict": ...}`` and ``module.`` prefixes are removed."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"There is no weights file {path}.")
    try:
        safe = path.suffix == ".safetensors"
        state: Any = load_file(path) if safe else torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # garbage makes the readers raise almost anything
        what = _pickled(path) or f"{path} cannot be read as weights: it is damaged, or no weights file. {_RULE}"
        raise InputError(what) from error  # not in PyTorch's words, which advise to load without weights_only
    for key in _WRAPPERS:
        if isinstance(state, Mapping) and isinstance(state.get(key), Mapping):
            state = state[key]
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise InputError(f"{path} holds no state dict (a mapping from names to tensors). {_RULE}")
    prefix = "module." if all(key.startswith("module.") for key in state) else ""
    return {key.removeprefix(prefix): value for key, value in state.items()}


_RULE = "It must be .safetensors, or a state dict: torch.save(model.state_dict(), 'weights.pth')."


def _pickled(path: Path) -> str:
    """What to say about a file with a whole pickled object; empty if it holds none. Nothing is unpickled."""
    try:
        return _whole_object(path)
    except Exception:  # too damaged to say more
        return ""


def _whole_object(path: Path) -> str:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if any(name.endswith("/constants.pkl") for name in names):
                return f"{path} cannot be read as weights: it is a TorchScript archive. {_RULE}"
            pickle = next((name for name in names if name.endswith("data.pkl")), None)
            small = pickle is not None and archive.getinfo(pickle).file_size <= _LARGEST_PICKLE
            found = list(_globals(io.BytesIO(archive.read(pickle)))) if pickle is not None and small else []
    else:
        with open(path, "rb") as file:
            found = list(_globals(file))
    foreign = [name for name in found if not _PLAIN.fullmatch(name)]
    if not foreign:
        return ""
    if any(name.startswith("torch.nn.modules.") for name in found):
        what = f"a whole pickled network ({foreign[0]})"
    else:
        what = f"a pickled {foreign[0]}"
    return (
        f"{path} cannot be read as weights: it holds {what}, and to load that would run the code in it. "
        "Where it was made, save the state dict alone: torch.save(model.state_dict(), 'weights.pth')."
    )


# What the pickle of a state dict names: tensors and their parts
_PLAIN = re.compile(r"collections\.OrderedDict|torch\.\w+|torch\._utils\.\w+|torch\.storage\.\w+")


def _globals(file: IO[bytes]) -> Iterator[str]:
    """The classes and functions that a file of pickles names, in their order."""
    for _ in range(_MOST_PICKLES):
        texts: list[str] = []
        try:
            for opcode, value, _ in pickletools.genops(file):
                if opcode.name == "GLOBAL":
                    yield str(value).replace(" ", ".")
                elif opcode.name == "STACK_GLOBAL" and len(texts) > 1:
                    yield ".".join(texts[-2:])
                elif isinstance(value, str):
                    texts.append(value)
        except Exception:  # the end, or no pickle at all
            return


def with_state(model: nn.Module, state: Mapping[str, Tensor] | None, name: str) -> nn.Module:
    """The network with these weights loaded. name: what to call it if they do not fit."""
    if state is None:
        return model
    own, given = model.state_dict(), _unwrapped(state, set(model.state_dict()))
    try:
        model.load_state_dict(given)  # first, because some networks rename the keys of older files
    except RuntimeError as error:
        raise InputError(f"The weights do not fit {name}: {_differences(own, given) or error}.") from error
    return model


def _unwrapped(state: Mapping[str, Tensor], wanted: set[str]) -> dict[str, Tensor]:
    """Without the prefix of a wrapper, such as Lightning's ``model.``, if all that is missing is to remove it."""
    prefix = next(iter(state), "").partition(".")[0] + "."
    shorter = {key.removeprefix(prefix): tensor for key, tensor in state.items() if key.startswith(prefix)}
    return shorter if len(shorter) == len(state) and set(shorter) == wanted else dict(state)


def _differences(own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> str:
    """How weights differ from what a network has: how many keys match, what they look like, and the first others."""
    missing = [key for key in own if key not in given]
    unexpected = [key for key in given if key not in own]
    shapes = [
        f"{key}: {tuple(given[key].shape)} in place of {tuple(own[key].shape)}"
        for key in own
        if key in given and own[key].shape != given[key].shape
    ]
    if not (missing or unexpected or shapes):
        return ""
    matching = len(own) - len(missing) - len(shapes)
    family = looks_like({key: tuple(tensor.shape) for key, tensor in given.items()})
    parts = [f"{matching} of {len(own)} keys match", *([family] if family else [])]
    if matching or shapes or not family:
        lists = {"missing": missing, "unexpected": unexpected, "of another shape": shapes}
        parts += [f"{len(found)} {what} ({_some(found)})" for what, found in lists.items() if found]
    return "; ".join(parts)


def _some(texts: list[str]) -> str:
    most = 1 if ":" in texts[0] else _MOST_KEYS
    return ", ".join(texts[:most]) + (" ..." if len(texts) > most else "")
