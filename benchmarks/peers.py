"""(k) post-processing of every method, from logits and features to the score, against the fastest peer that has it.

The peers get the whole set at once and in batches of 200, whichever takes them less time. pytorch-ood is left out where
it is not installed. MDS, RMDS, DICE and GradNorm would take them minutes: there they get few samples, and their time is
taken as that of N.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits
from torch import Tensor

from adascale import AdascaleWarning, Detector, Head, Outputs, detectors
from adascale.core.timing import Timing, interleaved
from benchmarks import openood, pytorch_ood
from benchmarks.detectors import made_up
from benchmarks.measured import Ratio, ratio
from benchmarks.openood import Score
from benchmarks.variants import rank_correlation

SIZE = (10_000, 2_048, 1_000)
SMALL = (400, 128, 20)
MOST = 1.0
_BATCH = 200
_FEW = {"mds": 50, "rmds": 50, "dice": 100, "gradnorm": 100}
# All that these do is a product or a sum, which we make in float64 and peers in float32: they are compared with the
# same peers in float64 too.
_BOUND_TO_PRECISION = ("ebo", "odin", "react", "vra")
_SIGNAL = 14.0  # the predicted class has a probability of about 0.6


def scikit_learn_knn(method: Any, head: Head) -> Score:
    search = NearestNeighbors(n_neighbors=method.k, algorithm="brute").fit(_unit(method.bank_).numpy())

    def score(logits: Tensor, features: Tensor, moved: Tensor) -> Tensor:
        return torch.from_numpy(search.kneighbors(_unit(features).numpy())[0][:, -1])

    return score


def _unit(features: Tensor) -> Tensor:
    unit: Tensor = features / features.norm(dim=1, keepdim=True).clamp(min=1e-12)
    return unit


Scores = Mapping[str, Callable[[Any, Head], Score]]
_OPENOOD = "OpenOOD (transcribed)"
PEERS: Mapping[str, Scores] = {
    "pytorch-ood": pytorch_ood.SCORES,
    _OPENOOD: openood.SCORES,
    "scikit-learn": {"knn": scikit_learn_knn},
}


def against_peers(repeats: int, size: tuple[int, int, int] = SIZE, names: list[str] | None = None) -> Iterator[Ratio]:
    """One line for each method that a peer has."""
    with one_thread():
        for cls in detectors.ALL:
            if any(cls.name in scores for scores in PEERS.values()) and (names is None or cls.name in names):
                yield from _against(cls(), repeats, size)


@contextmanager
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1), warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore", AdascaleWarning)
            yield
    finally:
        torch.set_num_threads(before)


def _against(method: Detector, repeats: int, size: tuple[int, int, int]) -> Iterator[Ratio]:
    n, features, classes = size
    made, head = made_up(2 * n, features, classes, method.views, signal=_SIGNAL)
    train, outputs = made[:n], made[n:]
    method.fit(train, head)
    rows = min(n, _FEW.get(method.name, n))
    calls: dict[str, Callable[[], Tensor]] = {"ours": lambda: method.score(outputs)}
    calls |= _calls(method, head, outputs[:rows], PEERS)
    double = {}
    if method.name in _BOUND_TO_PRECISION:
        peers = {f"{_OPENOOD}, float64": openood.SCORES}  # pytorch-ood takes float32 alone
        double = _calls(method, Head(head.matrix, head.offset), outputs[:rows], peers)
    measured = interleaved(calls | double, repeats, clock=time.process_time)  # of one thread: others do not count
    times = {name: _for_all(found, 1 if name == "ours" else n / rows) for name, found in measured.items()}
    case, ours = f"N={n:,}, D={features:,}, C={classes:,}", calls.pop("ours")()[:rows]
    for theirs, most in ((calls, MOST), (double, None)):
        if theirs:
            fastest = min(theirs, key=lambda name: times[name].median)
            note = f"scores: {agreement(ours, theirs[fastest]().double())}"
            note += f"; their time from {rows} samples" if rows < n else ""
            yield ratio("k", f"{method.name} / {fastest}", case, times["ours"].over(times[fastest]), most, note)


def _calls(
    method: Detector, head: Head, outputs: Outputs, peers: Mapping[str, Scores]
) -> dict[str, Callable[[], Tensor]]:
    """The calls of the peers that have the method, in the precision of the head, by their names."""
    found: dict[str, Callable[[], Tensor]] = {}
    for peer, scores in peers.items():
        if method.name in scores:
            score, given = scores[method.name](method, head), _like(outputs, head)
            found[peer] = partial(in_batches, score, given, len(outputs))
            if len(outputs) > _BATCH:
                found[f"{peer}, batches of {_BATCH}"] = partial(in_batches, score, given, _BATCH)
    return found


def _like(outputs: Outputs, head: Head) -> Outputs:
    """The outputs in the precision of the head."""
    kind = head.weight.dtype
    views = {view: moved.to(kind) for view, moved in outputs.views.items()}
    return Outputs(outputs.logits.to(kind), outputs.features.to(kind), views)


def in_batches(score: Score, outputs: Outputs, batch: int) -> Tensor:
    """The peer's scores of all samples."""
    moved = next(iter(outputs.views.values()), outputs.features)
    pieces = (torch.split(part, batch) for part in (outputs.logits, outputs.features, moved))
    return torch.cat([score(*part) for part in zip(*pieces, strict=True)])


def agreement(ours: Tensor, theirs: Tensor) -> str:
    """The largest difference as a share of the mean score, or the rank correlation where the peer's scores have another
    scale.
    """
    worst = float((ours - theirs).abs().max() / ours.abs().mean())
    return f"equal to {worst:.0e}" if worst < 1e-2 else f"rank correlation {rank_correlation(ours, theirs):.5f}"


def _for_all(found: Timing, factor: float) -> Timing:
    return Timing(found.turns * factor)
