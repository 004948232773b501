"""`Centres`: where the classes of a fitted method lie, as something that an input gradient can point to."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False, repr=False)
class Centres:
    """Points (C, K) of a space whose squared distances are Mahalanobis distances: features ``a`` (D) lie there at
    ``(a - mean) @ root``, with mean (D) and root (D, K). Float64, on the CPU.

    A `View` may hold them, so they are hashable: two are equal if all their numbers are. Their text is a digest of the
    numbers, by which a cache on disk tells them apart.

    For example:

        >>> centres = Centres(torch.zeros(2), torch.eye(2), torch.tensor([[0.0, 0.0], [4.0, 0.0]]))
        >>> centres.slope(torch.tensor([[1.0, 2.0], [3.0, 2.0]])).tolist()
        [[1.0, 2.0], [-1.0, 2.0]]
    """

    mean: Tensor
    root: Tensor
    points: Tensor

    def slope(self, features: Tensor) -> Tensor:
        """``d/da of ||(a - mean) @ root - c||^2 / 2`` for each row of features (N, D), ``c`` the nearest point; in
        float64, where the features are.
        """
        mean, root, points, squares = _placed(self, features.device)
        at = (features.detach().double() - mean) @ root
        nearest = (squares - 2 * at @ points.T).argmin(1)
        return (at - points[nearest]) @ root.T

    @cached_property
    def digest(self) -> str:
        """A hash of all numbers."""
        found = hashlib.sha256()
        for tensor in (self.mean, self.root, self.points):
            found.update(repr(tuple(tensor.shape)).encode())
            found.update(tensor.detach().cpu().double().contiguous().numpy().tobytes())
        return found.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Centres) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __str__(self) -> str:
        return self.digest[:32]

    def __repr__(self) -> str:
        return f"Centres({self})"


@lru_cache(maxsize=2)  # one copy on the device for all batches
def _placed(centres: Centres, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    mean, root, points = (part.to(device, torch.float64) for part in (centres.mean, centres.root, centres.points))
    return mean, root, points, points.square().sum(1)
