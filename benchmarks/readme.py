"""The tables of README.md, from what other commands wrote and from the registries; also the count in docs/index.md.

    python -m benchmarks.readme

`measured` takes the figures of docs/generalise.md (python -m benchmarks.generalise makes them); `peers` takes the
counts of methods of benchmarks/field.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from adascale.detectors.registry import OURS
from adascale.report.markdown import markdown_table
from benchmarks.field import OPENOOD, OPENOOD_VERSION, PYTORCH_OOD, PYTORCH_OOD_VERSION

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "README.md"
SHOWN = {
    "cifar10_densenet101": "CIFAR-10 DenseNet",
    "cifar100_densenet101": "CIFAR-100 DenseNet",
    "imagenet_resnet50": "ImageNet ResNet-50",
    "cifar10_vit": "CIFAR-10 ViT",
}
METHODS = {"default": "`combined`, the default"} | {name: f"`{name}`" for name in ("adascale_l", "fdbd", "mls")}
DEFAULT = "default"


def figures() -> dict[str, dict[str, str]]:
    """Method -> network (or ``mean``) -> "AUROC / FPR@95", as docs/generalise.md has them."""
    page = (ROOT / "docs" / "generalise.md").read_text("utf8")
    (table,) = re.findall(r"<!-- generalise main -->\s(.*?)<!-- end -->", page, re.DOTALL)
    header, _, *lines = [line for line in table.splitlines() if line.startswith("|")]
    networks = _cells(header)[1:]
    return {name: dict(zip(networks, cells, strict=True)) for name, *cells in map(_cells, lines)}


def _auroc(cell: str) -> float:
    return float(cell.split(" / ")[0])


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def measured() -> str:
    found = figures()
    count = len(found[DEFAULT]) - 1
    header = ["AUROC / FPR@95, %", *SHOWN.values(), f"mean of {count} networks"]
    columns = (*SHOWN, "mean")
    best = {network: max(_auroc(found[name][network]) for name in METHODS) for network in columns}
    lines = [
        [title, *(_bold(found[name][network], best[network]) for network in columns)] for name, title in METHODS.items()
    ]
    return f"{markdown_table(header, lines)}\n{_not_best(found)}"


def _bold(cell: str, best: float) -> str:
    return f"**{cell}**" if _auroc(cell) == best else cell


def _not_best(found: Mapping[str, Mapping[str, str]]) -> str:
    """Where a single method of the table is ahead of the default, in one sentence."""
    networks = [name for name in found[DEFAULT] if name != "mean"]
    ahead = []
    for network in networks:
        aurocs = {name: _auroc(found[name][network]) for name in METHODS if name != DEFAULT}
        best = max(aurocs, key=aurocs.__getitem__)
        ours, theirs = _auroc(found[DEFAULT][network]), _auroc(found[best][network])
        if theirs > ours:
            ahead.append(f"`{best}` on {SHOWN.get(network, network)} ({theirs:.1f} to {ours:.1f})")
    where = f"On {len(ahead)} of the {len(networks)} networks another line is ahead of it: {', '.join(ahead)}."
    return f"The default is not best everywhere. {where if ahead else 'On these networks no other line is ahead.'}"


def peers() -> str:
    rows = [
        ("detection methods", str(len(OURS)), str(len(OPENOOD)), str(len(PYTORCH_OOD))),
        ("p-value and threshold with a promise about false alarms", "yes", "no", "no"),
        ("any classifier as it is, command line, saved detectors", "yes", "scripts of its benchmarks", "no"),
        ("export (ONNX, OpenVINO), HTTP service, monitoring", "yes", "no", "no"),
        ("training for OOD detection", "2 recipes", "about 35 trainers", "about 15 losses"),
        ("anomaly detection, segmentation, text", "no", "anomaly detection", "data sets and metrics for all three"),
        ("public leaderboard, trained checkpoints", "no", "yes", "checkpoints"),
    ]
    header = ["", "adascale", f"OpenOOD {OPENOOD_VERSION}", f"pytorch-ood {PYTORCH_OOD_VERSION}"]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([f"| {' | '.join(header)} |", "|---|---|---|---|", *lines])


def block(name: str) -> re.Pattern[str]:
    """The part of the page between the marks of this name."""
    return re.compile(
        rf"(<!-- made by: python -m benchmarks.readme \({name}\) -->\n\n)(.*?)(\n\n<!-- end -->)", re.DOTALL
    )


BLOCKS: Mapping[str, Callable[[], str]] = {"measured": measured, "peers": peers}


def filled(page: str) -> str:
    """The page with its tables and its count of methods made anew."""
    for name, made in BLOCKS.items():
        page = block(name).sub(lambda found, made=made: found[1] + made() + found[3], page)  # type: ignore[misc]
    return re.sub(r"\d+ methods in all", f"{len(OURS)} methods in all", page)


def main() -> None:
    for page in (PAGE, ROOT / "docs" / "index.md"):
        page.write_text(filled(page.read_text("utf8")), "utf8")


if __name__ == "__main__":
    main()
