"""The columns of a benchmark's tables, and how a reader names them. This module does not import PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from adascale.core.errors import InputError
from adascale.core.suggestions import meant
from adascale.report.document import Column

Kind = Literal["id", "shifted", "near", "far"]
Spectrum = Literal["ood", "full"]  # full: covariate-shifted ID joins the ID side
MEANS = {"near": "nearood", "far": "farood"}  # OpenOOD's names of the means over the near and the far sets
KINDS = {"near": "Near-OOD", "far": "Far-OOD", "shifted": "Shifted ID", "id": "ID"}  # as people read them
SPECTRA: Mapping[Spectrum, str] = {"ood": "", "full": ", full spectrum"}  # what follows the kind
IN_REGISTRY = "method"  # the order in which `adascale methods` lists them


def _metric(key: str, title: str, good: Literal["low", "high"], hint: str) -> Column:
    return Column(key, title, good=good, hint=f"{hint}; {good}er is better")


METRICS = (  # the figures of a row, as columns of a table
    _metric("fpr95", "FPR@95", "low", "share of ID flagged where 95 % of the OOD is caught"),
    _metric("auroc", "AUROC", "high", "chance that an OOD image scores above an ID image"),
    _metric("fpr95_id", "FPR@95-ID", "low", "share of OOD accepted where 95 % of the ID is kept"),
    _metric("aupr_in", "AUPR-in", "high", "area under precision and recall, ID as positive"),
    _metric("aupr_out", "AUPR-out", "high", "area under precision and recall, OOD as positive"),
)
USUAL = METRICS[:2]
BOTH = METRICS[:3]  # both meanings of FPR@95


def _named() -> dict[str, Column]:
    """Every column that can be asked for, by its name: near-auroc, far-fpr95-id, full-near-auroc."""
    found = {}
    for spectrum, words in SPECTRA.items():
        for kind in MEANS:
            for metric in METRICS:
                name = f"{'full-' if spectrum == 'full' else ''}{kind}-{metric.key.replace('_', '-')}"
                found[name] = replace(metric, key=f"{spectrum}.{kind}.{metric.key}", group=KINDS[kind] + words)
    return found


NAMED = _named()


def named(text: str) -> Column:
    """The column of this name; an unknown one is refused."""
    if text not in NAMED:
        raise InputError(f"There is no column {text!r}{meant(text, NAMED)} Give one of {', '.join(NAMED)}.")
    return NAMED[text]


def columns_of(metrics: Iterable[Column]) -> list[Column]:
    """The columns of these metrics for near and far sets, then for the full spectrum."""
    keys = {metric.key for metric in metrics}
    return [column for column in NAMED.values() if column.key.rpartition(".")[2] in keys]


@dataclass(frozen=True)
class Look:
    """How tables are shown to people: CSV and JSON always have everything, in the order of the methods.

    sort: the name of a column, best first; "" for the near-OOD AUROC, or the far-OOD AUROC where there is no near set;
    "method" for the order of the methods. top: only so many lines. columns: names of columns [default: those of the
    table].
    """

    sort: str = ""
    top: int | None = None
    columns: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in (*self.columns, *([self.sort] if self.sort not in ("", IN_REGISTRY) else [])):
            named(name)
        if self.top is not None and self.top < 1:
            raise InputError(f"top={self.top}; show at least 1 line.")

    def sorted_by(self, present: Iterable[str]) -> Column | None:
        """The column that sorts a table of these keys; None where it has no such column, or keeps the order."""
        if self.sort == IN_REGISTRY:
            return None
        wanted = [self.sort] if self.sort else ["near-auroc", "far-auroc"]
        keys = set(present)
        return next((NAMED[name] for name in wanted if NAMED[name].key in keys), None)

    def shown(self, metrics: Iterable[Column]) -> list[Column]:
        """The columns that were asked for, else those of these metrics."""
        return [named(name) for name in self.columns] or columns_of(metrics)
