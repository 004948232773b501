"""ViM and Residual: what the features hold outside the principal subspace."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.types import Head, Outputs
from adascale.detectors.base import Detector
from adascale.detectors.classes import Covariance, has_variance
from adascale.detectors.parameters import number
from adascale.detectors.rows import in_chunks
from adascale.detectors.statistics import Count, Course, Rows, State, Statistic, Sums
from adascale.detectors.traits import Space
from adascale.maths.activations import energy, row_norms

if TYPE_CHECKING:
    from typing_extensions import Self

# The squares of D = 2,048 features have errors of at most 5e-13 of their sum: 3e-10 of a residual with this share.
_LEAST_SHARE = 1e-3


@dataclass
class Residual(Detector):
    """The residual of Wang et al., "ViM: out-of-distribution with virtual-logit matching", CVPR 2022, alone.

    Origin ``o = -W^+ b``; ``R`` = the eigenvectors of ``sum (a - o)(a - o)^T`` but for the ``dim`` largest;
    ``S = ||R^T (a - o)||``. ``dim`` defaults to min(512, D / 2). A symmetric eigensolver is used: the reference's
    general one returns a basis that is not orthonormal for rank-deficient features, and scores that are up to 26 % off.
    """

    name = "residual"
    summary = "norm of the features outside the principal subspace"
    cost = "product"
    fits_on = "train"
    search_space: ClassVar[Space] = {"dim": (None, 256, 1000)}

    dim: int | None = number(None, least=1)

    def sized(self, n: int, head: Head) -> Detector:
        """With a dimension that n samples can estimate, if none was given.

        A principal direction should rest on 8 samples. The principal subspace of a trained network holds the means of
        its classes, though, and they stand out so clearly that 4 samples a direction will do for as many directions.
        Fewer than two samples a class do not show these means, and are refused.
        """
        classes, size = head.weight.shape
        if n < 2 * classes:
            raise InputError(f"{self.name} got {n} images to learn from; it needs 2 for each of the {classes} classes.")
        if self.dim is not None or n >= 8 * min(512, size // 2):
            return self
        return replace(self, dim=max(1, min(512, size // 2, max(n // 8, min(classes, n // 4)))))

    def _learn(self, head: Head) -> Course:
        size = head.weight.shape[1]
        dim = min(512, max(1, size // 2)) if self.dim is None else self.dim
        if dim >= size:
            raise InputError(f"dim={dim} leaves no residual of {size} features; it must be smaller.")
        self.origin_ = head.origin
        total: int = yield Count()
        values, vectors = yield from _principal(total, size, self.origin_)
        rank = min(total, int(has_variance(values).sum()))
        if rank <= dim:
            raise InputError(
                f"{self.name} with dim={dim} got {total} samples whose features span {rank} of {size} "
                "dimensions, which leaves no residual; give more samples that differ, or a dim below that."
            )
        self.principal_ = vectors[:, -dim:].contiguous()

    def restore(self, state: Mapping[str, Tensor], head: Head) -> Self:
        given = dict(state)
        if (rest := given.pop("basis_", None)) is not None:  # files of earlier versions hold the other directions
            whole, _ = torch.linalg.qr(rest, mode="complete")
            given["principal_"] = whole[:, rest.shape[1] :].contiguous()
        return super().restore(given, head)

    def _score(self, outputs: Outputs) -> Tensor:
        return _residual(outputs.features, self.origin_, self.principal_)

    def formula(self, outputs: Outputs) -> Tensor:
        centred = outputs.features.double() - self.origin_
        return row_norms(centred - (centred @ self.principal_) @ self.principal_.T)


def _residual(features: Tensor, origin: Tensor, principal: Tensor) -> Tensor:
    """``||R^T (a - o)||``."""
    centred = features.double() - origin
    inside = centred @ principal
    whole = centred.square().sum(1)
    squares = whole - inside.square().sum(1)  # Pythagoras
    residual = squares.clamp_min(0).sqrt()
    lost = squares < _LEAST_SHARE * whole  # there the difference has lost digits
    if lost.any():
        residual[lost] = row_norms(centred[lost] - inside[lost] @ principal.T)
    return residual


def _principal(total: int, size: int, origin: Tensor) -> Generator[Statistic, Any, tuple[Tensor, Tensor]]:
    """Ascending eigenvalues and the eigenvectors of ``mean of (a - o)(a - o)^T``; n < D samples
    leave the others at 0, and are decomposed themselves, which is much cheaper.
    """
    if total >= size:
        values, vectors = torch.linalg.eigh((yield Covariance(origin)))
        return values, vectors
    features: Tensor = yield Rows(features_alone=True)
    _, lengths, rows = torch.linalg.svd(features.double() - origin, full_matrices=False)
    return lengths.square().flip(0) / total, rows.T.flip(1)


@dataclass(frozen=True)
class _Balance(Sums):
    """Summed largest logits and summed residuals."""

    origin: Tensor
    principal: Tensor

    def of(self, outputs: Outputs, start: int) -> State:
        largest = residual = torch.zeros((), dtype=torch.float64)
        for chunk in in_chunks(outputs):
            largest = largest + chunk.logits.double().amax(1).sum()
            residual = residual + _residual(chunk.features, self.origin, self.principal).sum()
        return {"largest": largest.clone(), "residual": residual.clone()}


@dataclass
class ViM(Residual):
    """Wang et al., "ViM: out-of-distribution with virtual-logit matching", CVPR 2022.

    ``S = alpha ||R^T (a - o)|| - E(z)`` with ``alpha`` = mean of the largest training logit over mean training
    residual. ``o``, ``R`` and ``dim`` as in `Residual`.
    """

    name = "vim"
    summary = "residual outside the principal subspace against the energy"

    def _learn(self, head: Head) -> Course:
        yield from super()._learn(head)
        found: State = yield _Balance(self.origin_, self.principal_)
        self.alpha_ = found["largest"] / found["residual"].clamp_min(1e-300)

    def _score(self, outputs: Outputs) -> Tensor:
        return self.alpha_ * super()._score(outputs) - energy(outputs.logits)

    def formula(self, outputs: Outputs) -> Tensor:
        return self.alpha_ * super().formula(outputs) - energy(outputs.logits)
