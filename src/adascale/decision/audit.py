"""Which images set the threshold: an entry for every time that calibration images were chosen or added."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from adascale.decision.provenance import fitting_record

Change = Literal["fit", "added", "replaced"]


@dataclass(frozen=True)
class AuditEntry:
    """Calibration images of one date. change: chosen by ``fit``, ``added`` to those before, or in their place
    (``replaced``). source: where they came from. names: theirs, in any order; empty for tensors.
    """

    change: Change
    date: str
    images: int
    source: str
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        what = {"fit": "chosen by fit", "added": "added", "replaced": "in place of those before"}[self.change]
        shown = f": {', '.join(self.names[:3])}{', ...' * (len(self.names) > 3)}" if self.names else ""
        return f"{self.date}: {self.images} calibration images {what}, from {self.source}{shown}"


def entry(change: Change, images: int, source: str, names: Sequence[str] = ()) -> AuditEntry:
    """An entry of now."""
    made = fitting_record(images, source)
    return AuditEntry(change, made["date"], images, source, tuple(names))


def fit_entry(held_out: Tensor, source: str, names: Sequence[str]) -> AuditEntry:
    """The entry of ``fit``. held_out: indices of the images that set the threshold. names: of all images, if known."""
    return entry("fit", len(held_out), source, [names[i] for i in held_out.tolist()] if names else ())


def in_force(audit: Sequence[AuditEntry]) -> list[AuditEntry]:
    """The entries whose images set the threshold now: none that was replaced."""
    last = max((i for i, one in enumerate(audit) if one.change != "added"), default=0)
    return list(audit[last:])


def audit_record(audit: Sequence[AuditEntry]) -> list[dict[str, Any]]:
    """The log for the record of a file, without the names."""
    return [
        {"change": one.change, "date": one.date, "images": one.images, "source": one.source, "names": len(one.names)}
        for one in audit
    ]


def audit_tensors(audit: Sequence[AuditEntry]) -> dict[str, Tensor]:
    """The names for a file: they may be many, so they stay out of its record."""
    texts = {f"audit.{i}.names": json.dumps(one.names).encode() for i, one in enumerate(audit) if one.names}
    return {name: torch.frombuffer(bytearray(text), dtype=torch.uint8) for name, text in texts.items()}


def audit_of(record: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> tuple[AuditEntry, ...]:
    """The log of a file. That of an older version has one entry, without names: the images of ``fit``."""
    saved = record.get("audit")
    if saved is None:
        fitted, images = record.get("fitted") or {}, len(tensors["calibration.scores"])
        return (AuditEntry("fit", fitted.get("date", "unknown date"), images, fitted.get("source", "unknown images")),)
    return tuple(AuditEntry(**{**one, "names": _names(tensors.get(f"audit.{i}.names"))}) for i, one in enumerate(saved))


def _names(text: Tensor | None) -> tuple[str, ...]:
    return () if text is None else tuple(json.loads(text.numpy().tobytes()))
