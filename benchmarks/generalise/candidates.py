"""What is compared: every method alone, the default, and the default with one choice made otherwise."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Literal

from adascale import detectors
from adascale.detectors.combined import Combined
from benchmarks.generalise.measuring import Candidate

DEFAULT = "combined"
FULL = "all members count in full"  # however few images they have learned from
_LEFT_OUT = ("odin", DEFAULT)  # ODIN needs passes with a gradient of its own


def single_methods() -> list[Candidate]:
    """Every method as a user gets it by its name, with random pixels: AdaSCALE is tuned, the others have defaults."""
    found = []
    for name in detectors.names():
        cls = detectors.get(name)
        if name not in _LEFT_OUT and not (cls().looks_inside or cls.learns_view):  # what is stored are features
            parameters = {"pixels": "random"} if any(one.name == "pixels" for one in fields(cls)) else {}
            found.append(Candidate(name, cls(**parameters)))
    return found


def variants() -> list[Candidate]:
    """The default first, then one choice changed at a time: members, weights, rule, tuning."""
    default = Combined()
    members = default.members
    weights: Literal["equal", "decorrelated"] = "decorrelated" if default.weights == "equal" else "equal"
    rule: Literal["fisher", "tippett"] = "tippett" if default.rule == "fisher" else "fisher"
    made = {f"without {name}": replace(default, members=_without(members, name)) for name in members}
    made |= {f"with {name}": replace(default, members=(*members, name)) for name in ("nci", "knn", "mls")}
    first = next(name for name in members if name.startswith("adascale"))
    other = {"adascale_l": "adascale_a", "adascale_a": "adascale_l"}[first]
    made[f"{other} for {first}"] = replace(default, members=(other, *_without(members, first)))
    made[f"{first} and fdbd alone"] = replace(default, members=(first, "fdbd"))
    made[f"{weights} weights"] = replace(default, weights=weights)
    made[f"rule {rule}"] = replace(default, rule=rule)
    made["members learn from training images"] = replace(default, learn_from="train")
    made[FULL] = replace(default, few=0)
    found = [Candidate(DEFAULT, default), *(Candidate(name, method) for name, method in made.items())]
    return [*found, Candidate("not tuned", default, tune=False)]


def _without(members: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple(member for member in members if member != name)
