"""A result as files, and the HTML report of all results in a folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from adascale.core.errors import InputError
from adascale.paper.studies.base import Result, from_document, has_paper
from adascale.report import html
from adascale.report.csv import quantities
from adascale.report.document import Document
from adascale.report.markdown import to_markdown
from adascale.storage.atomic import write_text

SUFFIXES = ("csv", "md", "json")
_PAPER = "The paper's figures are of its own networks, and of the whole of its data sets, perhaps others."


def result_document(result: Result) -> Document:
    """The blocks of a result with its question and its remarks."""
    return Document(result.title, result.blocks, remarks(result), result.question, result.source)


def remarks(result: Result) -> list[str]:
    """How to read the result, what was measured on how many images, and what the paper measured on."""
    sets, about = result.about.get("sets", {}), result.about.get("suite", {}).get("note", "")
    images = ", ".join(f"{name} {found['images']}" for name, found in sets.items())
    found = [*result.notes, f"Suite {result.suite}, images: {images}.", about]
    return [*filter(None, found), *([_PAPER] if has_paper(result.blocks) else [])]


def save_result(result: Result, folder: Path) -> list[Path]:
    """``NAME.csv``, ``NAME.md`` and ``NAME.json``, which holds everything."""
    document = json.dumps(result.document(), indent=1, allow_nan=False) + "\n"
    texts = (quantities(result.blocks), to_markdown(result_document(result)), document)
    return [write_text(folder / f"{result.study}.{suffix}", text) for suffix, text in zip(SUFFIXES, texts, strict=True)]


def remove(study: str, folder: Path) -> list[str]:
    """Delete the files of an older result, and return their names."""
    found = [path for suffix in SUFFIXES if (path := folder / f"{study}.{suffix}").is_file()]
    for path in found:
        path.unlink()
    return [path.name for path in found]


def load_result(path: Path) -> Result:
    """The result in a ``NAME.json``."""
    try:
        return from_document(json.loads(path.read_text("utf8")))
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a study's result ({error}).") from error


def write_page(folder: Path, names: Sequence[str]) -> Path:
    """``report.html`` of the results in the folder, in the order of the names; unreadable files are left out."""
    found = []
    for name in names:
        try:
            found.append(load_result(folder / f"{name}.json"))
        except InputError:
            continue
    return write_text(folder / "report.html", studies_page(found))


def studies_page(results: Sequence[Result]) -> str:
    """The report as text: a section with tables and charts for each result."""
    return html.page(
        "studies.html",
        notice=_mixed(results),
        documents={one.study: result_document(one) for one in results},
        about={one.study: one.about for one in results},
    )


def _mixed(results: Sequence[Result]) -> list[str]:
    """A warning for the reader if the results are of different suites, images or networks."""
    kinds: dict[str, Callable[[Result], Any]] = {
        "suite": lambda one: one.suite,
        "images": lambda one: one.about.get("sets"),
        "networks": lambda one: {name: x["fingerprint"] for name, x in one.about.get("networks", {}).items()},
    }
    found = [name for name, of in kinds.items() if any(of(one) != of(results[0]) for one in results[1:])]
    if not found:
        return []
    runs: dict[str, list[str]] = {}
    for one in results:
        images = sum(about["images"] for about in one.about.get("sets", {}).values())
        networks = ", ".join(one.about.get("networks", {}))
        runs.setdefault(f"{one.suite}, {images} images, {networks}", []).append(one.study)
    texts = "; ".join(f"{', '.join(names)}: {run}" for run, names in runs.items())
    return [f"Not all sections are of the same {', '.join(found)}; do not compare across them. {texts}."]
