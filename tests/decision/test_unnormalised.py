"""Inputs that skipped the normalisation are told, whatever the picture, and normalised ones are left in peace."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from adascale import AdascaleWarning, InputError, OODDetector, Preprocess
from adascale.decision.inputs import look_unnormalised
from tests.images.pictures import GREY

IMAGENET = Preprocess(16, 16, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def normalised(values: Tensor, preprocess: Preprocess) -> Tensor:
    mean, std = (torch.tensor(part).view(-1, 1, 1) for part in (preprocess.mean, preprocess.std))
    return (values - mean) / std


@pytest.mark.parametrize("scale", [1, 255])
def test_unnormalised_inputs_are_told_once(net: nn.Module, scale: int) -> None:
    values = torch.rand(60, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    detector = OODDetector(net, "ebo", preprocess=IMAGENET, batch_size=8).fit(normalised(values, IMAGENET))
    with pytest.warns(AdascaleWarning, match=rf"pixels from 0 to {scale} do.*give the images themselves") as caught:
        list(detector.stream(scale * values))
    assert len(caught) == 1
    detector(scale * values)  # it was told
    with pytest.warns(AdascaleWarning, match=f"pixels from 0 to {scale} do"):
        OODDetector(net, "ebo", preprocess=IMAGENET).fit(scale * values)


PREPROCESSINGS = {
    "imagenet": IMAGENET,
    "half": Preprocess(16, 16, (0.5,) * 3, (0.5,) * 3),
    "zero and one": Preprocess(16, 16, (0.0,) * 3, (1.0,) * 3),
    "bytes": Preprocess(16, 16, (0.0,) * 3, (1 / 255,) * 3),
    "grey": GREY,
}


def natural(seed: int, low: float, high: float) -> Iterator[Tensor]:
    """Smooth pictures and noise between two grey levels."""
    generator = torch.Generator().manual_seed(seed)
    smooth = nn.functional.interpolate(torch.rand(1, 3, 3, 3, generator=generator), 16, mode="bilinear")
    yield low + (high - low) * smooth
    yield low + (high - low) * torch.rand(1, 3, 16, 16, generator=generator)


@pytest.mark.parametrize("preprocess", PREPROCESSINGS.values(), ids=PREPROCESSINGS)
def test_no_false_alarm_for_normalised_inputs(preprocess: Preprocess) -> None:
    channels = len(preprocess.mean)
    for low, high in ((0, 1), (0, 0.3), (0.7, 1), (0.45, 0.55), (0.5, 0.5), (0, 0), (1, 1), (0.3, 0.9)):
        for seed in range(5):
            for pixels in natural(seed, low, high):
                kind, message = look_unnormalised(normalised(pixels[:, :channels], preprocess), preprocess)
                assert kind == message == "", (low, high, message)
                whole = (255 * pixels[:, :channels]).round() / 255  # as decoded, not resized since
                assert look_unnormalised(normalised(whole, preprocess), preprocess) == ("", ""), (low, high)


PIXELS_DIVIDED = [(0, 1), (0.008, 0.749), (0.067, 1), (0.35, 1), (0, 0.08), (0.8, 1), (0.45, 0.55)]


@pytest.mark.parametrize("name", ["imagenet", "half", "grey"])
def test_one_image_divided_by_255_is_told_whatever_its_brightness(net: nn.Module, name: str) -> None:
    preprocess = PREPROCESSINGS[name]
    for low, high in PIXELS_DIVIDED:
        for pixels in natural(1, low, high):
            whole = (255 * pixels[:, : len(preprocess.mean)]).round() / 255
            kind, message = look_unnormalised(whole, preprocess)
            assert (kind, "as pixels from 0 to 1 do" in message) == ("0 to 1", True), (low, high)
    for low, high in PIXELS_DIVIDED[:3]:  # the same if they were resized as numbers
        noise = list(natural(1, low, high))[1][:, : len(preprocess.mean)]
        assert look_unnormalised(noise, preprocess)[0] == "0 to 1", (low, high)
    for constant in (0.0, 0.5, 1.0):
        assert look_unnormalised(torch.full((1, 3, 16, 16), constant), preprocess)[0] == ""


def test_each_kind_of_unnormalised_input_is_told_once_it_was_accepted(net: nn.Module) -> None:
    values = torch.rand(60, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    detector = OODDetector(net, "ebo", preprocess=IMAGENET).fit(normalised(values, IMAGENET))
    for wrong in (values[:1, :, :8], 255 * values[:1, :, :8]):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(InputError, match="calibrated on"):
                detector(wrong)
    pixels = (255 * values[:1]).round()
    for given, told in ((pixels / 255, "0 to 1 do"), (pixels, "0 to 255 do"), (pixels.byte(), "uint8 tensors")):
        with pytest.warns(AdascaleWarning, match=told):
            detector(given)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            detector(given)


def test_expected_ranges_are_those_of_the_preprocessing() -> None:
    values = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    assert look_unnormalised(values, PREPROCESSINGS["zero and one"])[0] == ""
    assert look_unnormalised(255 * values, PREPROCESSINGS["zero and one"])[0] == "0 to 255"
    assert look_unnormalised(255 * values, PREPROCESSINGS["bytes"])[0] == ""
    assert look_unnormalised(values, PREPROCESSINGS["half"])[0] == "0 to 1"
