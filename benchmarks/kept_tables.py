"""The cells of measured tables, kept apart from their pages, so that a figure typed into a page by hand is found.

    python -m benchmarks.kept_tables NAME OUTPUT ...    # OUTPUT: files with what the command of that table printed
    python -m benchmarks.kept_tables --take-over

benchmarks/kept/tables/PAGE.HEADING.json has one table; tests/project/test_kept_tables.py compares them all. Commands
that fill their page (`benchmarks.generalise --page`, `benchmarks.agreement --write`) store its tables at that moment.
For the others: put the new figures into the page, then call this command with what was printed. It stores the table
only if its figures were: those of a row in one printed line if the printed table has the same head, else those of a
cell.

--take-over stores the tables of which nothing is kept as the page has them, with "taken over": true. All tables were
stored so when this module was made, because what their commands had printed was gone: such a file says only that the
page has not changed since. It loses the mark when the command of the table is next run.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from benchmarks import readme
from benchmarks.site import tables

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "benchmarks" / "kept" / "tables"
PAGES = (ROOT / "README.md", ROOT / "benchmarks" / "RESULTS.md", *sorted((ROOT / "docs").rglob("*.md")))
# Page and mark of tables that are computed again by other tests, or not measured.
_COMPUTED = {
    *(f"README.md made by: python -m benchmarks.readme ({name})" for name in readme.BLOCKS),
    *(f"docs/{page} made by: python -m benchmarks.site.tables ({name})" for name, (page, _) in tables.BLOCKS.items()),
    "docs/methods.md who has what",
}
_ELSEWHERE = re.compile(
    r"docs/paper(-signed)?\.md study \S+|docs/measured\.md made by: python -m benchmarks\.docs \S+"
    r"|docs/guarantee\.md made by: adascale\.maths\.promise\..+|\S+ not measured: .+"
)
_FIGURE = re.compile(r"\d+\.\d+(?:e[-+]?\d+)?")


@dataclass(frozen=True)
class Table:
    """A table of a page: its name, the mark above it, and its cells, first those of the head."""

    name: str
    mark: str
    rows: list[list[str]]

    @property
    def path(self) -> Path:
        return KEPT / f"{self.name}.json"

    def store(self, taken_over: bool = False) -> None:
        rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in self.rows)
        KEPT.mkdir(parents=True, exist_ok=True)
        self.path.write_text(f'{{"taken over": {json.dumps(taken_over)}, "rows": [\n{rows}\n]}}\n', "utf8")

    def differences(self) -> list[str]:
        """Where the page has something else than what is kept."""
        if not self.path.is_file():
            return [f"{self.name}: nothing is kept of this table; see benchmarks/kept_tables.py"]
        kept: list[list[str]] = json.loads(self.path.read_text("utf8"))["rows"]
        if [len(row) for row in self.rows] != [len(row) for row in kept]:
            return [f"{self.name}: other rows or columns than kept"]
        pairs = (
            (mine, theirs)
            for row, other in zip(self.rows, kept, strict=True)
            for mine, theirs in zip(row, other, strict=True)
        )
        return [f"{self.name}: the page has {mine!r}, kept is {theirs!r}" for mine, theirs in pairs if mine != theirs]


def measured(page: Path, text: str | None = None) -> list[Table]:
    """The tables of a page with figures that no other test computes again."""
    text = page.read_text("utf8") if text is None else text
    lines, address = tables.without_code(text).splitlines(), page.relative_to(ROOT).as_posix()
    names, found = Counter[str](), list[Table]()
    for table in tables.tables_of_figures(text):
        place = f"{address} {table.mark}"
        if place in _COMPUTED or _ELSEWHERE.fullmatch(place):
            continue
        name = f"{page.stem}.{_heading(lines[: table.line])}"
        names[name] += 1
        name += f".{names[name]}" if names[name] > 1 else ""
        found.append(Table(name, table.mark, rows_of(lines[table.line - 1 :])))
    return found


def _heading(lines: list[str]) -> str:
    """The last heading of these lines, as a part of a file's name."""
    title = next((line for line in reversed(lines) if re.match("#+ ", line)), "top")
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def rows_of(lines: list[str]) -> list[list[str]]:
    """The cells of the table that these lines begin with, without the rule below its head."""
    block = [line.strip() for line in takewhile(lambda line: line.startswith("|"), lines)]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in (block[0], *block[2:])]


def keep(page: Path, mark: str) -> None:
    """Store the tables under marks that begin so: for commands that have just filled them. Other pages are ignored."""
    if page.resolve() in PAGES:
        for table in measured(page.resolve()):
            if table.mark.startswith(mark):
                table.store()


def unprinted(rows: list[list[str]], output: str) -> list[str]:
    """The rows, or cells where the printed table has another head, whose figures no line of the output has together."""
    printed = output.splitlines()
    lines = [Counter(_FIGURE.findall(line)) for line in printed]
    same = any(line.startswith("|") and rows_of([line]) == rows[:1] for line in printed)
    parts = [" | ".join(row) for row in rows[1:]] if same else [cell for row in rows[1:] for cell in row]
    return [part for part in parts if not any(Counter(_FIGURE.findall(part)) <= line for line in lines)]


def everything() -> Iterator[Table]:
    return (table for page in PAGES for table in measured(page))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?")
    parser.add_argument("outputs", nargs="*", type=Path)
    parser.add_argument("--take-over", action="store_true")
    given = parser.parse_args()
    found = {table.name: table for table in everything()}
    if given.take_over:
        for table in found.values():
            if not table.path.is_file():
                table.store(taken_over=True)
    elif given.name not in found or not given.outputs:
        parser.error(f"a table and what its command printed; tables: {', '.join(found)}")
    else:
        table = found[given.name]
        if missing := unprinted(table.rows, "\n".join(path.read_text("utf8") for path in given.outputs)):
            parser.error("nothing is stored, because these were not printed:\n" + "\n".join(missing))
        table.store()


if __name__ == "__main__":
    main()
