"""Scores against those of pytorch-ood, where it is installed: the same order, or a sentence about who deviates."""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any

import pytest

from adascale import AdascaleError, Outputs
from adascale.testing import example_outputs
from benchmarks import agreement, field


@lru_cache
def installed() -> Any:
    try:
        return agreement.package()
    except (AdascaleError, RuntimeError) as error:
        pytest.skip(f"pytorch-ood is not installed: {error}")


@lru_cache
def given() -> Any:
    installed()
    train, head = example_outputs(600, ())
    parts = [example_outputs(150, (), ood=ood, seed=3)[0] for ood in (False, True)]
    test = Outputs.cat([Outputs(part.logits, part.features) for part in parts])
    return agreement.given(train, test, head), head


@pytest.mark.parametrize("name", agreement.PAIRS)
def test_the_same_order(name: str) -> None:
    both, head = given()
    found = agreement.correlation(name, both, head)
    if not agreement.PAIRS[name].deviates:
        assert found >= agreement.AGREED


def test_every_method_that_both_have_is_compared() -> None:
    assert {*agreement.PAIRS, "odin"} == {*field.ours_by_name(field.PYTORCH_OOD), "gmm"}
    assert {pair.theirs for pair in agreement.PAIRS.values()} <= {*field.PYTORCH_OOD}


def test_the_list_of_their_methods_is_that_of_the_package() -> None:
    package = installed()
    theirs = {name for name in package.__all__ if inspect.isclass(getattr(package, name))}
    assert theirs == {*field.PYTORCH_OOD}
