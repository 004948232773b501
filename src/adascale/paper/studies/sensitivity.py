"""One parameter of AdaSCALE at a time, all others as they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from adascale.detectors import LTS, SCALE
from adascale.detectors.adaptive import Adaptive
from adascale.paper.studies.measure import Variant
from adascale.paper.studies.setting import Name, Study
from adascale.paper.studies.variation import Bases, Sensitivity, changed, one

_PERCENTILES = (60, 65, 70, 75, 80, 85, 90, 95, 99)


def _lower(bases: Bases) -> list[Variant]:
    """``p_min`` up to ``p_max``, where AdaSCALE-A is SCALE and AdaSCALE-L is LTS."""
    return _percentiles(bases, "p_min", lambda base, p: p < base.p_max, "p_max")


def _upper(bases: Bases) -> list[Variant]:
    """``p_max`` from ``p_min`` on."""
    return _percentiles(bases, "p_max", lambda base, p: p > base.p_min, "p_min")


def _to(field: str, value: float) -> dict[str, Any]:
    return {field: value}


def _percentiles(bases: Bases, moved: str, inside: Callable[[Adaptive, float], bool], other: str) -> list[Variant]:
    found = []
    prefixes: dict[Name, str] = {"adascale_a": "", "adascale_l": "L: "}
    for name, prefix in prefixes.items():
        base = bases(name)
        end = getattr(base, other)
        values = sorted({p for p in _PERCENTILES if inside(base, p)} | {end})
        found += [Variant(f"{prefix}{moved}={p:g}", replace(base, **_to(moved, p))) for p in values]
        fixed = SCALE(percentile=end, relu=True) if name == "adascale_a" else LTS(percentile=end)
        found.append(Variant(f"{fixed.name} at {end:g}", fixed))
    return found


_ONE_VIEW, _SOURCES = "clean and one view", "sensitivity_resnet50 and sensitivity_single"

STUDIES: tuple[Study, ...] = (
    Sensitivity(
        "epsilon",
        "The size of the step, epsilon",
        f"sentivity_epsilon, {_SOURCES}",
        "How far does the perturbation have to go?",
        "one view for each of 3 values",
        one("epsilon", "epsilon", (0.1, 0.5, 1)),
    ),
    Sensitivity(
        "lambda",
        "The weight of Q, lambda",
        f"sentivity_lambda, {_SOURCES}",
        "How much should the shift Q weigh against C_o? 0 is C_o alone.",
        _ONE_VIEW,
        one("lam", "lambda", (0, 0.1, 1, 10, 20, 30, 100)),
    ),
    Sensitivity(
        "k1",
        "How many activations Q looks at, k1",
        f"sentivity_k_1, {_SOURCES}",
        "Is the shift of the few strongest activations the telling one?",
        _ONE_VIEW,
        one("k1", "k1", (1, 2, 3, 5, 10, 50, 100)),
    ),
    Sensitivity(
        "k2",
        "How many activations C_o looks at, k2",
        f"sentivity_k_2, {_SOURCES}",
        "Does one k2 fit every network, as the paper's text says?",
        _ONE_VIEW,
        one("k2", "k2", (1, 5, 10, 20, 50, 80, 100)),
    ),
    Sensitivity(
        "o",
        "The share of perturbed pixels, o",
        _SOURCES,
        "How many of the trivial pixels should be perturbed? 100 is all pixels.",
        "one view for each of 5 values",
        changed({**{f"o={o}": {"fraction": o / 100} for o in (1, 2, 5, 10)}, "o=100": {"pixels": "all"}}),
    ),
    Sensitivity(
        "p-min",
        "The lowest percentile, p_min",
        "sensitivity_percentile",
        "How wide should the range of percentiles be? At p_min = p_max it is SCALE (A) or LTS (L).",
        _ONE_VIEW,
        _lower,
    ),
    Sensitivity(
        "p-max",
        "The highest percentile, p_max",
        "sensitivity_single",
        "How wide should the range of percentiles be? At p_max = p_min it is SCALE (A) or LTS (L).",
        _ONE_VIEW,
        _upper,
    ),
)
