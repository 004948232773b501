"""Networks trained in other ways: against attacks, or with ISH. On the digits the studies train them themselves."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from adascale.bench.results import ModelRun
from adascale.bench.run import Network
from adascale.core.folders import cache_folder
from adascale.network.classifier import Classifier
from adascale.paper import published
from adascale.paper.studies.activations_seen import profiled_sets, q_cells, set_label
from adascale.paper.studies.base import Block
from adascale.paper.studies.corruption import relabelled, robust_entries, robust_rows
from adascale.paper.studies.experiment import Experiment, Subject
from adascale.paper.studies.study import TEXTS, Study, table_of, with_note
from adascale.report.document import Cell, Chart, Column, Line, Series
from adascale.storage.remote import Url
from adascale.training.recipes import RECIPES, Recipe
from adascale.training.train import Training

_SHORT = {
    f"eps={eps:g}": replace(RECIPES["adversarial"], epochs=5, lr=0.02, batch_size=32, eps=eps, augment=False)
    for eps in (0.01, 0.05)  # those of the paper
}
_SHORT_ISH = replace(RECIPES["ish"], batch_size=32, augment=False)


def trains_networks(experiment: Experiment) -> bool:
    """Whether studies train networks: the digits are small enough, and bring their training images."""
    suite = experiment.suite
    return suite.shipped and suite.name == "digits" and experiment.images.train is not None


def retrain(experiment: Experiment, subject: Subject, recipe: Recipe) -> tuple[Subject, dict[str, Any]]:
    """The network after further training on the suite's training images, and the record of the training.

    The weights are kept beside the activations, so that each network is trained once.
    """
    images = experiment.images
    assert images.train is not None
    model = copy.deepcopy(subject.network.classifier.model)
    preprocess, asked_for = subject.network.preprocess, subject.network.classifier.asked_for
    job = Training(model, images.train, preprocess, recipe, experiment.seed, images.val, asked_for)
    key = hashlib.sha256(json.dumps(job.settings, sort_keys=True).encode()).hexdigest()[:16]
    folder = cache_folder() if isinstance(experiment.cache, Url) else experiment.cache
    record = job.run(folder / "trained" / f"{key}.safetensors")
    network = Network(f"{subject.network.name} {recipe.loss}", Classifier(model, asked_for), preprocess, job.settings)
    return replace(subject, network=network), record


class Tried(NamedTuple):
    """A network of these studies under its label: the methods on it, and a sentence on its accuracy."""

    label: str
    run: ModelRun
    note: str


@dataclass(frozen=True)
class TrainingStudy(Study):
    """The methods on networks trained with a loss.

    retrained: the note where the study trains the networks itself. enough: whether the study needs no note, given for
    each network whether it was trained with the loss.
    """

    loss: str = ""
    retrained: str = ""
    enough: Callable[[Iterable[bool]], bool] = all

    def notes(self, experiment: Experiment) -> list[str]:
        if trains_networks(experiment):
            return [self.retrained]
        return [] if self.enough(map(self.declared, experiment.subjects)) else [self.note]

    def declared(self, subject: Subject) -> bool:
        """Whether the network's weights say that they were trained with this loss."""
        return bool(subject.network.trained.get("loss") == self.loss)

    def tried(
        self, experiment: Experiment, subject: Subject, label: str, recipes: Mapping[str, Recipe]
    ) -> Iterator[Tried]:
        """The network as given; on the digits, where it was not trained with the loss, also trained by each recipe."""
        further = recipes if trains_networks(experiment) and not self.declared(subject) else {}
        for name, recipe in ((label, None), *further.items()):
            network, record = (subject, {}) if recipe is None else retrain(experiment, subject, recipe)
            run = experiment.job(network, robust_entries(experiment, network)).run()
            note = "no labels" if run.accuracy is None else f"accuracy {100 * run.accuracy:.2f} %"
            note += " on the ID test images"
            if "end_robust_accuracy" in record:
                before, after = (f"{100 * record[f'{when}_robust_accuracy']:.2f} %" for when in ("start", "end"))
                note += f"; on validation images under PGD {after} (before training {before})"
            yield Tried(name, run, f"{name}: {note}.")


@dataclass(frozen=True)
class Adversarial(TrainingStudy):
    """``Q_OOD / Q_ID`` and the figures of the methods; on the digits after training against PGD at the paper's eps."""

    def blocks(self, experiment: Experiment) -> Iterator[Block]:
        for subject in experiment.subjects:
            label = f"eps={subject.network.trained['eps']:g}" if self.declared(subject) else "as given"
            found = list(self.tried(experiment, subject, label, _SHORT))
            place = experiment.compared(subject)
            yield _ratios(subject, None if experiment.changed(subject) else place, found)
            runs = [relabelled(one.run, f"{one.label} ") for one in found]
            rows = robust_rows(experiment, subject, [label for run in runs for label in run.scores])
            yield table_of(f"{subject.name}: methods", runs, "adversarial", place, rows)


def _ratios(subject: Subject, place: published.Place | None, found: Sequence[Tried]) -> Block:
    """``Q_OOD / Q_ID``: a line for each set, a column for each network."""
    columns = [Column(one.label, "Q_OOD / Q_ID", one.label, unit="ratio") for one in found]
    first, lines = found[0].run, []
    for name in profiled_sets(first):
        cells = {}
        for one in (one for one in found if name in one.run.profiles):
            known = published.other("adversarial-ratio", place, _papers_name(name), one.label)
            cells[one.label] = Cell(q_cells(one.run.profiles, name)["q"].measured, known)
        lines.append(Line(set_label(first, name), cells))
    series = [Series(one.label, [line.cells.get(one.label, Cell()).measured for line in lines]) for one in found]
    chart = Chart("bars", "Q over that of ID", series, [line.label for line in lines], y="Q_OOD / Q_ID")
    note = "\n".join(one.note for one in found)
    return Block(f"{subject.name}: shift", columns, lines, [chart] if lines else [], note)


def _papers_name(name: str) -> str:
    """A set's name as the paper prints it."""

    def letters(text: str) -> str:
        return re.sub(r"[^a-z0-9]", "", text.lower())

    rows = [line["row"] for line in published.lines("others") if line["table"] == "adversarial-ratio"]
    return {letters(row): row for row in rows}.get(letters(name), name)


@dataclass(frozen=True)
class Ish(TrainingStudy):
    """The methods on networks with and without ISH; on the digits the second is made from the first."""

    def blocks(self, experiment: Experiment) -> Iterator[Block]:
        found = list[Tried]()
        for subject in experiment.subjects:
            name, tuned = subject.network.name, f"{subject.network.name} (ISH)"
            found += self.tried(experiment, subject, tuned if self.declared(subject) else name, {tuned: _SHORT_ISH})
        runs = [relabelled(one.run, f"{one.label}: ") for one in found]
        yield with_note(table_of("with and without ISH", runs, "", None), *(one.note for one in found))


STUDIES: tuple[Study, ...] = (
    Adversarial(
        *TEXTS["adversarial"],
        loss="adversarial",
        retrained="The networks were made here, from the one given, by a short adversarial training (PGD).",
    ),
    Ish(
        *TEXTS["ish"],
        loss="ish",
        retrained="The network with ISH was made here, from the one given, by ISH's own recipe.",
        enough=any,
    ),
)
