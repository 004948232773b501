"""The studies of AdaSCALE's parameters: its statistic, its pixels, and each number by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from adascale.detectors import LTS, SCALE, ActivationShift
from adascale.detectors.adaptive import Statistic
from adascale.paper.studies.experiment import AdaScaleName
from adascale.paper.studies.study import TEXTS, Study
from adascale.paper.studies.variants import Bases, Sensitivity, Variant, Variation, changed, one_parameter

# The paper's rows, and our name of the statistic. "top k2 of a" is the sum of the k2 % largest activations.
_STATISTICS: dict[str, Statistic] = {
    "Q": "q",
    "C_o": "c_o",
    "lambda Q + C_o": "q_prime",
    "top k2 of a": "top",
    "lambda Q + top k2 of a": "q_top",
}
_PIXELS = {
    f"{pixels} {share} %": {"pixels": pixels, "fraction": share / 100}
    for pixels in ("random", "trivial", "salient")
    for share in (1, 5, 10, 50)
}
_SHARES: dict[str, Any] = {**{f"o={o}": {"fraction": o / 100} for o in (1, 2, 5, 10)}, "o=100": {"pixels": "all"}}
_PERCENTILES = (60, 65, 70, 75, 80, 85, 90, 95, 99)


def _statistics(bases: Bases) -> list[Variant]:
    base = bases("adascale_a")
    view = {name: getattr(base, name) for name in ("k1", "pixels", "fraction", "epsilon", "seed")}
    score = Variant("Q as the score", ActivationShift(**view))
    return [score, *(Variant(row, replace(base, statistic=name)) for row, name in _STATISTICS.items())]


def _lower(bases: Bases) -> list[Variant]:
    """``p_min`` up to ``p_max``, where AdaSCALE-A is SCALE and AdaSCALE-L is LTS."""
    return _percentiles(bases, "p_min", "p_max")


def _upper(bases: Bases) -> list[Variant]:
    """``p_max`` from ``p_min`` on."""
    return _percentiles(bases, "p_max", "p_min")


def _percentiles(bases: Bases, moved: str, fixed: str) -> list[Variant]:
    found = []
    prefixes: dict[AdaScaleName, str] = {"adascale_a": "", "adascale_l": "L: "}
    for name, prefix in prefixes.items():
        base = bases(name)
        end = getattr(base, fixed)
        inside = (p for p in _PERCENTILES if (p < end if moved == "p_min" else p > end))
        for p in sorted({*inside, end}):
            change: dict[str, Any] = {moved: p}
            found.append(Variant(f"{prefix}{moved}={p:g}", replace(base, **change)))
        without = SCALE(percentile=end, relu=True) if name == "adascale_a" else LTS(percentile=end)
        found.append(Variant(f"{without.name} at {end:g}", without))
    return found


STUDIES: tuple[Study, ...] = (
    Variation(*TEXTS["q-vs-qprime"], variants=changed({"Q": {"statistic": "q"}, "Q'": {"statistic": "q_prime"}})),
    Variation(*TEXTS["statistic"], variants=_statistics),
    Variation(*TEXTS["perturbation"], spectra=("ood", "full"), variants=changed({**_PIXELS, "all": {"pixels": "all"}})),
    Sensitivity(*TEXTS["epsilon"], variants=one_parameter("epsilon", "epsilon", (0.1, 0.5, 1))),
    Sensitivity(*TEXTS["lambda"], variants=one_parameter("lam", "lambda", (0, 0.1, 1, 10, 20, 30, 100))),
    Sensitivity(*TEXTS["k1"], variants=one_parameter("k1", "k1", (1, 2, 3, 5, 10, 50, 100))),
    Sensitivity(*TEXTS["k2"], variants=one_parameter("k2", "k2", (1, 5, 10, 20, 50, 80, 100))),
    Sensitivity(*TEXTS["o"], variants=changed(_SHARES)),
    Sensitivity(*TEXTS["p-min"], variants=_lower),
    Sensitivity(*TEXTS["p-max"], variants=_upper),
)
