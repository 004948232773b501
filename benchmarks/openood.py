"""What OpenOOD's postprocessors compute after the network, in our own words: transcriptions, to compare times with.

OpenOOD is not on PyPI. Each function takes what a method of ours has fitted and gives the score of a batch (N,) from
its logits and features, in float32 as there, higher = more OOD (OpenOOD has it the other way round). Only what leads to
the score is here, not the predicted class that OpenOOD returns beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from adascale.core.types import Head

Score = Callable[[Tensor, Tensor, Tensor], Tensor]  # logits, features, perturbed features


def msp(method: Any, head: Head) -> Score:
    return lambda logits, features, moved: -logits.softmax(1).max(1).values


def mls(method: Any, head: Head) -> Score:
    return lambda logits, features, moved: -logits.max(1).values


def ebo(method: Any, head: Head) -> Score:
    return lambda logits, features, moved: -method.temperature * torch.logsumexp(logits / method.temperature, 1)


def gen(method: Any, head: Head) -> Score:
    def score(logits: Tensor, features: Tensor, moved: Tensor) -> Tensor:
        p = logits.softmax(1).sort(1).values[:, -method.top :]
        scores: Tensor = (p**method.gamma * (1 - p) ** method.gamma).sum(1)
        return scores

    return score


def _energy(shaped: Tensor, head: Head) -> Tensor:
    return -F.linear(shaped, head.weight, head.bias).logsumexp(1)


def odin(method: Any, head: Head) -> Score:
    """With the head of the second pass, which our perturbed features have not been through."""

    def score(logits: Tensor, features: Tensor, moved: Tensor) -> Tensor:
        scores: Tensor = -(F.linear(moved, head.weight, head.bias) / method.temperature).softmax(1).max(1).values
        return scores

    return score


def react(method: Any, head: Head) -> Score:
    cut = float(method.threshold_)
    return lambda logits, features, moved: _energy(features.clip(max=cut), head)


def vra(method: Any, head: Head) -> Score:
    """Another function than ours: small values are raised to the lower threshold."""
    low, high = float(method.alpha_), float(method.beta_)
    return lambda logits, features, moved: _energy(features.clip(low, high), head)


def _pruned(features: Tensor, percentile: float) -> tuple[Tensor, Tensor, Tensor]:
    """The k largest values, where they are, and the features with all others removed."""
    size = features.shape[1]
    values, places = features.topk(size - round(size * percentile / 100), dim=1)
    return values, places, torch.zeros_like(features).scatter_(1, places, values)


def ash_p(method: Any, head: Head) -> Score:
    return lambda logits, features, moved: _energy(_pruned(features, method.percentile)[2], head)


def ash_b(method: Any, head: Head) -> Score:
    def score(logits: Tensor, features: Tensor, moved: Tensor) -> Tensor:
        values, places, pruned = _pruned(features, method.percentile)
        level = (features.sum(1) / values.shape[1])[:, None].expand(values.shape)
        return _energy(pruned.scatter_(1, places, level), head)

    return score


def ash_s(method: Any, head: Head) -> Score:
    def score(logits: Tensor, features: Tensor, moved: Tensor) -> Tensor:
        pruned = _pruned(features, method.percentile)[2]
        return _energy(pruned * (features.sum(1) / pruned.sum(1)).exp()[:, None], head)

    return score


def scale(method: Any, head: Head) -> Score:
    def score(logits: Tensor, features: Tensor, moved: Tensor) -> Tensor:
        pruned = _pruned(features, method.percentile)[2]
        return _energy(features * (features.sum(1) / pruned.sum(1)).exp()[:, None], head)

    return score


def adascale_a(method: Any, head: Head) -> Score:
    known = method.reference_.numpy()

    def score(logits: Tensor, features: Tensor, moved: Tensor) -> Tensor:
        size = features.shape[1]
        first = features.topk(int(size * method.k1 / 100), dim=1).indices
        second = features.topk(int(size * method.k2 / 100), dim=1).indices
        shift = (features - moved).abs().gather(1, first).sum(1)
        statistic = method.lam * shift + moved.relu().gather(1, second).sum(1)
        share = np.searchsorted(known, statistic.numpy(), side="right") / len(known)
        percentile = method.p_min + (1 - share) * (method.p_max - method.p_min)
        keep = torch.from_numpy(size - np.round(size * percentile / 100).astype(np.int64))
        mass = features.sort(dim=1, descending=True).values.cumsum(1)
        ratio = mass[:, -1:] / mass.gather(1, keep[:, None] - 1)
        return _energy(features * ratio.exp(), head)

    return score


def dice(method: Any, head: Head) -> Score:
    sparse = head.weight * method.weight_mask_
    bias = head.offset.float()
    return lambda logits, features, moved: -((features[:, None, :] * sparse).sum(2) + bias).logsumexp(1)


def _unit(features: Tensor) -> Tensor:
    unit: Tensor = features / features.norm(dim=1, keepdim=True) + 1e-10
    return unit


def nnguide(method: Any, head: Head) -> Score:
    """OpenOOD searches with faiss; here the product and the k largest."""
    bank = method.bank_.float()

    def score(logits: Tensor, features: Tensor, moved: Tensor) -> Tensor:
        guidance = (_unit(features) @ bank.T).topk(method.k, dim=1).values.mean(1)
        scores: Tensor = -guidance * logits.logsumexp(1)
        return scores

    return score


def vim(method: Any, head: Head) -> Score:
    residual_of, alpha = residual(method, head), float(method.alpha_)

    def score(logits: Tensor, features: Tensor, moved: Tensor) -> Tensor:
        return alpha * residual_of(logits, features, moved) - logits.logsumexp(1)

    return score


def residual(method: Any, head: Head) -> Score:
    """The product with all directions outside the principal ones."""
    origin, basis = head.origin.float(), torch.linalg.qr(method.principal_, mode="complete")[0]
    rest = basis[:, method.principal_.shape[1] :].float().contiguous()
    return lambda logits, features, moved: ((features - origin) @ rest).norm(dim=1)


def she(method: Any, head: Head) -> Score:
    patterns = method.means_.float()
    return lambda logits, features, moved: -(features * patterns[logits.argmax(1)]).sum(1)


def fdbd(method: Any, head: Head) -> Score:
    """The distances between weights are float64 there."""
    between, mean = head.distances.clone().fill_diagonal_(1), method.mean_.float()

    def score(logits: Tensor, features: Tensor, moved: Tensor) -> Tensor:
        largest, predicted = logits.max(1)
        gaps = (logits - largest[:, None]).abs() / between[predicted]
        scores: Tensor = -gaps.sum(1) / (features - mean).norm(dim=1)
        return scores

    return score


def nci(method: Any, head: Head) -> Score:
    mean = method.mean_.float()

    def score(logits: Tensor, features: Tensor, moved: Tensor) -> Tensor:
        predicted = logits.max(1).indices
        aligned = (head.weight[predicted] * (features - mean)).sum(1) / (features - mean).norm(dim=1)
        scores: Tensor = -(aligned + method.norm_weight * features.norm(p=1, dim=1))
        return scores

    return score


def relation(method: Any, head: Head) -> Score:
    """50 samples at a time, against the training samples in two halves."""
    bank, bank_p = _unit(method.bank_), method.bank_logits_.softmax(1)
    halves = list(zip(bank.chunk(2), bank_p.chunk(2), strict=True))

    def score(logits: Tensor, features: Tensor, moved: Tensor) -> Tensor:
        unit, p, sums = _unit(features), logits.softmax(1), []
        for a, b in zip(torch.split(unit, 50), torch.split(p, 50), strict=True):
            kernel = torch.cat([(a @ half.T).clamp(min=0) * (b @ half_p.T) for half, half_p in halves], 1)
            edges = (kernel.abs() > method.threshold) * kernel
            sums.append((edges.sign() * edges.abs() ** method.power).sum(1))
        return -torch.cat(sums)

    return score


def mds(method: Any, head: Head) -> Score:
    """Class by class: the centred features times the precision times the centred features."""
    precision, root = (method.root_ @ method.root_.T).float(), torch.linalg.pinv(method.root_)
    means = (method.centres_ @ root + method.mean_).float()

    def score(logits: Tensor, features: Tensor, moved: Tensor) -> Tensor:
        distances = [((features - mean) @ precision * (features - mean)).sum(1) for mean in means]
        return torch.stack(distances, 1).amin(1)

    return score


def rmds(method: Any, head: Head) -> Score:
    nearest, whole = mds(method, head), (method.global_root_ @ method.global_root_.T).float()
    mean = method.mean_.float()

    def score(logits: Tensor, features: Tensor, moved: Tensor) -> Tensor:
        centred = features - mean
        scores: Tensor = nearest(logits, features, moved) - (centred @ whole * centred).sum(1)
        return scores

    return score


_SHAPING = (odin, react, vra, ash_p, ash_b, ash_s, scale, adascale_a, dice)
_OTHERS = (msp, mls, ebo, gen, nnguide, vim, residual, she, fdbd, nci, relation, mds, rmds)
SCORES: Mapping[str, Callable[[Any, Head], Score]] = {one.__name__: one for one in (*_SHAPING, *_OTHERS)}
