"""OpenOOD: our methods as its post-processors, and its score and result files read here."""

from __future__ import annotations

import csv
import importlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from adascale.bench.columns import MEANS, Kind, Spectrum
from adascale.bench.results import Row
from adascale.bench.tables import FORMAT, FORMAT_VERSION
from adascale.core.errors import InputError
from adascale.core.types import Outputs
from adascale.detectors.base import Detector
from adascale.detectors.configure import configured
from adascale.extraction.extract import extract, extract_batch
from adascale.network.classifier import Classifier
from adascale.storage.atomic import write_text

__all__ = ["postprocessor", "read_results", "read_scores"]

_SPECTRA: Mapping[str, Spectrum] = {"ood": "ood", "fsood": "full"}


class Postprocessor:
    """What OpenOOD's ``Evaluator`` asks of a post-processor; `postprocessor` makes one that it accepts."""

    APS_mode, hyperparam_search_done = False, True  # OpenOOD's own search of parameters; ours is `adascale tune`

    def __init__(self, method: Detector, head: str | None) -> None:
        self.method, self.head = method, head
        self._classifier: Classifier | None = None

    def setup(self, net: nn.Module, id_loader_dict: Mapping[str, Any], ood_loader_dict: Any) -> None:
        """Fit the method on the split that it declares: ``val``, ``train``, or both."""
        self._classifier, self.method = Classifier(net, self.head), replace(self.method)  # not fitted, if it was
        learned = [self._outputs(id_loader_dict, split) for split in _splits(self.method, id_loader_dict)]
        if not self._classifier.located:  # nothing to learn from
            first = next(iter(next(iter(id_loader_dict.values()))))
            self._classifier.locate(first["data"])
        self.method.fit(learned[0] if learned else None, self._classifier.head, *learned[1:])

    def postprocess(self, net: nn.Module, data: Tensor) -> tuple[Tensor, Tensor]:
        """Predicted classes, and confidences: minus our scores, as OpenOOD's are higher for in-distribution images."""
        outputs = extract_batch(self._of(net), data, self.method.wants)
        return outputs.logits.argmax(1), -self.method.score(outputs)

    def inference(self, net: nn.Module, data_loader: Any, progress: bool = True) -> tuple[Any, Any, Any]:
        """Predictions, confidences and labels of a loader, as arrays."""
        found = [(*self.postprocess(net, batch["data"]), torch.as_tensor(batch["label"])) for batch in data_loader]
        pred, conf, label = (torch.cat(parts).cpu().numpy() for parts in zip(*found, strict=True))
        return pred.astype(int), conf, label.astype(int)

    def _of(self, net: nn.Module) -> Classifier:
        if self._classifier is None or self._classifier.model is not net:
            raise InputError("The post-processor was set up with another network; call setup(net, ...) first.")
        return self._classifier

    def _outputs(self, loaders: Mapping[str, Any], split: str) -> Outputs:
        if split not in loaders:
            has = ", ".join(loaders) or "none"
            raise InputError(f"{self.method.name} is fitted on the ID split {split!r}; the loaders are {has}.")
        assert self._classifier is not None  # made by setup
        return Outputs.cat(list(extract(self._classifier, loaders[split], self.method.wants)))


def postprocessor(method: str | type[Detector] = "adascale_a", *, head: str | None = None, **parameters: Any) -> Any:
    """A post-processor for ``openood.evaluation_api.Evaluator(net, ..., postprocessor=...)``.

    method, parameters: as in `OODDetector`. Where OpenOOD is installed, it is one of its ``BasePostprocessor``, which
    the Evaluator insists on; elsewhere it has the same methods. No network but the one given is touched.
    """
    made = configured(method, parameters)
    try:
        base = importlib.import_module("openood.postprocessors").BasePostprocessor
    except ImportError:
        return Postprocessor(made, head)
    return type("AdascalePostprocessor", (Postprocessor, base), {})(made, head)


def _splits(method: Detector, loaders: Mapping[str, Any]) -> list[str]:
    if method.fits_on == "nothing":
        return []
    if method.fits_on == "val+train":
        return ["val", *(["train"] if "train" in loaders else [])]
    return [method.fits_on.partition("+")[0]]


def read_scores(folder: Path | str) -> dict[str, Tensor]:
    """The scores that OpenOOD saved (``scores/NAME.npz`` with ``conf``), by data set, higher = more OOD."""
    place = Path(folder)
    files = sorted((place / "scores").glob("*.npz")) or sorted(place.glob("*.npz"))
    if not files:
        raise InputError(f"{place} has no scores/*.npz; OpenOOD writes them with recorder.save_scores.")
    found = {}
    for file in files:
        with np.load(file) as arrays:  # no pickles
            if "conf" not in arrays:
                raise InputError(f"{file} has no array 'conf'; it is not a score file of OpenOOD.")
            found[file.stem] = -torch.from_numpy(np.asarray(arrays["conf"], dtype=np.float64))
    return found


def read_results(folder: Path | str, method: str, model: str = "network", into: Path | str | None = None) -> list[Row]:
    """The rows of OpenOOD's tables. method, model: what to call them.

    folder: one with ``ood.csv`` (and ``fsood.csv``), as its pipelines write them, or with ``ood/METHOD.csv`` (and
    ``fsood/METHOD.csv``), as its ``scripts/eval_ood.py --save-csv`` does; of that one's "mean ± deviation" over
    training runs, the means are read.
    into: a folder for a ``results.json`` with them, which ``adascale compare`` takes beside one of `adascale bench`.
    OpenOOD's percentages have two decimals, and its files do not say which images were tested.
    """
    rows: list[Row] = []
    for name, spectrum in _SPECTRA.items():
        places = (Path(folder) / f"{name}.csv", Path(folder) / name / f"{method}.csv")
        if path := next(filter(Path.is_file, places), None):
            rows += _rows(path, spectrum, method, model)
    if not rows:
        raise InputError(
            f"{folder} has neither ood.csv nor ood/{method}.csv; give the output folder of OpenOOD's evaluation."
        )
    if into is not None:
        about = {"networks": {model: {}}, "sets": {}, "source": "OpenOOD"}
        document = {"format": FORMAT, "format_version": FORMAT_VERSION, "suite": "OpenOOD", "headline": []}
        told = [{**asdict(row), "fpr95_id": None} for row in rows]
        Path(into).mkdir(parents=True, exist_ok=True)
        text = json.dumps({**document, "reproduce": about, "failures": {}, "rows": told}, indent=1)
        write_text(Path(into) / "results.json", text + "\n")
    return rows


def _rows(path: Path, spectrum: Spectrum, method: str, model: str) -> list[Row]:
    """The sets up to ``nearood`` are near-OOD, those after it far-OOD."""
    kind: Kind = "near"
    rows = []
    with path.open(newline="", encoding="utf8") as file:
        for line in csv.DictReader(file):
            dataset = line.get("dataset") or line.get("") or ""
            try:
                fpr95, auroc, aupr_in, aupr_out, accuracy = (
                    float(line[name].partition("±")[0]) / 100
                    for name in ("FPR@95", "AUROC", "AUPR_IN", "AUPR_OUT", "ACC")
                )
            except (AttributeError, KeyError, ValueError) as error:
                raise InputError(
                    f"{path} is not a result file of OpenOOD ({type(error).__name__}: {error})."
                ) from error
            figures = fpr95, auroc, aupr_in, aupr_out, accuracy
            rows.append(Row(model, method, dataset, kind, spectrum, *figures, float("nan"), None, None, 0, 0))
            kind = "far" if dataset == MEANS["near"] else kind
    return rows
