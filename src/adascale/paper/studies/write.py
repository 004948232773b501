"""A result as files and on a terminal: paper, measured and difference side by side where the paper has a value."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

from rich.table import Table

from adascale.bench.tables import in_markdown, markdown_table
from adascale.core.errors import InputError
from adascale.paper.studies.base import Block, Cell, Column, Result, from_document, has_paper
from adascale.storage.atomic import write_text
from adascale.storage.rows import write_csv

DASH = "\N{EN DASH}"
PARTS = ("paper", "measured", "difference")
SUFFIXES = ("csv", "md", "json")


class Shown(NamedTuple):
    """A column as it is printed: one for each quantity, or three where the paper has values of it."""

    column: Column
    part: Literal["", "paper", "measured", "difference"]

    @property
    def title(self) -> str:
        unit = "" if self.column.unit == "%" else f" ({self.column.unit})"
        return f"{self.column.group} {self.column.title}{unit} {self.part}".strip()

    def value(self, cell: Cell) -> float | None:
        value: float | None = getattr(cell, self.part or "measured")
        return value

    def text(self, cell: Cell) -> str:
        value = self.value(cell)
        if value is None:
            return DASH
        spread = cell.spread is not None and self.part in ("", "measured")
        return f"{value:{'+' if self.part == 'difference' else ''}.2f}" + (f" ± {cell.spread:.2f}" if spread else "")


def shown(block: Block) -> list[Shown]:
    """The columns of a block in order."""
    found = []
    for column in block.columns:
        known = any(cell.paper is not None for line in block.lines if (cell := line.cells.get(column.key)))
        found += [Shown(column, part) for part in PARTS] if known else [Shown(column, "")]  # type: ignore[arg-type]
    return found


def texts(block: Block) -> list[list[str]]:
    """Label and cells of every line."""
    columns = shown(block)
    return [
        [line.label, *(column.text(line.cells.get(column.column.key, Cell(None))) for column in columns)]
        for line in block.lines
    ]


def save(result: Result, folder: Path) -> list[Path]:
    """``NAME.csv``, ``NAME.md`` and ``NAME.json``, which holds all."""
    document = json.dumps(result.document(), indent=1, allow_nan=False) + "\n"
    texts = (as_csv(result), markdown(result), document)
    return [write_text(folder / f"{result.study}.{suffix}", text) for suffix, text in zip(SUFFIXES, texts, strict=True)]


def remove(study: str, folder: Path) -> list[str]:
    """Take away the files of an older result; their names."""
    found = [path for suffix in SUFFIXES if (path := folder / f"{study}.{suffix}").is_file()]
    for path in found:
        path.unlink()
    return [path.name for path in found]


def load(path: Path) -> Result:
    """The result in a ``NAME.json``."""
    try:
        document = json.loads(path.read_text("utf8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a study's result ({error}).") from error
    try:
        return from_document(document)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def as_csv(result: Result) -> str:
    """One line for each block, row and quantity."""
    names = ("block", "row", "group", "quantity", "unit", *PARTS, "spread")
    records = [
        {
            "block": block.title, "row": line.label, "group": column.group, "quantity": column.title,
            "unit": column.unit, "spread": _number(cell.spread),
            **{part: _number(getattr(cell, part)) for part in PARTS},
        }
        for block in result.blocks
        for line in block.lines
        for column in block.columns
        if (cell := line.cells.get(column.key)) is not None
    ]  # fmt: skip
    file = io.StringIO()
    write_csv(file, records, names)
    return file.getvalue()


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def markdown(result: Result) -> str:
    """Title, question, a table for each block, notes."""
    parts = [f"# {result.title}\n", f"{result.question} (Paper: {result.source}.)\n"]
    for block in result.blocks:
        header = ["row", *(in_markdown(column.title) for column in shown(block))]
        lines = [[in_markdown(text) for text in line] for line in texts(block)]
        parts += [f"## {in_markdown(block.title)}\n", markdown_table(header, lines)]
        parts += [f"{in_markdown(line)}\n" for line in block.note.splitlines()]
    parts += [f"{in_markdown(note)}\n" for note in remarks(result)]
    return "\n".join(parts)


def remarks(result: Result) -> list[str]:
    """How to read it, what was measured on how much, and what the paper measured on."""
    sets, about = result.about.get("sets", {}), result.about.get("suite", {}).get("note", "")
    images = ", ".join(f"{name} {found['images']}" for name, found in sets.items())
    paper = "The paper's figures are of its own networks, and of the whole of its data sets, perhaps others."
    return [
        *result.notes,
        f"Suite {result.suite}, images: {images}.",
        *([about] if about else []),
        *([paper] if has_paper(result.blocks) else []),
    ]


def for_people(block: Block) -> list[tuple[str, Table]]:
    """A block for the terminal: a title and a table for each group of columns, since all side by side rarely fit."""
    found = []
    for group in dict.fromkeys(column.group for column in block.columns):
        part = replace(block, columns=[column for column in block.columns if column.group == group])
        title = f"{block.title}: {group}" if group else block.title
        lines = Table(box=None, pad_edge=False)
        lines.add_column("", no_wrap=True)
        for column in shown(part):
            unit = "" if column.column.unit == "%" else f" ({column.column.unit})"
            kind = "diff." if column.part == "difference" else column.part
            lines.add_column(f"{column.column.title}{unit}\n{kind}".strip(), justify="right")
        for line in texts(part):
            lines.add_row(*line)
        found.append((title, lines))
    return found


def stored(folder: Path, names: Sequence[str]) -> list[Result]:
    """The results in a folder, in the order of the names; what cannot be read as one is passed over."""
    found = []
    for name in names:
        try:
            found.append(load(folder / f"{name}.json"))
        except InputError:
            continue
    return found
