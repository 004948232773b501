"""How far the transcription is from the scores that the published reference implementations gave.

They are kept outside the repository, in a folder with ``manifest.json`` and one ``.npz`` for each case; larger scores
mean more in-distribution there. The cases are synthetic; the manifest names repository, commit and file of each method.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.reference import adascale, images
from tests.reference.common import Array, Head, Sample, Samples, scores
from tests.reference.methods import FITTED_ON_VAL, METHODS
from tests.reference.metrics import evaluate

CASES = ("case_A_relu2048", "case_B_relu342", "case_C_signed768", "case_D_small64", "case_E_convnet")
# Entries that are records, not targets: a VRA that raises small values and one with hand-set ends, an eigenbasis that
# is not orthonormal (the *_exact entries are the target), NNGuide on a share that depends on the batch size, and GMM.
NOT_TARGETS = ("vra_clip", "vra__a0p5", "vim__", "residual__", "nnguide__K10_a0p5", "gmm")
REFUSED = ("only_id", "only_ood", "with_nan", "posinf_neginf")  # metrics: not defined there
PARAMETERS = {
    "lmbda": "lam",
    "M": "top",
    "N": "order",
    "K": "k",
    "p": "percentile",
    "pow": "power",
    "thres": "threshold",
}
ODIN_STD = (0.2470, 0.2435, 0.2616)


def relative(ours: Array, theirs: Array) -> float:
    return float((np.abs(ours - theirs) / np.maximum(np.abs(theirs), 1e-12)).max())


class Case:
    def __init__(self, folder: Path, name: str) -> None:
        with np.load(folder / f"{name}.npz") as file:
            self.arrays = {key: file[key] for key in file.files}
        manifest = json.loads((folder / "manifest.json").read_text())
        self.entries: dict[str, Any] = manifest["files"][f"{name}.npz"]["methods"]
        self.head = Head(self["W"], self["b"])

    def __getitem__(self, key: str) -> Array:
        array: Array = self.arrays[key].astype(np.float64)
        return array

    def samples(self, split: str) -> Samples:
        """The convolutional case holds the activations of its float64 run."""
        prefix = "net_" if f"net_feat_{split}" in self.arrays else ""
        a = self[f"{prefix}feat_{split}"]
        a_eps = self[f"{prefix}featp_{split}"] if f"{prefix}featp_{split}" in self.arrays else a
        y = self.arrays[f"y_{split}"].astype(np.int64) if f"y_{split}" in self.arrays else np.full(len(a), -1)
        return Samples(a, np.array([self.head(row) for row in a]), a_eps, y)


def method_of(entry: str) -> str:
    name = entry.split("__")[0]
    other = {"optfs_vanilla": "optfs", "optfs_energy": "optfs", "react_train": "react"}
    return other.get(name, name.removesuffix("_exact"))


def parameters_of(entry: str, given: dict[str, Any], D: int) -> dict[str, Any]:
    name = entry.split("__")[0]
    if name == "vra":
        return {"low": 60, "high": 95}
    if name.startswith("optfs"):
        return {"form": "plain" if name == "optfs_vanilla" else "logits"}
    if name == "fdbd":
        return {"normaliser": "distance" if given["distance_as_normalizer"] else "norm"}
    if name == "nnguide":
        return {"k": given["K"]}
    if name == "nci":
        return {"norm_weight": given["alpha"]}
    found = {PARAMETERS.get(key, key): value for key, value in given.items() if key not in ("o", "eps")}
    if name in ("scale", "ash_p", "ash_b", "ash_s"):
        found["relu"] = False  # the references take signed features as they are
    if "k1" in found and D * found["k1"] < 100:
        found["lam"] = 0  # the reference takes no feature where k1 % is below one, so its Q is 0; ours takes one
    return found


def deviations(folder: Path, name: str) -> Iterator[tuple[str, str, float]]:
    """(method, entry, largest relative deviation) of every target of one case."""
    case = Case(folder, name)
    splits = {split: case.samples(split) for split in ("train", "val", "test")}
    D = case.head.W.shape[1]
    for key in (key for key in case.arrays if key.startswith("score__")):
        entry, _, split = key.removeprefix("score__").partition("@")
        method = method_of(entry)
        if entry.startswith((*NOT_TARGETS, "odin")):
            continue
        on_val = (method in FITTED_ON_VAL and not entry.startswith("react_train")) or entry.startswith("residual_exact")
        known = splits["val" if on_val else "train"]
        if method == "nnguide":
            size = int(case.arrays[f"aux__{entry}__bank_size"])
            known = Samples(known.a[:size], known.z[:size], known.a_eps[:size], known.y[:size])
        given = parameters_of(entry, case.entries[entry]["params"], D)
        ours = -scores(METHODS[method], *case.head, known, splits[split or "test"], **given)
        yield method, entry, relative(-np.square(ours) if method == "knn" else ours, case[key])
        if method == "adascale_a" and not split:
            yield from _steps(case, entry, splits, given)
    if "x_test" in case.arrays:
        yield from _through_the_network(case)


def _steps(
    case: Case, entry: str, splits: dict[str, Samples], given: dict[str, Any]
) -> Iterator[tuple[str, str, float]]:
    setting = entry.removeprefix("adascale_a__")
    names = {"Q": "Q", "C_o": "Co", "statistic": "Qprime", "F": "F", "percentile": "percentile", "r": "r"}
    known = splits["val"]
    measured = [adascale.statistic_of(x, "q_prime", given["k1"], given["k2"], given["lam"]) for x in known.rows()]
    for split in ("val", "test"):
        found = [adascale.steps(x, known, reference=measured, **given) for x in splits[split].rows()]
        for field, theirs in names.items():
            if field == "Q" and given["lam"] == 0:
                continue
            ours = np.array([getattr(each, field) for each in found])
            yield (
                "adascale_a",
                f"{entry} {field} {split}",
                relative(ours, case[f"aux__ada__{setting}__{theirs}_{split}"]),
            )


def _through_the_network(case: Case) -> Iterator[tuple[str, str, float]]:
    features, pull = images.convolutional([(case[f"conv{i}_w"], case[f"conv{i}_b"]) for i in (1, 2)])
    inputs = case["x_test"]
    gradients = np.array([images.logit_gradient(x, features, pull, case.head) for x in inputs])
    moved = np.array([images.perturbed(x, g) for x, g in zip(inputs, gradients, strict=True)])
    yield "adascale_a", "a", relative(np.array([features(x) for x in inputs]), case["net_feat_test"])
    yield "adascale_a", "a_eps", relative(np.array([features(x) for x in moved]), case["net_featp_test"])
    for entry in (entry for entry in case.entries if entry.startswith("odin")):
        temperature, eta = (float(part[1:].replace("p", ".")) for part in entry.removeprefix("odin__").split("_"))
        score = METHODS["odin"](case.head, None, temperature=temperature)
        after = [features(images.odin_input(x, features, pull, case.head, temperature, eta, ODIN_STD)) for x in inputs]
        ours = -np.array([score(Sample(a, case.head(a), a)) for a in after])
        yield "odin", entry, relative(ours, case[f"score__{entry}"])


def metric_deviations(folder: Path) -> Iterator[tuple[str, str, float]]:
    """(figure, vector, absolute deviation)."""
    with np.load(folder / "metrics.npz") as file:
        arrays = {key: file[key].astype(np.float64) for key in file.files}
    names = {
        "auroc": "exact_auroc",
        "fpr95": "exact_fpr95_ood_positive",
        "fpr95_id": "exact_fpr95_id_positive",
        "aupr_in": "aupr_in",
        "aupr_out": "aupr_out",
    }
    for vector in sorted({key.split("__")[0] for key in arrays} - set(REFUSED)):
        found = evaluate(-arrays[f"{vector}__id"], -arrays[f"{vector}__ood"])
        for figure, theirs in names.items():
            deviation = abs(found[figure] - float(arrays[f"{vector}__{theirs}"]))
            assert math.isfinite(deviation), (figure, vector)
            yield figure, vector, deviation
