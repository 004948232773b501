"""The tables of docs/measured.md: results of `adascale bench`, which it keeps, beside the paper's rows.

    python -m benchmarks.docs RESULTS_DIR=DATA/NETWORK ...

DATA/NETWORK: what the paper calls the network, as the presets do. The means of each folder are kept in
benchmarks/kept/bench/NETWORK.json, and the page is made from all that is kept there. A table whose mark ends in
``(COMMIT, DATE)`` was made then, its results were not kept, and it stays until there are new ones.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from adascale.bench.tables import read_results
from adascale.paper import published as paper
from adascale.report.document import ranked

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "measured.md"
KEPT = ROOT / "benchmarks" / "kept" / "bench"
PLACE = re.compile(
    r"## (\S+)\n\nImages: [^\n]*\n\n"
    r"<!-- made by: python -m benchmarks.docs \S+=(\S+?)(?: \((\w+), ([\d-]+)\))? -->\n.*?<!-- end -->\n",
    re.DOTALL,
)


def paper_cell(place: paper.Place, method: str, kind: str) -> str:
    """FPR@95 / AUROC as printed in the paper; AdaSCALE's headline rows are those of the presets."""
    row = "" if method in ("adascale_a", "adascale_l") else method.removesuffix(" (preset)")
    found = paper.figure("main", place, row, kind)
    return "" if found is None else f"{found.fpr95:.2f} / {found.auroc:.2f}"


def keep(folder: Path) -> None:
    """Keep the means of a results folder, and what its table says about the run."""
    document = read_results(folder)
    about: dict[str, Any] = document["reproduce"]
    rows = [row for row in document["rows"] if row["dataset"] in ("nearood", "farood") and row["spectrum"] == "ood"]
    fields = ("model", "method", "dataset", "spectrum", "fpr95", "auroc")
    short = {
        "sets": {name: {"images": found["images"]} for name, found in about["sets"].items()},
        "networks": {name: {"left_out": found["left_out"]} for name, found in about["networks"].items()},
        "versions": about.get("versions", {}),
    }
    kept = {**document, "failures": {}, "reproduce": short, "rows": [{f: row[f] for f in fields} for row in rows]}
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / f"{rows[0]['model']}.json").write_text(json.dumps(kept, separators=(",", ":")) + "\n", "utf8")


def table(document: dict[str, Any], place: paper.Place) -> str:
    rows, methods = document["rows"], list(dict.fromkeys(row["method"] for row in document["rows"]))
    columns = []
    for dataset in ("nearood", "farood"):
        for figure in ("fpr95", "auroc"):
            values = {row["method"]: 100 * row[figure] for row in rows if row["dataset"] == dataset}
            places = ranked([round(values[method], 2) for method in methods], figure == "fpr95")
            marks = {"best": "**{:.2f}**", "second": "<u>{:.2f}</u>", "": "{:.2f}"}
            columns.append([marks[place].format(values[m]) for place, m in zip(places, methods, strict=True)])
    lines = [
        "| method | near FPR@95 | near AUROC | far FPR@95 | far AUROC | paper near | paper far |",
        "|---" + "|---:" * 6 + "|",
    ]
    for method, *cells in zip(methods, *columns, strict=True):
        theirs = (paper_cell(place, method, kind) for kind in ("near", "far"))
        lines.append(f"| {method} | {' | '.join(cells)} | {' | '.join(theirs)} |")
    return "\n".join(lines)


def section(name: str, place: str) -> str:
    """What the page has about one network."""
    document = read_results(KEPT / f"{name}.json")
    about = document["reproduce"]
    sizes = ", ".join(f"{set_name} {found['images']}" for set_name, found in about["sets"].items())
    left_out = [f"- {label}: {reason}" for label, reason in about["networks"][name]["left_out"].items()]
    parts = [f"## {name}", f"Images: {sizes}.", f"<!-- made by: python -m benchmarks.docs {name}={place} -->"]
    parts += [table(document, paper.place(place)), *(["Left out:", "\n".join(left_out)] if left_out else [])]
    return "\n\n".join([*parts, "<!-- end -->\n"])


def filled(text: str) -> str:
    """The page with every section made anew whose results are kept."""

    def made(found: re.Match[str]) -> str:
        return section(found[1], found[2]) if (KEPT / f"{found[1]}.json").is_file() else found[0]

    return PLACE.sub(made, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="*", metavar="RESULTS_DIR=DATA/NETWORK")
    for text in parser.parse_args().results:
        keep(Path(text.rpartition("=")[0]))
    PAGE.write_text(filled(PAGE.read_text("utf8")), "utf8")


if __name__ == "__main__":
    main()
