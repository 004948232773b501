"""The figures of a benchmark: a row for each method and set, means over near and far, the full spectrum."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from adascale.bench.columns import MEANS, METRICS, Spectrum
from adascale.bench.headline import standing
from adascale.bench.results import ModelRun, Row, Run
from adascale.bench.run import Job, tested
from adascale.bench.suites import Suite, SuiteImages
from adascale.core.version import __version__
from adascale.maths import metrics

FIGURES = tuple(metric.key for metric in METRICS)


def run_jobs(suite: Suite, images: SuiteImages, jobs: Sequence[Job]) -> Run:
    """Run the jobs, one network after the other."""
    models = [job.run() for job in jobs]
    rows = [row for model in models for row in figures(model)]
    standings = {model.model: found for model in models if (found := standing(model)) is not None}
    return Run(suite.name, models, rows, reproduce(suite, images, jobs), standings)


def figures(model: ModelRun, intervals: bool = True) -> list[Row]:
    """All rows of one network, in the order of its methods and sets; without bootstrap intervals it is much faster."""
    shifted = [name for name, info in model.sets.items() if info.kind == "shifted"]
    rows = []
    for method, scores in model.scores.items():
        rows += _rows(model, method, "ood", scores["id"], intervals)
        if shifted:
            known = torch.cat([scores["id"], *(scores[name] for name in shifted)])
            rows += _rows(model, method, "full", known, intervals=False)
    return rows


def _rows(model: ModelRun, method: str, spectrum: Spectrum, known: Tensor, intervals: bool) -> list[Row]:
    """One method in one spectrum: every set and the means."""
    found = []
    accuracy = model.accuracy if spectrum == "ood" else None
    for kind, mean in MEANS.items():
        group = []
        for name in (name for name, info in model.sets.items() if info.kind == kind):
            unknown = model.scores[method][name]
            result = metrics.evaluate(known, unknown)
            low, high = metrics.bootstrap(known, unknown) if intervals else (None, None)
            group.append(
                Row(
                    model.model, method, name, model.sets[name].kind, spectrum, accuracy=accuracy, low=low, high=high,
                    id_images=len(known), ood_images=len(unknown),
                    **{figure: getattr(result, figure) for figure in FIGURES},
                )
            )  # fmt: skip
        if group:
            found += [*group, _mean(group, mean, _interval(model, method, known, group) if intervals else (None, None))]
    return found


def _interval(model: ModelRun, method: str, known: Tensor, rows: Sequence[Row]) -> tuple[float | None, float | None]:
    """That of the mean AUROC over the sets of these rows."""
    if len(rows) == 1:
        return rows[0].low, rows[0].high
    return metrics.bootstrap_mean([known, *(model.scores[method][row.dataset] for row in rows)])


def _mean(rows: Sequence[Row], name: str, interval: tuple[float | None, float | None]) -> Row:
    """The unweighted mean over sets, as OpenOOD has it."""
    values = {figure: sum(getattr(row, figure) for row in rows) / len(rows) for figure in FIGURES}
    images = sum(row.ood_images for row in rows)
    return replace(rows[0], dataset=name, low=interval[0], high=interval[1], ood_images=images, **values)


def reproduce(suite: Suite, images: SuiteImages, jobs: Sequence[Job]) -> dict[str, Any]:
    """All that the figures depend on: versions, data, networks, methods and their parameters."""
    sets = {name: found for name, (_, found) in tested(images).items()}
    sets |= {"val": images.val, **({} if images.train is None else {"train": images.train})}
    sets |= {f"OOD-val {name}": found for name, found in images.ood_val.items()}
    return {
        "versions": {
            "adascale": __version__,
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "numpy": np.__version__,
        },
        "suite": {"name": suite.name, "note": suite.note},
        "missing": dict(images.missing),
        "sets": {name: {"images": len(found), "fingerprint": found.fingerprint()} for name, found in sets.items()},
        "networks": {job.network.name: _about(job) for job in jobs},
    }


def _about(job: Job) -> dict[str, Any]:
    return {
        "fingerprint": job.extractor.fingerprint,
        "head": job.network.classifier.head_name,
        "preprocess": asdict(job.network.preprocess),
        "seed": job.seed,
        "options": asdict(job.passes),
        "methods": {
            label: {
                "method": method.name,
                "parameters": method.parameters,
                "fits_on": method.fits_on,
                "tuned": str(job.tunings[label]) if label in job.tunings else None,
                "setting": fitted.setting if (fitted := job.fitted.get(label)) else "",
                "images": fitted.reference_images if fitted else 0,
            }
            for label, method in job.methods.items()
        },
        "left_out": job.left_out,
        "twins": job.twins,
    }
