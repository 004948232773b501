"""The proof that an exported file answers as the detector does, made before the file is put in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.types import Outputs
from adascale.export.engines import Run
from adascale.export.graph import Fitted

Pictures = npt.NDArray[np.uint8]
TOLERANCE = 1e-5
_BATCHES = (1, 7, 32)
_DRAWS = 8


@dataclass(frozen=True)
class Proof:
    """What was compared. images: how many. worst: the largest difference of scores, relative to the score or to the
    range of the calibration scores, whichever is larger. near: images that rounding alone moves over the threshold.
    p_values: how many differ; an image whose score is a calibration score up to rounding may move by one rank. early:
    how many images the clean pass decided, in a file with early decisions. notes: what else was measured, in words.
    """

    on: str
    images: int = 0
    worst: float | None = None
    near: int = 0
    p_values: int = 0
    early: int | None = None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = []
        if self.worst is not None:
            moved = f"{self.p_values or 'no'} p-value{'s' * (self.p_values != 1)} moved by rounding"
            parts += [f"scores within {self.worst:.1e}", moved]
        if self.early is not None:
            parts.append(f"{self.early} decided early")
        parts.append(
            "decisions equal" + (f" but for {self.near} within rounding of the threshold" if self.near else "")
        )
        return "; ".join([f"{self.images} images ({self.on}): {', '.join(parts)}", *self.notes])


def stress_rows(shape: tuple[int, ...]) -> Tensor:
    """Noise, zeros, negative, huge and constant inputs, one with a NaN and one with an infinity."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(3, *shape, generator=generator)
    rows = torch.stack([*noise, torch.zeros(shape), -noise[0].abs(), 1e3 * noise[1], torch.ones(shape), noise[2]])
    rows[-1].view(-1)[0] = torch.nan
    infinite = noise[:1].clone()
    infinite.view(-1)[-1] = torch.inf
    return torch.cat([rows, infinite])


def prove(run: Run, fitted: Fitted, images: Tensor, on: str, rounding: float) -> Proof:
    """Compare the file with the detector on these inputs, in batches of several sizes; refuse what differs.

    rounding: how far the engine's arithmetic moves an activation, relative to the largest. Scores may differ by
    `TOLERANCE`, or by four times what such a movement does to them, if that is more.
    """
    known = _known(fitted, images)
    tolerance = max(TOLERANCE, 4 * _moved(fitted, known, rounding))
    alpha = np.array(fitted.calibration.alpha, dtype=np.float32)
    proof = Proof(on, len(images), 0.0)
    for rows in _batches(len(images)):
        given = {"images": images[rows].numpy(), "alpha": alpha}
        found = {name: torch.from_numpy(np.array(value)) for name, value in run(given).items()}
        _check_logits(found["logits"], known.logits[rows])
        proof = _compared(proof, found, known[rows], fitted, tolerance)
    return proof


def _known(fitted: Fitted, images: Tensor) -> Outputs:
    """What the detector sees. A file flags every image with a NaN or an infinity, also where the network does not look
    at that pixel.
    """
    known = fitted.outputs(images, _BATCHES[-1])
    broken = ~images.flatten(1).isfinite().all(1)
    known.features[broken], known.logits[broken] = torch.nan, torch.nan
    return known


def prove_decisions(run: Run, fitted: Fitted, images: Tensor, proof: Proof, rounding: float, only_early: bool) -> Proof:
    """The same for a file that gives decisions, one image at a time. only_early: some are left open by it."""
    known = _known(fitted, images)
    score, size = fitted.method.score(known), _spread(fitted.calibration.scores)
    tolerance = max(TOLERANCE, 4 * _moved(fitted, known, rounding))
    near = (score - fitted.calibration.threshold).abs() <= _slack(score, size, tolerance)
    alpha, early, moved = np.array(fitted.calibration.alpha, dtype=np.float32), 0, 0
    for row, expected in enumerate(fitted.calibration.is_ood(score).tolist()):
        found = run({"images": images[row : row + 1].numpy(), "alpha": alpha})
        early += bool(found["early"][0])
        if (found["early"][0] or not only_early) and bool(found["is_ood"][0]) != expected:
            if not near[row]:
                raise _refusal("decides otherwise than the detector on an image")
            moved += 1
    return replace(proof, images=len(images), early=early, near=proof.near + moved)


def prove_pixels(run: Run, prepare: Run, fitted: Fitted, pictures: Sequence[Pictures], rounding: float) -> Proof:
    """Compare a file that takes pixels with the detector on the inputs that ``prepare``, its first part, makes of them.

    pictures: batches (n, H, W, C), uint8, each of one size.
    """
    alpha = np.array(fitted.calibration.alpha, dtype=np.float32)
    found = _columns([run({"images": batch, "alpha": alpha}) for batch in pictures])
    inputs = _columns([prepare({"images": batch}) for batch in pictures])["inputs"]
    known = fitted.outputs(inputs, _BATCHES[-1])
    tolerance = max(TOLERANCE, 4 * _moved(fitted, known, rounding))
    _check_logits(found["logits"], known.logits)
    return _compared(Proof("pixels", len(inputs), 0.0), found, known, fitted, tolerance)


def difference_to_pillow(run: Run, fitted: Fitted, pictures: Sequence[Pictures], on: str) -> str:
    """How far the answers for pixels are from those for images that Pillow has resized, in words."""
    assert fitted.preprocess is not None
    calibration = fitted.calibration
    alpha = np.array(calibration.alpha, dtype=np.float32)
    found = _columns([run({"images": batch, "alpha": alpha}) for batch in pictures])
    inputs = torch.stack([fitted.preprocess(picture) for batch in pictures for picture in batch])
    score = fitted.method.score(fitted.outputs(inputs, _BATCHES[-1]))
    off = _difference(found["score"].double(), score, _spread(calibration.scores))
    flipped = int((found["is_ood"] != calibration.is_ood(score)).sum())
    return (
        f"against the resizing of Pillow, {len(score)} {on}: {flipped} decisions differ, scores by at most "
        f"{float(off.max()):.1e} of their range (median {float(off.median()):.1e})"
    )


def _columns(parts: Sequence[Mapping[str, npt.NDArray[Any]]]) -> dict[str, Tensor]:
    return {name: torch.cat([torch.from_numpy(np.array(part[name])) for part in parts]) for name in parts[0]}


def _compared(so_far: Proof, found: Mapping[str, Tensor], outputs: Outputs, fitted: Fitted, tolerance: float) -> Proof:
    calibration = fitted.calibration
    score, size = fitted.method.score(outputs), _spread(calibration.scores)
    off = _difference(found["score"].double(), score, size)
    worst = float(off.max())
    if not worst <= tolerance:
        raise _refusal(f"gives scores that are off by {worst:.1e}; {tolerance:.1e} is allowed")
    differs = found["is_ood"] != calibration.is_ood(score)
    slack = _slack(score, size, tolerance)
    near = (score - calibration.threshold).abs() <= slack
    if (differs & ~near).any():
        raise _refusal("decides otherwise than the detector on an image")
    if (found["prediction"] != found["logits"].argmax(1)).any():
        raise _refusal("gives another class than that of the largest logit")
    p_value, (low, high) = found["p_value"].double(), (calibration.p_value(score + by) for by in (slack, -slack))
    if ((p_value < low - 1e-6) | (p_value > high + 1e-6)).any():
        raise _refusal("gives p-values that do not belong to its scores")
    moved = (p_value - calibration.p_value(score)).abs() > 1e-6
    return replace(
        so_far,
        worst=max(so_far.worst or 0.0, worst),
        near=so_far.near + int(differs.sum()),
        p_values=so_far.p_values + int(moved.sum()),
    )


def _difference(found: Tensor, score: Tensor, size: float) -> Tensor:
    """Relative to the score, or to ``size`` where that is larger. An engine in single precision has the largest
    float32 in the place of an infinity.
    """
    same = (score == torch.inf) & (found >= 3.4e38)
    off = (found - score).abs() / score.abs().clamp_min(size)
    return torch.where(same, 0.0, off.nan_to_num(nan=torch.inf))


def _slack(score: Tensor, size: float, tolerance: float) -> Tensor:
    """How far each score may be off; an infinite one, that of a broken image, not at all."""
    return torch.where(score.isfinite(), tolerance * score.abs().clamp_min(size), 0.0)


def _moved(fitted: Fitted, outputs: Outputs, rounding: float) -> float:
    """How far scores move if every activation moves by this share of the largest of its row; the most of some draws."""
    generator = torch.Generator().manual_seed(0)
    score, size = fitted.method.score(outputs), _spread(fitted.calibration.scores)

    def noisy(values: Tensor) -> Tensor:
        largest = values.abs().amax(1, keepdim=True)  # sums of many terms are rounded in units of the largest
        return values + rounding * largest * torch.randn(values.shape, generator=generator)

    worst = 0.0
    for _ in range(_DRAWS):
        views = {view: noisy(perturbed) for view, perturbed in outputs.views.items()}
        again = fitted.method.score(Outputs(noisy(outputs.logits), noisy(outputs.features), views))
        worst = max(worst, float(_difference(again, score, size).max()))
    return worst


def _batches(n: int) -> Iterator[slice]:
    """All rows in batches of 32, and the first ones in batches of 1 and 7."""
    for size in _BATCHES[:2]:
        yield slice(0, min(size, n))
    for start in range(0, n, _BATCHES[-1]):
        yield slice(start, start + _BATCHES[-1])


def _spread(scores: Tensor) -> float:
    known = scores[scores.isfinite()]
    return max(1e-12, float(known.max() - known.min()))


def _check_logits(found: Tensor, logits: Tensor) -> None:
    rows = logits.isfinite().all(1)
    scale = logits[rows].abs().amax().clamp_min(1e-6) if rows.any() else torch.ones(())
    if ((found - logits)[rows].abs() > 1e-3 * scale).any():
        raise _refusal("gives other logits than the network")


def _refusal(what: str) -> InputError:
    return InputError(f"The exported file {what}, so it was not written. Keep the detector in PyTorch, or report it.")
