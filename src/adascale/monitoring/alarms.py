"""Alarms: evidence, the limit at which it is raised, when it began to rise, and the images behind it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Kind = Literal["ever", "continuing"]
MEANINGS = {
    "unusual": "images score higher than in-distribution images do",
    "typical": "images score lower than in-distribution images do: the traffic has become too typical",
    "repeated": "consecutive images score alike: a stuck camera, repeated images, or video",
    "classes": "the mix of predicted classes has changed",
}
SCORES = ("unusual", "typical", "repeated")
CLASSES = "classes"
KINDS: tuple[Kind, ...] = ("ever", "continuing")
TOP = 10  # images that are named
_LN10, _MOST = math.log(10), 300.0  # evidence beyond 10^300 is printed as that


@dataclass
class Contribution:
    """An image that added to the evidence. factor: the power of ten by which it multiplied it."""

    image: int
    name: str | None
    factor: float


@dataclass
class Alarm:
    """One alarm. Evidence is in logarithms.

    since: the evidence has risen since the image after this one, the last at which it was as low as ever before: the
    most likely place of a change. top: the images after that which added most.
    """

    name: str
    kind: Kind
    log_limit: float
    log_evidence: float = -math.inf
    log_highest: float = -math.inf
    raised_at: int | None = None
    since: int = 0
    top: list[Contribution] = field(default_factory=list)
    _total: float = 0.0
    _lowest: float = 0.0

    def update(self, log_evidence: float, log_before: float, image: int, name: str | None) -> bool:
        """Take in the evidence after an image, and say whether this image raised the alarm.

        log_before: what the evidence would be if the image had added nothing.
        """
        gain = log_evidence - log_before
        self._total += gain
        self.log_evidence, self.log_highest = log_evidence, max(self.log_highest, log_evidence)
        if self._total <= self._lowest:
            self._lowest, self.since, self.top = self._total, image, []
        elif gain > 0 and (len(self.top) < TOP or gain > self.top[-1].factor * _LN10):
            self.top = sorted([*self.top, Contribution(image, name, gain / _LN10)], key=lambda one: -one.factor)[:TOP]
        if self.raised_at is None and log_evidence >= self.log_limit:
            self.raised_at = image
            return True
        return False

    @property
    def raised(self) -> bool:
        return self.raised_at is not None

    @property
    def risen(self) -> bool:
        """Whether the evidence has grown at least tenfold since its lowest point."""
        return self._total - self._lowest >= _LN10

    def promise(self) -> str:
        """What is promised about false alarms of this one."""
        limit = math.exp(self.log_limit)
        if self.kind == "ever":
            return f"the chance that it is ever raised by in-distribution images is at most {1 / limit:.4g}"
        return (
            f"in-distribution images raise it after {limit:.6g} images or more on average, and within the first n "
            f"images with a chance of at most n / {limit:.6g}"
        )

    def summary(self) -> dict[str, Any]:
        """All about the alarm, ready for JSON. p_value: only for ``ever``; it may be looked at at any time."""
        return {
            "name": self.name,
            "kind": self.kind,
            "says": MEANINGS[self.name],
            "promise": self.promise(),
            "evidence": 10 ** min(_MOST, log10(self.log_evidence)),
            "log10_evidence": log10(self.log_evidence),
            "limit": math.exp(self.log_limit),
            "p_value": min(1.0, math.exp(-max(0.0, self.log_highest))) if self.kind == "ever" else None,
            "raised": self.raised,
            "raised_at": self.raised_at,
            "since": self.since + 1 if self.risen or self.raised else None,
            "top": [asdict(one) for one in self.top],
        }

    def state(self) -> dict[str, Any]:
        """Everything, ready for JSON: an infinite logarithm is None."""
        return {name: None if value == -math.inf else value for name, value in asdict(self).items()}

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Alarm:
        logs = {name: -math.inf if state[name] is None else state[name] for name in ("log_evidence", "log_highest")}
        own = {name.removeprefix("_"): value for name, value in {**state, **logs}.items()}
        alarm = cls(**{name: own[name] for name in ("name", "kind", "log_limit", *logs, "raised_at", "since")})
        alarm.top = [Contribution(**one) for one in state["top"]]
        alarm._total, alarm._lowest = state["_total"], state["_lowest"]
        return alarm


def log10(natural: float) -> float:
    """The logarithm to base ten of what has this natural logarithm; at least -300."""
    return max(-_MOST, natural / _LN10)
