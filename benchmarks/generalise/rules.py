"""Rules that choose percentiles without OOD data, and what they lose to the best pair in hindsight."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from statistics import mean
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from adascale import Head, Outputs, detectors
from adascale.decision.fitting import Plan
from adascale.decision.tuning import KIND_WEIGHTS, TOLERANCE, Fold, Point, judged
from adascale.detectors import Detector
from adascale.metrics import auroc
from benchmarks.generalise.activations import Subject
from benchmarks.generalise.measuring import ALPHA, Candidate, figures, scores, shares

Criterion = Literal["mean", "sides", "three", "least", "both"]
Pick = Literal["best", "likely", "ratios", "scores"]
_LEAST_SHARE = {"mean": 0.0, "sides": 0.0, "three": 0.0, "least": 1.0, "both": 0.5}
_THREE = {"shuffled": 0.5, "mixed": 0.5, "blurred": 1.0}  # the kinds of the rule before, near and far


class Rule(NamedTuple):
    """Which pairs are good, and what is done with them.

    criterion: the AUROC on made-up outliers, as the mean over their kinds (sides: with near and far counting the same;
    three: so, and without masked and zoomed images), the least, or the mean of mean and least. Pairs within
    ``tolerance`` percentage points of the best are good. pick: the best; the mean of ``r`` over all good pairs (likely:
    over those that are often the best where the images are drawn again); or the mean of their standardised scores.
    """

    criterion: Criterion
    tolerance: float
    pick: Pick

    def __str__(self) -> str:
        of = {"mean": "mean", "sides": "mean of near and far", "least": "least", "both": "mean and least"}
        of["three"] = "mean of near and far, three kinds"
        likely = f", r averaged over pairs that are the best in {100 * LIKELY:g} % of the draws"
        what = {"best": "", "likely": likely, "ratios": f", r averaged within {self.tolerance:g}"}
        return of[self.criterion] + what.get(self.pick, f", scores averaged within {self.tolerance:g}")


_CRITERIA: tuple[Criterion, ...] = ("mean", "sides", "three", "least", "both")
_AVERAGES: tuple[Pick, ...] = ("ratios", "scores")
SPLITS = 5
_SIMPLE: tuple[Pick, ...] = ("best", "likely")
RULES = [Rule(criterion, 0.0, pick) for criterion, pick in product(_CRITERIA, _SIMPLE)]
SHIPPED = Rule("sides", 100 * TOLERANCE, "ratios")
DRAWS = 200
# What tuning may lose to the best pair in hindsight, in points: on average over networks, and on each.
MEAN_LOSS, WORST_LOSS = 0.4, 1.0
LIKELY = 0.05  # pairs that are the best in this share of the draws may be the best
RULES += [Rule(*parts) for parts in product(_CRITERIA, (0.75, 1.0, 1.5, 2.0, 3.0), _AVERAGES)]
# What could be shipped: early decisions rest on bounds of r, and no method of the package averages scores.
CHOOSABLE = [rule for rule in RULES if rule.pick != "scores"]


@dataclass(frozen=True, eq=False)
class Swept:
    """Every pair of percentiles of one method on one network.

    method, known: the method and the ID images that it is fitted on. judged: AUROC of ID images against each kind of
    made-up outliers, in percent (kinds, pairs). drawn: the same in each draw (draws, kinds, pairs). tested: pair ->
    scores of ``known``, then of the test sets, ID first. measured: pair -> the mean of near and far.
    """

    subject: Subject
    method: Detector
    known: Outputs
    points: list[Point]
    judged: Tensor
    drawn: Tensor
    tested: list[list[Tensor]]
    measured: Tensor

    def auroc_of(self, rule: Rule) -> float:
        """The mean of near and far, in percent, of what the rule chooses."""
        values = self._criterion(rule, self.judged)
        good = torch.nonzero(values >= values.max() - rule.tolerance - 1e-10)[:, 0].tolist()
        if rule.pick == "likely":
            shares = likely(self._criterion(rule, self.drawn))
            good = [i for i, share in enumerate(shares) if share >= LIKELY or i == int(values.argmax())]
        if rule.pick == "best" or len(good) == 1:
            return float(self.measured[values.argmax()])
        if rule.pick == "scores":
            return _mean_auroc(self.subject, self._averaged(good))
        method = replace(self.method, **self.method.averaged([self.points[i] for i in good]))
        method.fit(self.known, self.subject.head)
        return _mean_auroc(self.subject, [method.score(part) for part in _tests(self.subject)])

    def _criterion(self, rule: Rule, aurocs: Tensor) -> Tensor:
        """The criterion of each pair from AUROCs (..., kinds, pairs)."""
        share = _LEAST_SHARE[rule.criterion]
        weights = {"sides": KIND_WEIGHTS, "three": _THREE}.get(rule.criterion, dict.fromkeys(self.subject.made, 1.0))
        kinds = torch.tensor([weights.get(kind, 0.0) for kind in self.subject.made], dtype=torch.float64)
        return (1 - share) * (kinds @ aurocs / kinds.sum()) + share * aurocs.amin(-2)

    def _averaged(self, good: list[int]) -> list[Tensor]:
        """The mean of the scores of these pairs, in units of their deviation on ID images."""
        scaled = []
        for known, *tests in (self.tested[i] for i in good):
            scaled.append([(part - known.mean()) / known.std().clamp_min(1e-300) for part in tests])
        return [torch.stack(parts).mean(0) for parts in zip(*scaled, strict=True)]


def swept(subject: Subject, name: str, seed: int = 0) -> Swept:
    """Fitted on the images that `fit` would use, judged on those that it would choose on."""
    method = detectors.get(name)(pixels="random")
    plan, n = Plan(method, alpha=ALPHA, seed=seed), len(subject.val)
    parts, chosen = plan.split(n), plan.chosen(n)
    made = {kind: outputs[torch.tensor(chosen)] for kind, outputs in subject.made.items()}
    folds = plan.folds(method, parts, subject.val, len(chosen), made, None)
    points, known = list(plan.grid), subject.val[torch.cat([parts.chosen, parts.fitted])]
    found = judged(method, points, folds, subject.head, None)
    sets, ordered = [known, *_tests(subject)], dict[int, list[Tensor]]()
    for i, values in method.sweep(points, known, subject.head, sets):
        assert values is not None
        ordered[i] = [value.nan_to_num(posinf=torch.finfo(torch.float64).max) for value in values]
    tested = [ordered[i] for i in range(len(points))]
    measured = torch.tensor([_mean_auroc(subject, one[1:]) for one in tested], dtype=torch.float64)
    aurocs = torch.stack([found[i] for i in range(len(points))], 1)
    again = drawn(method, points, folds, subject.head)
    return Swept(subject, method, known, points, 100 * aurocs, 100 * again, tested, measured)


def drawn(method: Detector, points: list[Point], folds: list[Fold], head: Head, draws: int = DRAWS) -> Tensor:
    """AUROC (draws, kinds, pairs) where the images are drawn again, the mean over the folds.

    Bayesian bootstrap (D. B. Rubin, 1981): in each draw the images count as much as numbers from the flat Dirichlet
    distribution say, and an outlier as much as the image that it is made from.
    """
    total, generator = torch.zeros(draws, len(folds[0].unknown), len(points)).double(), torch.Generator().manual_seed(0)
    for reference, known, unknown in folds:
        weights = torch.empty(draws, len(known), dtype=torch.float64).exponential_(generator=generator)
        weights /= weights.sum(1, keepdim=True)
        for i, values in method.sweep(points, reference, head, [known, *unknown.values()]):
            assert values is not None
            for kind, made in enumerate(values[1:]):
                wins = (made[:, None] > values[0]).double() + 0.5 * (made[:, None] == values[0]).double()
                total[:, kind, i] += ((weights @ wins) * weights).sum(1) / len(folds)
    return total


def likely(values: Tensor) -> list[float]:
    """The share of the draws (draws, pairs) in which each pair is the best; pairs that tie share a draw."""
    best = (values == values.amax(1, keepdim=True)).double()
    shares: list[float] = (best / best.sum(1, keepdim=True)).mean(0).tolist()
    return shares


class Tuned(NamedTuple):
    """One method on one network, mean of near and far AUROC in percent: untuned, as `fit` tunes it, at the best pair
    in hindsight, and by each rule. Means over splits of the images.
    """

    default: float
    shipped: float
    hindsight: float
    rules: dict[Rule, float]


def tuned(subject: Subject, name: str, splits: int = SPLITS) -> Tuned:
    method, found = detectors.get(name)(pixels="random"), []
    for seed in range(splits):
        sweep = swept(subject, name, seed)
        fits = (scores(subject, Candidate(name, method, tune), seed=seed) for tune in (False, True))
        untuned, shipped = (figures(subject, one).auroc for one in fits)
        rules = {rule: sweep.auroc_of(rule) for rule in RULES}
        found.append(Tuned(untuned, shipped, float(sweep.measured.max()), rules))
    rules = {rule: mean(one.rules[rule] for one in found) for rule in RULES}
    untuned, shipped, hindsight = (mean(values) for values in zip(*(one[:3] for one in found), strict=True))
    return Tuned(untuned, shipped, hindsight, rules)


def _tests(subject: Subject) -> list[Outputs]:
    return [subject.id, *subject.unknown.values()]


def _mean_auroc(subject: Subject, tested: list[Tensor]) -> float:
    values = torch.tensor([auroc(tested[0], part) for part in tested[1:]], dtype=torch.float64)
    return 100 * float(values @ shares(subject))
