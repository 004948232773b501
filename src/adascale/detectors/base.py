"""The contract of every method: declared needs, ``fit`` on ID outputs, ``score`` in float64, higher = more OOD."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from adascale.core.errors import InputError, NotFittedError
from adascale.core.shards import Shards
from adascale.core.types import Head, Need, Outputs, Tap, View
from adascale.detectors import parameters
from adascale.detectors.learning import Fitting, learn
from adascale.detectors.needs import NOT_FINITE, Needs, check_shapes
from adascale.detectors.rows import finite_rows, looked_at, rowwise
from adascale.detectors.statistics import Course, Rows
from adascale.detectors.traits import Cost, FitsOn, Signed, Space
from adascale.maths.pieces import all_finite

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass
class Detector(ABC):
    """A method. The dataclass fields are its hyperparameters; what ``fit`` learns ends in an underscore.

    Assigning a hyperparameter forgets what was fitted, so a score never mixes old state with new parameters.
    Subclasses declare the class attributes and write ``_score`` (and ``_check_parameters``, ``_fit``, ``views`` where
    they need them).

    For example:

        >>> method = detectors.get("scale")(percentile=90)
        >>> scores = method.fit(reference, head).score(reference)  # higher = more out-of-distribution
        >>> scores.shape == (len(reference),)
        True
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    fits_on: ClassVar[FitsOn] = "nothing"
    search_space: ClassVar[Space] = {}
    tuned_by_default: ClassVar[bool] = False
    signed_features: ClassVar[Signed] = "any"
    cost: ClassVar[Cost] = "light"
    reads_features: ClassVar[bool] = True  # False: the logits alone, and only they have to be finite
    in_pieces: ClassVar[bool] = False  # `_score` itself keeps its temporaries in the processor's cache
    # What needs no look beforehand, because no score of entries that are not finite is finite.
    shows_infinite: ClassVar[tuple[Literal["logits", "features"], ...]] = ()
    nearest: ClassVar[str] = "mds"  # of methods that look inside the network: the one to export in its place
    passes: ClassVar[str] = "1 forward"  # through the network with the default parameters, as `views` implies
    diagnosed: ClassVar[tuple[str, ...]] = ()  # what `diagnostics` gives
    learns_view: ClassVar[bool] = False  # `views` is empty until the method is fitted: they depend on what it learned

    if TYPE_CHECKING:  # a class found by name has parameters that type checkers cannot know

        def __init__(self, **parameters: Any) -> None: ...

    def __post_init__(self) -> None:
        parameters.check(self)
        self._check_parameters()

    @property
    def views(self) -> tuple[View, ...]:
        """The perturbed inputs that the method needs besides the clean one."""
        return ()

    @property
    def taps(self) -> tuple[Tap, ...]:
        """The reductions of inner layers that the method needs; they are made during the clean pass."""
        return ()

    @property
    def wants(self) -> tuple[Need, ...]:
        """Views and taps: what has to be extracted besides the clean logits and features."""
        return (*self.views, *self.taps)

    @property
    def looks_inside(self) -> bool:
        """Whether the method needs inner layers or a changed network, and so more than stored features."""
        return bool(self.taps) or any(view.network is not None for view in self.views)

    def for_input(self, std: tuple[float, ...]) -> Detector:
        """The method for a network whose input is normalised with this deviation; most methods ignore it."""
        return self

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters by name, as given."""
        return asdict(self)

    @property
    def is_fitted(self) -> bool:
        """Whether scores can be asked for."""
        return "head_" in vars(self)

    @classmethod
    def others(cls, parameters: Mapping[str, Any]) -> Sequence[str]:
        """The methods that these parameters name: those that it combines."""
        return ()

    @property
    def learns_from_train(self) -> bool:
        """Whether the method, as it is configured, has a use for training images."""
        return "train" in self.fits_on

    @property
    def note(self) -> str:
        """What `fit` found out beyond the parameters, in one sentence; empty if there is nothing to say."""
        return ""

    def fit(self, reference: Outputs | Shards | None, head: Head, train: Outputs | Shards | None = None) -> Self:
        """Learn from ID outputs (ignored by methods that fit on nothing). Fitting again starts from scratch.

        train: those of training images, for methods that take both (``fits_on = "val+train"``) and no others.
        Outputs that are read part by part (`Shards`) give the bits that they would give in memory.
        """
        fitting = self.fitting(head)
        if self.fits_on != "nothing":
            learn(fitting, self.needs(head), reference)
        fitting.finish()
        self.head_ = head
        return self

    def fitting(self, head: Head) -> Fitting:
        """A fit from scratch, pass by pass: ``partial`` of every block of the samples, ``merge``; then ``finish``."""
        self._forget()
        self.__post_init__()
        return Fitting(self, head, self._course(head))

    def needs(self, head: Head) -> Needs:
        """What the samples to learn from must have."""
        return Needs(self.name, self.fits_on, self.wants, self.reads_features, tuple(head.weight.shape))

    def score(self, outputs: Outputs) -> Tensor:
        """OOD scores (N,), float64, higher = more OOD; +inf for rows with NaN or infinite activations in what the
        method reads, and for rows so large that the method's arithmetic overflows.
        """
        self._ready(outputs)
        return rowwise(outputs, self._guarded_score, size="pieces" if self.in_pieces else "whole")

    def formula(self, outputs: Outputs) -> Tensor:
        """The score (N,) as torch operations alone, for any number of rows, without checks: what can be traced,
        exported, and run where the tensors are (see `Outputs.bare`). Rows that are not finite have no meaning here.
        """
        return self._score(outputs)

    def formula_bounds(self, outputs: Outputs) -> tuple[Tensor, Tensor] | None:
        """`bounds` in the same way."""
        if self.views:
            return None
        scores = self.formula(outputs)
        return scores, scores

    @property
    def untraceable(self) -> str:
        """Why `formula` cannot be used for this fitted method, and which method can be taken; empty if it can."""
        if any(view.network is not None for view in self.views):
            return f"it runs a changed network, and exported graphs have the network as it is; use {self.nearest}"
        if self.taps:
            return f"it reads inner layers, and exported graphs give features and logits alone; use {self.nearest}"
        return ""

    @property
    def speakers(self) -> tuple[str, ...]:
        """The names in `explained`: the members of a fitted method that combines others."""
        return ()

    @property
    def parts(self) -> Mapping[str, Detector]:
        """The fitted methods whose scores make up this one's, by name: the members, or itself."""
        return {self.name: self}

    def explained(self, outputs: Outputs) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The scores, and by name what adds up to them, for methods that combine others; else nothing."""
        return self.score(outputs), {}

    def bounds(self, outputs: Outputs) -> tuple[Tensor, Tensor] | None:
        """The least and the largest score (N,) that these samples can have whatever their views are; None if unknown.

        A method without views has one score. Images whose perturbed activations overflow score +inf, which cannot
        be foreseen.
        """
        if self.views:
            return None
        scores = self.score(outputs)
        return scores, scores

    def sweep(
        self,
        points: Sequence[Mapping[str, Any]],
        reference: Outputs | Shards | None,
        head: Head,
        sets: Sequence[Outputs],
        train: Outputs | Shards | None = None,
    ) -> Iterator[tuple[int, list[Tensor] | None]]:
        """For each point of a grid, by its index and in any order, the scores of these sets after fitting with its
        parameters; None where that is not possible. Methods whose points share work do it once. train: as in `fit`.
        """
        more = () if train is None else (train,)
        for i, point in enumerate(points):
            try:
                fitted = replace(self, **point).fit(reference, head, *more)
                yield i, [fitted.score(outputs) for outputs in sets]
            except InputError:
                yield i, None

    def _at(self, point: Mapping[str, Any]) -> Self | None:
        """The method with the parameters of a point, or None if they make no sense."""
        try:
            return replace(self, **point)
        except InputError:
            return None

    def judged(self, names: Collection[str]) -> Detector:
        """The method whose scores judge a grid over these parameters: itself, or the part that they belong to."""
        return self

    def averaged(self, points: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """The parameters that stand for all of these equally good points, best first; by default those of the best."""
        return points[0]

    def suited(self, features: int) -> Mapping[str, Any]:
        """Parameters of the search space for a network with this many features, where they cannot be tuned; by
        default none, which leaves them as they are.
        """
        return {}

    def sized(self, n: int, head: Head) -> Detector:
        """The method for n samples to learn from, if its defaults are made for more; by default itself."""
        return self

    def diagnostics(self, outputs: Outputs) -> Mapping[str, Tensor]:
        """What reports show of a fitted method besides its scores: the tensors named in ``diagnosed``, with N rows."""
        return {}

    def state(self) -> dict[str, Tensor]:
        """The fitted tensors (without the head, which belongs to the network)."""
        return {name: value for name, value in self._fitted().items() if name != "head_"}

    def restore(self, state: Mapping[str, Tensor], head: Head) -> Self:
        """Become fitted from a saved ``state``."""
        if wrong := [name for name in state if not name.endswith("_") or name.startswith("_")]:
            raise InputError(f"{self.name} has learned no {wrong[0]!r}; names of what is learned end in _.")
        self._forget()
        vars(self).update({**state, "head_": head})
        return self

    def _check_parameters(self) -> None:  # noqa: B027 (only methods with parameters write it)
        """Refuse parameters that do not fit together. Types and ranges are checked by their declarations."""

    def _learn(self, head: Head) -> Course:
        """Learn in passes: ``yield`` a `Statistic`, and get its value over all checked ID samples."""
        yield from ()

    def _fit(self, reference: Outputs, head: Head) -> None:
        """Learn from checked ID outputs at once: for methods that need all of them in memory."""
        learn(Fitting(self, head, self._learn(head)), self.needs(head), reference)

    def _course(self, head: Head) -> Course:
        """How this class learns: by the ``_learn`` or the ``_fit`` that comes first among it and its bases."""
        if self.fits_on == "nothing":
            return
        owner = next(cls for cls in type(self).__mro__ if not {"_learn", "_fit"}.isdisjoint(vars(cls)))
        if "_learn" in vars(owner):
            yield from self._learn(head)
        else:
            self._fit((yield Rows(self.wants)), head)

    @abstractmethod
    def _score(self, outputs: Outputs) -> Tensor:
        """Scores of a checked, finite, non-empty chunk."""

    def __setattr__(self, name: str, value: Any) -> None:
        if any(field.name == name for field in fields(self)):
            self._forget()
        super().__setattr__(name, value)

    def _fitted(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name.endswith("_")}

    def _forget(self) -> None:
        for name in self._fitted():
            delattr(self, name)

    def _usable(self, reference: Outputs | Shards | None, head: Head) -> Outputs:
        """The finite rows, in memory, or one sentence about what is missing."""
        needs = self.needs(head)
        if reference is None or not len(reference):
            raise needs.none_given()
        found = needs.usable(reference.load() if isinstance(reference, Shards) else reference)
        if not len(found):
            raise InputError(NOT_FINITE)
        return found

    def _guarded_score(self, chunk: Outputs) -> Tensor:
        logits, features = (part not in self.shows_infinite for part in ("logits", "features"))
        if all_finite(looked_at(chunk, self.wants, features and self.reads_features, logits)):
            scores = self._scored(chunk)
            if math.isfinite(scores.item() if len(scores) == 1 else scores.sum()):
                return scores
        else:
            finite = finite_rows(chunk, self.wants, self.reads_features)
            scores = torch.full((len(chunk),), math.inf, dtype=torch.float64)
            if finite.any():
                scores[finite] = self._scored(chunk[finite])
        return torch.where(scores.isfinite(), scores, math.inf)  # activations so large that the arithmetic overflowed

    def _scored(self, chunk: Outputs) -> Tensor:
        if self.cost == "light" and self.reads_features and not self.in_pieces:
            # This arithmetic is a matter of memory: its temporaries should not leave the processor's cache.
            return rowwise(chunk, self._score, size="light")
        return self._score(chunk)

    def _ready(self, outputs: Outputs) -> None:
        if not self.is_fitted:
            raise NotFittedError(f"{self.name} is not fitted (or a parameter changed since): call fit first.")
        check_shapes(self.name, self.wants, outputs, tuple(self.head_.weight.shape))


def passes_of(detector: Detector) -> str:
    """The passes through the network that a configured method needs, in words."""
    gradients = sum(view.needs_gradient for view in detector.views)
    gradients += len({tap.objective for tap in detector.taps if tap.objective is not None})
    return f"{1 + len(detector.views)} forward" + (f", {gradients} backward" if gradients else "")
