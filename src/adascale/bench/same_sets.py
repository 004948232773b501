"""Whether two benchmarks had the same images, set by set, and why not. Sets that a run left out do not count."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

Document = Mapping[str, Any]  # results.json
_LEARNED = ("val", "train")
_OOD_VAL = "OOD-val "  # what the names of OOD validation sets start with


def other_images(first: Document, second: Document) -> dict[str, str]:
    """The tested sets whose images differ between the runs, with the reason; a set that neither tested is not there."""
    own, theirs = tested_sets(first), tested_sets(second)
    reasons = {}
    for name in sorted({*own, *theirs}):
        if name not in own or name not in theirs:
            reasons[name] = _one_sided(name, first, second, in_first=name in own)
        elif reason := _reason(name, own[name], theirs[name]):
            reasons[name] = reason
        elif _unreadable(first, name) != _unreadable(second, name):
            reasons[name] = f"not the same images of {name} could be read"
    return reasons


def fitted_on_others(first: Document, second: Document) -> str:
    """Why methods of the two runs learned from other images; "" if they did not."""
    own, theirs = ({name: one for name, one in _sets(each).items() if _is_learned(name)} for each in (first, second))
    reasons = [_reason(name, own[name], theirs[name]) for name in own if name in theirs]
    for place, here, there in (("first", own, theirs), ("second", theirs, own)):
        reasons += [f"{name} is in the {place} run only" for name in here if name not in there]
    found = "; ".join(filter(None, reasons))
    return f"the methods learned from other images ({found})" if found else ""


def _sets(document: Document) -> Mapping[str, Any]:
    found: Mapping[str, Any] = document["reproduce"]["sets"]
    return found


def _is_learned(name: str) -> bool:
    return name in _LEARNED or name.startswith(_OOD_VAL)


def tested_sets(document: Document) -> dict[str, Any]:
    """The sets that were scored: not those that were left out because none of their images can be read."""
    return {
        name: found
        for name, found in _sets(document).items()
        if not _is_learned(name) and len(_unreadable(document, name)) < found["images"]
    }


def _unreadable(document: Document, name: str) -> frozenset[str]:
    """The images of a set that could not be read, by the names of their files: folders may be spelled differently."""
    by_network = document.get("failures", {}).values()
    return frozenset(Path(image).name for found in by_network for image in found.get(name, ()))


def _reason(name: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    if one["images"] != other["images"]:
        return f"{name} has {one['images']:,} and {other['images']:,} images"
    return "" if one == other else f"{name} has other images"


def _one_sided(name: str, first: Document, second: Document, in_first: bool) -> str:
    there, missing = ("first", "second") if in_first else ("second", "first")
    if name in _sets(second if in_first else first):
        return f"{name} could not be read in the {missing} run"
    return f"{name} is in the {there} run only"
