"""The tables of docs/benchmarks.md: results of `adascale bench` beside the paper's rows.

    python -m benchmarks.docs RESULTS_DIR=DATA/NETWORK ...

DATA/NETWORK: what the paper calls the network, as the presets do.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from adascale.bench.tables import read_results
from adascale.paper import published as paper
from adascale.report.document import ranked


def paper_cell(place: paper.Place, method: str, kind: str) -> str:
    """FPR@95 / AUROC as printed in the paper; AdaSCALE's headline rows are those of the presets."""
    row = "" if method in ("adascale_a", "adascale_l") else method.removesuffix(" (preset)")
    found = paper.figure("main", place, row, kind)
    return "" if found is None else f"{found.fpr95:.2f} / {found.auroc:.2f}"


def table(folder: Path, place: paper.Place) -> str:
    document = read_results(folder)
    rows = [row for row in document["rows"] if row["dataset"] in ("nearood", "farood") and row["spectrum"] == "ood"]
    model = rows[0]["model"]
    methods = list(dict.fromkeys(row["method"] for row in rows))
    columns = []
    for dataset in ("nearood", "farood"):
        for figure in ("fpr95", "auroc"):
            values = {row["method"]: 100 * row[figure] for row in rows if row["dataset"] == dataset}
            places = ranked([round(values[method], 2) for method in methods], figure == "fpr95")
            marks = {"best": "**{:.2f}**", "second": "<u>{:.2f}</u>", "": "{:.2f}"}
            columns.append([marks[place].format(values[m]) for place, m in zip(places, methods, strict=True)])
    lines = [
        "| method | near FPR@95 | near AUROC | far FPR@95 | far AUROC | paper near | paper far |",
        "|---" * 7 + "|",
    ]
    for method, *cells in zip(methods, *columns, strict=True):
        theirs = (paper_cell(place, method, kind) for kind in ("near", "far"))
        lines.append(f"| {method} | {' | '.join(cells)} | {' | '.join(theirs)} |")
    about = document["reproduce"]
    sizes = ", ".join(f"{name} {found['images']}" for name, found in about["sets"].items())
    left_out = [f"- {label}: {reason}" for label, reason in about["networks"][model]["left_out"].items()]
    parts = [f"### {model}\n\nImages: {sizes}.\n", "\n".join(lines)]
    return "\n".join([*parts, *(["\nLeft out:\n", *left_out] if left_out else [])]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", metavar="RESULTS_DIR=DATA/NETWORK")
    pairs = (text.rpartition("=") for text in parser.parse_args().results)
    print("\n".join(table(Path(folder), paper.place(place)) for folder, _, place in pairs))


if __name__ == "__main__":
    main()
