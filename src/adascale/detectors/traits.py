"""What methods declare of themselves, and these declarations in words."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Literal

from torch import Tensor

from adascale.core.errors import AdascaleWarning

FitsOn = Literal["nothing", "val", "val+labels", "train", "train+labels", "val+train"]
Cost = Literal["light", "product", "bank", "heavy"]
Signed = Literal["any", "relu", "as is"]
Space = Mapping[str, tuple[Any, ...]]
SIGNED_FEATURES: Mapping[Signed, str] = {
    "any": "indifferent to the sign of the features",
    "relu": "negative features count as 0",
    "as is": "made for non-negative features; signed ones are used as they are",
}
COSTS: Mapping[Cost, str] = {
    "light": "arithmetic on each sample",
    "product": "a matrix product or sort for each sample",
    "bank": "a product with stored training samples",
    "heavy": "a weight matrix for each predicted class",
}


def warn_if_signed(name: str, features: Tensor) -> None:
    if len(features) and features.amin() < 0:
        warnings.warn(
            f"{name} was made for features after a ReLU; those of this network are signed, which makes its ratio "
            "mostly noise. Use relu=True, or AdaSCALE or LTS, which handle signed features.",
            AdascaleWarning,
            stacklevel=4,
        )
