"""The contract of a method as checks that anyone can run on a class of their own."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields

import torch
from torch import Tensor

from adascale.core.errors import AdascaleWarning, InputError, NotFittedError
from adascale.core.types import Head, Layers, Need, Outputs, Tap, View
from adascale.detectors import registry
from adascale.detectors.base import Detector, passes_of
from adascale.detectors.traits import COSTS, SIGNED_FEATURES
from adascale.maths.layers import reduced

__all__ = ["CHECKS", "check_detector", "example_outputs"]

_CLASSES, _FEATURES, _REFERENCE = 10, 128, 1000


def check_detector(make: Callable[[], Detector]) -> None:
    """Raise AssertionError with one sentence about the first broken promise. ``make``: a class, or a function that
    makes a detector with its parameters.

    For example:

        >>> check_detector(detectors.get("scale"))
    """
    name = getattr(make, "__name__", str(make))
    try:
        registry.checked(make if isinstance(make, type) else type(make()))
    except InputError as error:
        raise AssertionError(str(error)) from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AdascaleWarning)
        for check in CHECKS:
            try:
                check(make)
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}.") from None
            except Exception as error:
                during = check.__name__.strip("_").replace("_", " ")
                reason = " ".join(str(error).split())[:300].rstrip(".")
                raise AssertionError(f'{name}: {type(error).__name__} in the check "{during}": {reason}.') from error


def example_outputs(n: int, needs: Sequence[Need], *, ood: bool = False, seed: int = 0) -> tuple[Outputs, Head]:
    """Outputs of an imaginary network after a ReLU: ID samples activate the features of their class, OOD samples
    activate features at random. Its inner layers are parts of the features as maps, before the ReLU.
    """
    drawn = torch.Generator().manual_seed(0)
    weight = torch.randn(_CLASSES, _FEATURES, generator=drawn) / 4
    head = Head(2 * weight, torch.randn(_CLASSES, generator=drawn) / 4)
    noise = torch.Generator().manual_seed(1 + 2 * seed + ood)
    labels = torch.randint(0, _CLASSES, (n,), generator=noise)
    signal, spread = (0.0, 0.3) if ood else (3.0, 0.15)  # features of about 0.3 on average, as networks have them
    base = torch.randn(n, _FEATURES, generator=noise) * spread + signal * weight[labels]
    features = base.clamp_min(0)
    shaken = {
        view: (base + torch.randn(n, _FEATURES, generator=noise) * (1.5 if ood else 0.05)).clamp_min(0)
        for view in needs
        if isinstance(view, View)
    }
    tapped = {tap: _tapped(base, tap, ood, noise) for tap in needs if isinstance(tap, Tap)}
    return Outputs(head(features).float(), features, shaken, labels, tapped), head


def _tapped(base: Tensor, tap: Tap, ood: bool, noise: torch.Generator) -> Layers:
    """Two layers of 16 and 32 channels. Gradients of ID samples are small and have zeros, those of others neither."""
    layers = []
    for maps in (base.view(-1, 16, 2, 4), base[:, :64].reshape(-1, 32, 1, 2)):
        drawn = torch.randn(maps.shape, generator=noise)
        gradient = 2 * drawn if ood else torch.where(drawn > 0, 1e-3 * drawn, 0)
        layers.append(reduced(maps, tap, gradient if tap.needs_gradient else None))
    return tuple(layers)


def _fitted(make: Callable[[], Detector]) -> tuple[Detector, Outputs]:
    detector = make()
    reference, head = example_outputs(_REFERENCE, detector.wants)
    return detector.fit(reference, head), example_outputs(64, detector.wants, seed=5)[0]


def _declares_what_it_is(make: Callable[[], Detector]) -> None:
    detector = make()
    cls = type(detector)
    _promise(cls.name == cls.name.lower(), f"its name must be in lower case, not {cls.name!r}")
    for attribute, known in (("fits_on", registry.FITTED_ON), ("signed_features", SIGNED_FEATURES), ("cost", COSTS)):
        value = getattr(cls, attribute)
        _promise(value in known, f"{attribute} must be one of {', '.join(known)}, not {value!r}")
    if type(detector) is make:  # a factory may choose parameters that need other passes
        expected = passes_of(_fitted(make)[0] if cls.learns_view else detector)
        _promise(cls.passes == expected, f"passes must be {expected!r}, as its views imply, not {cls.passes!r}")
    unknown = set(cls.search_space) - {field.name for field in fields(detector)}
    _promise(not unknown, f"search_space must name parameters; {', '.join(sorted(unknown))} is none")


def _init_only_stores(make: Callable[[], Detector]) -> None:
    detector = make()
    _promise(not detector.is_fitted, "a new detector must not be fitted")
    with _raised(NotFittedError, "score before fit must raise NotFittedError"):
        detector.score(example_outputs(2, detector.wants)[0])


def _scores_are_finite_float64(make: Callable[[], Detector]) -> None:
    detector, outputs = _fitted(make)
    scores = detector.score(outputs)
    _promise(scores.dtype == torch.float64, f"scores must be float64, not {scores.dtype}")
    shape = tuple(scores.shape)
    _promise(shape == (len(outputs),), f"score must return one value for each sample, not a tensor of shape {shape}")
    _promise(scores.isfinite().all(), "scores of finite activations must be finite")


def _higher_means_ood(make: Callable[[], Detector]) -> None:
    detector, outputs = _fitted(make)
    ood, _ = example_outputs(64, detector.wants, ood=True, seed=6)
    wins = 100 * float((detector.score(ood)[:, None] > detector.score(outputs)[None]).double().mean())
    _promise(wins > 85, f"an easy OOD sample scores higher than an ID sample in {wins:.0f} % of pairs, not over 85 %")


def _split_and_order_do_not_matter(make: Callable[[], Detector]) -> None:
    detector, outputs = _fitted(make)
    whole = detector.score(outputs)
    pieces = torch.cat([detector.score(outputs[i : i + 1]) for i in range(len(outputs))])
    order = torch.randperm(len(outputs), generator=torch.Generator().manual_seed(2))
    _close(pieces, whole, "samples scored one by one must score as in a batch")
    _close(detector.score(outputs[order]), whole[order], "the order of the samples must not change their scores")


def _inputs_stay_untouched(make: Callable[[], Detector]) -> None:
    detector, outputs = _fitted(make)
    before = copy.deepcopy(outputs)
    reference, head = example_outputs(_REFERENCE, detector.wants)
    kept = copy.deepcopy(reference)
    detector.fit(reference, head).score(outputs)
    for old, new in zip(_tensors(before) + _tensors(kept), _tensors(outputs) + _tensors(reference), strict=True):
        _promise(torch.equal(old, new), "fit and score must leave their inputs unchanged")


def _fitting_twice_is_fitting_once(make: Callable[[], Detector]) -> None:
    detector, outputs = _fitted(make)
    once = detector.score(outputs)
    other, head = example_outputs(_REFERENCE // 2, detector.wants, seed=9)
    detector.fit(other, head)
    reference, head = example_outputs(_REFERENCE, detector.wants)
    _promise(torch.equal(detector.fit(reference, head).score(outputs), once), "a second fit must start from scratch")


def _changed_parameters_forget(make: Callable[[], Detector]) -> None:
    detector, outputs = _fitted(make)
    for field in fields(detector):
        setattr(detector, field.name, getattr(detector, field.name))
        _promise(not detector.is_fitted, f"assigning {field.name} must make the detector unfitted")
        with _raised(NotFittedError, "score after a parameter has changed must raise NotFittedError"):
            detector.score(outputs)
        detector.fit(*example_outputs(_REFERENCE, detector.wants))


def _degenerate_rows_are_finite(make: Callable[[], Detector]) -> None:
    detector, outputs = _fitted(make)
    rows = torch.zeros(4, _FEATURES)
    rows[1] -= 1
    rows[2, 3] = 5
    rows[3] += 1
    shaken = {view: rows + 0.01 for view in outputs.views}
    made = Outputs(detector.head_(rows).float(), rows, shaken, taps=_of_zeros(outputs, 4))
    _promise(detector.score(made).isfinite().all(), "zero, negative, one-hot and constant rows must have finite scores")


def _broken_rows_are_ood(make: Callable[[], Detector]) -> None:
    detector, outputs = _fitted(make)
    logits, features = outputs.logits.clone(), outputs.features.clone()
    read = features if detector.reads_features else logits
    read[0, 0], read[1, 1] = math.nan, math.inf
    broken = Outputs(logits, features, outputs.views, taps=outputs.taps)
    scores = detector.score(broken)
    _promise((scores[:2] == math.inf).all(), "rows with NaN or infinite activations must score +inf")
    _close(scores[2:], detector.score(outputs)[2:], "a row with NaN must not change the scores of other rows")


def _sizes_and_types(make: Callable[[], Detector]) -> None:
    detector, outputs = _fitted(make)
    _promise(detector.score(outputs[:0]).shape == (0,), "no samples must give no scores")
    double = Outputs(
        outputs.logits.double(),
        outputs.features.double(),
        {view: a.double() for view, a in outputs.views.items()},
        taps={tap: tuple(layer.double() for layer in layers) for tap, layers in outputs.taps.items()},
    )
    _close(detector.score(double), detector.score(outputs), "float64 inputs must give the scores of float32 inputs")
    with _raised(InputError, "outputs of another shape must raise InputError"):
        detector.score(Outputs(outputs.logits[:, 1:], outputs.features, taps=outputs.taps))


def _state_round_trip(make: Callable[[], Detector]) -> None:
    detector, outputs = _fitted(make)
    state = detector.state()
    tensors = all(isinstance(value, Tensor) for value in state.values())
    _promise(tensors, "what fit learns (attributes that end in an underscore) must be tensors")
    restored = type(detector)(**detector.parameters).restore(state, detector.head_)
    same = torch.equal(restored.score(outputs), detector.score(outputs))
    _promise(same, "a detector restored from its state and parameters must give the same scores")


CHECKS = (
    _declares_what_it_is,
    _init_only_stores,
    _scores_are_finite_float64,
    _higher_means_ood,
    _split_and_order_do_not_matter,
    _inputs_stay_untouched,
    _fitting_twice_is_fitting_once,
    _changed_parameters_forget,
    _degenerate_rows_are_finite,
    _broken_rows_are_ood,
    _sizes_and_types,
    _state_round_trip,
)


def _promise(kept: object, promise: str) -> None:
    """Like assert, but also when Python runs with -O."""
    if not kept:
        raise AssertionError(promise)


def _close(actual: Tensor, expected: Tensor, promise: str) -> None:
    worst = float(((actual - expected).abs() / expected.abs().clamp_min(1e-9)).max())
    _promise(worst <= 1e-9, f"{promise} (relative difference {worst:.1e})")


@contextmanager
def _raised(error: type[Exception], promise: str) -> Iterator[None]:
    try:
        yield
    except error:
        return
    raise AssertionError(promise)


def _tensors(outputs: Outputs) -> list[Tensor]:
    labels = [] if outputs.labels is None else [outputs.labels]
    layers = [layer for found in outputs.taps.values() for layer in found]
    return [outputs.logits, outputs.features, *outputs.views.values(), *layers, *labels]


def _of_zeros(outputs: Outputs, rows: int) -> dict[Tap, Layers]:
    """What layers of zeros look like."""
    return {tap: tuple(torch.zeros_like(layer[:rows]) for layer in found) for tap, found in outputs.taps.items()}
