"""The images that the options of a command name. Importing this module does not import PyTorch."""

from __future__ import annotations

from dataclasses import replace

from adascale.bench import SUITES
from adascale.bench.opening import at_most
from adascale.bench.suites import Suite, SuiteImages, load_suite, name_and_path, open_suite, own_suite
from adascale.cli.console import say
from adascale.cli.groups import ImageOptions, SuiteOptions
from adascale.core.errors import InputError
from adascale.images.sources import ImageSet, find_images


def suite_images(name: str | None, given: SuiteOptions) -> tuple[Suite, SuiteImages]:
    """A suite by its name, or one made of one's own images."""
    own = (given.val, given.train, given.near, given.far, given.shifted)
    if (name is None) == (given.id_images is None):
        raise InputError(f"Give either a suite ({', '.join(SUITES)}, a TOML file) or --id with --near or --far.")
    if name is None:
        near, far, shifted = given.near or [], given.far or [], given.shifted or []
        suite = own_suite(given.id_images or "", given.val, given.train, near, far, shifted)
    elif any(own):
        raise InputError(f"--val, --train, --near, --far, --shifted belong to --id; the suite {name} has its own.")
    else:
        suite = load_suite(name, given.data)
    return suite, _opened(suite, given, given.available)


def tuning_images(name: str | None, given: ImageOptions, ood_val: list[str] | None) -> SuiteImages:
    """A suite's validation images, or one's own ID images; no set is tested here."""
    if (name is None) == (given.id_images is None):
        raise InputError(f"Give either a suite ({', '.join(SUITES)}, a TOML file) or --id, one of the two.")
    if name is not None:
        if given.train:
            raise InputError(f"--train belongs to --id; the suite {name} has its own.")
        images = _opened(load_suite(name, given.data), given, available=True)
        return replace(images, val=at_most(images.val, given.limit, given.seed))  # what is tuned on is what is tested

    def draw(place: str) -> ImageSet:
        return at_most(find_images(place, None, given.max_pixels), given.limit, given.seed)

    found = draw(given.id_images or "")
    train = find_images(given.train, None, given.max_pixels) if given.train else None
    unknown = {label: draw(place) for label, place in map(name_and_path, ood_val or [])}
    name, _ = name_and_path(given.id_images or "")
    return SuiteImages(found, found, train, {}, {}, {}, unknown, name=name)


def _opened(suite: Suite, given: ImageOptions, available: bool) -> SuiteImages:
    images = open_suite(suite, available, given.seed, given.limit, given.limit_fit, given.max_pixels)
    for label, place in images.missing.items():
        say(f"left out {label}: expected at {place}")
    if suite.note:
        say(f"note: {suite.note}")
    return images
