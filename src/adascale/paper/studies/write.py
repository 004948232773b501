"""A result as files, and the HTML report of all results in a folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adascale.core.errors import InputError
from adascale.paper.studies.base import FORMAT, FORMAT_VERSION, Block, Result, has_paper
from adascale.report import html
from adascale.report.csv import quantities
from adascale.report.document import Cell, Chart, Column, Document, Line, Series
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
        document = json.loads(path.read_text("utf8"))
        if document.pop("format") != FORMAT or document.pop("format_version") != FORMAT_VERSION:
            raise KeyError("format")
        return Result(**{**document, "blocks": [_block(**block) for block in document["blocks"]]})
    except (AttributeError, KeyError, TypeError) as error:
        reason = f"This is not a result of adascale study that this version can read ({error})."
        raise InputError(f"{path}: {reason}") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a study's result ({error}).") from error


def _block(columns: Any, lines: Any, charts: Any, **rest: Any) -> Block:
    return Block(
        columns=[Column(**column) for column in columns],
        lines=[Line(line["label"], {key: Cell(**cell) for key, cell in line["cells"].items()}) for line in lines],
        charts=[Chart(**{**chart, "series": [Series(**series) for series in chart["series"]]}) for chart in charts],
        **rest,
    )


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
    """A warning for the reader if the results are of different suites, images or networks: a sentence, then what each
    section is of.
    """
    kinds: dict[str, list[Any]] = {"suite": [one.suite for one in results], "images": [], "networks": []}
    runs: dict[str, list[str]] = {}
    for one in results:
        sets, networks = one.about.get("sets", {}), one.about.get("networks", {})
        kinds["images"].append(sets)
        kinds["networks"].append({name: about["fingerprint"] for name, about in networks.items()})
        images = sum(about["images"] for about in sets.values())
        run = f"{images:,} images of the suite {one.suite}, on {', '.join(networks)}"
        runs.setdefault(run, []).append(one.study)
    found = [name for name, values in kinds.items() if any(value != values[0] for value in values)]
    if not found:
        return []
    warning = f"Not all sections are of the same {', '.join(found)}; do not compare across them."
    return [warning, *(f"{run}: {', '.join(names)}" for run, names in runs.items())]
