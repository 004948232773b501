"""SHE: inner product with the stored pattern of the predicted class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from adascale.core.types import Head, Outputs
from adascale.detectors.base import Detector
from adascale.detectors.classes import ClassSums, refuse_missing
from adascale.detectors.statistics import Course
from adascale.detectors.traits import Space
from adascale.maths.activations import row_norms, unit_rows
from adascale.maths.pieces import predicted, products_with


@dataclass
class SHE(Detector):
    """Zhang et al., "Out-of-distribution detection based on in-distribution data patterns memorization with modern
    Hopfield energy", ICLR 2023.

    ``m_c`` = mean feature of the correctly classified training samples of class ``c``; with ``c`` the predicted class,
    ``S = -a . m_c`` (``metric="inner_product"``), ``||a - m_c||`` (``euclidean``) or minus their cosine (``cosine``).
    """

    name = "she"
    summary = "similarity to the mean feature of the predicted class"
    fits_on = "train+labels"
    in_pieces = True
    shows_infinite = ("features",)
    search_space: ClassVar[Space] = {"metric": ("inner_product", "euclidean", "cosine")}

    metric: Literal["inner_product", "euclidean", "cosine"] = "inner_product"

    def _learn(self, head: Head) -> Course:
        self.means_, counts = yield ClassSums(by="correct")
        refuse_missing(counts, self.name, "correctly classified training")

    def _score(self, outputs: Outputs) -> Tensor:
        features, index = outputs.features, predicted(outputs.logits)
        if self.metric == "euclidean":
            return row_norms(features.double() - self.means_[index])
        if self.metric == "cosine":
            return -products_with(unit_rows(features), unit_rows(self.means_), index)
        return -products_with(features, self.means_, index)
