"""Combined: the evidence of several methods, added."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.shards import Shards
from adascale.core.types import Head, Outputs, Pixels, Tap, View
from adascale.detectors import registry
from adascale.detectors.base import Detector
from adascale.detectors.configure import configured
from adascale.detectors.parameters import number, percent
from adascale.detectors.rows import finite_rows, in_chunks
from adascale.detectors.traits import Space
from adascale.detectors.voices import Voice, taught
from adascale.maths.evidence import Evidence, decorrelated

if TYPE_CHECKING:
    from typing_extensions import Self

_SHARED = ("p_min", "p_max", "more_pairs", "pixels")  # our parameters that members of the same name take over


@dataclass
class Combined(Detector):
    """Several methods as one, by default AdaSCALE-L, fDBD, GEN and ViM: ``S = sum over the members m of w_m e_m(S_m)``.

    ``e_m`` is minus the logarithm of the share of ID images whose score by member ``m`` is as high, with a continuous
    tail beyond the sample (`adascale.maths.evidence`); the plain sum is Fisher's combination of p-values (R. A. Fisher,
    1925). The members are dependent, so the sum has no known distribution: it is calibrated like any other score.

    members: names of methods, or ``file.py:Class``. A member that cannot be fitted on what is given is left out, and
    `note` says why. settings: their parameters, by the name of the member. weights: ``decorrelated``, from the
    correlations of the evidence on ID images, so that what several members say alike does not count several times, and
    from the number of images (see ``few``); ``equal``; or a number for each member. rule: ``fisher``, the sum;
    ``tippett``, the largest alone. p_min, p_max, more_pairs, pixels: those of every member that has them, where
    ``settings`` does not say otherwise.

    learn_from: what members that learn from training images are fitted on: ``id``, the ID images like the others, or
    ``train``, the training images if there are any. A network fits its training images, so that their features are
    unlike those of fresh images, which the members have to know. Members that need labels always learn from training
    images.

    few: a member that is made to learn from training images, and has m ID images instead, counts ``m / (m + few)``: it
    estimates means or directions, whose error has a variance of the order of 1 / m. Members that need a few ID images
    at most (AdaSCALE, GEN) count in full, so that they have the say where there are few.

    A member fits the images that it has learned from too well, and their scores would make every fresh image look
    unusual. So the ID images are cut into ``folds`` parts, and each part is scored by members that have learned from
    the rest; these scores set the evidence.
    """

    name = "combined"
    summary = "the evidence of several methods, added"
    fits_on = "val+train"
    cost = "product"
    passes = "2 forward"
    diagnosed = ("evidence",)
    tuned_by_default = True
    search_space: ClassVar[Space] = {
        "p_min": (60, 65, 70, 75, 80, 85, 90, 95, 99),
        "p_max": (60, 65, 70, 75, 80, 85, 90, 95, 99),
    }

    members: tuple[str, ...] = ("adascale_l", "fdbd", "gen", "vim")
    settings: dict[str, Any] = field(default_factory=dict)
    weights: Literal["equal", "decorrelated"] | tuple[float, ...] = "decorrelated"
    rule: Literal["fisher", "tippett"] = "fisher"
    pixels: Pixels = "random"
    p_min: float | None = percent(None)
    p_max: float | None = percent(None)
    more_pairs: tuple[float, ...] | None = None
    learn_from: Literal["id", "train"] = "id"
    folds: int = number(5, least=2)
    few: float = number(10, least=0)

    def _check_parameters(self) -> None:
        made = self.made()
        if late := [name for name, member in made.items() if member.learns_view]:
            raise InputError(
                f"{late[0]} cannot be a member: it perturbs images by what it has learned, and members are fitted and "
                f"scored on the same outputs; use {made[late[0]].nearest}."
            )
        if unknown := set(self.settings) - set(made):
            raise InputError(f"settings has {sorted(unknown)[0]!r}, which is no member; they are {', '.join(made)}.")
        if isinstance(self.weights, tuple) and (len(self.weights) != len(made) or min(self.weights) < 0):
            raise InputError(f"weights={self.weights}; give a number of at least 0 for each of {', '.join(made)}.")

    @classmethod
    def others(cls, parameters: Mapping[str, Any]) -> Sequence[str]:
        return tuple(parameters.get("members", cls.members))

    def made(self) -> dict[str, Detector]:
        """The members with their parameters, not fitted, by name."""
        made: dict[str, Detector] = {}
        for text in self.members:
            cls = registry.get(text)
            own = {one.name for one in fields(cls)}
            shared = {name: getattr(self, name) for name in _SHARED if name in own and getattr(self, name) is not None}
            if cls.name in made:
                raise InputError(f"{cls.name} is given twice as a member; give it once.")
            made[cls.name] = configured(cls, {**shared, **self.settings.get(cls.name, {})})
        if not made:
            raise InputError("members is empty; give the names of the methods to combine.")
        return made

    @property
    def views(self) -> tuple[View, ...]:
        return tuple(dict.fromkeys(view for member in self._speaking() for view in member.views))

    @property
    def taps(self) -> tuple[Tap, ...]:
        return tuple(dict.fromkeys(tap for member in self._speaking() for tap in member.taps))

    def _speaking(self) -> Collection[Detector]:
        return [voice.method for voice in self.voices_.values()] if self.is_fitted else self.made().values()

    @property
    def learns_from_train(self) -> bool:
        return any(map(self._wants_train, self.made().values()))

    def _wants_train(self, member: Detector) -> bool:
        return member.fits_on == "train+labels" or (self.learn_from == "train" and member.fits_on == "train")

    def for_input(self, std: tuple[float, ...]) -> Detector:
        settings = dict(self.settings)
        for name, member in self.made().items():
            suited = member.for_input(std)
            changed = {key: value for key, value in suited.parameters.items() if value != member.parameters[key]}
            if changed:
                settings[name] = {**settings.get(name, {}), **changed}
        return self if settings == self.settings else replace(self, settings=settings)

    @property
    def note(self) -> str:
        """The members that speak, and those that were left out, with the reason."""
        if not self.is_fitted:
            return ""
        missing = "".join(f"; left out {name}: {reason.rstrip('.')}" for name, reason in self.left_out_.items())
        return f"the evidence of {', '.join(self.voices_)} is added{missing}"

    def fit(self, reference: Outputs | Shards | None, head: Head, train: Outputs | Shards | None = None) -> Self:
        """Learn from ID outputs, and from those of training images if there are any."""
        self._forget()
        self.__post_init__()
        known = self._usable(reference, head)
        learned: dict[str, tuple[Detector, Tensor, float]] = {}
        left_out: dict[str, str] = {}
        for name, member in self.made().items():
            try:
                learned[name] = self._learned(member, known, head, train)
            except InputError as error:
                left_out[name] = str(error)
        if not learned:
            raise InputError(f"None of the members can be fitted: {next(iter(left_out.values()))}")
        trust = {name: share for name, (_, _, share) in learned.items()}
        worth = self._worth({name: scores for name, (_, scores, _) in learned.items()}, trust)
        self.voices_ = {name: Voice(member, *worth[name]) for name, (member, _, _) in learned.items()}
        self.left_out_, self.head_ = left_out, head
        return self

    def _learned(
        self, member: Detector, known: Outputs, head: Head, train: Outputs | Shards | None
    ) -> tuple[Detector, Tensor, float]:
        """The fitted member, scores of the ID images by members that have not learned from them, and how far it is
        trusted: ``n / (n + few)`` if it has learned from n ID images in the place of training images, else 1.
        """
        fitted, n = taught(member, known, head, train if self._wants_train(member) else None), len(known)
        if fitted is not None:
            return fitted, fitted.score(known), 1.0
        if n < 2:
            raise InputError(f"{member.name} got 1 image to learn from and to rank; give at least 2.")
        # Each image belongs to a part in turn: images in the order of their classes are spread evenly.
        turn = torch.arange(n) % min(self.folds, n)
        member = member.sized(int((turn != 0).sum()), head)
        scores = torch.empty(n, dtype=torch.float64)
        for part in (turn == i for i in range(int(turn.max()) + 1)):
            scores[part] = replace(member).fit(known[~part], head).score(known[part])
        return replace(member).fit(known, head), scores, n / (n + self.few) if member.fits_on == "train" else 1.0

    def _worth(self, scores: Mapping[str, Tensor], trust: Mapping[str, float]) -> dict[str, tuple[Evidence, Tensor]]:
        """Evidence and weight of each member, from its scores of ID images."""
        evidence = {name: Evidence.of(values) for name, values in scores.items()}
        weights = torch.ones(len(scores), dtype=torch.float64)
        if isinstance(self.weights, tuple):
            given = dict(zip(self.made(), self.weights, strict=True))
            weights = torch.tensor([given[name] for name in scores], dtype=torch.float64)
        elif self.weights == "decorrelated":
            table = torch.stack([evidence[name](values) for name, values in scores.items()], 1)
            share = torch.tensor([trust[name] for name in scores], dtype=torch.float64)
            weights = share * decorrelated(table[table.isfinite().all(1)])
        return {name: (found, weight) for (name, found), weight in zip(evidence.items(), weights, strict=True)}

    def _score(self, outputs: Outputs) -> Tensor:
        return self._fused(self._table(outputs))

    def _table(self, outputs: Outputs) -> Tensor:
        """What each member adds (N, K), for checked, finite samples."""
        return torch.stack([voice.of(voice.method._score(outputs)) for voice in self.voices_.values()], 1)

    def formula(self, outputs: Outputs) -> Tensor:
        voices = self.voices_.values()
        parts = [voice.weight * voice.evidence.formula(voice.method.formula(outputs)) for voice in voices]
        return self._fused(torch.stack(parts, 1))

    def formula_bounds(self, outputs: Outputs) -> tuple[Tensor, Tensor] | None:
        ends = [(voice, voice.method.formula_bounds(outputs)) for voice in self.voices_.values()]
        low, high = (
            [voice.weight * voice.evidence.formula(found[end]) for voice, found in ends if found is not None]
            for end in (0, 1)
        )
        if len(low) < len(ends):
            return None
        return self._fused(torch.stack(low, 1)), self._fused(torch.stack(high, 1))

    @property
    def untraceable(self) -> str:
        reasons = {name: voice.method.untraceable for name, voice in self.voices_.items()}
        return "; ".join(f"of its member {name}: {reason}" for name, reason in reasons.items() if reason)

    def _fused(self, table: Tensor) -> Tensor:
        return table.sum(1) if self.rule == "fisher" else table.amax(1)

    @property
    def speakers(self) -> tuple[str, ...]:
        return tuple(self.voices_) if self.is_fitted else self.members

    @property
    def parts(self) -> Mapping[str, Detector]:
        return {name: voice.method for name, voice in self.voices_.items()}

    def explained(self, outputs: Outputs) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The scores, and what each member adds to them; +inf for rows that are not finite."""
        self._ready(outputs)
        table = torch.full((len(outputs), len(self.voices_)), torch.inf, dtype=torch.float64)
        start = 0
        for chunk in in_chunks(outputs):
            rows = finite_rows(chunk, self.wants)
            if rows.any():
                table[start : start + len(chunk)][rows] = self._table(chunk if rows.all() else chunk[rows])
            start += len(chunk)
        scores = self._fused(table)
        return torch.where(scores.isfinite(), scores, torch.inf), dict(zip(self.voices_, table.unbind(1), strict=True))

    def diagnostics(self, outputs: Outputs) -> Mapping[str, Tensor]:
        """``evidence`` (N, K): what each member adds to the score, in the order of the members that speak."""
        return {"evidence": torch.stack(list(self.explained(outputs)[1].values()), 1)}

    def bounds(self, outputs: Outputs) -> tuple[Tensor, Tensor] | None:
        """The sums of the members' bounds: evidence grows with the score, and no weight is negative."""
        ends = [(voice, voice.method.bounds(outputs)) for voice in self.voices_.values()]
        if any(found is None for _, found in ends):
            return None
        low, high = (
            torch.stack([voice.of(found[end]) for voice, found in ends if found is not None], 1) for end in (0, 1)
        )
        return self._fused(low), self._fused(high)

    def judged(self, names: Collection[str]) -> Detector:
        """The first member that takes the percentiles from us, for a grid over them alone; else the whole.

        The other members do not depend on them, and tell most made-up outliers by themselves: beside them, differences
        between percentiles would hardly count.
        """
        if set(names) <= {"p_min", "p_max"}:
            for name, member in self.made().items():
                if set(names) <= set(member.parameters) - set(self.settings.get(name, {})):
                    return member
        return self

    def suited(self, features: int) -> Mapping[str, Any]:
        """What suits the first member that takes the percentiles from us."""
        member = self.judged(("p_min", "p_max"))
        return {} if member is self else member.suited(features)

    def state(self) -> dict[str, Tensor]:
        """The tensors of every member, as ``member.name``, and of its evidence."""
        state: dict[str, Tensor] = {}
        for name, (method, evidence, weight) in self.voices_.items():
            learned = {**method.state(), **vars(evidence), "weight": weight}
            state |= {f"{name}.{key}": value for key, value in learned.items()}
        return state

    def restore(self, state: Mapping[str, Tensor], head: Head) -> Self:
        self._forget()
        voices, left_out = {}, {}
        for name, member in self.made().items():
            parts = {key.removeprefix(f"{name}."): value for key, value in state.items() if key.startswith(f"{name}.")}
            if not parts:
                left_out[name] = "it could not be fitted when the detector was made"
                continue
            weight, evidence = parts.pop("weight"), Evidence(*(parts.pop(key) for key in ("knots", "levels", "slopes")))
            voices[name] = Voice(member.restore(parts, head), evidence, weight)
        self.voices_, self.left_out_, self.head_ = voices, left_out, head
        return self
