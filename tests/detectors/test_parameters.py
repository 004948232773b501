"""Parameters outside their declared type or range are refused in one sentence, for every method alike."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pytest

from adascale import Detector, InputError, detectors
from adascale.detectors.parameters import check, number, percent

EVERY = [(cls, field.name, str(field.type)) for cls in detectors.ALL for field in fields(cls)]
NUMBERS = [(cls, name) for cls, name, kind in EVERY if kind.startswith(("int", "float"))]


@pytest.mark.parametrize(("cls", "name"), NUMBERS, ids=lambda part: getattr(part, "name", part))
@pytest.mark.parametrize("value", ["90", True, math.nan, math.inf, [1], 1j])
def test_no_number_is_refused(cls: type[Detector], name: str, value: Any) -> None:
    with pytest.raises(InputError, match=rf"^{name}=.*; it must be a .*\.$"):
        cls(**{name: value})


@pytest.mark.parametrize(("cls", "name", "kind"), EVERY, ids=lambda part: getattr(part, "name", part))
def test_whole_numbers_choices_and_switches(cls: type[Detector], name: str, kind: str) -> None:
    value: Any = 1.5 if kind.startswith("int") else object()
    rules = {"bool": "it must be True or False", "int": "it must be a whole number"}
    words = rules.get(kind.split(" ")[0], "choose one of|it must be")
    with pytest.raises(InputError, match=f"^{name}=.*; ({words})"):
        cls(**{name: value})


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("adascale_a", {"k1": 0}, "k1=0; it must be a percentage above 0 and at most 100."),
        ("activation_shift", {"k1": 0}, "k1=0; it must be a percentage above 0 and at most 100."),
        ("adascale_a", {"lam": -1}, "lam=-1; it must be a finite number at least 0."),
        ("adascale_a", {"seed": 1.5}, "seed=1.5; it must be a whole number."),
        ("scale", {"percentile": "90"}, "percentile='90'; it must be a percentage from 0 to 100."),
        ("scale", {"percentile": 100.5}, "percentile=100.5; it must be a percentage from 0 to 100."),
        ("scale", {"relu": 1}, "relu=1; it must be True or False or None."),
        ("knn", {"k": 0}, "k=0; it must be a whole number at least 1."),
        ("knn", {"k": 50.0}, "k=50.0; it must be a whole number at least 1."),
        ("ebo", {"temperature": 0}, "temperature=0; it must be a finite number above 0."),
        ("nnguide", {"fraction": 0}, "fraction=0; it must be a share above 0 and at most 1."),
        ("vim", {"dim": 0}, "dim=0; it must be a whole number at least 1 or None."),
        ("she", {"metric": "x"}, "metric='x'; choose one of inner_product, euclidean, cosine."),
        ("odin", {"std": (1.0, "x")}, "std=(1.0, 'x'); it must be a tuple of numbers."),
    ],
)
def test_the_sentence(name: str, given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        detectors.get(name)(**given)
    assert str(caught.value) == words


@pytest.mark.parametrize(("cls", "name"), NUMBERS, ids=lambda part: getattr(part, "name", part))
@pytest.mark.parametrize("value", [2**63, -(10**400), 10**5000], ids=["2**63", "-10**400", "10**5000"])
def test_whole_numbers_beyond_64_bits_get_a_sentence(cls: type[Detector], name: str, value: int) -> None:
    with pytest.raises(InputError, match=rf"^{name} has \d+ bits; whole numbers must be below 2\*\*63\.$"):
        cls(**{name: value})


def test_numbers_of_numpy_and_the_ends_of_a_range_are_accepted() -> None:
    detectors.SCALE(np.float32(80))
    detectors.KNN(np.int64(3))
    for percentile in (0, 100):
        detectors.SCALE(percentile)
    detectors.AdaSCALE_A(lam=0, k1=100, fraction=1, epsilon=-0.5)
    detectors.ViM(dim=None)


@pytest.mark.parametrize("cls", detectors.ALL, ids=lambda cls: cls.name)
def test_parameters_survive_a_file(cls: type[Detector]) -> None:
    made = cls()
    assert cls(**json.loads(json.dumps(made.parameters))) == made
    assert detectors.ODIN(std=[0.2, 0.3]).std == (0.2, 0.3)


def test_annotations_that_cannot_be_resolved_leave_the_range() -> None:
    @dataclass
    class Local:
        share: Unknown = percent(5)  # type: ignore[name-defined]  # noqa: F821, RUF009
        size: int = number(3, least=1)

    check(Local())
    with pytest.raises(InputError, match="share=101; it must be a percentage from 0 to 100"):
        check(Local(share=101))


def test_generic_types_are_checked_by_their_container() -> None:
    @dataclass
    class Generic:
        sizes: list[int] = field(default_factory=list)
        pair: tuple[int, int] = (1, 2)

    check(Generic(sizes=[1], pair=[3, 4]))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="sizes='x'; it must be"):
        check(Generic(sizes="x"))  # type: ignore[arg-type]
