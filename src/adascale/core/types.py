"""What passes between the network and the methods: `Head`, `View`, `Outputs` (and `Tap`, of inner layers)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Literal, get_args

import torch
from torch import Tensor

from adascale.core.centres import Centres as Centres
from adascale.core.displays import drawn
from adascale.core.errors import InputError
from adascale.core.taps import Tap as Tap

Pixels = Literal["trivial", "random", "salient", "largest", "all"]
Change = Literal["rank_one", "dropout"]
# What an input gradient is taken of: None, the predicted class's logit; a temperature T, the cross-entropy of z / T
# against that class; class centres, half the squared distance to the nearest.
Goal = float | Centres | None


@dataclass(frozen=True, eq=False)
class Head:
    """The last linear layer, ``z = W a + b``: weight (C, D), bias (C); a missing bias is zero.

    For example:

        >>> head = Head(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0.5, 0.0]))
        >>> head(torch.tensor([[2.0, 3.0]])).tolist()
        [[2.5, 3.0]]
    """

    weight: Tensor
    bias: Tensor | None = None

    def __post_init__(self) -> None:
        if self.weight.ndim != 2:
            raise InputError(f"Head weight has shape {tuple(self.weight.shape)}; it must be (classes, features).")
        if self.bias is not None and self.bias.shape != self.weight.shape[:1]:
            raise InputError(
                f"Head bias has shape {tuple(self.bias.shape)}; {len(self.weight)} classes need ({len(self.weight)},)."
            )

    @cached_property
    def offset(self) -> Tensor:
        """The bias ``b`` in float64, zeros where the layer has none."""
        if self.bias is None:
            return self.weight.new_zeros(len(self.weight), dtype=torch.float64)
        return self.bias.detach().double()

    @cached_property
    def matrix(self) -> Tensor:
        """The weight ``W`` in float64."""
        return self.weight.detach().double()

    @cached_property
    def blocks(self) -> tuple[Tensor, ...]:
        """``W^T`` in float64, 16 classes at a time: what stays in a processor's cache in a sparse product."""
        return tuple(block.contiguous() for block in torch.split(self.matrix.T, 16, dim=1))

    @cached_property
    def origin(self) -> Tensor:
        """``-W^+ b``, the point nearest to zero whose logits are, as far as possible, zero (float64)."""
        nearest: Tensor = -torch.linalg.pinv(self.matrix) @ self.offset
        return nearest

    @cached_property
    def distances(self) -> Tensor:
        """``||w_c - w_d||`` for every pair of classes (C, C), float64."""
        return torch.cdist(self.matrix, self.matrix, compute_mode="donot_use_mm_for_euclid_dist")

    def __call__(self, features: Tensor) -> Tensor:
        """Logits of ``features`` (N, D), in float64."""
        return torch.addmm(self.offset, features.double(), self.matrix.T)

    def fingerprint(self) -> str:
        """A hash of the layer's values."""
        digest = hashlib.sha256(repr((tuple(self.weight.shape), self.bias is None)).encode())
        for tensor in (self.weight, self.offset):
            digest.update(tensor.detach().cpu().double().contiguous().numpy().tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class View:
    """A perturbation of the input, ``x + step * sign(g)`` on chosen pixels. Equal views share one pass.

    pixels: ``trivial`` (lowest ``|g|``), ``salient`` (highest), ``largest`` (the one value with the highest), ``all``,
    or ``random`` (no gradient: positions and signs come from one draw of ``seed`` per input shape). fraction: the
    paper's ``o``, the share of all channel values. step: the paper's ``epsilon``, in normalised input units.

    ``g`` is the gradient of the predicted class's logit, or, where a temperature ``T`` is given, of the cross-entropy
    of ``z / T`` against the predicted class (ODIN; there ``sign(0) = 1``), or, where ``towards`` has class centres that
    a method has learned, of half the squared distance to the nearest. std: the step is divided by it, by channel.

    network: a change of the network in the place of one of the input, for which all else but the seed is left out:
    ``rank_one`` takes the first singular component off the maps of a stage (see `Tap`), counted by ``stage`` from the
    end (-1: the last); ``dropout`` switches dropout on, with one mask of ``seed`` for all images.

    For example:

        >>> str(View())
        'trivial/o=0.05/eps=0.5'
        >>> View("random", fraction=0.1).needs_gradient
        False
    """

    pixels: Pixels = "trivial"
    fraction: float = 0.05
    step: float = 0.5
    seed: int = 0
    temperature: float | None = None
    std: tuple[float, ...] = ()
    network: Change | None = None
    stage: int = -1
    towards: Centres | None = None

    def __post_init__(self) -> None:
        if self.pixels not in get_args(Pixels):
            raise InputError(f"pixels={self.pixels!r}; choose one of {', '.join(get_args(Pixels))}.")
        if not 0 < self.fraction <= 1:
            raise InputError(f"fraction={self.fraction}; it is a share of the pixels, above 0 and at most 1.")
        if not (math.isfinite(self.step) and self.seed == int(self.seed)):
            raise InputError(f"step={self.step}, seed={self.seed}; the step is a finite number, the seed a whole one.")
        if self.network not in (None, *get_args(Change)) or self.stage >= 0:
            raise InputError(
                f"network={self.network!r}, stage={self.stage}; choose one of {', '.join(get_args(Change))} or None, "
                "and count stages from the end: -1, -2, ..."
            )
        # Fields without effect are set to one value, so that views with the same effect are equal.
        self._set(stage=self.stage if self.network == "rank_one" else -1)
        if self.network is not None:
            self._set(pixels="all", fraction=1.0, step=0.0, temperature=None, std=(), towards=None)
            self._set(seed=self.seed if self.network == "dropout" else 0)
            return
        if self.pixels in ("all", "largest"):
            object.__setattr__(self, "fraction", 1.0)
        if self.pixels == "random":
            self._set(temperature=None, towards=None)
        else:
            self._set(seed=0, temperature=self.temperature if self.towards is None else None)

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def needs_gradient(self) -> bool:
        """Whether the network's gradient chooses the pixels."""
        return self.pixels != "random" and self.network is None

    @property
    def goal(self) -> Goal:
        """What the gradient is taken of."""
        return self.temperature if self.towards is None else self.towards

    def __str__(self) -> str:
        if self.network is not None:
            return f"network/{self.network}/{'seed' if self.network == 'dropout' else 'stage'}=" + str(
                self.seed if self.network == "dropout" else self.stage
            )
        parts = [self.pixels, f"o={self.fraction!r}", f"eps={self.step!r}"]
        parts += [f"seed={self.seed}"] if self.pixels == "random" else []
        parts += [f"T={self.temperature!r}"] if self.temperature is not None else []
        parts += [f"towards={self.towards}"] if self.towards is not None else []
        parts += [f"std={','.join(map(repr, self.std))}"] if self.std else []
        return "/".join(parts)


Need = View | Tap  # what a method asks for besides the clean logits and features
Layers = tuple[Tensor, ...]  # what a tap gives: for each layer (N, K)

_DTYPES = (torch.float32, torch.float64)

view_of = lru_cache(maxsize=64, typed=True)(View)  # the fields are checked once, not for every batch


@dataclass(frozen=True, eq=False)
class Outputs:
    """What a method knows about a batch: logits (N, C), features (N, D), perturbed features for each view, and for each
    tap a few numbers of each layer (N, K).

    For example:

        >>> outputs = Outputs(logits=torch.zeros(4, 10), features=torch.ones(4, 64))
        >>> len(outputs), len(outputs[:2])
        (4, 2)
    """

    logits: Tensor
    features: Tensor
    views: Mapping[View, Tensor] = field(default_factory=dict)
    labels: Tensor | None = None
    taps: Mapping[Tap, Layers] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("logits", "features"):
            object.__setattr__(self, name, _settled(getattr(self, name)))
        if any(not _is_settled(perturbed) for perturbed in self.views.values()):
            object.__setattr__(self, "views", {view: _settled(found) for view, found in self.views.items()})
        if self.logits.ndim != 2 or self.features.ndim != 2 or len(self.logits) != len(self.features):
            raise InputError(
                f"Outputs got logits {tuple(self.logits.shape)} and features {tuple(self.features.shape)}; "
                "they must be (N, classes) and (N, features) with the same N."
            )
        for view, perturbed in self.views.items():
            if perturbed.shape != self.features.shape:
                raise InputError(
                    f"Outputs view {view} has shape {tuple(perturbed.shape)}; "
                    f"it must be that of the features, {tuple(self.features.shape)}."
                )
        if self.taps:
            self._settle_taps()
        if self.labels is not None and self.labels.is_floating_point():
            raise InputError(f"Outputs got {self.labels.dtype} labels; give whole class indices.")
        if self.labels is not None and self.labels.dtype != torch.int64:
            object.__setattr__(self, "labels", self.labels.long())
        if self.labels is not None and self.labels.shape != self.logits.shape[:1]:
            raise InputError(
                f"Outputs got labels of shape {tuple(self.labels.shape)} for {len(self.logits)} samples; "
                "give one class index for each."
            )

    def _settle_taps(self) -> None:
        object.__setattr__(self, "taps", {tap: tuple(map(_settled, found)) for tap, found in self.taps.items()})
        for tap, found in self.taps.items():
            if wrong := [tuple(one.shape) for one in found if one.ndim != 2 or len(one) != len(self.logits)]:
                raise InputError(
                    f"Outputs tap {tap} has a layer of shape {wrong[0]}; it must be ({len(self.logits)}, values)."
                )

    def __len__(self) -> int:
        return len(self.logits)

    def _repr_html_(self) -> str:
        return str(drawn("outputs_html", self))

    def __getitem__(self, rows: slice | Tensor) -> Outputs:
        """The chosen rows, in the order asked for."""
        return Outputs(
            self.logits[rows],
            self.features[rows],
            {view: perturbed[rows] for view, perturbed in self.views.items()},
            None if self.labels is None else self.labels[rows],
            {tap: tuple(layer[rows] for layer in found) for tap, found in self.taps.items()},
        )

    @staticmethod
    def bare(logits: Tensor, features: Tensor, views: Mapping[View, Tensor]) -> Outputs:
        """The same without checks, and on any device: what a trace of a method's formula is given."""
        made = object.__new__(Outputs)
        vars(made).update(logits=logits, features=features, views=views, labels=None, taps={})
        return made

    @staticmethod
    def cat(parts: Sequence[Outputs]) -> Outputs:
        """The parts joined in order. Labels are kept where every part has them."""
        if not parts:
            raise InputError("There is nothing to join: no batch was given.")
        labels = [part.labels for part in parts if part.labels is not None]
        return Outputs(
            torch.cat([part.logits for part in parts]),
            torch.cat([part.features for part in parts]),
            {view: torch.cat([part.views[view] for part in parts]) for view in parts[0].views},
            torch.cat(labels) if len(labels) == len(parts) else None,
            {
                tap: tuple(map(torch.cat, zip(*(part.taps[tap] for part in parts), strict=True)))
                for tap in parts[0].taps
            },
        )


def _is_settled(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and not tensor.requires_grad and tensor.dtype in _DTYPES


def _settled(tensor: Tensor) -> Tensor:
    """The tensor on the CPU, where all methods compute, without a graph, in at least single precision."""
    if _is_settled(tensor):
        return tensor
    return tensor.detach().to("cpu", torch.promote_types(tensor.dtype, torch.float32))
