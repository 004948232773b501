"""MDS-Ensemble: Mahalanobis distances in several layers, added."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.types import Head, Outputs, Tap
from adascale.detectors.base import Detector
from adascale.detectors.classes import precision_root, squared_distances
from adascale.detectors.inner import LayersOf, names_or


@dataclass
class MDSEnsemble(Detector):
    """Lee et al., "A simple unified framework for detecting out-of-distribution samples ...", NeurIPS 2018, with all
    layers (OpenOOD's mds_ensemble, pytorch-ood's MultiMahalanobis).

    ``a_l`` = the mean of each channel of layer ``l``; in each layer, class means ``mu_lc`` (true labels) and one
    covariance ``Sigma_l``; ``S = sum_l w_l min_c (a_l - mu_lc)^T Sigma_l^+ (a_l - mu_lc)``.

    layers: names of modules; left empty, the network's stages (see `Tap`). weights: ``w``, one for each layer; left
    empty, 1 for each. The paper learns the weights from OOD images, and moves the input along the gradient of the
    distance; neither is done here, as in pytorch-ood.
    """

    name = "mds_ensemble"
    summary = "Mahalanobis distances in several layers, added"
    cost = "product"
    fits_on = "train+labels"
    reads_features = False
    nearest = "mds"

    layers: LayersOf = ()
    weights: tuple[float, ...] = ()

    @property
    def taps(self) -> tuple[Tap, ...]:
        return (Tap(names_or(self.layers, "stages"), "mean"),)

    def _fit(self, reference: Outputs, head: Head) -> None:
        layers = reference.taps[self.taps[0]]
        if self.weights and len(self.weights) != len(layers):
            raise InputError(f"There are {len(self.weights)} weights for {len(layers)} layers; give one for each.")
        assert reference.labels is not None  # checked by the base class
        labels = reference.labels
        counts = torch.bincount(labels, minlength=len(head.weight)).double()
        means, roots, centres = [], [], []
        for layer in layers:
            values = layer.double()
            by_class = torch.zeros(len(head.weight), values.shape[1], dtype=torch.float64).index_add_(0, labels, values)
            by_class /= counts.clamp_min(1)[:, None]
            around, mean = values - by_class[labels], values.mean(0)
            root = precision_root(around.T @ around / len(values), self.name)
            means.append(mean)
            roots.append(root)
            centres.append((by_class[counts > 0] - mean) @ root)
        # Layers differ in width: their tensors are kept in one row each, beside their shapes.
        self.means_, self.roots_, self.centres_ = (
            torch.cat([part.flatten() for part in parts]) for parts in (means, roots, centres)
        )
        self.shapes_ = torch.tensor([[*root.shape, len(own)] for root, own in zip(roots, centres, strict=True)])

    def _score(self, outputs: Outputs) -> Tensor:
        layers = outputs.taps[self.taps[0]]
        weights = self.weights or (1.0,) * len(layers)
        shapes: list[list[int]] = self.shapes_.tolist()
        means = torch.split(self.means_, [width for width, _, _ in shapes])
        roots = torch.split(self.roots_, [width * rank for width, rank, _ in shapes])
        centres = torch.split(self.centres_, [rank * count for _, rank, count in shapes])
        score = torch.zeros(len(outputs), dtype=torch.float64)
        for layer, weight, mean, root, centre, (width, rank, _) in zip(
            layers, weights, means, roots, centres, shapes, strict=True
        ):
            points = (layer.double() - mean) @ root.view(width, rank)
            score += weight * squared_distances(points, centre.view(-1, rank)).amin(1)
        return score
