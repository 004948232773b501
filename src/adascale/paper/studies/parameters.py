"""The studies of AdaSCALE's parameters: its statistic, its pixels, and each number by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from adascale.detectors import LTS, SCALE, ActivationShift
from adascale.detectors.shift import Statistic
from adascale.paper.studies.study import TEXTS, Study
from adascale.paper.studies.variants import Bases, Variant, Variants, Variation, changed, one_parameter

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


def _percentiles(moved: str, fixed: str) -> Variants:
    """``p_min`` up to ``p_max`` or ``p_max`` down to ``p_min``: there AdaSCALE-A is SCALE and AdaSCALE-L is LTS."""
    prefixes = {"adascale_a": "", "adascale_l": "L: "}

    def variants(bases: Bases) -> list[Variant]:
        found = []
        for name, prefix in prefixes.items():
            base = bases(name)
            end = getattr(base, fixed)
            inside = (p for p in _PERCENTILES if (p < end if moved == "p_min" else p > end))
            changes: list[dict[str, Any]] = [{moved: p} for p in sorted({*inside, end})]
            found += [Variant(f"{prefix}{moved}={change[moved]:g}", replace(base, **change)) for change in changes]
            without = SCALE(percentile=end, relu=True) if name == "adascale_a" else LTS(percentile=end)
            found.append(Variant(f"{without.name} at {end:g}", without))
        return found

    return variants


_SENSITIVITY = {
    "epsilon": one_parameter("epsilon", "epsilon", (0.1, 0.5, 1)),
    "lambda": one_parameter("lam", "lambda", (0, 0.1, 1, 10, 20, 30, 100)),
    "k1": one_parameter("k1", "k1", (1, 2, 3, 5, 10, 50, 100)),
    "k2": one_parameter("k2", "k2", (1, 5, 10, 20, 50, 80, 100)),
    "o": changed(_SHARES),
    "p-min": _percentiles("p_min", "p_max"),
    "p-max": _percentiles("p_max", "p_min"),
}
STUDIES: tuple[Study, ...] = (
    Variation(*TEXTS["q-vs-qprime"], variants=changed({"Q": {"statistic": "q"}, "Q'": {"statistic": "q_prime"}})),
    Variation(*TEXTS["statistic"], variants=_statistics),
    Variation(*TEXTS["perturbation"], spectra=("ood", "full"), variants=changed({**_PIXELS, "all": {"pixels": "all"}})),
    *(Variation(*TEXTS[name], sensitivity=True, variants=variants) for name, variants in _SENSITIVITY.items()),
)
