"""Fills the tables of docs/paper.md with results of `adascale study`.

    python -m benchmarks.paper docs/paper.md RESULTS_DIR ...

Each folder holds the results of one network. Between ``<!-- study NAME -->`` and ``<!-- end -->`` comes a table of that
study: near and far as FPR@95 / AUROC in percent, the paper's in brackets; other quantities as the study has them.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from adascale.paper.studies.base import Block, Result
from adascale.paper.studies.write import load_result
from adascale.report.document import DASH, Cell, Line
from adascale.report.markdown import in_markdown, markdown_table

_PLACE = re.compile(r"(<!-- study (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
_MOST_LINES = 16  # of a figure's table


def filled(text: str, folders: list[Path]) -> str:
    """The page with every table made anew."""

    def table(match: re.Match[str]) -> str:
        results = [
            load_result(folder / f"{match[2]}.json") for folder in folders if (folder / f"{match[2]}.json").is_file()
        ]
        return match[1] + "\n" + "\n".join(_tables(results)) + match[3] if results else match[0]

    return _PLACE.sub(table, text)


def _tables(results: list[Result]) -> list[str]:
    sizes = [f"- {_network(result)}: {_sizes(result)}\n" for result in results]
    if all(_pairs(block) for result in results for block in result.blocks):
        return [*(_side_by_side(results, i) for i in range(len(results[0].blocks))), *sizes]
    tables = []
    for result in results:
        for block in result.blocks:
            header = ["row", *(in_markdown(column.title) for column in block.shown())]
            lines = [[in_markdown(text) for text in line] for line in block.texts()]
            lines = lines if len(lines) <= _MOST_LINES else lines[:: -(-len(lines) // _MOST_LINES)]
            tables += [f"**{in_markdown(block.title)}**\n", markdown_table(header, lines)]
    return [*tables, *sizes]


def _side_by_side(results: list[Result], index: int) -> str:
    """One block of every network: a column for each network and side, a row for each label."""
    header, columns, labels, title = ["row"], list[dict[str, str]](), dict[str, None](), ""
    for result in results:
        block = result.blocks[index]
        title = title or block.title.rpartition(")")[2].lstrip(": ")
        for group, keys in _pairs(block).items():
            header.append(in_markdown(f"{_network(result)} {group}"))
            columns.append({line.label: _pair(line, *keys) for line in block.lines})
        labels |= dict.fromkeys(line.label for line in block.lines)
    lines = [[in_markdown(label), *(column.get(label, DASH) for column in columns)] for label in labels]
    return (f"**{in_markdown(title)}**\n\n" if title else "") + markdown_table(header, lines)


def _pairs(block: Block) -> dict[str, tuple[str, str]]:
    """Group of columns -> the keys of its FPR@95 and AUROC."""
    keys = {column.key: column.group for column in block.columns}
    return {group: (key, f"{key[:-5]}auroc") for key, group in keys.items() if key.endswith(".fpr95")}


def _pair(line: Line, fpr95: str, auroc: str) -> str:
    cells = [line.cells.get(key, Cell()) for key in (fpr95, auroc)]
    if any(cell.measured is None for cell in cells):
        return DASH
    measured = " / ".join(
        f"{cell.measured:.2f}" + (f" ± {cell.spread:.2f}" if cell.spread is not None else "") for cell in cells
    )
    if any(cell.paper is None for cell in cells):
        return measured
    return f"{measured} ({' / '.join(f'{cell.paper:.2f}' for cell in cells)})"


def _network(result: Result) -> str:
    return next(iter(result.about.get("networks", {})), result.suite)


def _sizes(result: Result) -> str:
    return ", ".join(f"{name} {found['images']}" for name, found in result.about.get("sets", {}).items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("folders", nargs="+", type=Path)
    given = parser.parse_args()
    given.page.write_text(filled(given.page.read_text("utf8"), given.folders), "utf8")


if __name__ == "__main__":
    main()
