"""The tables of docs/benchmarks.md: results of `adascale bench` beside the paper's rows.

    python -m benchmarks.docs RESULTS_DIR ... --paper DIR

DIR holds the paper's tables as CSV: ``ood_detection_comparison.csv`` (CIFAR, mean of two networks and three seeds) and
``main_imagenet_benchmark.csv`` (ImageNet, by network).
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from adascale.tables import ranked, read

# The paper's "ASH" is ASH-B.
NAMES = {
    **{"msp": "MSP", "mls": "MLS", "ebo": "EBO", "react": "ReAct", "ash_b": "ASH", "scale": "SCALE", "bfact": "BFAct"},
    **{"lts": "LTS", "optfs": "OptFS", "adascale_a (preset)": "AdaSCALE-A", "adascale_l (preset)": "AdaSCALE-L"},
}
Cells = dict[str, tuple[str, str]]


def paper_rows(folder: Path, model: str) -> Cells:
    """Method -> near and far, as printed in the paper (FPR@95 / AUROC)."""
    if model.startswith("cifar"):
        first = 3 if model.startswith("cifar100") else 1
        with open(folder / "ood_detection_comparison.csv", newline="") as file:
            return {row[0]: (row[first], row[first + 1]) for row in list(csv.reader(file))[2:]}
    with open(folder / "main_imagenet_benchmark.csv", newline="") as file:
        found = [(row[1], row[2]) for row in list(csv.reader(file))[1:]]
    half = len(found) // 2
    return {name: (near, far) for (name, near), (_, far) in zip(found[:half], found[half:], strict=True)}


def table(folder: Path, paper: Path) -> str:
    document = read(folder)
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
    theirs = paper_rows(paper, model)
    lines = [
        "| method | near FPR@95 | near AUROC | far FPR@95 | far AUROC | paper near | paper far |",
        "|---" * 7 + "|",
    ]
    for method, *cells in zip(methods, *columns, strict=True):
        lines.append(f"| {method} | {' | '.join(cells)} | {' | '.join(theirs.get(NAMES.get(method, ''), ('', '')))} |")
    about = document["reproduce"]
    sizes = ", ".join(f"{name} {found['images']}" for name, found in about["sets"].items())
    left_out = [f"- {label}: {reason}" for label, reason in about["networks"][model]["left_out"].items()]
    parts = [f"### {model}\n\nImages: {sizes}.\n", "\n".join(lines)]
    return "\n".join([*parts, *(["\nLeft out:\n", *left_out] if left_out else [])]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--paper", type=Path, required=True)
    arguments = parser.parse_args()
    print("\n".join(table(folder, arguments.paper) for folder in arguments.results))


if __name__ == "__main__":
    main()
