"""What AdaSCALE is made of: the statistic that sets the percentile, and which pixels are perturbed."""

from __future__ import annotations

from dataclasses import replace

from adascale.detectors import ActivationShift
from adascale.detectors.adaptive import Statistic
from adascale.paper.studies.measure import Variant
from adascale.paper.studies.setting import Study
from adascale.paper.studies.variation import Bases, Variation, changed

# Rows, and our name of the statistic. top k2 of a: the sum of the k2 % largest activations.
_STATISTICS: dict[str, Statistic] = {
    "Q": "q",
    "C_o": "c_o",
    "lambda Q + C_o": "q_prime",
    "top k2 of a": "top",
    "lambda Q + top k2 of a": "q_top",
}
_SHARES = (1, 5, 10, 50)


def _statistics(bases: Bases) -> list[Variant]:
    base = bases("adascale_a")
    view = {name: getattr(base, name) for name in ("k1", "pixels", "fraction", "epsilon", "seed")}
    score = Variant("Q as the score", ActivationShift(**view))
    return [score, *(Variant(row, replace(base, statistic=name)) for row, name in _STATISTICS.items())]


STUDIES: tuple[Study, ...] = (
    Variation(
        "q-vs-qprime",
        "Q against Q'",
        "q_prime_vs_q and q_prime_vs_q_avg",
        "What does C_o add to the shift Q, network by network?",
        "clean and one view",
        changed({"Q": {"statistic": "q"}, "Q'": {"statistic": "q_prime"}}),
    ),
    Variation(
        "statistic",
        "The statistic that sets the percentile",
        "q_computation",
        "Which of Q, C_o and the strongest activations should set the percentile; and is Q a score by itself?",
        "clean and one view",
        _statistics,
    ),
    Variation(
        "perturbation",
        "Which pixels are perturbed, and how many",
        "perturbation_study",
        "Does it matter which pixels are perturbed: random, trivial, salient, all?",
        "13 views, and the shifted ID images",
        changed(
            {
                **{
                    f"{pixels} {share} %": {"pixels": pixels, "fraction": share / 100}
                    for pixels in ("random", "trivial", "salient")
                    for share in _SHARES
                },
                "all": {"pixels": "all"},
            }
        ),
        ("ood", "full"),
    ),
)
