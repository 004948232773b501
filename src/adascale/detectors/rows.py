"""Samples in chunks, and which of them are finite."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from adascale.core.types import Need, Outputs, Tap
from adascale.maths.pieces import finite_sums

Size = Literal["light", "whole", "pieces"]
# light: what stays in a processor's cache from one operation to the next. pieces: for arithmetic that takes care of its
# temporaries itself (`adascale.maths.pieces`), which gains from fewer starts.
_CHUNK_VALUES: Mapping[Size, int] = {"light": 2**18, "whole": 2**21, "pieces": 2**23}


def in_chunks(outputs: Outputs, size: Size = "whole") -> Iterator[Outputs]:
    """Pieces whose features, logits or product with a block of samples take at most 16 MB in float64.

    size: light, at most 2 MB, for arithmetic that has nothing to gain from many samples at once; pieces, at most 64 MB.
    """
    rows = _chunk_rows(outputs, size)
    for start in range(0, len(outputs), rows):
        yield outputs[start : start + rows]


def _chunk_rows(outputs: Outputs, size: Size) -> int:
    tapped = (layer.shape[1] for layers in outputs.taps.values() for layer in layers)
    widest = max(1, outputs.features.shape[1], outputs.logits.shape[1], *tapped)
    most = _CHUNK_VALUES[size]
    return max(1, most // widest) if size == "light" else max(64, most // max(2048, widest))


def rowwise(
    outputs: Outputs,
    compute: Callable[[Outputs], Tensor],
    dtype: torch.dtype = torch.float64,
    size: Size = "whole",
) -> Tensor:
    """One value for each sample (N,), computed chunk by chunk (see `in_chunks`).

    The values are written into one tensor: small results kept between large temporaries would keep their memory from
    being given back.
    """
    if 0 < len(outputs) <= _chunk_rows(outputs, size):
        return compute(outputs)
    result = torch.empty(len(outputs), dtype=dtype)
    start = 0
    for chunk in in_chunks(outputs, size):
        result[start : start + len(chunk)] = compute(chunk)
        start += len(chunk)
    return result


def finite_rows(outputs: Outputs, needs: Sequence[Need], features: bool = True) -> Tensor:
    """Which samples have finite activations in all that a method looks at."""
    return torch.stack([finite_sums(part) for part in looked_at(outputs, needs, features)]).all(0)


def looked_at(outputs: Outputs, needs: Sequence[Need], features: bool = True, logits: bool = True) -> list[Tensor]:
    """The tensors that a method with these needs reads: the logits and the features if it reads them, views, taps."""
    clean = [part for part, read in ((outputs.logits, logits), (outputs.features, features)) if read]
    for need in needs:
        clean += outputs.taps[need] if isinstance(need, Tap) else [outputs.views[need]]
    return clean
