"""The fitting procedure: split the images, get outliers, search the grid, fit, set the threshold.

`OODDetector.fit`, ``adascale fit`` and the benchmark all go through `Plan`; they differ in where outputs and outliers
come from, and in whether a threshold is set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.shards import Shards
from adascale.core.types import Head, Need, Outputs, Tap
from adascale.decision.tuning import (
    FEWEST_IMAGES,
    KIND_WEIGHTS,
    MOST_CHOSEN,
    TOLERANCE,
    Fold,
    Judge,
    Point,
    Tuning,
    chosen_count,
    grid,
    search_grid,
)
from adascale.detectors import Detector
from adascale.detectors.configure import configured
from adascale.detectors.learning import BLOCK_ROWS, readable
from adascale.images.preprocess import Preprocess
from adascale.maths.conformal import Calibration
from adascale.maths.promise import images_needed, in_words
from adascale.maths.split import Split, split

# Indices of the images to choose parameters on, and what is needed -> outputs of the outliers to tell them from, by
# name; None if there are none.
Outliers = Callable[[Sequence[int], Sequence[Need]], "Mapping[str, Outputs] | None"]
# Indices of ID images, and what is needed of them -> their outputs, from another look at them: for methods whose views
# are known only after they were fitted.
Late = Callable[[Sequence[int], Sequence[Need]], Outputs]


class Fitted(NamedTuple):
    """The fitted method, and how it came about. setting: where the parameters come from, in one sentence.

    held_out: the indices of the images that set the threshold; none if there is no threshold.
    """

    method: Detector
    tuning: Tuning | None
    setting: str
    reference_images: int
    calibration: Calibration | None
    held_out: Tensor


@dataclass(frozen=True)
class Plan:
    """Whether a method is tuned, on which images, and which images it is fitted on.

    given: parameters that the user has set. tune: False never; True over the rest of the search space; None does so
    for methods that are tuned by default, unless a parameter of their search space was given or too few images would
    be left to promise ``alpha``. seed: seed of the split. alpha: the false-alarm rate for the threshold; None if no
    threshold is set, as in a benchmark, which has test images of its own. confidence: see `Calibration`. judge: what
    the grid is judged by. points: a grid in place of the search space. train_overlaps: whether some of the images are
    also training images; then parameters are chosen without the latter.
    """

    method: Detector
    given: frozenset[str] = frozenset()
    tune: bool | None = None
    seed: int = 0
    alpha: float | None = None
    judge: Judge = "self"
    points: Sequence[Point] | None = None
    train_overlaps: bool = False
    confidence: float | None = None

    @property
    def takes_train(self) -> bool:
        """Whether the method learns from training images, if there are any."""
        return self.method.learns_from_train

    @property
    def takes_both(self) -> bool:
        """Whether it learns from the ID images beside the training images."""
        return self.method.fits_on == "val+train"

    @property
    def wanted(self) -> bool:
        """Whether the method is to be tuned if there are enough images."""
        if self.tune is None:
            return self.method.tuned_by_default and not self.given & {*self.method.search_space, "more_pairs"}
        return self.tune and (self.points is not None or bool(set(self.method.search_space) - self.given))

    @cached_property
    def grid(self) -> Sequence[Point]:
        if self.points is not None:
            return self.points
        return grid(self.method, {k: v for k, v in self.method.search_space.items() if k not in self.given})

    @property
    def needs(self) -> list[Need]:
        """The distinct views and taps that have to be extracted."""
        points: Sequence[Point] = self.grid if self.wanted else [{}]
        return list(dict.fromkeys(need for point in points for need in replace(self.method, **point).wants))

    @property
    def taps(self) -> list[Tap]:
        """The inner layers among them, which training images are extracted with, too."""
        return [need for need in self.needs if isinstance(need, Tap)]

    def share(self, train: bool = False) -> float:
        """The share of the images that the method is fitted on, given training images or not."""
        if self.alpha is None:
            return 1.0
        if train and not self.takes_both:
            return 0.0
        return {"nothing": 0.0, "val": 0.2, "val+labels": 0.2, "val+train": 0.2}.get(self.method.fits_on, 0.5)

    def chosen(self, n: int, train: bool = False) -> list[int]:
        """The images among n to choose parameters on; empty if nothing will be tuned. train: as in `share`.

        Outliers are made from at most 200 images, which are also fitted on, in turns (see `choose`).
        """
        if not self.wanted:
            return []
        if self.method.learns_view:
            raise InputError(
                f"{self.method.name} cannot be tuned: each point of a grid would perturb the images in another way; "
                "give its parameters."
            )
        parts = self.split(n, train)
        if self.tune and not len(parts.chosen):
            raise InputError(f"{n} ID images are too few to tune on; give at least {FEWEST_IMAGES}, or do not tune.")
        needed = 0 if self.tune or self.alpha is None else images_needed(self.alpha, self.confidence)
        if not len(parts.chosen) or len(parts.held_out) < needed:
            return []
        judging = torch.cat([parts.chosen, parts.fitted])[:MOST_CHOSEN] if self.judge == "self" else parts.chosen
        indices: list[int] = judging.tolist()
        return indices

    def split(self, n: int, train: bool = False) -> Split:
        """The split of n images where parameters are chosen. train: as in `share`."""
        return split(n, self.seed, self.share(train), chosen_count(n) if self.judge == "self" else n // 2)

    def why_not(self, n: int, features: int | None = None) -> str:
        """Where the parameters come from if they were not tuned. features: how many the network has."""
        if not self.wanted:
            return ("as given" if self.given else "defaults") + ("; nothing is left to tune" if self.tune else "")
        point = self.untuned(features)
        values = ", ".join(f"{name}={value:g}" for name, value in point.items())
        origin = f"{values} for {features} features" if point else "defaults"
        if n < FEWEST_IMAGES:
            return f"{origin}; {n} images are too few to tune on ({FEWEST_IMAGES})"
        if self.alpha is not None and not self.chosen(n):
            wish = in_words(self.alpha, self.confidence)
            return f"{origin}; tuning would leave too few of {n} images to promise {wish}"
        return f"{origin}; no outliers to tune on (the images differ in size, or none were given)"

    def untuned(self, features: int | None) -> Point:
        """The parameters in place of the defaults if they should have been tuned and cannot be."""
        return self.method.suited(features) if self.wanted and features is not None else {}

    def fit(
        self,
        outputs: Outputs,
        head: Head,
        train: Outputs | Shards | None,
        outliers: Outliers | None,
        late: Late | None = None,
    ) -> Fitted:
        """Tune the method if that is wanted, fit it, and set the threshold if there is an ``alpha``.

        The images to choose parameters on and to fit on are kept apart from those that set the threshold. In the end
        the method is fitted on the first two; without a threshold on all images. train: the outputs of training images.
        late: gives the images that set the threshold once more, if the method's views depend on what it has learned.
        """
        n = len(outputs)
        if self.alpha is not None and self.method.learns_view and late is None:
            raise InputError(
                f"{self.method.name} perturbs images by what it has learned, so that extracted outputs lack it; fit it "
                "on images, or pass late=."
            )
        learned = readable(self.method, train) if self.takes_train and train is not None else None
        if self.alpha is not None and learned is not None and (shared := _shared_rows(outputs, learned)):
            raise InputError(
                f"{shared} of the {n} images that set the threshold are among the training images; "
                "give other images, else no false-alarm rate can be promised."
            )
        parts, tuning = self.choose(outputs, head, learned, outliers)
        own = outputs if self.alpha is None else outputs[torch.cat([parts.chosen, parts.fitted])]
        features = head.weight.shape[1]
        method = replace(self.method, **(tuning.chosen if tuning else self.untuned(features)))
        reference, *more = self._learned_from(method, own, learned)
        method = method.fit(reference, head, *more)
        calibration = None
        if self.alpha is not None:
            held = late(parts.held_out.tolist(), method.wants) if method.learns_view and late else None
            held = outputs[parts.held_out] if held is None else held
            calibration = calibrated(method, held, self.alpha, self.confidence)
        count = 0 if method.fits_on == "nothing" else len(reference)
        setting = "; ".join(filter(None, [method.note, str(tuning) if tuning else self.why_not(n, features)]))
        held_out = parts.held_out if calibration is not None else parts.held_out[:0]
        return Fitted(method, tuning, setting, count, calibration, held_out)

    def choose(
        self, outputs: Outputs, head: Head, train: Outputs | Shards | None, outliers: Outliers | None
    ) -> tuple[Split, Tuning | None]:
        """The split of the images, and the best parameters if they are wanted and there are outliers.

        train: the outputs of training images, if the method learns from them. A method that learns from ID images is
        fitted on one half of those to choose and to fit on, and judged by the other, and the other way round: so all
        of them judge, and none has been learned from by what it judges.
        """
        train = None if train is None else readable(self.method, train)
        n, share = len(outputs), self.share(train is not None)
        chosen = self.chosen(n, train is not None)
        unknown = outliers(chosen, self.needs) if chosen and outliers is not None else None
        parts = self.split(n, train is not None) if unknown else split(n, self.seed, share)
        if share and not len(parts.fitted):
            raise InputError(f"fit got {n} image; {self.method.name} needs one to learn from and one to calibrate.")
        if not unknown:
            return parts, None
        method = self.method.judged(self.grid[0])
        taught = None if self.train_overlaps else train
        folds = self.folds(method, parts, outputs, len(chosen), unknown, taught)
        made = self.judge == "self"
        against = "outliers made from them" if made else "OOD validation images"
        tuning = search_grid(
            *(method, self.grid, folds, head, f"{len(chosen)} ID images against {against} ({', '.join(unknown)})"),
            train=taught if taught is not None and method.fits_on == "val+train" else None,
            weights=KIND_WEIGHTS if made else None,
            tolerance=TOLERANCE if made and self.points is None else 0.0,
        )
        return parts, tuning

    def folds(
        self,
        method: Detector,
        parts: Split,
        outputs: Outputs,
        count: int,
        unknown: Mapping[str, Outputs],
        train: Outputs | Shards | None,
    ) -> list[Fold]:
        """What the grid is judged on. count: how many images judge. unknown: their outliers, in the same order."""
        rows = torch.cat([parts.chosen, parts.fitted])
        if self.judge == "ood" or method.fits_on == "nothing" or (train is not None and not self.takes_both):
            reference, *_ = self._learned_from(method, outputs[parts.fitted], train)
            return [Fold(reference, outputs[rows[:count]], unknown)]
        folds, turn = [], torch.arange(len(rows)) % 2
        for half in (0, 1):
            mine = torch.nonzero(turn[:count] == half)[:, 0]
            theirs = {name: made[mine] if len(made) == count else made for name, made in unknown.items()}
            folds.append(Fold(outputs[rows[turn != half]], outputs[rows[mine]], theirs))
        return folds

    def _learned_from(self, method: Detector, own: Outputs, train: Outputs | Shards | None) -> list[Outputs | Shards]:
        """What `fit` is given: the ID images, the training images, or both."""
        if train is None or not method.learns_from_train:
            return [own]
        if method.fits_on == "val+train":
            return [own] if self.train_overlaps else [own, train]  # own images must be ranked by methods that lack them
        return [train]


def _shared_rows(outputs: Outputs, train: Outputs | Shards) -> int:
    """How many samples seem to be the same image in both: equal in three numbers, up to rounding."""

    def keys(part: Outputs) -> list[tuple[float, ...]]:
        logits = part.logits.double()
        numbers = torch.stack([part.features.sum(1, dtype=torch.float64), logits.amax(1), logits.amin(1)], 1)
        return [tuple(float(f"{x:.4g}") for x in row) for row in numbers.tolist()]

    parts = [train] if isinstance(train, Outputs) else train.chunks(BLOCK_ROWS)
    known = {key for part in parts for key in keys(part)}
    shared = sum(key in known for key in keys(outputs))
    return shared if shared > max(1, len(outputs) // 50) else 0  # a few may agree by chance


def calibrated(method: Detector, held_out: Outputs, alpha: float, confidence: float | None) -> Calibration:
    """The threshold from images that the method was not fitted on."""
    return checked(Calibration(method.score(held_out), alpha, confidence))


def checked(calibration: Calibration) -> Calibration:
    """The calibration, unless it has no usable threshold."""
    if not math.isfinite(calibration.threshold) or calibration.scores.isnan().any():
        broken = int((~calibration.scores.isfinite()).sum())
        raise InputError(
            f"{broken} of {len(calibration.scores)} calibration images give NaN or infinite activations, so no "
            "threshold can be set; check the images and the preprocessing."
        )
    return calibration


def method_of(method: str | Detector, parameters: Mapping[str, Any], preprocess: Preprocess | None) -> Detector:
    """The method that a user asks for, by name with parameters or as an object, made for this preprocessing."""
    if isinstance(method, str):
        made = configured(method, parameters)
    elif parameters:
        raise InputError(f"Parameters {list(parameters)} came with a configured {method.name}; set them on it.")
    else:
        made = replace(method)  # a copy, because two detectors may be given the same object
    return made if preprocess is None else made.for_input(preprocess.std)
