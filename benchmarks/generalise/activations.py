"""The outputs of each network in one file, so that everything after the extraction is arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from adascale import Classifier, Head, InputError, Outputs, View
from adascale.core.types import Need
from adascale.decision.fitting import Outliers
from adascale.extraction.extract import extract
from adascale.images.loader import load_batches
from adascale.images.outliers import OUTLIERS
from adascale.storage.tensors import load_tensors, save_tensors
from benchmarks.generalise.networks_at_hand import opened, sets_of

FORMAT = "adascale-generalise"
VIEW = View(pixels="random")
_BATCH = 50


@dataclass(frozen=True, eq=False)
class Subject:
    """A network's outputs. val: ID images to fit on, in random order. made: outliers of each kind, one from each of
    these images, in the same order. id: ID images to test on.
    """

    name: str
    head: Head
    val: Outputs
    train: Outputs | None
    id: Outputs
    near: Mapping[str, Outputs]
    far: Mapping[str, Outputs]
    made: Mapping[str, Outputs] = field(default_factory=dict)

    @property
    def unknown(self) -> dict[str, Outputs]:
        return {**self.near, **self.far}

    @property
    def accuracy(self) -> float:
        """In percent, on the ID test images."""
        assert self.id.labels is not None
        return 100 * float((self.id.logits.argmax(1) == self.id.labels).double().mean())

    def outliers(self, rows: Tensor) -> Outliers:
        """For a fit on these rows of ``val``: outliers made from those that parameters are chosen on."""

        def found(chosen: Sequence[int], views: Sequence[Need]) -> dict[str, Outputs]:
            return {kind: outputs[rows[list(chosen)]] for kind, outputs in self.made.items()}

        return found


def subject(name: str, folder: Path, trained: Path | None) -> Subject:
    """From the file in ``folder``; what it lacks is extracted first."""
    path = folder / f"{name}.safetensors"
    tensors: dict[str, Tensor] = {}
    record: dict[str, Any] = {"kinds": {}, "outliers": {}}
    if path.is_file():
        found = load_tensors(path, FORMAT)
        tensors, record = found.tensors, found.record
    wanted = {kind: repr(make) for kind, make in OUTLIERS.items()}
    lacking = [kind for kind, made_by in wanted.items() if record["outliers"].get(kind) != made_by]
    if not record["kinds"] or lacking:
        _extract(name, trained, tensors, record, lacking)
        save_tensors(path, tensors, record, FORMAT)
    return _subject(name, tensors, record["kinds"], list(wanted))


def _extract(
    name: str, trained: Path | None, tensors: dict[str, Tensor], record: dict[str, Any], lacking: Sequence[str]
) -> None:
    """Add the sets if there are none yet, and these kinds of outliers."""
    classifier, preprocess = opened(name, trained)
    val: Tensor | None = None
    fresh = not record["kinds"]
    for part, (kind, images) in sets_of(name).items():
        if not fresh and kind != "val":
            continue
        loaded = list(load_batches(images, preprocess, _BATCH))
        if failures := [reason for batch in loaded for reason in batch.failures.values()]:
            raise InputError(f"{name}: an image of {part} cannot be read ({failures[0]}).")
        inputs = torch.cat([batch.images for batch in loaded])
        if kind == "val":
            val = inputs
        if fresh:
            labels = (
                torch.cat([batch.labels for batch in loaded if batch.labels is not None]) if images.labels else None
            )
            _store(tensors, part, _outputs(classifier, inputs, labels))
            record["kinds"][part] = kind
    assert val is not None
    for outlier in lacking:
        _store(tensors, f"made {outlier}", _outputs(classifier, OUTLIERS[outlier](val), None))
        record["outliers"][outlier] = repr(OUTLIERS[outlier])
    tensors["weight"] = classifier.head.weight.detach().clone()
    tensors["bias"] = classifier.head.offset.to(tensors["weight"].dtype)


def _outputs(classifier: Classifier, inputs: Tensor, labels: Tensor | None) -> Outputs:
    return Outputs.cat(list(extract(classifier, inputs if labels is None else (inputs, labels), [VIEW], _BATCH)))


def _store(tensors: dict[str, Tensor], part: str, outputs: Outputs) -> None:
    tensors |= {f"{part}/logits": outputs.logits, f"{part}/features": outputs.features}
    tensors[f"{part}/perturbed"] = outputs.views[VIEW]
    if outputs.labels is not None:
        tensors[f"{part}/labels"] = outputs.labels


def _subject(name: str, tensors: Mapping[str, Tensor], kinds: Mapping[str, str], made: Sequence[str]) -> Subject:
    def read(part: str) -> Outputs:
        views = {VIEW: tensors[f"{part}/perturbed"]}
        labels = tensors.get(f"{part}/labels")
        return Outputs(tensors[f"{part}/logits"], tensors[f"{part}/features"], views, labels)

    near, far = ({part: read(part) for part in sorted(kinds) if kinds[part] == side} for side in ("near", "far"))
    train = read("train") if "train" in kinds else None
    outliers = {kind: read(f"made {kind}") for kind in made}
    return Subject(name, Head(tensors["weight"], tensors["bias"]), read("val"), train, read("id"), near, far, outliers)
