"""Trained networks that belong together, such as one recipe's seeds: ``networks.json`` in their folder."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from adascale.core.errors import InputError
from adascale.storage.atomic import write_text
from adascale.storage.locks import locked

NAME = "networks.json"
_FORMAT = {"format": "adascale-networks", "format_version": 1}


class Registered(NamedTuple):
    """A network as ``load_network(model, weights)`` takes it, and what training knows about it."""

    name: str
    model: str
    weights: Path
    about: Mapping[str, Any]


def write_network_list(folder: Path, networks: Sequence[Registered]) -> Path:
    """Write the folder's ``networks.json``, with paths of weights relative to it.

    Networks that it already lists are kept, unless their weights are gone.
    """
    path = folder / NAME
    names = {network.name for network in networks}
    with locked(folder / f".{NAME}.lock"):  # runs with other seeds may write their networks at the same time
        known = registered(path) if path.is_file() else []
        others = [network for network in known if network.name not in names and network.weights.is_file()]
        entries = [
            {"name": n.name, "model": n.model, "weights": os.path.relpath(n.weights, folder), **_sorted(n.about)}
            for n in sorted((*others, *networks), key=lambda network: (len(network.name), network.name))
        ]
        return write_text(path, json.dumps({**_FORMAT, "networks": entries}, indent=1) + "\n")


def _sorted(about: Mapping[str, Any]) -> dict[str, Any]:
    """In one order, whether a run was made at once or resumed from a file, which has an order of its own."""
    found: dict[str, Any] = json.loads(json.dumps(about, sort_keys=True))
    return found


def is_network_list(spec: str) -> bool:
    """Whether this text names a ``networks.json``, or a folder that has one."""
    return Path(spec).name == NAME or (Path(spec) / NAME).is_file()


def registered(path: str | Path) -> list[Registered]:
    """The networks of a folder, or of its ``networks.json``."""
    path = Path(path) / NAME if Path(path).is_dir() else Path(path)
    if not path.is_file():
        raise InputError(f"There is no file {path}; adascale train writes one beside the weights.")
    try:
        content = json.loads(path.read_text("utf8"))
        if any(content.get(key) != value for key, value in _FORMAT.items()):
            raise ValueError("another format")
        if not content["networks"]:
            raise ValueError("it lists none")
        return [
            Registered(
                entry["name"],
                entry["model"],
                path.parent / entry["weights"],
                {key: value for key, value in entry.items() if key not in Registered._fields},
            )
            for entry in content["networks"]
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path} is no list of networks written by adascale train ({error}).") from error
