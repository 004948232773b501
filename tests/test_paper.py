"""The paper's figures as they are shipped."""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path

import pytest

from adascale import detectors, paper
from adascale.errors import InputError
from tests.conftest import DATA

TABLES = DATA.parent / "paper_tables"
PAIR = re.compile(r"([\d.]+)\s*/\s*([\d.]+)")


def printed(path: Path) -> Counter[tuple[str, ...]]:
    """The pairs of a table of the paper: ``a / b`` in one cell, or two numbers with two decimals in a row."""
    found: Counter[tuple[str, ...]] = Counter()
    with open(path, newline="", encoding="utf8") as file:
        for row in csv.reader(file):
            pairs = [match.groups() for cell in row for match in PAIR.finditer(cell)]
            numbers = [] if pairs else [cell for cell in row if re.fullmatch(r"\d+\.\d\d", cell.strip())]
            found.update(pairs + list(zip(numbers[::2], numbers[1::2], strict=True)))
    return found


@pytest.mark.skipif(not TABLES.is_dir(), reason=f"the paper's tables are not at {TABLES}")
def test_every_number_of_the_paper_is_shipped() -> None:
    lines = paper.lines("figures")
    special = {"sensitivity_joint", "corruption_combined", "adv_ratio", "latency", "dataset_setup_ood"}
    others = [line for line in paper.lines("others") if line["source"] != "text"]
    assert {line["source"] for line in [*lines, *others]} == {path.stem for path in TABLES.glob("*.csv")} - {
        "dataset_setup_ood"
    }
    for path in TABLES.glob("*.csv"):
        if path.stem not in special:
            ours = Counter((line["fpr95"], line["auroc"]) for line in lines if line["source"] == path.stem)
            assert ours == printed(path), path.stem
    text = (TABLES / "sensitivity_joint.csv").read_text()
    grid = [line["auroc"] for line in lines if line["source"] == "sensitivity_joint"]
    assert grid == re.findall(r"\d\d\.\d\d$", text, re.MULTILINE)
    # near / far of one figure in a cell there, FPR@95 / AUROC of one kind in a line here
    combined = [line for line in lines if line["source"] == "corruption_combined"]
    halves = Counter(number for pair in printed(TABLES / "corruption_combined.csv").elements() for number in pair)
    assert Counter(number for line in combined for number in (line["fpr95"], line["auroc"])) == halves
    for name in ("adv_ratio", "latency"):
        numbers = re.findall(r",(\d+\.\d\d|\d+(?=\\mu))", (TABLES / f"{name}.csv").read_text())
        assert sorted(line["value"] for line in paper.lines("others") if line["source"] == name) == sorted(numbers)


def test_no_two_lines_contradict() -> None:
    known: dict[tuple[str, ...], tuple[str, ...]] = {}
    for line in paper.lines("figures"):
        key = tuple(line[name] for name in ("table", "data", "network", "row", "spectrum", "kind"))
        assert known.setdefault(key, (line["fpr95"], line["auroc"])) == (line["fpr95"], line["auroc"])
        assert line["network"] in (*paper.networks(line["data"]), paper.AVERAGE)


def test_looking_figures_up() -> None:
    resnet, densenet = paper.place("imagenet/ResNet50"), paper.place("cifar10/densenet-101")
    assert paper.figure("main", resnet, "adascale_a", "near") == (58.98, 78.98, "resnet-50")
    assert paper.figure("main", densenet, "msp", "far") == (34.49, 90.88, "average")
    assert paper.figure("lambda", resnet, "lambda=10", "far") == (17.84, 96.14, "resnet-50")
    assert paper.figure("lambda", densenet, "lambda=10", "far") is None
    assert paper.figure("lambda", None, "lambda=10", "far") is None
    assert paper.figure("fsood", resnet, "lts", "near", "full") == (86.46, 53.29, "average")
    assert paper.other("latency", resnet, "variable", "D=2048") == 152
    assert paper.other("adversarial-ratio", None, "NINCO", "eps=0.05") is None
    assert len(paper.networks("imagenet")) == 8
    for text in ("resnet-50", "imagenet/resnet-49"):
        with pytest.raises(InputError, match="imagenet/resnet-50"):
            paper.place(text)
    with pytest.raises(InputError, match="presets for adascale_a"):
        detectors.preset("scale", "imagenet", "resnet-50")
