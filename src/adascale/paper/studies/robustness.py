"""Corrupted images, and networks trained in other ways: against attacks, or with ISH."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from adascale import detectors
from adascale.bench.figures import figures
from adascale.bench.results import ModelRun
from adascale.bench.run import Entry
from adascale.bench.suites import SuiteImages
from adascale.images.corruptions import RandomBlur, Recoded, corrupted
from adascale.images.sources import Change
from adascale.paper import figures as paper
from adascale.paper.studies.base import Block
from adascale.paper.studies.build import block, missing
from adascale.paper.studies.inside import others, q_cells, set_label
from adascale.paper.studies.setting import Setting, Study, Subject
from adascale.paper.studies.tuned import Made, made_here, tuned
from adascale.report.document import Cell, Chart, Column, Line, Series
from adascale.training.recipes import RECIPES

T = TypeVar("T")

SIGMAS = ((0.01, 0.5), (0.1, 2.0))  # from, to; pixels
_ALONE = ", ID alone"
_STRENGTHS = (0.01, 0.05)  # eps of the paper's adversarial training


def entries(setting: Setting, subject: Subject) -> list[Entry]:
    """The methods that the paper compares here."""
    return [
        Entry("scale", detectors.SCALE()),
        Entry("optfs", detectors.OptFS()),
        Entry("adascale_a", setting.base(subject)),
    ]


def rows_of(setting: Setting, subject: Subject, labels: Sequence[str]) -> dict[str, str]:
    """The paper's row for each of these methods: none for AdaSCALE with other parameters than the paper's."""
    changed = setting.changed(subject)
    return {label: "" if changed and label.endswith("adascale_a") else label for label in labels}


def relabelled(run: ModelRun, before: str = "", after: str = "") -> ModelRun:
    """The run with more said in the names of its methods."""

    def renamed(values: Mapping[str, T]) -> dict[str, T]:
        return {f"{before}{label}{after}": value for label, value in values.items()}

    return replace(run, scores=renamed(run.scores), left_out=renamed(run.left_out), shown=f"{before}{run.shown}{after}")


def joined(
    title: str, runs: Sequence[ModelRun], table: str, place: paper.Place | None, names: Mapping[str, str] | None = None
) -> Block:
    """One block of several runs, a line for each method of each of them; see `block`."""
    made = block(title, [row for run in runs for row in figures(run, intervals=False)], table, place, names)
    for run in runs:
        made = missing(made, run)
    return replace(made, note="\n".join(dict.fromkeys(made.note.splitlines())))  # the same image, unreadable in each


@dataclass(frozen=True)
class Corrupted(Study):
    """Methods fitted on clean validation images with the parameters they have for them, tested on corrupted ones."""

    def blocks(self, setting: Setting) -> Iterator[Block]:
        clean = replace(setting.images, shifted={})
        for subject in setting.subjects:
            methods = entries(setting, subject)
            run = setting.job(subject, methods, clean).run()
            rows = rows_of(setting, subject, [entry.label for entry in methods])
            yield joined(f"{subject.name}: clean", [run], "main", setting.compared(subject), rows)
            names = {f"{label}{part}": row for label, row in rows.items() for part in ("", _ALONE)}
            for table, change in changes(setting.seed):
                both = setting.job(subject, methods, everywhere(clean, change)).run()
                alone = setting.job(subject, methods, known_only(clean, change)).run()
                runs = [both, relabelled(alone, after=_ALONE)]
                yield joined(f"{subject.name}: {change}", runs, table, setting.compared(subject), names)

    def notes(self, setting: Setting) -> list[str]:
        return [
            "Nothing is fitted or chosen again: the methods are those fitted on clean validation images. First all "
            "tested images are corrupted, ID and OOD; then ID alone, which also asks whether shifted ID is kept as ID. "
            "The paper's tables do not say which of the two, nor which range of sigma its blur has; its figures stand "
            "beside all of them. Images are corrupted as they are stored, before they are resized; a blur has 5 x 5 "
            "pixels and a sigma of its own for every image."
        ]


def changes(seed: int) -> list[tuple[str, Change]]:
    """Each with the paper's table of it."""
    blurs = [RandomBlur(low, high, seed=seed) for low, high in SIGMAS]
    return [*(("corruption-blur", blur) for blur in blurs), ("corruption-jpeg", Recoded(50))]


def everywhere(images: SuiteImages, change: Change) -> SuiteImages:
    """All that is tested, corrupted."""

    near, far = ({name: corrupted(found, change) for name, found in sets.items()} for sets in (images.near, images.far))
    return replace(known_only(images, change), near=near, far=far)


def known_only(images: SuiteImages, change: Change) -> SuiteImages:
    """The ID test images corrupted, those to fit on and the OOD images as they are."""
    return replace(images, id=corrupted(images.id, change))


class Tried(NamedTuple):
    """A network of a study of training: its label, and what the methods did on it."""

    label: str
    run: ModelRun
    made: Made | None

    @property
    def note(self) -> str:
        accuracy = "" if self.run.accuracy is None else f" accuracy {100 * self.run.accuracy:.2f} %"
        robust = "" if self.made is None else self.made.text
        return f"{self.label}:{accuracy or ' no labels'} on the ID test images{robust}."


def tried(setting: Setting, label: str, subject: Subject, made: Made | None = None) -> Tried:
    """The methods on this network."""
    return Tried(label, setting.job(subject, entries(setting, subject)).run(), made)


@dataclass(frozen=True)
class Adversarial(Study):
    """``Q_OOD / Q_ID`` and the figures of the methods; on the digits after training against PGD at the paper's eps."""

    def blocks(self, setting: Setting) -> Iterator[Block]:
        for subject in setting.subjects:
            found = [tried(setting, *network) for network in self._networks(setting, subject)]
            place = setting.compared(subject)
            yield self._ratios(subject, None if setting.changed(subject) else place, found)
            runs = [relabelled(one.run, f"{one.label} ") for one in found]
            names = rows_of(setting, subject, [label for run in runs for label in run.scores])
            yield joined(f"{subject.name}: methods", runs, "adversarial", place, names)

    def _networks(self, setting: Setting, subject: Subject) -> list[tuple[str, Subject, Made | None]]:
        trained = subject.network.trained
        if trained.get("loss") == "adversarial":
            return [(f"eps={trained['eps']:g}", subject, None)]
        found: list[tuple[str, Subject, Made | None]] = [("as given", subject, None)]
        for eps in _STRENGTHS if made_here(setting) else ():
            recipe = replace(RECIPES["adversarial"], epochs=5, lr=0.02, batch_size=32, eps=eps, augment=False)
            made = tuned(setting, subject, recipe)
            found.append((f"eps={eps:g}", made.subject, made))
        return found

    def _ratios(self, subject: Subject, place: paper.Place | None, found: Sequence[Tried]) -> Block:
        columns = [Column(one.label, "Q_OOD / Q_ID", one.label, unit="ratio") for one in found]
        names = others(found[0].run)
        lines = []
        for name in names:
            cells = {}
            for one in (one for one in found if name in one.run.profiles):
                known = paper.other("adversarial-ratio", place, _printed(name), one.label)
                cells[one.label] = Cell(q_cells(one.run.profiles, name)["q"].measured, known)
            lines.append(Line(set_label(found[0].run, name), cells))
        series = [
            Series(one.label, [line.cells.get(one.label, Cell(None)).measured for line in lines]) for one in found
        ]
        chart = Chart("bars", "Q over that of ID", series, [line.label for line in lines], y="Q_OOD / Q_ID")
        return Block(
            f"{subject.name}: shift", columns, lines, [chart] if lines else [], "\n".join(one.note for one in found)
        )

    def notes(self, setting: Setting) -> list[str]:
        if made_here(setting):
            return ["The networks were made here, from the one given, by a short adversarial training (PGD)."]
        if all(subject.network.trained.get("loss") == "adversarial" for subject in setting.subjects):
            return []
        return [
            "'as given': nothing says that this network was trained against attacks. Weights of adascale train "
            "--loss adversarial say so, and their eps, themselves."
        ]


def _printed(name: str) -> str:
    """A set's name as the paper prints it."""
    rows = {
        _letters(line["row"]): line["row"] for line in paper.lines("others") if line["table"] == "adversarial-ratio"
    }
    return rows.get(_letters(name), name)


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


@dataclass(frozen=True)
class Ish(Study):
    """The methods on networks with and without ISH; on the digits the second is made from the first."""

    def blocks(self, setting: Setting) -> Iterator[Block]:
        found = []
        for subject in setting.subjects:
            if subject.network.trained.get("loss") == "ish":
                found.append(tried(setting, f"{subject.network.name} (ISH)", subject))
                continue
            found.append(tried(setting, subject.network.name, subject))
            if made_here(setting):
                recipe = replace(RECIPES["ish"], batch_size=32, augment=False)
                made = tuned(setting, subject, recipe)
                found.append(tried(setting, f"{subject.network.name} (ISH)", made.subject, made))
        made_block = joined("with and without ISH", [relabelled(one.run, f"{one.label}: ") for one in found], "", None)
        notes = filter(None, (made_block.note, *(one.note for one in found)))
        yield replace(made_block, note="\n".join(notes))

    def notes(self, setting: Setting) -> list[str]:
        if made_here(setting):
            return ["The network with ISH was made here, from the one given, by ISH's own recipe."]
        if any(subject.network.trained.get("loss") == "ish" for subject in setting.subjects):
            return []
        return [
            "No network here says that it was tuned with ISH; give --model and --weights of adascale train --loss ish."
        ]


STUDIES: tuple[Study, ...] = (
    Corrupted(
        "corruption",
        "Corrupted images",
        "corruption_blur, corruption_jpeg, corruption_combined",
        "Do methods fitted on clean images hold on blurred and compressed ones?",
        "clean and one view of every tested set for each of three corruptions; the training images",
    ),
    Adversarial(
        "adversarial",
        "Networks trained against attacks",
        "adv_ratio, adv_performance, corruption_combined",
        "Do OOD activations still move further than ID ones when the network was trained not to be moved?",
        "clean and one view for each network; on the digits a short training too",
    ),
    Ish(
        "ish",
        "Networks tuned with ISH",
        "training with ISH; none of its tables has figures of it",
        "Does training with ISH, made for SCALE, also serve AdaSCALE?",
        "clean and one view for each network; on the digits a short training too",
    ),
)
