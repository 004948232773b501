"""Why a detector answered as it did: every number of a verdict, traced back to the activations it comes from.

The record is plain data, made from the passes of the verdict. The service, ``adascale explain`` and its page, and the
displays of notebooks all show this one record.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from adascale.core.answers import label_of
from adascale.core.displays import drawn
from adascale.core.errors import InputError
from adascale.core.types import Outputs, View
from adascale.decision.tracing import Step, Trace, traces
from adascale.detectors.base import Detector
from adascale.detectors.combined import Combined
from adascale.extraction.extract import extract_batch
from adascale.extraction.given import Given
from adascale.maths.conformal import Calibration

if TYPE_CHECKING:
    from adascale.decision.answering import Answering

_CLASSES = 3  # the most probable ones that are listed


@dataclass(frozen=True)
class Chance:
    """A class that the network may see: its number, its name (or number), and its probability (softmax)."""

    prediction: int
    label: str
    probability: float


@dataclass(frozen=True)
class Member:
    """What one member of `Combined` says: ``adds = weight * evidence(score)``.

    usual: what it adds to an ID image on average, since minus the logarithm of a uniform share has mean 1, so it is the
    weight. share: that of the ID images which are as unusual to the member; None if it has no weight.
    """

    name: str
    score: float
    weight: float
    adds: float

    @property
    def usual(self) -> float:
        """What the member adds on average for in-distribution images: its weight, since evidence is 1 on average."""
        return self.weight

    @property
    def evidence(self) -> float | None:
        """What it adds, before the weight; None where the weight is 0."""
        return self.adds / self.weight if self.weight else None

    @property
    def share(self) -> float | None:
        """The share of in-distribution images that score as high by this member; None where the weight is 0."""
        return math.exp(-self.adds / self.weight) if self.weight else None


@dataclass(frozen=True, eq=False)
class Explanation:
    """The verdict on one image, and where its numbers come from.

    method: its name. classes: the most probable ones, first the predicted one; empty if a logit is not finite. members:
    what each member of a combined method adds to the score; empty for other methods. trace: what AdaSCALE measured,
    alone or as a member; None where there is none, or the activations are not finite. image: the input of the network
    (C, H, W). calibration: what set the threshold. name: that of the image, "" if it came as a tensor.
    """

    name: str
    method: str
    score: float
    p_value: float
    is_ood: bool
    classes: tuple[Chance, ...]
    members: tuple[Member, ...]
    trace: Trace | None
    image: Tensor
    calibration: Calibration
    rule: str = ""

    @property
    def threshold(self) -> float:
        """Scores above it are flagged."""
        return self.calibration.threshold

    @property
    def loudest(self) -> Member | None:
        """The member that adds the most."""
        return max(self.members, key=lambda one: one.adds, default=None)

    @property
    def steps(self) -> tuple[Step, ...]:
        """Each number of the verdict, in the order in which they follow from each other."""
        first = () if self.trace is None else self.trace.steps
        return (*first, *_combination(self), *_decision(self))

    def _repr_html_(self) -> str:
        return str(drawn("explanation_html", self))

    def __repr__(self) -> str:
        found = "out-of-distribution" if self.is_ood else "in-distribution"
        return f"Explanation({self.method}, score {self.score:.6g}, p-value {self.p_value:.4g}: {found})"


def explain_one(detector: Answering, batches: Sequence[Given]) -> Explanation:
    """The explanation of a single image, by a pass of its own."""
    count = sum(len(given.images) for given in batches)
    if count != 1:
        raise InputError(f"explain got {count} images; give one.")
    (given,) = (given for given in batches if len(given.images))
    moved: dict[View, Tensor] = {}
    outputs = extract_batch(detector.classifier, given.images, detector.method.wants, moved=moved)
    return explanations(detector, given.images, outputs, moved, given.names)[0]


def explanations(
    detector: Answering,
    images: Tensor,
    outputs: Outputs,
    moved: Mapping[View, Tensor] | None = None,
    names: Sequence[str] = (),
) -> list[Explanation]:
    """One for each image, from the inputs (N, C, H, W) and the `Outputs` that give the verdict; no pass is made.

    moved: the masks that `extract_batch` gives for views with gradients; without them such a mask is None.
    """
    method, verdict = detector.method, detector.judge(outputs)
    calibration = detector.calibration
    assert calibration is not None  # judge has seen to it
    members, found = _members(method, outputs), traces(method, images, outputs, moved or {})
    classes = _classes(outputs.logits, detector.class_names)
    return [
        Explanation(
            name=names[i] if names else "",
            method=method.name,
            score=float(verdict.score[i]),
            p_value=float(verdict.p_value[i]),
            is_ood=bool(verdict.is_ood[i]),
            classes=classes[i],
            members=members[i],
            trace=found[i],
            image=images[i],
            calibration=calibration,
            rule=method.rule if isinstance(method, Combined) else "",
        )
        for i in range(len(outputs))
    ]


def _classes(logits: Tensor, names: tuple[str, ...]) -> list[tuple[Chance, ...]]:
    """The most probable classes of each image; none where a logit is not finite."""
    found = torch.softmax(logits.double(), 1).topk(min(_CLASSES, logits.shape[1]), dim=1)
    rows = zip(found.indices.tolist(), found.values.tolist(), strict=True)
    return [
        tuple(
            Chance(place, label_of(place, names), value)
            for place, value in zip(places, values, strict=True)
            if math.isfinite(value)
        )
        for places, values in rows
    ]


def _members(method: Detector, outputs: Outputs) -> list[tuple[Member, ...]]:
    """What each member says, in their order."""
    if not isinstance(method, Combined):
        return [()] * len(outputs)
    adds = {name: values.tolist() for name, values in method.explained(outputs)[1].items()}
    voices = method.voices_.items()
    scores = {name: voice.method.score(outputs).tolist() for name, voice in voices}
    return [
        tuple(Member(name, scores[name][i], float(voice.weight), adds[name][i]) for name, voice in voices)
        for i in range(len(outputs))
    ]


def _combination(found: Explanation) -> list[Step]:
    """How the members make up the score."""
    steps = [
        Step(
            f"e({one.name})",
            f"what {one.name} adds: its weight times minus the log of the share of ID images that it scores as high",
            f"{one.weight:.4g} * {_number(one.evidence)}; its score is {one.score:.6g}",
            one.adds,
        )
        for one in found.members
    ]
    if steps:
        listed = [f"{one.adds:.6g}" for one in found.members]
        how = " + ".join(listed) if found.rule == "fisher" else f"the largest of {', '.join(listed)}"
        steps.append(Step("S", "the score: what the members add, together", how, found.score))
    return steps


def _decision(found: Explanation) -> list[Step]:
    """From the score to the verdict."""
    known, steps = found.calibration, list[Step]()
    n = len(known.scores)
    as_high = round(found.p_value * (n + 1)) - 1
    if not found.members and found.trace is None:
        steps.append(Step("S", f"the score of {found.method}: higher is more out-of-distribution", "", found.score))
    sign, words = (">", "out-of-distribution") if found.is_ood else ("≤", "in-distribution")
    return [
        *steps,
        Step("p-value", f"{as_high} of {n} calibration images score at least as high", f"(1 + {as_high}) / ({n} + 1)",
             found.p_value),
        Step("τ", f"the threshold: at most {100 * known.promised:.3g} % of in-distribution images score above it",
             f"flagged is a p-value of at most {known.level:.4g}", known.threshold),
        Step("verdict", words, f"{found.score:.6g} {sign} {known.threshold:.6g}", None),
    ]  # fmt: skip


def _number(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.6g}"


def as_values(found: Explanation) -> dict[str, Any]:
    """The explanation as JSON takes it, without the arrays: those are the activations and the reference."""
    return {
        "image": found.name, "method": found.method, "is_ood": found.is_ood, "score": _json(found.score),
        "p_value": found.p_value, "threshold": _json(found.threshold),
        "classes": [{"prediction": one.prediction, "class": one.label, "probability": one.probability}
                    for one in found.classes],
        "evidence": {one.name: _json(one.adds) for one in found.members},
        "steps": [{"symbol": one.symbol, "meaning": one.meaning, "formula": one.formula, "value": _json(one.value)}
                  for one in found.steps],
    }  # fmt: skip


def _json(value: float | None) -> float | None:
    """JSON knows no infinity."""
    return value if value is not None and math.isfinite(value) else None
