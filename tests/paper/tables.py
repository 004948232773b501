"""The paper's tables as they are printed, each read into (data, network, row, spectrum, kind) -> (FPR@95, AUROC)."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from tests.conftest import DATA

TABLES = DATA.parent / "paper_tables"
Place = tuple[str, str, str, str, str]
Pair = tuple[str, str]
Reader = Callable[[list[list[str]]], Iterator[tuple[Place, Pair]]]

KINDS = ("near", "far")
METHODS = {
    "MSP": "msp", "MLS": "mls", "EBO": "ebo", "ReAct": "react", "ASH": "ash_b", "SCALE": "scale", "BFAct": "bfact",
    "LTS": "lts", "OptFS": "optfs", "AdaSCALE-A": "adascale_a", "AdaSCALE-L": "adascale_l", "LINe": "line",
    "NNGuide": "nnguide", "MDS": "mds",
}  # fmt: skip
SYMBOLS = {"eps": "epsilon", "lambda": "lambda", "k_1": "k1", "k_2": "k2", "o": "o"}
STATISTICS = {
    "Q without scaling": "Q as the score",
    "Q": "Q",
    "sum_k=1^k_2 a^eps_argsort (a)_k": "C_o",
    "lambda * Q + sum_k=1^k_2 a^eps_argsort (a)_k": "lambda Q + C_o",
    "sum_k=1^k_2 max_k(a)": "top k2 of a",
    "lambda * Q + sum_k=1^k_2 max_k(a)": "lambda Q + top k2 of a",
}


def rows_of(name: str) -> list[list[str]]:
    with open(TABLES / f"{name}.csv", newline="", encoding="utf8") as file:
        return [[cell.strip() for cell in row] for row in csv.reader(file)]


def printed(name: str) -> dict[Place, Pair]:
    """All figures of a table by their place."""
    found = list(READERS[name](rows_of(name)))
    assert len(dict(found)) == len(found)
    return dict(found)


def pair(cell: str) -> Pair:
    first, second = cell.split("/")
    return first.strip(), second.strip()


def number(text: str) -> str:
    return f"{float(text.strip('%')):g}"


def kind_of(text: str) -> str:
    return text.partition("-")[0].lower()


def filled(rows: Sequence[list[str]], columns: int) -> Iterator[list[str]]:
    """An empty cell of the first columns repeats the one above it."""
    above = [""] * columns
    for row in rows:
        above = [cell or last for cell, last in zip(row[:columns], above, strict=True)]
        yield [*above, *row[columns:]]


def ours(row: str, kind: str, data: str = "imagenet", network: str = "resnet-50", spectrum: str = "ood") -> Place:
    return data, network, row, spectrum, kind


def by_network(rows: list[list[str]], names: dict[str, str]) -> Iterator[tuple[Place, Pair]]:
    networks = rows[0][2:]
    for kind, row, *cells in filled(rows[1:], 1):
        for network, cell in zip(networks, cells, strict=True):
            yield ours(names.get(row, row), kind_of(kind), network=network.lower()), pair(cell)


def by_data(rows: list[list[str]], data: tuple[str, str]) -> Iterator[tuple[Place, Pair]]:
    places = [(name, kind) for name in data for kind in KINDS]
    for method, *cells in rows[2:]:
        for (name, kind), cell in zip(places, cells, strict=True):
            yield ours(METHODS[method], kind, name, "average"), pair(cell)


def near_far(
    rows: list[list[str]], label: Callable[[str], str], network: str = "resnet-50", spectrum: str = "ood"
) -> Iterator[tuple[Place, Pair]]:
    for row, *cells in rows[1:]:
        for kind, cell in zip(KINDS, cells, strict=True):
            yield ours(label(row), kind, network=network, spectrum=spectrum), pair(cell)


def four_numbers(rows: list[list[str]], label: Callable[[str], str]) -> Iterator[tuple[Place, Pair]]:
    for row, a, b, c, d in rows[2:]:
        yield ours(label(row), "near"), (a, b)
        yield ours(label(row), "far"), (c, d)


def grid(rows: list[list[str]], down: str, right: str) -> Iterator[tuple[Place, Pair]]:
    for first, *cells in rows[1:]:
        for second, cell in zip(rows[0][1:], cells, strict=True):
            yield ours(f"{down}={number(first)} {right}={number(second)}", "near"), pair(cell)


def perturbation(rows: list[list[str]]) -> Iterator[tuple[Place, Pair]]:
    places = [(spectrum, kind) for spectrum in ("ood", "full") for kind in KINDS]
    for pixels, share, *cells in filled(rows[2:], 1):
        row = "all" if pixels == "All" else f"{pixels.lower()} {number(share)} %"
        for (spectrum, kind), cell in zip(places, cells, strict=True):
            yield ours(row, kind, spectrum=spectrum), pair(cell)


def side_by_side(rows: list[list[str]]) -> Iterator[tuple[Place, Pair]]:
    for row in rows[1:]:
        for start in range(0, len(row), 3):
            label = f"{SYMBOLS[rows[0][start]]}={number(row[start])}"
            for kind, cell in zip(KINDS, row[start + 1 : start + 3], strict=True):
                yield ours(label, kind), pair(cell)


def one_below_the_other(rows: list[list[str]]) -> Iterator[tuple[Place, Pair]]:
    symbol = ""
    for first, *cells in rows[1:]:
        if not any(cells):
            symbol = "p_max" if first.endswith("p_max") else SYMBOLS[first]
            continue
        for kind, cell in zip(KINDS, cells, strict=True):
            yield ours(f"{symbol}={number(first)}", kind, network="vit-b-16"), pair(cell)


def validation(rows: list[list[str]]) -> Iterator[tuple[Place, Pair]]:
    for epsilon, lam, o, p_max, auroc in filled(rows[1:], 3):
        label = f"epsilon={number(epsilon)} lambda={number(lam)} o={number(o)} p_max={number(p_max)}"
        yield ours(label, "val", network="vit-b-16"), ("", auroc)


def percentiles(rows: list[list[str]]) -> Iterator[tuple[Place, Pair]]:
    for kind, *cells in rows[1:]:
        for p_min, cell in zip(rows[0][1:], cells, strict=True):
            yield ours(f"p_min={number(p_min)}", kind_of(kind)), pair(cell)


def adversarial(rows: list[list[str]]) -> Iterator[tuple[Place, Pair]]:
    for eps, method, a, b, c, d in filled(rows[2:], 1):
        yield ours(f"{eps} {METHODS[method]}", "near"), (a, b)
        yield ours(f"{eps} {METHODS[method]}", "far"), (c, d)


def combined() -> dict[tuple[str, str, str], Pair]:
    """Near and far of one figure in a cell there; here (table, row, kind) -> (FPR@95, AUROC)."""
    tables = (("corruption-blur", ""), ("corruption-jpeg", ""), ("adversarial", "eps=0.05 "))
    found: dict[tuple[str, str, str], list[str]] = {}
    for method, *cells in rows_of("corruption_combined")[1:]:
        for (table, before), cell in zip(tables, filter(None, cells), strict=False):
            for kind, value in zip(KINDS, pair(cell), strict=True):
                found.setdefault((table, f"{before}{METHODS[method]}", kind), []).append(value)
    return {place: (fpr95, auroc) for place, (fpr95, auroc) in found.items()}


def others() -> dict[tuple[str, str, str], str]:
    """(table, row, column) -> value of what is neither FPR@95 nor AUROC."""
    ratios, times = rows_of("adv_ratio"), rows_of("latency")
    found = {}
    for row, *cells in ratios[1:]:
        for title, cell in zip(ratios[0][1:], cells, strict=True):
            found["adversarial-ratio", row, title.partition("(")[2].strip(")")] = cell
    for row, *cells in times[1:]:
        for column, cell in zip(times[0][1:], cells, strict=True):
            label = {"Fixed": "fixed", "Variable": "variable", "Latency": "ratio"}[row.split()[0]]
            found["latency", label, column] = cell.replace("\\mu s", "")
    return found


def valued(symbol: str, text: str) -> str:
    return f"{symbol}={number(text)}"


READERS: dict[str, Reader] = {
    "main_imagenet_benchmark": partial(by_network, names=METHODS),
    "q_prime_vs_q": partial(by_network, names={}),
    "ood_detection_comparison": partial(by_data, data=("cifar10", "cifar100")),
    "one_hyperparameter": partial(by_data, data=("imagenet", "cifar100")),
    "fsood": partial(near_far, label=METHODS.__getitem__, network="average", spectrum="full"),
    "q_prime_vs_q_avg": partial(near_far, label=str, network="average"),
    "q_computation": partial(near_far, label=STATISTICS.__getitem__),
    "training_statistics": partial(near_far, label=partial(valued, "n")),
    "corruption_blur": partial(four_numbers, label=METHODS.__getitem__),
    "corruption_jpeg": partial(four_numbers, label=METHODS.__getitem__),
    "distance_based_comparison": partial(four_numbers, label=METHODS.__getitem__),
    "sentivity_epsilon": partial(four_numbers, label=partial(valued, "epsilon")),
    "sentivity_k_1": partial(four_numbers, label=partial(valued, "k1")),
    "sentivity_k_2": partial(four_numbers, label=partial(valued, "k2")),
    "sentivity_lambda": partial(four_numbers, label=partial(valued, "lambda")),
    "joint_sensitivity_1": partial(grid, down="lambda", right="p_max"),
    "joint_sensitivity_2": partial(grid, down="k1", right="p_max"),
    "joint_sensitivity_3": partial(grid, down="k1", right="lambda"),
    "perturbation_study": perturbation,
    "sensitivity_resnet50": side_by_side,
    "sensitivity_single": one_below_the_other,
    "sensitivity_joint": validation,
    "sensitivity_percentile": percentiles,
    "adv_performance": adversarial,
}
