"""Corrupted images, and networks trained in other ways: against attacks, or with ISH."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from adascale import detectors, paper
from adascale.benchmark import Entry
from adascale.corrupt import RandomBlur, Recoded, corrupted
from adascale.data import Change
from adascale.recipes import RECIPES
from adascale.results import ModelRun, Row
from adascale.studies.base import Block, Cell, Chart, Column, Line, Series
from adascale.studies.build import block, missing
from adascale.studies.inside import others, q_cells, set_label
from adascale.studies.setting import Setting, Study, Subject
from adascale.studies.tuned import Made, made_here, tuned
from adascale.suites import SuiteImages
from adascale.table import figures

SIGMAS = ((0.01, 0.5), (0.1, 2.0))  # from, to; pixels
_STRENGTHS = (0.01, 0.05)  # eps of the paper's adversarial training


def entries(setting: Setting, subject: Subject) -> list[Entry]:
    """The methods that the paper compares here."""
    return [
        Entry("scale", detectors.SCALE()),
        Entry("optfs", detectors.OptFS()),
        Entry("adascale_a", setting.base(subject)),
    ]


def labelled(rows: Sequence[Row], label: str) -> list[Row]:
    """The rows under their method's name with the label before it."""
    return [replace(row, method=f"{label} {row.method}") for row in rows]


@dataclass(frozen=True)
class Corrupted(Study):
    """Methods fitted on clean validation images with the parameters they have for them, tested on corrupted ones."""

    def blocks(self, setting: Setting) -> Iterator[Block]:
        clean = replace(setting.images, shifted={})
        for subject in setting.subjects:
            run = setting.job(subject, entries(setting, subject), clean).run()
            rows = figures(run, intervals=False)
            yield missing(block(f"{subject.name}: clean", rows, "main", subject.place), run.left_out)
            for table, change in changes(setting.seed):
                yield self._block(setting, subject, clean, table, change)

    def _block(self, setting: Setting, subject: Subject, clean: SuiteImages, table: str, change: Change) -> Block:
        rows, left_out = list[Row](), dict[str, str]()
        for label, images in {"": everywhere(clean, change), ", ID alone": known_only(clean, change)}.items():
            run = setting.job(subject, entries(setting, subject), images).run()
            rows += [replace(row, method=row.method + label) for row in figures(run, intervals=False)]
            left_out |= run.left_out
        names = {row.method: row.method.partition(",")[0] for row in rows}
        return missing(block(f"{subject.name}: {change}", rows, table, subject.place, names), left_out)

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
            yield self._ratios(subject, found)
            rows = [row for one in found for row in labelled(figures(one.run, intervals=False), one.label)]
            left_out = {f"{one.label} {name}": why for one in found for name, why in one.run.left_out.items()}
            yield missing(block(f"{subject.name}: methods", rows, "adversarial", subject.place), left_out)

    def _networks(self, setting: Setting, subject: Subject) -> list[tuple[str, Subject, Made | None]]:
        trained = subject.network.trained
        if trained.get("loss") == "adversarial":
            return [(f"eps={trained['eps']:g}", subject, None)]
        found: list[tuple[str, Subject, Made | None]] = [("as given", subject, None)]
        for eps in _STRENGTHS if made_here(setting) else ():
            recipe = replace(RECIPES["adversarial"], epochs=8, lr=0.02, batch_size=32, eps=eps)
            made = tuned(setting, subject, recipe)
            found.append((f"eps={eps:g}", made.subject, made))
        return found

    def _ratios(self, subject: Subject, found: Sequence[Tried]) -> Block:
        columns = [Column(one.label, "Q_OOD / Q_ID", one.label, unit="ratio") for one in found]
        names = others(found[0].run)
        lines = []
        for name in names:
            cells = {}
            for one in found:
                known = paper.other("adversarial-ratio", subject.place, _printed(name), one.label)
                cells[one.label] = Cell(q_cells(one.run.profiles, name)["q"].measured, known)
            lines.append(Line(set_label(found[0].run, name), cells))
        series = [Series(one.label, [line.cells[one.label].measured for line in lines]) for one in found]
        chart = Chart("bars", "Q over that of ID", series, [line.label for line in lines], y="Q_OOD / Q_ID")
        return Block(f"{subject.name}: shift", columns, lines, [chart], " ".join(one.note for one in found))

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
                recipe = replace(RECIPES["ish"], batch_size=32)
                made = tuned(setting, subject, recipe)
                found.append(tried(setting, f"{subject.network.name} (ISH)", made.subject, made))
        rows = [row for one in found for row in labelled(figures(one.run, intervals=False), f"{one.label}:")]
        order = [entry.label for entry in entries(setting, setting.subjects[0])]
        rows.sort(key=lambda row: order.index(row.method.rpartition(" ")[2]))
        left_out = {f"{one.label}: {name}": why for one in found for name, why in one.run.left_out.items()}
        made_block = missing(block("with and without ISH", rows, "", None), left_out)
        yield replace(made_block, note=" ".join(filter(None, (made_block.note, *(one.note for one in found)))))

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
