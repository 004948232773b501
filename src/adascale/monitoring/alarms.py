"""Alarms: evidence, the limit at which it is raised, when it began to rise, and the images behind it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Kind = Literal["ever", "continuing"]
MEANINGS = {
    "unusual": "images score higher than in-distribution images do",
    "typical": "images score lower than in-distribution images do: the traffic has become too typical",
    "repeated": "consecutive images score alike: a stuck camera, repeated images, video, or many unusual ones",
    "classes": "the mix of predicted classes has changed",
}
SCORES = ("unusual", "typical", "repeated")
CLASSES = "classes"
KINDS: tuple[Kind, ...] = ("ever", "continuing")
TOP = 10  # images that are named
_LN10, _MOST = math.log(10), 300.0  # evidence beyond 10^300 is printed as that


@dataclass
class Contribution:
    """An image that added to the evidence. log10_factor: what it multiplied the evidence by."""

    image: int
    name: str | None
    log10_factor: float


@dataclass
class Rise:
    """When the evidence of one name began to rise.

    total: the sum of all gains, which falls as long as nothing has changed. since: the image at which it was lowest; a
    change comes most likely right after it. top: the images after that which added most.
    """

    total: float = 0.0
    lowest: float = 0.0
    since: int = 0
    top: list[Contribution] = field(default_factory=list)

    def add(self, gain: float, image: int, name: str | None) -> None:
        self.total += gain
        if self.total <= self.lowest:
            self.lowest, self.since, self.top = self.total, image, []
        elif gain > 0 and (len(self.top) < TOP or gain > self.top[-1].log10_factor * _LN10):
            every = [*self.top, Contribution(image, name, gain / _LN10)]
            self.top = sorted(every, key=lambda one: -one.log10_factor)[:TOP]

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Rise:
        return cls(**{**state, "top": [Contribution(**one) for one in state["top"]]})


@dataclass
class Alarm:
    """One alarm. Evidence is in natural logarithms. raised_at: the image that raised it; an alarm stays raised."""

    name: str
    kind: Kind
    log_limit: float
    log_evidence: float
    log_highest: float
    raised_at: int | None = None

    @classmethod
    def made(cls, name: str, kind: Kind, limit: float) -> Alarm:
        """An alarm before the first image, raised when its evidence reaches ``limit``."""
        start = 0.0 if kind == "ever" else -_MOST * _LN10  # M_0 = 1, R_0 = 0
        return cls(name, kind, math.log(limit), start, start)

    def update(self, log_evidence: float, image: int) -> bool:
        """Take in the evidence after an image, and say whether this image raised the alarm."""
        self.log_evidence, self.log_highest = log_evidence, max(self.log_highest, log_evidence)
        if self.raised or log_evidence < self.log_limit:
            return False
        self.raised_at = image
        return True

    @property
    def raised(self) -> bool:
        """Whether the evidence has reached the limit."""
        return self.raised_at is not None

    @property
    def title(self) -> str:
        """The name and the kind, for people."""
        return f"{self.name} ({self.kind})"

    def promise(self) -> str:
        """What is promised about false alarms of this one."""
        limit = math.exp(self.log_limit)
        if self.kind == "ever":
            return f"the chance that it is ever raised by in-distribution images is at most {1 / limit:.4g}"
        return (
            f"in-distribution images raise it after {limit:.6g} images or more on average, and within the first n "
            f"images with a chance of at most n / {limit:.6g}"
        )

    def summary(self, rise: Rise) -> dict[str, Any]:
        """All about the alarm, ready for JSON. p_value: only for ``ever``; it may be looked at at any time.

        since: the first image of the rise, if the evidence has grown at least tenfold since, or the alarm is raised.
        """
        risen = self.raised or rise.total - rise.lowest >= _LN10
        return {
            "name": self.name,
            "kind": self.kind,
            "says": MEANINGS[self.name],
            "promise": self.promise(),
            "evidence": 10 ** log10(self.log_evidence),
            "log10_evidence": log10(self.log_evidence),
            "limit": round(math.exp(self.log_limit), 6),
            "log10_limit": log10(self.log_limit),
            "p_value": math.exp(-max(0.0, self.log_highest)) if self.kind == "ever" else None,
            "raised": self.raised,
            "raised_at": self.raised_at,
            "since": rise.since + 1 if risen else None,
            "top": [asdict(one) for one in rise.top] if risen else [],
        }


def log10(natural: float) -> float:
    """The logarithm to base ten of what has this natural logarithm, from -300 to 300."""
    return min(_MOST, max(-_MOST, natural / _LN10))
