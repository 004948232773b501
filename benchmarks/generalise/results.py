"""All measurements of one run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import mean
from typing import TypeVar

import torch

from benchmarks.generalise.activations import Subject, subject
from benchmarks.generalise.candidates import DEFAULT, FULL, single_methods, variants
from benchmarks.generalise.choosing import Gap, Table, gap, left_out_choices, mean_auroc, mean_fpr95
from benchmarks.generalise.few import Few, few_images
from benchmarks.generalise.measuring import Array, Figures, Resamples, all_scores, figures
from benchmarks.generalise.rules import CHOOSABLE, MEAN_LOSS, WORST_LOSS, Rule, Tuned, tuned

TUNED = ("adascale_a", "adascale_l")
FEW = (DEFAULT, FULL, "mls", "fdbd", "adascale_l")
Found = TypeVar("Found")
Draws = dict[str, dict[str, tuple[Array, Array]]]  # candidate -> network -> AUROC and FPR@95 in each resample


@dataclass
class Results:
    """Figures of all candidates on all networks. about: name -> features, least feature, top-1, number of images."""

    networks: list[str] = field(default_factory=list)
    about: dict[str, list[str]] = field(default_factory=dict)
    singles: dict[str, dict[str, Figures]] = field(default_factory=dict)
    variants: dict[str, dict[str, Figures]] = field(default_factory=dict)
    draws: Draws = field(default_factory=dict)
    tuned: dict[str, dict[str, Tuned]] = field(default_factory=lambda: {name: {} for name in TUNED})
    few: dict[str, Few] = field(default_factory=dict)

    def add(self, one: Subject) -> None:
        """Measure everything on one network."""
        self.networks.append(one.name)
        self.about[one.name] = _about(one)
        resamples = Resamples(one)
        for table, candidates in ((self.singles, single_methods()), (self.variants, variants())):
            for name, found in all_scores(one, candidates).items():
                table.setdefault(name, {})[one.name] = figures(one, found)
                self.draws.setdefault(name, {})[one.name] = resamples.figures(found)
        for name in TUNED:
            self.tuned[name][one.name] = tuned(one, name)
        candidates = [c for c in (*variants(), *single_methods()) if c.name in FEW]
        self.few[one.name] = few_images(one, candidates)

    def join(self, other: Results) -> None:
        """Take over what was measured on other networks."""
        self.networks += other.networks
        self.about |= other.about
        self.few |= other.few
        _joined(self.singles, other.singles)
        _joined(self.variants, other.variants)
        _joined(self.draws, other.draws)
        _joined(self.tuned, other.tuned)

    @property
    def best_single(self) -> dict[str, str]:
        """Network -> the single method that is best on all others."""
        return left_out_choices(self.singles, self.networks)

    @property
    def best_variant(self) -> dict[str, str]:
        return left_out_choices(self.variants, self.networks)

    def row(self, choice: dict[str, str] | str) -> dict[str, Figures]:
        """Network -> the figures of a candidate, or of the one chosen for each network."""
        table: Table = {**self.singles, **self.variants}
        return {name: table[choice if isinstance(choice, str) else choice[name]][name] for name in self.networks}

    def gaps(self, first: dict[str, str] | str, second: dict[str, str] | str) -> tuple[Gap, Gap]:
        """The difference of the means over networks, AUROC and FPR@95."""
        one, other = self.row(first), self.row(second)
        values = [mean(one, self.networks) - mean(other, self.networks) for mean in (mean_auroc, mean_fpr95)]
        pairs = [
            [
                self.draws[_of(first, name)][name][place] - self.draws[_of(second, name)][name][place]
                for name in self.networks
            ]
            for place in (0, 1)
        ]
        return gap(values[0], pairs[0]), gap(values[1], pairs[1])

    def rule_without(self, left: str, strain: Strain | None = None) -> Rule:
        """The rule that is best on all other networks, one for both variants of AdaSCALE: that with the least strain.

        strain: what is made of the losses to hindsight of each variant; by default `against_demands`.
        """
        strain = strain or against_demands
        others = [[found for name, found in tuned.items() if name != left] for tuned in self.tuned.values()]
        return min(
            CHOOSABLE,
            key=lambda rule: strain([[found.hindsight - found.rules[rule] for found in each] for each in others]),
        )

    def losses(self, method: str, strain: Strain | None = None) -> dict[str, float]:
        """Network -> what this variant loses to hindsight there with the rule of the other networks."""
        chosen = {name: self.rule_without(name, strain) for name in self.tuned[method]}
        return {name: found.hindsight - found.rules[chosen[name]] for name, found in self.tuned[method].items()}


Strain = Callable[[Sequence[Sequence[float]]], float]


def against_demands(losses: Sequence[Sequence[float]]) -> float:
    """The largest of what is lost, on average and on the worst network, as a share of what may be lost."""
    return max(max(mean(each) / MEAN_LOSS, max(each) / WORST_LOSS) for each in losses)


def on_average(losses: Sequence[Sequence[float]]) -> float:
    return mean(map(mean, losses))


def measured(names: Sequence[str], folder: Path, trained: Path | None, jobs: int = 1) -> Results:
    """Everything on these networks, ``jobs`` of them at a time."""
    results, ask = Results(), partial(_one, folder=folder, trained=trained)
    with ProcessPoolExecutor(jobs, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        for name, part in zip(names, pool.map(ask, names), strict=True):
            print(f"{name} is measured", file=sys.stderr, flush=True)
            results.join(part)
    return results


def _one(name: str, folder: Path, trained: Path | None) -> Results:
    results = Results()
    results.add(subject(name, folder, trained))
    return results


def _joined(mine: dict[str, dict[str, Found]], theirs: dict[str, dict[str, Found]]) -> None:
    for name, row in theirs.items():
        mine.setdefault(name, {}).update(row)


def _of(choice: dict[str, str] | str, network: str) -> str:
    return choice if isinstance(choice, str) else choice[network]


def _about(one: Subject) -> list[str]:
    features = one.id.features
    sign = "signed" if float(features.min()) < 0 else "not negative"
    sizes = {"val": one.val, **({"train": one.train} if one.train else {}), "id": one.id, **one.unknown}
    images = ", ".join(f"{name} {len(part)}" for name, part in sizes.items())
    return [f"{features.shape[1]}, {sign}", f"{one.accuracy:.1f}", images]
