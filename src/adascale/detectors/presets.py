"""Published parameters of AdaSCALE for each data set and network.

Provenance: an earlier public text of the AdaSCALE paper. The final text says k2 = 5 % everywhere, but its headline
rows equal those of the version that used these k2 values. lambda = 10, k1 = 1 %, o = 5 %, epsilon = 0.5 throughout.
"""

from __future__ import annotations

from adascale.core.errors import InputError
from adascale.core.suggestions import meant

PROVENANCE = "an earlier public text of the AdaSCALE paper (its headline rows match these k2 values)"

# (data, network): ((p_min, p_max, k2) of AdaSCALE-A, the same of AdaSCALE-L)
_TABLE = {
    ("cifar10", "wrn-28-10"): ((60, 95, 80), (60, 85, 80)),
    ("cifar10", "densenet-101"): ((65, 90, 10), (70, 85, 10)),
    ("cifar100", "wrn-28-10"): ((60, 85, 80), (60, 80, 80)),
    ("cifar100", "densenet-101"): ((70, 80, 100), (65, 75, 50)),
    ("imagenet", "resnet-50"): ((80, 85, 5), (80, 85, 5)),
    ("imagenet", "resnet-101"): ((80, 85, 5), (70, 80, 5)),
    ("imagenet", "regnet-y-16"): ((60, 90, 50), (60, 85, 5)),
    ("imagenet", "resnext-50"): ((80, 85, 5), (70, 80, 5)),
    ("imagenet", "densenet-201"): ((90, 95, 10), (90, 95, 10)),
    ("imagenet", "efficientnetv2-l"): ((60, 99, 20), (60, 99, 5)),
    ("imagenet", "vit-b-16"): ((60, 85, 100), (75, 85, 100)),
    ("imagenet", "swin-b"): ((90, 99, 5), (90, 99, 100)),
}

PRESETS = {
    (method, data, network): {"p_min": p_min, "p_max": p_max, "k2": k2}
    for (data, network), row in _TABLE.items()
    for method, (p_min, p_max, k2) in zip(("adascale_a", "adascale_l"), row, strict=True)
}


def preset(method: str, data: str, network: str) -> dict[str, float]:
    """The preset parameters, e.g. ``preset("adascale_a", "imagenet", "resnet-50")``; punctuation does not matter."""
    for (name, *place), parameters in PRESETS.items():
        if _plain(name) == _plain(method) and tuple(place) == known(data, network):
            return dict(parameters)
    raise InputError(f"No preset for {method}; there are presets for adascale_a and adascale_l.")


def known(data: str, network: str) -> tuple[str, str]:
    """Data and network as the presets spell them."""
    for place in _TABLE:
        if tuple(map(_plain, place)) == (_plain(data), _plain(network)):
            return place
    given, places = f"{data}/{network}".rstrip("/"), list(map("/".join, _TABLE))
    rest = f"There are adascale_a and adascale_l on: {', '.join(places)}."
    raise InputError(f"No preset for {given}{meant(given, places)} {rest}")


def _plain(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())
