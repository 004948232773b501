"""Fills the tables of docs/paper.md and docs/paper-signed.md with results of `adascale study`, which it keeps.

    python -m benchmarks.paper docs/paper.md RESULTS_DIR ...

Each folder holds the results of one network. Their figures are kept in benchmarks/kept/PAGE/NETWORK, without charts,
and the page is made from all that is kept there. Between ``<!-- study NAME -->`` and ``<!-- end -->`` comes a table of
that study: near and far as FPR@95 / AUROC in percent, the paper's in brackets; other quantities as the study has them.
A table under ``<!-- study NAME (COMMIT, DATE) -->`` was made then, its results were not kept, and it stays as it is;
new results take its place, and the mark loses commit and date.
"""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from adascale.paper.studies.base import Block, Result
from adascale.paper.studies.write import load_result
from adascale.report.document import DASH, Cell, Line
from adascale.report.markdown import in_markdown, markdown_table

PLACE = re.compile(r"<!-- study (\S+)(?: \((\w+), ([\d-]+)\))? -->\n.*?(<!-- end -->)", re.DOTALL)
KEPT = Path(__file__).parent / "kept"
# The networks of each page, in the order of its columns.
NETWORKS = {
    "paper": ("cifar10_densenet101", "cifar100_densenet101", "imagenet_resnet50"),
    "paper-signed": ("cifar10_vit", "imagenet_efficientnet_lite0"),
}
_MOST_LINES = 16  # of a figure's table


def keep(page: str, folder: Path) -> None:
    """Keep the figures of the results in a folder: those of one network of the page."""
    for path in sorted(folder.glob("*.json")):
        result = load_result(path)
        sets = {name: {"images": found["images"]} for name, found in result.about.get("sets", {}).items()}
        about = {"networks": {_network(result): {}}, "sets": sets, "versions": result.about.get("versions", {})}
        blocks = [replace(block, charts=[]) for block in result.blocks]
        short = _rounded(replace(result, blocks=blocks, about=about).document())
        target = KEPT / page / _network(result) / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(short, separators=(",", ":")) + "\n", "utf8")


def _rounded(value: Any) -> Any:
    """Numbers with six decimals, and no fields that are empty anyway."""
    if isinstance(value, dict):
        return {name: _rounded(found) for name, found in value.items() if found is not None}
    if isinstance(value, list):
        return [_rounded(found) for found in value]
    return round(value, 6) if isinstance(value, float) else value


def kept(page: str, study: str) -> list[Result]:
    """What is kept of this study, in the order of the networks of the page; nothing unless all of them have it."""
    paths = [KEPT / page / network / f"{study}.json" for network in NETWORKS[page]]
    return [load_result(path) for path in paths] if all(path.is_file() for path in paths) else []


def filled(text: str, page: str) -> str:
    """The page with every table made anew whose results are kept."""

    def table(match: re.Match[str]) -> str:
        results = kept(page, match[1])
        return f"<!-- study {match[1]} -->\n\n" + "\n".join(_tables(results)) + match[4] if results else match[0]

    return PLACE.sub(table, text)


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
    parser.add_argument("folders", nargs="*", type=Path)
    given = parser.parse_args()
    for folder in given.folders:
        keep(given.page.stem, folder)
    given.page.write_text(filled(given.page.read_text("utf8"), given.page.stem), "utf8")


if __name__ == "__main__":
    main()
