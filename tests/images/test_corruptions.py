"""Corruptions: direction, strength, determinism, and every kind of image."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from PIL import Image

from adascale import InputError
from adascale.images.corruptions import (
    KINDS,
    SEVERITIES,
    STRENGTHS,
    Corruption,
    RandomBlur,
    Recoded,
    all_corruptions,
    corrupted,
)
from adascale.images.sources import ImageSet
from tests.images.pictures import picture


def scene(side: int, mode: str = "RGB") -> Image.Image:
    """A smooth picture with some detail, the same at every size."""
    y, x = np.mgrid[0:side, 0:side] / side
    bands = [np.sin(9 * x + k) * np.cos(7 * y - k) + 0.4 * np.sin(40 * x * y + k) for k in range(3)]
    values = np.stack(bands, 2) * 70 + 110
    return Image.fromarray(values.clip(0, 255).astype(np.uint8)).convert(mode)


def difference(kind: str, severity: float, image: Image.Image) -> float:
    changed = Corruption(kind, severity)(image, "a")
    return float(np.abs(np.asarray(changed, dtype=float) - np.asarray(image, dtype=float)).mean())


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("side", [8, 32, 224, 600])
@pytest.mark.parametrize("kind", STRENGTHS)
def test_severity_is_distance(kind: str, side: int, mode: str) -> None:
    image = scene(side, mode)
    distances = [difference(kind, severity, image) for severity in SEVERITIES]
    assert distances[0] > 0
    assert distances[4] > (1.1 if side == 8 else 1.3) * distances[0]
    assert distances == sorted(distances) or kind == "jpeg"


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_brightness_and_contrast(mode: str) -> None:
    image = scene(64, mode)
    values = np.asarray(image, dtype=float)
    for severity in SEVERITIES:
        brighter = np.asarray(Corruption("brightness", severity)(image, "a"), dtype=float)
        flatter = np.asarray(Corruption("contrast", severity)(image, "a"), dtype=float)
        assert brighter.mean() > values.mean() + 5
        assert flatter.std() < 0.9 * values.std()
        assert flatter.mean() == pytest.approx(values.mean(), abs=1)


def test_brightness_is_the_value_of_hsv() -> None:
    image = Image.new("RGB", (224, 224), (100, 50, 0))
    image.paste((0, 0, 0), (0, 0, 10, 10))
    changed = Corruption("brightness", 2)(image, "a")  # 0.2 of 255 is 51
    assert changed.getpixel((100, 100)) == (151, 76, 0)
    assert changed.getpixel((0, 0)) == (51, 51, 51)


def test_contrast_by_hand() -> None:
    image = Image.fromarray(np.array([[50] * 224, [150] * 224] * 112, dtype=np.uint8))
    assert np.unique(np.asarray(Corruption("contrast", 1)(image, "a"))).tolist() == [80, 120]


@pytest.mark.parametrize(("side", "expected"), [(8, 0.04), (32, 0.04), (224, 0.08), (1000, 0.08)])
def test_the_strength_of_noise(side: int, expected: float) -> None:
    grey = Image.new("L", (side, side), 128)
    changed = Corruption("noise", 1)(grey, "a")
    share = np.asarray(changed.resize((min(side, 224),) * 2, Image.Resampling.BOX), dtype=float).std() / 255
    assert share == pytest.approx(expected, rel=0.3)


def test_noise_belongs_to_the_name_and_the_seed() -> None:
    array = np.full((3, 16, 16), 128, np.uint8)
    images = ImageSet(["a", "b", "c"], array=array, change=Corruption("noise", 3))
    seen = [np.asarray(images.open(i)) for i in (2, 0, 1)]
    assert not np.array_equal(seen[0], seen[1])
    turned = images.subset([2, 0, 1])
    for i in range(3):
        assert np.array_equal(seen[i], np.asarray(turned.open(i)))
    other = Corruption("noise", 3, seed=1)(Image.fromarray(array[0]), "a")
    assert not np.array_equal(np.asarray(other), seen[1])
    assert Corruption("noise", 1)(picture(), "odd \udcff name").size == (24, 18)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["L", "RGB"])
@pytest.mark.parametrize("size", [(8, 8), (1, 1), (24, 18), (300, 500)])
def test_size_and_mode_stay(kind: str, mode: str, size: tuple[int, int]) -> None:
    image = picture(*size).convert(mode)
    before = np.asarray(image).copy()
    changed = Corruption(kind, 30 if kind == "rotate" else 5)(image, "a")
    assert (changed.size, changed.mode) == (size, mode)
    assert np.array_equal(np.asarray(image), before)


@pytest.mark.parametrize("mode", ["P", "RGBA", "CMYK", "1", "LA", "I;16"])
def test_other_modes(mode: str) -> None:
    image = Image.fromarray(np.full((9, 9), 40000, np.uint16)) if mode == "I;16" else picture(9, 9).convert(mode)
    expected = "L" if mode in ("1", "LA", "I;16") else "RGB"
    assert {change(image, "a").mode for change in all_corruptions()} == {expected}


def test_quarter_turns() -> None:
    square, wide = picture(20, 20), picture(24, 18)
    turned = square
    for _ in range(4):
        turned = Corruption("rotate", 90)(turned, "a")
        assert turned.size == square.size
    assert np.array_equal(np.asarray(turned), np.asarray(square))
    for angle, turns in ((90, 1), (180, 2), (270, 3), (-90, 3), (450, 1)):
        changed = Corruption("rotate", angle)(wide, "a")
        assert np.array_equal(np.asarray(changed), np.rot90(np.asarray(wide), turns))


def test_other_angles_fill_with_the_mean_colour() -> None:
    image = Image.new("RGB", (40, 40), (10, 200, 30))
    assert Corruption("rotate", 33.3)(image, "a").getcolors() == [(1600, (10, 200, 30))]


def test_text_form_and_repr() -> None:
    assert Corruption.parse("noise:3") == Corruption("noise", 3)
    assert repr(Corruption.parse("rotate:90")) == "Corruption(kind='rotate', severity=90, seed=0)"
    assert repr(Corruption("blur", 2.0)) == repr(Corruption("blur", 2))
    assert Corruption.parse("rotate:-22.5").severity == -22.5
    assert [str(change) for change in all_corruptions()[:2]] == ["noise:1", "noise:2"]
    assert len(set(all_corruptions())) == 25


@pytest.mark.parametrize(
    "text", ["noise", "noise:", "noise:6", "noise:0", "noise:2.5", "fog:1", "rotate:0", "rotate:360", "rotate:nan", ""]
)
def test_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        Corruption.parse(text)
    assert "\n" not in str(caught.value)


def blurred(sigma: float, kernel: int = 5) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.asarray(RandomBlur(sigma, sigma, kernel)(Image.fromarray(DOT), "a"))


DOT = np.zeros((9, 9), dtype=np.uint8)
DOT[4, 4] = 255


def test_random_blur_is_the_gaussian_cut_to_its_kernel() -> None:
    for sigma in (0.5, 2.0):
        weights = np.exp(-0.5 * (np.arange(-2, 3) / sigma) ** 2)
        weights /= weights.sum()
        expected = np.zeros((9, 9))
        expected[2:7, 2:7] = 255 * np.outer(weights, weights)
        assert np.abs(blurred(sigma).astype(float) - expected).max() <= 0.51
    assert np.array_equal(blurred(0.01), DOT)
    assert (blurred(2.0) > 0).sum() == 25
    assert (blurred(2.0, kernel=3) > 0).sum() == 9


def test_random_blur_mirrors_edges_and_keeps_flat_images() -> None:
    edge = np.zeros((6, 6), dtype=np.uint8)
    edge[:, 1] = 200
    out = np.asarray(RandomBlur(1, 1)(Image.fromarray(edge), "a"))
    weights = np.exp(-0.5 * np.arange(-2, 3) ** 2)
    assert abs(float(out[3, 0]) - 200 * 2 * weights[1] / weights.sum()) <= 0.51  # seen on both sides of the edge
    flat = Image.new("RGB", (7, 5), (10, 200, 30))
    assert RandomBlur(0.1, 2)(flat, "a").getcolors() == [(35, (10, 200, 30))]
    assert RandomBlur(2, 2)(Image.new("L", (1, 1), 9), "a").getpixel((0, 0)) == 9


def test_random_blur_draws_a_sigma_for_each_image() -> None:
    change, image = RandomBlur(0.1, 2.0, seed=1), picture(20, 20)
    draws = [change.sigma(str(i)) for i in range(400)]
    assert 0.1 <= min(draws) < 0.2 < 1.9 < max(draws) <= 2
    assert abs(np.mean(draws) - 1.05) < 0.1
    assert change.sigma("a") == RandomBlur(0.1, 2.0, seed=1).sigma("a") != RandomBlur(0.1, 2.0, seed=2).sigma("a")
    assert np.array_equal(np.asarray(change(image, "a")), np.asarray(change(image, "a")))
    assert not np.array_equal(np.asarray(change(image, "a")), np.asarray(change(image, "b")))
    moved = [_distance(RandomBlur(sigma, sigma)(image, "a"), image) for sigma in (0.01, 0.3, 0.6, 1.0, 2.0)]
    assert moved[0] == 0
    assert moved == sorted(moved)
    assert len(set(moved)) == 5


def _distance(one: Image.Image, other: Image.Image) -> float:
    return float(np.abs(np.asarray(one, dtype=float) - np.asarray(other, dtype=float)).mean())


def test_recoded_as_jpeg() -> None:
    image = picture(40, 40)
    losses = [_distance(Recoded(quality)(image, "a"), image) for quality in (95, 50, 5)]
    assert losses == sorted(losses)
    assert losses[0] > 0
    assert Recoded(50)(image.convert("L"), "a").mode == "L"


def test_one_change_after_another() -> None:
    images = ImageSet(["a"], array=np.stack([DOT]))
    once = corrupted(images, RandomBlur(1, 1))
    twice = corrupted(once, Recoded(20))
    expected = Recoded(20)(RandomBlur(1, 1)(Image.fromarray(DOT), "a"), "a")
    assert np.array_equal(np.asarray(twice.open(0)), np.asarray(expected))
    assert len({images.fingerprint(), once.fingerprint(), twice.fingerprint()}) == 3


@pytest.mark.parametrize(("low", "high", "kernel"), [(0, 1, 5), (2, 1, 5), (1, math.inf, 5), (1, 2, 4), (1, 2, -1)])
def test_blurs_that_make_no_sense(low: float, high: float, kernel: int) -> None:
    with pytest.raises(InputError, match=r"sigma|kernel"):
        RandomBlur(low, high, kernel)


@pytest.mark.parametrize("quality", [0, 101])
def test_qualities_that_do_not_exist(quality: int) -> None:
    with pytest.raises(InputError, match="quality"):
        Recoded(quality)


def test_refused_types() -> None:
    for severity in (True, "3", None):
        with pytest.raises(InputError, match="severity"):
            Corruption("noise", severity)  # type: ignore[arg-type]
