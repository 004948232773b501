"""Histograms of the entries of each row, smoothed and compared."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from adascale.maths.tracing import plain


def shares(values: Tensor, edges: Tensor) -> Tensor:
    """The share of each row's entries (N, M) in each bin (N, B); ``edges`` (B + 1) ascend, a bin has its lower one."""
    if not plain(values):
        beyond = torch.stack([(values >= edge).double().sum(1) for edge in edges], 1)
        return (beyond[:, :-1] - beyond[:, 1:]) / values.shape[1]
    rows, bins = len(values), len(edges) - 1
    found = np.searchsorted(
        edges.numpy(), values.numpy(), side="right"
    )  # 0: below the first bin, B + 1: beyond the last
    found += (bins + 2) * np.arange(rows)[:, None]
    counts = np.bincount(found.ravel(), minlength=rows * (bins + 2)).reshape(rows, bins + 2)
    return torch.from_numpy(counts[:, 1:-1] / values.shape[1])


def smoothed(histograms: Tensor, width: int) -> Tensor:
    """The mean over ``width`` neighbouring bins, the ends repeated; an even width reaches one further to the right."""
    bins, left = histograms.shape[1], (width - 1) // 2
    first, last = histograms[:, :1], histograms[:, -1:]
    padded = torch.cat([*[first] * left, histograms, *[last] * (width - 1 - left)], 1)
    total = padded[:, :bins]
    for i in range(1, width):
        total = total + padded[:, i : i + bins]
    return total / width


def symmetric_divergence(p: Tensor, q: Tensor, added: float) -> Tensor:
    """``KL(p, q) + KL(q, p)`` for each row of ``q``, after ``added`` was added to every bin and each sum made 1."""
    p, q = ((part + added) / (part + added).sum(-1, keepdim=True) for part in (p, q))
    return ((p - q) * (p.log() - q.log())).sum(1)
