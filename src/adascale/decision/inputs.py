"""What a detector is given, read with care: unreadable images are named, and inputs that look unnormalised."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from adascale.core.errors import AdascaleWarning, InputError
from adascale.core.types import Need, Outputs
from adascale.decision.fitting import Late, Outliers
from adascale.extraction.extract import extract, extract_batch
from adascale.extraction.given import Given, given_batches
from adascale.images.outliers import OUTLIERS, Sample
from adascale.images.preprocess import Preprocess, unreadable
from adascale.maths.rounding import alike
from adascale.network.class_names import check_count
from adascale.network.classifier import Classifier

# What is looked at of the first batch of a call, images and pixels of a side: enough to see the range, and cheap.
_IMAGES, _SIDE = 8, 64
_SLACK = 0.05  # of the largest logit: what an engine or half precision may change between two looks at an image
_SKIP_ADVICE = " Mend or remove it, or pass skip_unreadable=True to judge the others."
_INSTEAD = "give the images themselves (paths, Pillow images, uint8 arrays), or tensors made by detector.preprocess"
_PIXELS = (
    "The inputs are uint8 tensors; they are taken as pixels from 0 to 255 and go through the detector's "
    f"preprocess. If they are not that, {_INSTEAD}."
)


class Reader:
    """Reads what the user gives to one detector, and warns once of each kind of input that looks wrong."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def batches(
        self,
        source: Any,
        preprocess: Preprocess | None,
        batch_size: int,
        skip_unreadable: bool = False,
        check: Callable[[Tensor], object] = lambda images: None,
    ) -> Iterator[Given]:
        """The batches that have an image. An image that cannot be read is an error, or is skipped and named at the end.

        Unsigned 8-bit tensors are pixels: with ``preprocess`` they become inputs, and a warning says so. check: raises
        for inputs that are refused. What is warned of counts as told once the batch was used without an error.
        """
        failures: dict[str, str] = {}
        read = 0
        for given in given_batches(source, preprocess, batch_size):
            if given.failures and not skip_unreadable:
                raise unreadable(*next(iter(given.failures.items())), _SKIP_ADVICE)
            failures |= given.failures
            kind = ""
            if given.raw and preprocess is not None:
                check_layout(given.images, len(preprocess.mean))
                if given.images.dtype == torch.uint8:
                    given, kind, message = _from_pixels(given, preprocess), "uint8", _PIXELS
                elif not read:
                    kind, message = look_unnormalised(given.images, preprocess)
            check(given.images)
            if kind and kind not in self._told:
                warnings.warn(message, AdascaleWarning, stacklevel=3)
            if len(given.images):
                yield given
            self._told.add(kind)
            read += len(given.images)
        if failures:
            _tell_skipped(failures, read)


def check_layout(images: Tensor, channels: int) -> None:
    """Refuse tensors (N, ...) that are neither inputs, floating point with the channels first, nor 8-bit pixels."""
    if images.dtype == torch.uint8:
        return
    kind, shape = str(images.dtype).removeprefix("torch."), tuple(images.shape[1:])
    if images.shape[-1] == channels != images.shape[1]:
        raise InputError(
            f"Images are {kind} {shape}, with the channels last; give pixels as uint8 arrays (H, W, C) with values "
            "from 0 to 255, or normalised inputs as (N, C, H, W)."
        )
    if not images.is_floating_point():
        raise InputError(
            f"Images are {kind} {shape}; give pixels as uint8 with values from 0 to 255, or normalised inputs as float."
        )


def _from_pixels(given: Given, preprocess: Preprocess) -> Given:
    first = given.images.shape[1] in (1, 3)
    pixels = (given.images.permute(0, 2, 3, 1) if first else given.images).cpu().numpy()
    return given._replace(images=torch.stack([preprocess(image) for image in pixels]))


def look_unnormalised(images: Tensor, preprocess: Preprocess) -> tuple[str, str]:
    """The range of the pixels that these inputs seem to be, not normalised, and a sentence; empty if they may be right.

    Normalised pixels lie between (0 - mean) / std and (1 - mean) / std. Inputs up to 255 are suspicious if they go far
    beyond the upper end; inputs from 0 to 1 if normalised ones could be negative (see `_from_zero_to_one`).
    """
    if not images.is_floating_point() or not images.numel():
        return "", ""
    step = max(1, max(images.shape[-2:]) // _SIDE)
    seen = images.detach()[:_IMAGES, ..., ::step, ::step]
    low, high = torch.stack(torch.aminmax(seen)).tolist()
    least, most = preprocess.limits
    if not 0 <= low <= high <= 255.5:  # negative, too large or NaN
        return "", ""
    if high > max(16.0, 2 * most):
        kind = "0 to 255"
    elif least <= -0.25 and high <= 1.001 and _from_zero_to_one(seen.double(), preprocess):
        kind = "0 to 1"
    else:
        return "", ""
    mean, std = (", ".join(f"{value:.4g}" for value in values) for values in (preprocess.mean, preprocess.std))
    return kind, (
        f"The inputs lie between {low:.3g} and {high:.3g}, as pixels from {kind} do, but the network expects them "
        f"normalised (mean {mean}; std {std}: {least:.3g} to {most:.3g}); {_INSTEAD}."
    )


def _from_zero_to_one(values: Tensor, preprocess: Preprocess) -> bool:
    """Whether values without a negative one and up to 1 are pixels divided by 255, not pixels that were normalised.

    Multiples of 1 / 255 that are no whole pixels when the normalisation is undone are the former, and the reverse the
    latter, however dark or pale the picture is. Images that were resized as numbers are neither, or both. They would
    have been normalised if all pixels lay between mean and mean + std, so a channel that spans half of that or more
    is suspicious: such a picture is as pale as fog. Where white itself is about 1 (mean and std 0.5) that is any bright
    picture, unless its darkest pixel just happens to be the mean. A constant image may be anything.
    """
    spans = values.amax((0, 2, 3)) - values.amin((0, 2, 3))
    if not spans.max() > 0:
        return False
    divided, normalised = _whole(255 * values), False
    if values.shape[1] == len(preprocess.mean):
        mean, std = (values.new_tensor(part).view(-1, 1, 1) for part in (preprocess.mean, preprocess.std))
        normalised = _whole(255 * (values * std + mean))
    if divided != normalised:
        return divided
    white_is_higher = preprocess.limits[1] > 1.25
    return bool(spans.max() >= 0.5 and (white_is_higher or values.min() <= 0.1))


def _whole(values: Tensor) -> bool:
    """Whether these are whole numbers but for the rounding of 32-bit numbers."""
    return bool((values - values.round()).abs().max() < 2e-3)


def extract_given(
    batches: Iterable[Given],
    classifier: Classifier,
    needs: Sequence[Need],
    class_names: tuple[str, ...] = (),
    sample: Sample | None = None,
) -> tuple[Outputs, list[tuple[int, ...]], list[str]]:
    """The outputs of all batches, the distinct shapes of their inputs, and the names of the images, empty for tensors.

    class_names: their number is checked as soon as that of the classes is known. sample: is offered every input.
    """
    shapes: dict[tuple[int, ...], None] = {}
    parts, names = [], list[str]()
    for given in batches:
        if not shapes:
            classifier.locate(given.images)  # again, because weights may have changed since the last fit
            check_count(class_names, len(classifier.head.weight))
        shapes[tuple(given.images.shape[1:])] = None
        parts.append(extract_batch(classifier, given.images, needs, given.labels))
        names += given.names
        if sample is not None:
            sample.add(given.images)
    if not parts:
        raise InputError("fit got no images; give in-distribution images, a few hundred if you have them.")
    outputs = Outputs.cat(parts)
    return outputs, list(shapes), names if len(names) == len(outputs) else []


def outliers_of(sample: Sample | None, classifier: Classifier, batch_size: int) -> Outliers:
    """Outliers made from the images of the sample; none if there is no sample or its images differ in size."""

    def outliers(chosen: Sequence[int], needs: Sequence[Need]) -> dict[str, Outputs] | None:
        ones = sample.stacked(chosen) if sample is not None else None
        if ones is None:
            return None
        parts = torch.split(ones, batch_size)
        made = {name: extract(classifier, map(make, parts), needs) for name, make in OUTLIERS.items()}
        return {name: Outputs.cat(list(found)) for name, found in made.items()}

    return outliers


def seen_again(batches: Callable[[], Iterable[Given]], classifier: Classifier, before: Outputs) -> Late:
    """Outputs of images that are read once more. batches: begins from the first image. before: their outputs."""

    def late(rows: Sequence[int], needs: Sequence[Need]) -> Outputs:
        wanted, parts, start = set(rows), list[Outputs](), 0
        for given in batches():
            own = [i for i in range(len(given.images)) if start + i in wanted]
            if own:
                parts.append(extract_batch(classifier, given.images[own], needs))
            start += len(given.images)
        place = {row: i for i, row in enumerate(sorted(wanted))}
        found = Outputs.cat(parts) if parts and start == len(before) else None
        if found is None or not _same_images(found, before[torch.tensor(list(place))]):
            raise InputError(
                "Images are read twice by this method, which perturbs them by what it has learned, and the second time "
                f"there were others: {start} in place of {len(before)}, or in another order. Give a folder, a tensor, "
                "a list, or a loader that does not shuffle."
            )
        return found[torch.tensor([place[row] for row in rows])]

    return late


def _same_images(found: Outputs, before: Outputs) -> bool:
    """Whether the logits are those of the same images, whichever engine or precision made them."""
    return alike(found.logits.nan_to_num(0, 0, 0), before.logits.nan_to_num(0, 0, 0), _SLACK)


def _tell_skipped(failures: Mapping[str, str], read: int) -> None:
    name, reason = next(iter(failures.items()))
    if not read:
        raise InputError(f"None of the {len(failures)} images can be read ({name}: {reason}).")
    shown = "; ".join(f"{name}: {reason}" for name, reason in list(failures.items())[:5])
    more = f"; and {len(failures) - 5} more" if len(failures) > 5 else ""
    warnings.warn(
        f"{len(failures)} of {len(failures) + read} images could not be read and were skipped ({shown}{more}).",
        AdascaleWarning,
        stacklevel=4,
    )
