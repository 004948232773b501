"""Reading the golden files."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

FOLDER = Path(__file__).parent


@lru_cache(maxsize=1)
def manifest() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "manifest.json").read_text())
    return found


@lru_cache
def arrays(name: str) -> dict[str, Tensor]:
    with np.load(FOLDER / f"{name}.npz", allow_pickle=False) as file:
        return {key: torch.from_numpy(np.asarray(file[key])) for key in file.files}


def entries(name: str) -> dict[str, dict[str, Any]]:
    """Method, parameters and split of every expected score of one case."""
    found: dict[str, dict[str, Any]] = manifest()["cases"][name]["entries"]
    return found
