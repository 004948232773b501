"""Writes the golden files: ``python -m tests.golden.make``; the same values every time.

With ``--published FOLDER`` (the scores of the published reference implementations, not part of this repository) the
transcription that makes them is compared with those first, and the deviations are noted in ``manifest.json``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.golden import network
from tests.golden.cases import SPLITS, Case, cases, score_pairs, settings
from tests.reference import adascale
from tests.reference.common import scores
from tests.reference.methods import FITTED_ON_VAL, METHODS
from tests.reference.metrics import evaluate
from tests.reference.published import CASES, deviations, metric_deviations

FOLDER = Path(__file__).parent
Arrays = dict[str, npt.NDArray[Any]]
ABOUT = (
    "Scores of small seeded inputs, higher = more out-of-distribution. They come from the NumPy float64 transcription "
    "of the definitions in tests/reference, which shares no code with the package: `python -m tests.golden.make`."
)
COMPARED = (
    "The transcription was compared with the scores that published reference implementations (OpenOOD, LTS, OptFSOOD, "
    "LINe) gave in float64 on synthetic features and on a small convolutional network. Largest relative deviation of "
    "each method, and absolute deviation of each metric, over all entries that are a target:"
)


def key(method: str, parameters: dict[str, Any]) -> str:
    return " ".join([method, *(f"{name}={value}" for name, value in parameters.items())])


def fitted_on(method: str) -> str:
    return "val" if method in FITTED_ON_VAL else "train"


def case_arrays(case: Case) -> Arrays:
    """The inputs of one case, and the expected values by key."""
    inputs = {"W": case.head.W, "b": case.head.b}
    for split in SPLITS:
        given = getattr(case, split)
        inputs |= {f"a_{split}": given.a, f"a_eps_{split}": given.a_eps}
    # Single precision holds them exactly: they are multiples of 1/4096.
    arrays: Arrays = {name: value.astype(np.float32) for name, value in inputs.items()}
    arrays["y_train"] = case.train.y
    for method, parameters in settings(case):
        known = getattr(case, fitted_on(method))
        name = key(method, parameters)
        arrays[name] = scores(METHODS[method], *case.head, known, case.test, **parameters)
        if method == "adascale_a":
            found = [adascale.steps(x, known, **parameters) for x in case.test.rows()]
            arrays |= {
                f"{name}: {step}": np.array([getattr(each, step) for each in found]) for step in adascale.Steps._fields
            }
    return arrays


def network_arrays() -> Arrays:
    net = network.network()
    inputs = {"V": net.V, "v": net.v, "W": net.head.W, "b": net.head.b, "x_val": net.x_val, "x_test": net.x_test}
    arrays: Arrays = {name: value.astype(np.float32) for name, value in inputs.items()}
    for method, parameters in network.settings():
        arrays[key(method, parameters)] = network.score(net, method, parameters)
    return arrays


def metric_arrays() -> Arrays:
    arrays: Arrays = {}
    for name, (known, unknown) in score_pairs().items():
        figures = evaluate(known, unknown)
        arrays |= {f"{name}: id": known, f"{name}: ood": unknown}
        arrays |= {f"{name}: {figure}": np.array(value) for figure, value in figures.items()}
    return arrays


def everything() -> dict[str, Arrays]:
    """All arrays by file."""
    files = {name: case_arrays(case) for name, case in cases().items()}
    return {**files, "network": network_arrays(), "metrics": metric_arrays()}


def entries(wanted: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    return {
        key(method, given): {"method": method, "parameters": given, "fitted_on": fitted_on(method)}
        for method, given in wanted
    }


def manifest(compared: dict[str, Any]) -> dict[str, Any]:
    found = {
        name: {"description": case.description, "entries": entries(settings(case))} for name, case in cases().items()
    }
    found["network"] = {
        "description": "images through a = ReLU(V x + v), z = W a + b; gradients written out by hand; fitted on x_val",
        "entries": entries(network.settings()),
    }
    return {"about": ABOUT, "numpy": np.__version__, "compared": compared, "cases": found}


def comparison(folder: Path) -> dict[str, Any]:
    worst: dict[str, float] = {}
    triples = [triple for case in CASES for triple in deviations(folder, case)] + list(metric_deviations(folder))
    for name, _, deviation in triples:
        worst[name] = max(worst.get(name, 0.0), deviation)
    return {"how": COMPARED, "entries": len(triples), "largest": {name: f"{worst[name]:.1e}" for name in sorted(worst)}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--published", type=Path)
    given = parser.parse_args()
    place = FOLDER / "manifest.json"
    before = json.loads(place.read_text())["compared"] if place.exists() else {}
    compared = comparison(given.published) if given.published else before
    for name, arrays in everything().items():
        np.savez_compressed(FOLDER / f"{name}.npz", **arrays)  # type: ignore[arg-type]
    place.write_text(json.dumps(manifest(compared), indent=1) + "\n")


if __name__ == "__main__":
    main()
