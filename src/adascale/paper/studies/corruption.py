"""Methods that are fitted on clean images, on corrupted ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from adascale import detectors
from adascale.bench.results import ModelRun
from adascale.bench.run import Entry
from adascale.bench.suites import SuiteImages
from adascale.images.corruptions import RandomBlur, Recoded, corrupted
from adascale.images.sources import Change
from adascale.paper.studies.base import Block
from adascale.paper.studies.experiment import Experiment, Subject
from adascale.paper.studies.study import TEXTS, Study, table_of

SIGMAS = ((0.01, 0.5), (0.1, 2.0))  # from, to; pixels
_ALONE = ", ID alone"


def robust_entries(experiment: Experiment, subject: Subject) -> list[Entry]:
    """The methods that the paper compares under corruptions and other kinds of training."""
    methods = {"scale": detectors.SCALE(), "optfs": detectors.OptFS(), "adascale_a": experiment.adascale(subject)}
    return [Entry(label, method) for label, method in methods.items()]


def robust_rows(experiment: Experiment, subject: Subject, labels: Sequence[str]) -> dict[str, str]:
    """The paper's row for each of these methods: none for AdaSCALE with parameters that are not the paper's."""
    changed = experiment.changed(subject)
    return {label: "" if changed and label.endswith("adascale_a") else label for label in labels}


def relabelled(run: ModelRun, before: str = "", after: str = "") -> ModelRun:
    """The run with these words around the names of its methods."""
    scores = {f"{before}{label}{after}": found for label, found in run.scores.items()}
    left_out = {f"{before}{label}{after}": reason for label, reason in run.left_out.items()}
    return replace(run, scores=scores, left_out=left_out, shown=f"{before}{run.shown}{after}")


@dataclass(frozen=True)
class Corrupted(Study):
    """Methods fitted on clean validation images with the parameters for them, tested on corrupted images."""

    def blocks(self, experiment: Experiment) -> Iterator[Block]:
        clean = replace(experiment.images, shifted={})
        for subject in experiment.subjects:
            entries, place = robust_entries(experiment, subject), experiment.compared(subject)
            rows = robust_rows(experiment, subject, [entry.label for entry in entries])
            run = experiment.job(subject, entries, clean).run()
            yield table_of(f"{subject.name}: clean", [run], "main", place, rows)
            rows |= {f"{label}{_ALONE}": row for label, row in rows.items()}
            for table, change in papers_corruptions(experiment.seed):
                both = experiment.job(subject, entries, corrupt_tested(clean, change)).run()
                alone = experiment.job(subject, entries, corrupt_id(clean, change)).run()
                runs = [both, relabelled(alone, after=_ALONE)]
                yield table_of(f"{subject.name}: {change}", runs, table, place, rows)


def papers_corruptions(seed: int) -> list[tuple[str, Change]]:
    """The corruptions of the paper, each with the table that it belongs to."""
    blurs = [RandomBlur(low, high, seed=seed) for low, high in SIGMAS]
    return [*(("corruption-blur", blur) for blur in blurs), ("corruption-jpeg", Recoded(50))]


def corrupt_tested(images: SuiteImages, change: Change) -> SuiteImages:
    """The suite with every tested set corrupted, ID and OOD."""
    near, far = ({name: corrupted(found, change) for name, found in sets.items()} for sets in (images.near, images.far))
    return replace(corrupt_id(images, change), near=near, far=far)


def corrupt_id(images: SuiteImages, change: Change) -> SuiteImages:
    """The suite with its ID test images corrupted; validation, training and OOD images stay as they are."""
    return replace(images, id=corrupted(images.id, change))


STUDIES: tuple[Study, ...] = (Corrupted(*TEXTS["corruption"]),)
