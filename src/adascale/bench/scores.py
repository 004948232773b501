"""Every score of a benchmark in one file, ``scores.safetensors``: the package's checksummed format of tensors.

It is a safetensors file whose tensors are named ``NETWORK/METHOD/SET``; ``safetensors.torch.load_file`` reads it too.
"""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from adascale.bench.results import Run
from adascale.storage.tensors import ForeignFileError, load_tensors, save_tensors

NAME = "scores.safetensors"
KIND = "adascale-scores"


def score_key(model: str, method: str, dataset: str) -> str:
    """The name of a tensor."""
    return f"{model}/{method}/{dataset}"


def save_scores(run: Run, folder: Path) -> Path:
    """Write the scores of every network, method and set, in one step."""
    scores = {
        score_key(model.model, method, name): values
        for model in run.models
        for method, sets in model.scores.items()
        for name, values in sets.items()
    }
    save_tensors(folder / NAME, scores, {"suite": run.suite}, KIND)
    return folder / NAME


def read_scores(folder: Path) -> dict[str, Tensor]:
    """The scores of a results folder, verified; empty if it has none. A damaged file is refused.

    Files of version 0.1.0 before its release have no checksum; they are read as they are.

    For example:

        >>> files = write_results(run, Path("results"))  # as `adascale bench --out results` does
        >>> sorted(read_scores(Path("results")))[0]
        'torchvision:resnet50/adascale_a/imagenet_200'
    """
    path = folder / NAME
    if not path.is_file():
        return {}
    try:
        return load_tensors(path, KIND).tensors
    except ForeignFileError:
        return load_file(path)
