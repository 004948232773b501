"""Rules that choose percentiles without OOD data, and what they lose to the best pair in hindsight."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from adascale import detectors
from adascale.decision.tuning import chosen_count, grid
from adascale.maths.split import split
from adascale.metrics import auroc
from benchmarks.generalise.activations import Subject
from benchmarks.generalise.measuring import Candidate, figures, scores, shares

Criterion = Literal["mean", "least"]
Pick = Literal["middle", "average"]
CRITERIA: tuple[Criterion, ...] = ("mean", "least")
PICKS: tuple[Pick, ...] = ("middle", "average")


class Rule(NamedTuple):
    """Which pairs are good, and what is done with them.

    criterion: the AUROC on made-up outliers, as the mean over their kinds or the least. Pairs within ``tolerance``
    percentage points of the best are good. pick: the one nearest to their middle, or the mean of the standardised
    scores of all of them.
    """

    criterion: Criterion
    tolerance: float
    pick: Pick

    def __str__(self) -> str:
        what = {"middle": "the middle of the pairs", "average": "scores averaged over the pairs"}[self.pick]
        return f"{self.criterion} over the kinds, {what} within {self.tolerance:g}"


RULES = [Rule(*parts) for parts in product(CRITERIA, (0.25, 0.5, 0.75, 1.0, 2.0), PICKS)]


@dataclass(frozen=True, eq=False)
class Swept:
    """Every pair of percentiles of one method on one network.

    judged: AUROC of ID images against each kind of made-up outliers, in percent (kinds, pairs). chosen_on: the scores
    of these ID images. tested: pair -> scores of the test sets, ID first. measured: pair -> the mean of near and far.
    """

    subject: Subject
    points: list[tuple[float, float]]
    judged: Tensor
    chosen_on: list[Tensor]
    tested: list[list[Tensor]]
    measured: Tensor

    def auroc_of(self, rule: Rule) -> float:
        """The mean of near and far, in percent, of what the rule chooses."""
        values = self.judged.mean(0) if rule.criterion == "mean" else self.judged.amin(0)
        good = torch.nonzero(values >= values.max() - rule.tolerance)[:, 0]
        if rule.pick == "middle":
            places = torch.tensor(self.points, dtype=torch.float64)
            distance = (places[good] - places[good].mean(0)).square().sum(1)
            nearest = good[distance <= distance.min() + 1e-9]
            return float(self.measured[nearest[values[nearest].argmax()]])
        units = [(self.chosen_on[i].mean(), self.chosen_on[i].std().clamp_min(1e-300)) for i in good.tolist()]
        parts = zip(*(self.tested[i] for i in good.tolist()), strict=True)
        averaged = [
            torch.stack([(part - mean) / std for part, (mean, std) in zip(each, units, strict=True)]).mean(0)
            for each in parts
        ]
        return _mean_auroc(self.subject, averaged)


def swept(subject: Subject, name: str) -> Swept:
    """Fitted on the images that `fit` would use, judged on those that it would choose on."""
    method = detectors.get(name)(pixels="random")
    n, points = len(subject.val), grid(method)
    parts = split(n, 0, 0.2, chosen_count(n))
    sets = [subject.val[parts.chosen], *(found[parts.chosen] for found in subject.made.values())]
    tests = [subject.id, *subject.unknown.values()]
    found: dict[int, list[Tensor]] = {}
    for i, values in method.sweep(points, subject.val[parts.fitted], subject.head, [*sets, *tests]):
        assert values is not None
        found[i] = [value.nan_to_num(posinf=torch.finfo(torch.float64).max) for value in values]
    ordered = [found[i] for i in range(len(points))]
    judged = [[100 * auroc(one[0], made) for made in one[1 : len(sets)]] for one in ordered]
    tested = [one[len(sets) :] for one in ordered]
    return Swept(
        subject,
        [(point["p_min"], point["p_max"]) for point in points],
        torch.tensor(judged, dtype=torch.float64).T,
        [one[0] for one in ordered],
        tested,
        torch.tensor([_mean_auroc(subject, one) for one in tested], dtype=torch.float64),
    )


class Tuned(NamedTuple):
    """One method on one network, mean of near and far AUROC in percent: untuned, as `fit` tunes it, at the best pair
    in hindsight, and by each rule.
    """

    default: float
    shipped: float
    hindsight: float
    rules: dict[Rule, float]


def tuned(subject: Subject, name: str) -> Tuned:
    method, sweep = detectors.get(name)(pixels="random"), swept(subject, name)
    untuned, shipped = (
        figures(subject, scores(subject, Candidate(name, method, tune))).auroc for tune in (False, True)
    )
    return Tuned(untuned, shipped, float(sweep.measured.max()), {rule: sweep.auroc_of(rule) for rule in RULES})


def _mean_auroc(subject: Subject, tested: list[Tensor]) -> float:
    values = torch.tensor([auroc(tested[0], part) for part in tested[1:]], dtype=torch.float64)
    return 100 * float(values @ shares(subject))
