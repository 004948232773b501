"""`Monitor`: watches the scores and predicted classes of a detector and tells when the traffic has changed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.maths.draws import LARGEST_SEED, Draws
from adascale.maths.martingales import EXPONENTS, PARTS, Histograms, distances, power_bets
from adascale.maths.ranks import CAPACITY, ClassRanks, Ranks
from adascale.maths.share import CONFIDENCE, ShareEstimate
from adascale.monitoring.alarms import CLASSES, SCORES, Alarm, log10
from adascale.monitoring.game import Game
from adascale.monitoring.history import History
from adascale.storage.tensors import checksum, load_tensors, save_tensors

if TYPE_CHECKING:
    from typing_extensions import Self

FILE = "adascale-monitor"
RUN_LENGTH = 10_000
WINDOW = 1000
MOST_CLASSES = 1_000_000
_NUMBERS = (
    *("images", "used", "calibration_images", "calibration_classes", "watches_classes", "fingerprint"),
    *("about", "_before"),
)


class _Part(Protocol):
    """What is saved as arrays."""

    def state(self) -> dict[str, np.ndarray]: ...

    def restore(self, state: Mapping[str, np.ndarray]) -> None: ...


class Monitor:
    """Watches a stream of images, one after the other, and raises alarms whose false-alarm rate is guaranteed.

    For example:

        >>> monitor = Monitor(detector.calibration.scores, classes=detector.calibration_classes)
        >>> alarms = monitor.update_many(verdict.score, verdict.prediction)
        >>> monitor.summary()["images"]
        3

    Images are ranked among the calibration images and everything seen so far (`adascale.maths.ranks`), and players bet
    that the ranks are not uniform (`adascale.maths.martingales`). There are four alarms: ``unusual`` bets on high
    scores, ``typical`` on low ones, ``repeated`` on scores like that of the image before, and ``classes`` on a mix of
    predicted classes other than before. Each comes in two kinds: ``ever`` looks at everything since the start and is
    strong for what is wrong from the beginning; ``continuing`` finds what begins later.

    As long as the images are exchangeable with the calibration images, the chance that any alarm of the kind ``ever``
    is raised, at any time, is at most ``delta``, and the chance that one of the kind ``continuing`` is raised within
    the first n images is at most ``n / run_length``. Successive frames of a video are not exchangeable: give one image
    of each scene, or use ``every``.

    calibration: the scores of the calibration images. classes: their predicted classes; without them the number of
    classes (any number), and the mix is then compared with that of earlier images alone; None: no alarm about classes.
    seed: of the random numbers that break ties. every: use one of so many images. capacity: how many scores are kept as
    they are (`Ranks`). window: how many recent images the share of OOD images is estimated from.
    """

    def __init__(
        self,
        calibration: Sequence[float] | Tensor | np.ndarray,
        classes: Sequence[int] | Sequence[float] | Tensor | np.ndarray | int | None = None,
        *,
        delta: float = 0.01,
        run_length: float = RUN_LENGTH,
        seed: int = 0,
        every: int = 1,
        capacity: int = CAPACITY,
        window: int = WINDOW,
    ) -> None:
        known = _scores(calibration)
        if not len(known):
            raise InputError("calibration has no scores; a monitor needs those of the calibration images.")
        _check(delta, run_length, seed, every, capacity, window)
        self.options: dict[str, Any] = dict(
            delta=delta, run_length=run_length, seed=seed, every=every, capacity=capacity, window=window
        )
        given = [] if classes is None or isinstance(classes, int) else [_class(one) for one in _listed(classes)]
        self.calibration_images, self.calibration_classes = len(known), len(given)
        self.fingerprint = fingerprint(known)
        self.images = self.used = 0
        self.about: dict[str, Any] = {}  # whatever is to be saved with the monitor, ready for JSON
        self.watches_classes = classes is not None
        number = len(SCORES) + self.watches_classes
        limits = {"ever": number / delta, "continuing": number * run_length}
        self._games = [Game(SCORES, len(EXPONENTS), limits)]
        self._games += [Game([CLASSES], len(PARTS), limits)] if self.watches_classes else []
        self._draws, self._share, self._recent = Draws(seed, 3), ShareEstimate(known), np.empty(0)
        self._ranks, self._class_ranks = Ranks(known, seed, capacity), ClassRanks(np.array(given, dtype=np.int64))
        self._histograms = Histograms(1)
        self._before: float | None = None  # the p-value of the image before
        self._history = History(len(self.alarms))

    @property
    def alarms(self) -> list[Alarm]:
        """Every alarm, raised or not."""
        return [alarm for game in self._games for alarm in game.alarms]

    @property
    def raised(self) -> list[Alarm]:
        """The alarms that were raised, the earliest first. An alarm stays raised."""
        return sorted((alarm for alarm in self.alarms if alarm.raised), key=lambda alarm: alarm.raised_at or 0)

    def update(self, score: float, prediction: int | None = None, name: str | None = None) -> list[Alarm]:
        """Take in an image, and return the alarms that it raised. A score of NaN or infinity is the most unusual.

        prediction: the predicted class; without one the image says nothing about the mix of classes. name: of the
        image, for the list of those that contributed most.
        """
        cls = None if prediction is None or not self.watches_classes else _class(prediction)
        value = float(score) if math.isfinite(score) else math.inf
        self.images += 1
        if (self.images - 1) % self.options["every"]:
            return []
        u, v, w = self._draws[self.used]
        self.used += 1
        self._recent = np.append(self._recent, value)[-self.options["window"] :]
        raised = self._games[0].play(self._score_bets(self._ranks.place(value, u, v)), self.images, name)
        if cls is not None:
            bets = self._histograms.bets(np.array([self._class_ranks.place(cls, w)]))
            raised += self._games[1].play(bets, self.images, name)
        self._history.add(self.images, [alarm.log_evidence for alarm in self.alarms])
        return raised

    def update_many(
        self,
        scores: Iterable[float] | Tensor | np.ndarray,
        predictions: Iterable[int | None] | Tensor | np.ndarray | None = None,
        names: Iterable[str | None] | None = None,
    ) -> list[Alarm]:
        """The same for many images in their order. It makes no difference how they are divided into calls."""
        listed = _listed(scores)
        others = [repeat(None) if part is None else _listed(part) for part in (predictions, names)]
        found = []
        for score, prediction, name in zip(listed, *others, strict=False):
            found += self.update(score, prediction, name)
        return found

    def _score_bets(self, p: float) -> np.ndarray:
        """What the players of `SCORES` bet on p; the first image is like no other, so no one bets on that."""
        apart = 1.0 if self._before is None else float(distances(np.array(p), np.array(self._before)))
        bets = power_bets(np.array([p, 1 - p, apart]))
        if self._before is None:
            bets[2] = 0.0
        self._before = p
        return bets

    def summary(self) -> dict[str, Any]:
        """What has been seen, ready for JSON: see docs/monitoring.md. Images are numbered from 1 on."""
        share = self._share.of(self._recent)
        return {
            "images": self.images,
            "used": self.used,
            "calibration_images": self.calibration_images,
            "calibration_classes": self.calibration_classes,
            **self.options,
            "exact": self._ranks.exact,
            "alarm": bool(self.raised),
            "raised": [alarm.title for alarm in self.raised],
            "promise": self.promise(),
            "alarms": [one for game in self._games for one in game.summary()],
            "ood_share": None
            if share is None
            else {**share._asdict(), "confidence": CONFIDENCE, "images": len(self._recent)},
        }

    def promise(self) -> str:
        """What is promised about false alarms of all alarms together."""
        delta, length = self.options["delta"], self.options["run_length"]
        return (
            "While the images are exchangeable with the calibration images, the chance that any alarm of the kind "
            f"'ever' is raised is at most {delta:.4g}, and the chance that one of the kind 'continuing' is raised "
            f"within the first n images at most n / {length:.6g}."
        )

    def history(self) -> dict[str, Any]:
        """The evidence over time, ready for JSON: the numbers of images, and for each alarm powers of ten.

        At most 1024 points, evenly spaced; the last is the present.
        """
        images, rows = self._history.images, self._history.rows
        if self.used and (not images or images[-1] != self.images):
            images, rows = [*images, self.images], np.vstack([rows, [alarm.log_evidence for alarm in self.alarms]])
        columns = {alarm.title: rows[:, i] for i, alarm in enumerate(self.alarms)}
        return {"images": images, **{name: [log10(one) for one in column.tolist()] for name, column in columns.items()}}

    def save(self, path: str | Path) -> None:
        """Write everything to one file, in one step: whoever loads it goes on as if there had been no break."""
        tensors = {name: torch.tensor(array) for name, array in self._arrays().items()}
        save_tensors(Path(path), tensors, self._record(), FILE)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The monitor of a file that `save` wrote."""
        if not Path(path).is_file():
            raise InputError(f"There is no file {path}; make one with Monitor.save.")
        tensors, record, _ = load_tensors(Path(path), FILE)
        made = cls([0.0], classes=0 if record["watches_classes"] else None, **record["options"])
        for name in _NUMBERS:
            setattr(made, name, record[name])
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        for prefix, part in made._parts().items():
            start = f"{prefix}."
            part.restore({name.removeprefix(start): a for name, a in arrays.items() if name.startswith(start)})
        made._recent = arrays["recent"]
        for game, saved in zip(made._games, record["games"], strict=True):
            game.restore(saved)
        return made

    def _parts(self) -> dict[str, _Part]:
        """What has arrays to save."""
        games = {f"game{i}": game.wagers for i, game in enumerate(self._games)}
        return {
            "ranks": self._ranks, "classes": self._class_ranks, "histograms": self._histograms,
            "history": self._history, "share": self._share, **games,
        }  # fmt: skip

    def _arrays(self) -> dict[str, np.ndarray]:
        arrays = {f"{prefix}.{name}": a for prefix, part in self._parts().items() for name, a in part.state().items()}
        return {name: np.ascontiguousarray(a) for name, a in {**arrays, "recent": self._recent}.items()}

    def _record(self) -> dict[str, Any]:
        games = [game.record() for game in self._games]
        return {"options": self.options, "games": games, **{name: getattr(self, name) for name in _NUMBERS}}


def fingerprint(calibration: Sequence[float] | Tensor | np.ndarray) -> str:
    """Tells calibration scores from others, in any order."""
    return checksum({"scores": torch.from_numpy(np.sort(_scores(calibration)))}, "")


def _scores(given: Sequence[float] | Tensor | np.ndarray) -> np.ndarray:
    """Scores as an array; what is not finite is the most unusual."""
    values = np.array(_listed(given), dtype=np.float64)
    return np.where(np.isfinite(values), values, np.inf)


def _listed(given: Iterable[Any] | Tensor) -> list[Any]:
    return given.tolist() if isinstance(given, Tensor | np.ndarray) else list(given)


def _class(given: Any) -> int:
    if isinstance(given, bool) or given != int(given) or not 0 <= given <= MOST_CLASSES:
        raise InputError(f"prediction={given!r}; it is the number of a class, a whole number from 0 on.")
    return int(given)


def _check(delta: float, run_length: float, seed: int, every: int, capacity: int, window: int) -> None:
    if not 0 < delta < 1:
        raise InputError(f"delta={delta!r}; it is the chance of a false alarm, a number above 0 and below 1.")
    if not 1 <= run_length < math.inf:
        raise InputError(f"run_length={run_length!r}; it is the images between false alarms, a number from 1 on.")
    if not 0 <= seed <= LARGEST_SEED:
        raise InputError(f"seed={seed!r}; it is a whole number from 0 to 2**64 - 1.")
    for name, value, least in (("every", every, 1), ("capacity", capacity, 16), ("window", window, 1)):
        if value < least:
            raise InputError(f"{name}={value!r}; it is a number of images, {least} or more.")
