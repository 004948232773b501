"""An exported file as a detector: `load_exported`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from adascale.core.answers import Decision, Verdict
from adascale.core.errors import DetectorFileError, InputError
from adascale.export.early import clean_path
from adascale.export.engines import Arrays, read_record, runner
from adascale.extraction.given import given_batches, images_of
from adascale.images.pixels import READ_ERRORS, why_unreadable
from adascale.images.preprocess import Preprocess, unreadable
from adascale.images.sources import ImageSet
from adascale.maths.promise import check_alpha


class Exported:
    """A detector in a file, run by the engine of its format. record: what the file says about itself."""

    def __init__(self, path: str | Path, threads: int | None = None) -> None:
        self.path = Path(path)
        self.record = read_record(self.path)
        self.class_names: tuple[str, ...] = tuple(self.record.get("class_names", ()))
        given = self.record["input"]
        self.input_shape = tuple(given["shape"])
        self.takes_pixels = bool(self.record["export"].get("pixels"))
        self.preprocess = Preprocess(**given["preprocess"]) if given["preprocess"] else None
        self._outputs: list[str] = self.record["export"]["outputs"]
        self._clean: Exported | None = None
        self._threads = threads
        self._run = runner(self.path, self._outputs, threads)

    def __call__(self, images: Any, alpha: float | None = None) -> Verdict:
        """The verdict for normalised inputs (N, C, H, W), or, where the file says how they are prepared, for images as
        `OODDetector` takes them: paths, a folder, Pillow images, uint8 arrays, bytes.

        alpha: the share of in-distribution images that may be flagged, in place of the calibrated one.
        """
        if self.record["export"]["early"] is not None:
            raise InputError(f"{self.path.name} holds early decisions, without scores; call decide(images).")
        found = self.arrays(self._inputs(images), alpha)
        columns = {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in found.items()}
        is_ood, score, p_value, logits, prediction = (columns[name] for name in _FIELDS)
        return Verdict(is_ood, score, p_value, logits, prediction, class_names=self.class_names)

    def decide(self, images: Any, alpha: float | None = None) -> Decision:
        """Decisions without scores. A pair of files runs the full one only for images that the clean one leaves open;
        a file with a branch takes one image at a time.
        """
        inputs = self._inputs(images)
        if self.record["export"]["early"] is None:
            return self._decide_by_pair(inputs, alpha)
        each = [self.arrays(inputs[row : row + 1], alpha) for row in range(len(inputs))]
        columns = {name: np.concatenate([found[name] for found in each]) for name in self._outputs}
        return self._decision(columns)

    def _decide_by_pair(self, inputs: np.ndarray[Any, Any], alpha: float | None) -> Decision:
        if self._clean is None and clean_path(self.path).is_file():
            self._clean = self._paired(Exported(clean_path(self.path), self._threads))
        if self._clean is None:
            found = self.arrays(inputs, alpha)
            return self._decision({**found, "early": np.zeros(len(inputs), dtype=bool)})
        found = self._clean.arrays(inputs, alpha)
        is_ood, rest = np.array(found["is_ood"]), np.flatnonzero(~found["early"])
        if len(rest):
            is_ood[rest] = self.arrays(inputs[rest], alpha)["is_ood"]
        return self._decision({**found, "is_ood": is_ood})

    def _paired(self, clean: Exported) -> Exported:
        """The second file of a pair; one of another export is refused."""
        other = [name for name in _SHARED if clean.record.get(name) != self.record.get(name)]
        if clean.takes_pixels != self.takes_pixels:
            other.append("input")
        if other:
            raise DetectorFileError(
                f"{clean.path.name} is not of the same export as {self.path.name} ({other[0]} differs); "
                "export both again with early='pair', or remove it."
            )
        return clean

    def _decision(self, found: Arrays) -> Decision:
        names = ("is_ood", "early", "logits", "prediction")
        is_ood, early, logits, prediction = (torch.from_numpy(np.ascontiguousarray(found[name])) for name in names)
        return Decision(is_ood, early, logits, prediction, class_names=self.class_names)

    def arrays(self, inputs: np.ndarray[Any, Any], alpha: float | None = None) -> Arrays:
        """The outputs of the file by name, as arrays."""
        rate = self.record["calibration"]["alpha"] if alpha is None else alpha
        check_alpha(rate)
        return self._run({"images": inputs, "alpha": np.array(rate, dtype=np.float32)})

    def _inputs(self, images: Any) -> np.ndarray[Any, Any]:
        if self.takes_pixels:
            return self._pixels(images)
        parts = list(given_batches(images, self.preprocess))
        if failures := [f"{name}: {reason}" for part in parts for name, reason in part.failures.items()]:
            raise InputError(f"{len(failures)} images cannot be read, the first is {failures[0]}")
        if not (checked := [self._checked(part.images) for part in parts]):
            raise InputError("There are no images to judge; give images, or a tensor (N, C, H, W).")
        return np.concatenate(checked)

    def _pixels(self, images: Any) -> np.ndarray[Any, Any]:
        """One array (N, H, W, C) of uint8, from such an array or from images of one size."""
        assert self.preprocess is not None  # without it no file takes pixels
        if not (isinstance(images, np.ndarray | Tensor) and images.ndim == 4):
            found = images_of(images, self.input_shape[0])
            if found is None:
                raise InputError(f"Images came as {type(images).__name__}; {_TAKES_PIXELS}.")
            opened = [np.asarray(self._opened(found, i)) for i in range(len(found))]
            if len(sizes := {picture.shape[:2] for picture in opened}) > 1:
                raise InputError(f"Images have {len(sizes)} sizes, and a batch has one; give them one by one.")
            images = np.stack([picture.reshape(*picture.shape[:2], -1) for picture in opened])
        array = np.asarray(images)
        if array.dtype != np.uint8 or array.shape[3] != self.input_shape[0]:
            raise InputError(
                f"Images are {array.shape} of {array.dtype}; {_TAKES_PIXELS} with C = {self.input_shape[0]}."
            )
        if self.preprocess.crop is None and isinstance(self.preprocess.size, int) and array.shape[1] != array.shape[2]:
            raise InputError(
                f"Images are {array.shape[1]} x {array.shape[2]}; {self.path.name} does not crop, so give square ones."
            )
        return array

    def _opened(self, found: ImageSet, index: int) -> Image.Image:
        assert self.preprocess is not None
        try:
            return self.preprocess.coloured(found.open(index))
        except READ_ERRORS as error:
            raise unreadable(found.names[index], why_unreadable(error)) from error

    def _checked(self, images: Tensor) -> np.ndarray[Any, Any]:
        if tuple(images.shape[1:]) != self.input_shape or not images.is_floating_point():
            raise InputError(
                f"Images are {tuple(images.shape[1:])} of {str(images.dtype).removeprefix('torch.')}; "
                f"{self.path.name} takes normalised floats {self.input_shape}."
            )
        array: np.ndarray[Any, Any] = images.detach().cpu().float().contiguous().numpy()
        return array

    def __repr__(self) -> str:
        return f"Exported({self.path.name}, {self.record['method']}): {self.record['calibration']['guarantee']}"


_TAKES_PIXELS = "this file prepares images itself and takes uint8 (N, H, W, C), paths or Pillow images"
_SHARED = ("network", "method", "parameters", "calibration", "fitted")  # what the files of a pair have in common
_FIELDS = ("is_ood", "score", "p_value", "logits", "prediction")


def load_exported(path: str | Path, *, threads: int | None = None) -> Exported:
    """The detector in a file that `OODDetector.export` wrote: ``load_exported("model.onnx")(images)`` is a `Verdict`.

    threads: how many the engine may use; by default as many as PyTorch.

    For example:

        >>> detector.export("model.onnx")  # doctest: +SKIP
        >>> load_exported("model.onnx")(images).is_ood  # doctest: +SKIP
    """
    return Exported(path, threads)
