"""The tables of docs/generalise.md."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from statistics import mean

from adascale.report.document import DASH
from adascale.report.markdown import in_markdown, markdown_table
from benchmarks.generalise.candidates import DEFAULT
from benchmarks.generalise.choosing import mean_auroc, mean_fpr95
from benchmarks.generalise.few import COUNTS
from benchmarks.generalise.floors import floors
from benchmarks.generalise.measuring import Figures
from benchmarks.generalise.results import FEW, TUNED, Results, on_average

_PLACE = re.compile(r"(<!-- generalise (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(text: str, results: Results) -> str:
    """The page with every table made anew."""
    return _PLACE.sub(lambda match: f"{match[1]}\n{SECTIONS[match[2]](results)}\n{match[3]}", text)


def whole(results: Results) -> str:
    """Every table, with its name."""
    return "\n".join(f"## {name}\n\n{section(results)}" for name, section in SECTIONS.items())


def networks(results: Results) -> str:
    rows = [[name, *map(in_markdown, about)] for name, about in results.about.items()]
    return markdown_table(["network", "features", "top-1", "images"], rows)


def main_table(results: Results) -> str:
    """Each network left out once."""
    best, variant = results.best_single, results.best_variant
    rows = {
        "default": results.row(DEFAULT),
        "default, every choice made on the other networks": results.row(variant),
        "best single method of the other networks": results.row(best),
        **{name: results.row(name) for name in ("adascale_l", "adascale_a", "fdbd", "gen", "mls")},
    }
    header = ["AUROC / FPR@95", *results.networks, "mean"]
    table = markdown_table(header, [_line(name, row, results) for name, row in rows.items()])
    chosen = [f"- {left}: {best[left]}; {variant[left]}\n" for left in results.networks]
    return f"{table}\nChosen on the other networks, single method and variant of the default:\n\n{''.join(chosen)}"


def _line(name: str, row: Mapping[str, Figures], results: Results) -> list[str]:
    cells = [f"{row[network].auroc:.1f} / {row[network].fpr95:.1f}" for network in results.networks]
    return [name, *cells, f"{mean_auroc(row, results.networks):.2f} / {mean_fpr95(row, results.networks):.2f}"]


def gaps(results: Results) -> str:
    others = {"best single method of the other networks": results.best_single}
    others |= {name: dict.fromkeys(results.networks, name) for name in ("adascale_l", "adascale_a", "fdbd", "gen")}
    rows = [[name, *map(str, results.gaps(DEFAULT, other))] for name, other in others.items()]
    return markdown_table(["default minus", "AUROC", "FPR@95"], rows)


def singles(results: Results) -> str:
    """AUROC of every method; those that cannot be fitted on some network come last."""
    complete = {name: len(row) == len(results.networks) for name, row in results.singles.items()}
    means = {name: mean(one.auroc for one in row.values()) for name, row in results.singles.items()}
    order = sorted(results.singles, key=lambda name: (not complete[name], -means[name]))
    rows = []
    for name in order:
        row = results.singles[name]
        cells = [f"{row[network].auroc:.1f}" if network in row else DASH for network in results.networks]
        rows.append([name, *cells, f"{means[name]:.2f}" if complete[name] else DASH])
    return markdown_table(["AUROC", *results.networks, "mean"], rows)


def choices(results: Results) -> str:
    """The default with one choice made otherwise."""
    base, rows = results.row(DEFAULT), []
    for name, row in results.variants.items():
        if len(row) < len(results.networks):
            continue
        differences = {network: row[network].auroc - base[network].auroc for network in results.networks}
        worst = min(differences, key=differences.__getitem__)
        change = "" if name == DEFAULT else str(results.gaps(name, DEFAULT)[0])
        least = "" if name == DEFAULT else f"{differences[worst]:+.2f} ({worst})"
        means = f"{mean_auroc(row, results.networks):.2f}", f"{mean_fpr95(row, results.networks):.2f}"
        rows.append([name, *means, change, least])
    return markdown_table(["choice", "AUROC", "FPR@95", "AUROC minus default", "worst network"], rows)


def tuning(results: Results) -> str:
    parts = []
    for method in TUNED:
        rows, losses = [], []
        for name, found in results.tuned[method].items():
            rule = results.rule_without(name)
            lost = [found.hindsight - value for value in (found.default, found.shipped, found.rules[rule])]
            losses.append(lost)
            rows.append([name, f"{found.hindsight:.2f}", *(f"{value:.2f}" for value in lost), str(rule)])
        columns = list(zip(*losses, strict=True))
        rows += [
            [label, "", *(f"{of(column):.2f}" for column in columns), ""]
            for label, of in (("mean", mean), ("worst", max))
        ]
        header = [
            method,
            "best pair in hindsight",
            "60/85 loses",
            "as shipped",
            "rule of the other networks",
            "that rule",
        ]
        parts.append(markdown_table(header, rows))
    return "\n".join(parts)


def few(results: Results) -> str:
    rows = []
    for network, found in results.few.items():
        for name in FEW:
            cells = [DASH if math.isnan(found[name][n]) else f"{found[name][n]:.2f}" for n in COUNTS]
            rows.append([f"{network}: {name}", *cells])
    for name in FEW:
        columns = [[found[name][n] for found in results.few.values()] for n in COUNTS]
        rows.append([f"**mean: {name}**", *(f"{mean(column):.2f}" for column in columns)])
    return markdown_table(["images, no training set", *map(str, COUNTS)], rows)


def promises(results: Results) -> str:
    lines = [f"- {'met' if floor.met else '**not met**'}: {floor.text} ({floor.found})\n" for floor in floors(results)]
    lost = {method: results.losses(method, on_average) for method in TUNED}
    found = [f"{method} {mean(each.values()):.2f} on average and {_worst(each)}" for method, each in lost.items()]
    lines.append(f"\nWith the rule that loses least on average on the other networks: {'; '.join(found)}.\n")
    return "".join(lines)


def _worst(losses: Mapping[str, float]) -> str:
    worst = max(losses, key=losses.__getitem__)
    return f"{losses[worst]:.2f} at worst ({worst})"


SECTIONS: Mapping[str, Callable[[Results], str]] = {
    "networks": networks,
    "main": main_table,
    "gaps": gaps,
    "floors": promises,
    "choices": choices,
    "tuning": tuning,
    "few": few,
    "singles": singles,
}
