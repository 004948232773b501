"""The whole decision as one module of torch operations: network, method, calibration, threshold, p-value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from adascale.core.errors import InputError
from adascale.core.types import Head, Outputs, View
from adascale.detectors import Detector
from adascale.export.gradients import Perturbation, with_gradients
from adascale.extraction.extract import extract
from adascale.images.preprocess import Preprocess
from adascale.maths.conformal import Calibration
from adascale.maths.promise import least_alphas
from adascale.maths.traced import is_finite
from adascale.network.classifier import Classifier
from adascale.network.traceable import Traceable, as_graph

if TYPE_CHECKING:
    from adascale.export.int8 import QuantisedNetwork


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted detector as an exporter needs it. shape: (C, H, W) of its inputs. record: what a detector file says.

    quantised: the network that takes the place of the classifier's, if the detector was fitted on one in int8.
    """

    classifier: Classifier
    method: Detector
    calibration: Calibration
    shape: tuple[int, ...]
    record: Mapping[str, Any]
    preprocess: Preprocess | None = None
    quantised: QuantisedNetwork | None = None

    def outputs(self, images: Tensor, batch_size: int = 32) -> Outputs:
        """What the method is given for these inputs (N, C, H, W)."""
        if self.quantised is not None:
            return self.quantised.outputs(images, batch_size)
        return Outputs.cat(list(extract(self.classifier, images, self.method.wants, batch_size)))


INPUTS = ("images", "alpha")
OUTPUTS = ("logits", "prediction", "score", "p_value", "is_ood")  # of the graph, for N images: see `Verdict`


class DecisionGraph(nn.Module):
    """``(images, alpha) -> logits, prediction, score, p_value, is_ood`` of a fitted detector.

    images: (N, C, H, W), normalised. alpha: the share of in-distribution images that may be flagged. An image is
    flagged if its rank is at most the count that ``alpha`` allows: a comparison of whole numbers, which no engine
    rounds. Rows with NaN or infinite values have the score +inf and are flagged.
    """

    def __init__(self, fitted: Fitted) -> None:
        super().__init__()
        self.method = portable(fitted.method)  # or a refusal, before the network is traced
        self.network: nn.Module = as_graph(Traceable(fitted.classifier), example(fitted)[0])
        views = self.method.views
        self.steps = nn.ModuleList(Perturbation(view, fitted.shape) for view in views)
        self.goals = tuple(dict.fromkeys(view.goal for view in views if view.needs_gradient))
        self.passes: nn.Module | None = None
        if self.goals:
            self.passes = with_gradients(self.network, example(fitted)[0], self.goals)
        self.register_buffer("scores", fitted.calibration.scores.clone())
        self.register_buffer("least_alphas", allowed_from(fitted.calibration))
        self.scores: Tensor
        self.least_alphas: Tensor

    def forward(self, images: Tensor, alpha: Tensor) -> tuple[Tensor, ...]:
        outputs = self.outputs(images)
        return outputs.logits, outputs.logits.argmax(1), *self.judged(images, outputs, alpha)

    def judged(self, images: Tensor, outputs: Outputs, alpha: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Score, p-value and decision."""
        return self.decided(finite_images(images), outputs, alpha)

    def decided(self, finite: Tensor, outputs: Outputs, alpha: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same. finite: which images hold numbers only (N,)."""
        score = self.method.formula(outputs)
        usable = finite & finite_outputs(outputs) & is_finite(score)
        score = torch.where(usable, score, torch.inf)
        rank = self.rank(score)
        p_value = rank.double() / (self.scores.shape[0] + 1)
        return score, p_value, rank <= self.allowed(alpha)

    def rank(self, score: Tensor) -> Tensor:
        """``1 + #{calibration >= s}``: the p-value times ``n + 1``."""
        return 1 + (self.scores >= score[:, None]).long().sum(1)

    def allowed(self, alpha: Tensor) -> Tensor:
        """The largest rank that is flagged. alpha is a float32, so that 0.01 may arrive as 0.0099999998."""
        return (self.least_alphas <= alpha.double() * (1 + 2**-23)).long().sum().clamp_min(1)

    def outputs(self, images: Tensor) -> Outputs:
        """Without gradients, the clean and the perturbed images go through the network together."""
        if self.passes is not None:
            features, logits, *gradients = self.passes(images)
            return Outputs.bare(logits, features, self.perturbed(images, gradients))
        moved = [step(images) for step in self.steps]
        stacked = torch.cat([images, *moved]) if moved else images
        # One part for each view, whatever the batch is: a slice would tie the trace to the batch of the example.
        features, logits = (all_.unflatten(0, (1 + len(moved), -1)) for all_ in self.network(stacked))
        clean, *others = features.unbind(0)
        return Outputs.bare(logits[0], clean, dict(zip(self.method.views, others, strict=True)))

    def perturbed(self, images: Tensor, gradients: Sequence[Tensor] | None = None) -> dict[View, Tensor]:
        """The perturbed features of each view, one pass for each."""
        if gradients is None:
            gradients = self.passes(images)[2:] if self.passes is not None else ()
        found = dict(zip(self.goals, gradients, strict=True))
        return {
            view: self.network(step(images, found.get(view.goal)))[0]
            for view, step in zip(self.method.views, self.steps, strict=True)
        }


def example(fitted: Fitted) -> tuple[Tensor, Tensor]:
    """Inputs for a trace."""
    images = torch.randn(2, *fitted.shape, generator=torch.Generator().manual_seed(0))
    return images, torch.tensor(fitted.calibration.alpha, dtype=torch.float32)


def portable(method: Detector) -> Detector:
    """The fitted method without anything that it shares, or a refusal that names the reason."""
    if reason := method.untraceable:
        raise InputError(f"{method.name} cannot be exported: {reason}.")
    head = Head(method.head_.weight.clone(), None if method.head_.bias is None else method.head_.bias.clone())
    return replace(method).restore(method.state(), head)


def allowed_from(calibration: Calibration) -> Tensor:
    """The least ``alpha`` that allows each count k = 1, 2, ..., n, ascending, float64."""
    found = least_alphas(len(calibration.scores), calibration.confidence)
    return torch.tensor(found, dtype=torch.float64)


def finite_images(images: Tensor) -> Tensor:
    """Which images hold numbers only. Engines may lose a NaN on its way, in a ReLU or a maximum."""
    return is_finite(images).flatten(1).all(1)


def finite_outputs(outputs: Outputs) -> Tensor:
    """Which rows are finite in all that a method sees."""
    parts = [outputs.logits, outputs.features, *outputs.views.values()]
    return torch.stack([is_finite(part.double().sum(1)) for part in parts]).all(0)
