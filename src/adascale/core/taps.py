"""What a method may ask about the inner layers of a network: `Tap`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from adascale.core.errors import InputError

Reduction = Literal["mean", "gram", "minmax", "principal", "attribution", "gradient_share", "gradient_mean"]
Found = Literal["stages", "norms", "activations"]
# What is differentiated with respect to the layers, for the reductions of gradients.
Objective = Literal["uniform", "predicted", "features"]
_OBJECTIVES: dict[str, Objective] = {
    "attribution": "uniform",
    "gradient_share": "predicted",
    "gradient_mean": "features",
}


@dataclass(frozen=True)
class Tap:
    """A reduction of inner layers, made during the clean pass: a few numbers for each image, never a feature map.

    layers: names of modules (the result of their last call), or how they are found, by behaviour:

    - ``stages``: at each spatial size the last result of the outermost modules; a size with fewer than two convolutions
      (a stem) does not count where two others are left. Networks with one size (transformers, MLP-mixers) have none:
      there, the results of the repeated blocks at even depths, and in a plain MLP what each matrix but the first is
      given;
    - ``norms``: the result of every batch, group or layer norm;
    - ``activations``: what every activation module is given; the results of the norms where there is none.

    reduce, with ``x`` (C, S) the channels and positions of a layer (a vector has one position):

    - ``mean``: the mean of each channel (C);
    - ``gram``: for each of ``powers``, the row sums of the Gram matrix of ``x^p``, their signed p-th root (P C);
    - ``minmax``: minus the least and the largest value (2);
    - ``principal``: the standard deviations of the positions along their first ``count`` principal components, largest
      first; 0 where there are fewer, NaN for an image that is not finite (count);
    - ``attribution``: the mean of each channel times the gradient of ``-mean_c log softmax(z)_c`` with respect to it,
      which is the sum over its positions (C);
    - ``gradient_share``: with ``g`` the gradient of the largest logit: the sum over the channels of the squared share
      of positions with ``g != 0``, and the number of channels (2);
    - ``gradient_mean``: with ``g`` the gradient of the sum of the features: the sum over the channels of the squared
      mean of ``g``, and the number of channels (2).

    For example:

        >>> tap = Tap("stages", "mean")
        >>> layers = extract_batch(Classifier(model), images, [tap]).taps[tap]
        >>> all(len(layer) == len(images) for layer in layers)
        True
    """

    layers: Found | tuple[str, ...] = "stages"
    reduce: Reduction = "mean"
    powers: tuple[int, ...] = ()
    count: int = 0

    def __post_init__(self) -> None:
        for name in ("layers", "powers"):  # a list would not hash
            if isinstance(value := getattr(self, name), list):
                object.__setattr__(self, name, tuple(value))
        if isinstance(self.layers, str) and self.layers not in get_args(Found):
            raise InputError(f"layers={self.layers!r}; give {', '.join(get_args(Found))} or a tuple of module names.")
        if not self.layers:
            raise InputError(f"layers=(); give {', '.join(get_args(Found))} or a tuple of module names.")
        if self.reduce not in get_args(Reduction):
            raise InputError(f"reduce={self.reduce!r}; choose one of {', '.join(get_args(Reduction))}.")
        if (self.reduce == "gram") != bool(self.powers) or any(p < 1 or p != int(p) for p in self.powers):
            raise InputError(f"powers={self.powers}; reduce='gram' needs whole numbers of at least 1, others none.")
        if (self.reduce == "principal") != bool(self.count) or self.count < 0 or self.count != int(self.count):
            raise InputError(f"count={self.count}; reduce='principal' needs a whole number of at least 1, others none.")

    @property
    def objective(self) -> Objective | None:
        """What is differentiated; None where no gradient is needed."""
        return _OBJECTIVES.get(self.reduce)

    @property
    def needs_gradient(self) -> bool:
        """Whether it costs a backward pass."""
        return self.objective is not None

    def __str__(self) -> str:
        layers = self.layers if isinstance(self.layers, str) else ",".join(self.layers)
        powers = ["p=" + ",".join(map(str, self.powers))] if self.powers else []
        return "/".join(["tap", layers, self.reduce, *powers, *([f"n={self.count}"] if self.count else [])])
