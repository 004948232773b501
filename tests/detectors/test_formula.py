"""`Detector.formula`: the score as torch operations alone equals the score."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
import torch
from torch import Tensor

from adascale import Detector, Head, Outputs, detectors
from adascale.core.types import View
from adascale.maths.activations import unit_rows
from adascale.maths.evidence import Evidence
from adascale.maths.tracing import torch_alone
from tests.inside import INSIDE

Made = tuple[Detector, Outputs]


def outputs(n: int, seed: int, signed: bool = False, views: tuple[View, ...] = ()) -> tuple[Outputs, Head]:
    """Features with ties and zeros, as after a ReLU or of both signs, perturbed features, logits of a fixed head."""
    generator = torch.Generator().manual_seed(0)
    head = Head(torch.randn(6, 120, generator=generator), torch.randn(6, generator=generator))
    generator.manual_seed(seed)
    features = (3 * torch.randn(n, 120, generator=generator)).round(decimals=1)
    features = features if signed else features.clamp_min(0)
    seen = {view: features + 0.3 * torch.randn(n, 120, generator=generator) for view in views}
    logits = head(features).float()
    return Outputs(logits, features, seen, logits.argmax(1)), head


def fitted(name: str, signed: bool = False, **parameters: Any) -> Made:
    cls = detectors.get(name)
    known = {one.name for one in fields(cls)}
    small = {key: value for key, value in {"k": 5, "dim": 20}.items() if key in known}
    method = cls(**{**small, **parameters})
    reference, head = outputs(90, 1, signed, method.views)
    train = reference if method.fits_on == "val+train" else None
    more = () if train is None else (train,)
    return method.fit(reference, head, *more), outputs(25, 2, signed, method.views)[0]


def assert_same(formula: Tensor, score: Tensor) -> None:
    torch.testing.assert_close(formula, score, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("name", [name for name in detectors.names() if name not in INSIDE])
@pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")
def test_the_formula_of_every_method_is_its_score(name: str, signed: bool) -> None:
    method, given = fitted(name, signed)
    assert_same(method.formula(given), method.score(given))
    with torch_alone():
        found = method.formula(Outputs.bare(given.logits, given.features, given.views))
    assert_same(found, method.score(given))


@pytest.mark.parametrize("statistic", ["q", "c_o", "top", "q_top", "q_prime"])
@pytest.mark.parametrize("name", ["adascale_a", "adascale_l"])
def test_every_statistic_of_adascale(name: str, statistic: str) -> None:
    method, given = fitted(name, statistic=statistic, k2=30)
    assert_same(method.formula(given), method.score(given))


@pytest.mark.parametrize("name", ["react", "scale", "adascale_l", "ash_s"])
@pytest.mark.parametrize("logit_score", ["energy", "mls", "msp", "gen"])
@pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")
def test_every_logit_score(name: str, logit_score: str) -> None:
    method, given = fitted(name, logit_score=logit_score)
    with torch_alone():
        found = method.formula(given)
    assert_same(found, method.score(given))


@pytest.mark.parametrize("name", ["adascale_a", "adascale_l", "combined", "gen", "react"])
def test_bounds(name: str) -> None:
    method, given = fitted(name)
    expected, found = method.bounds(given), method.formula_bounds(given)
    assert expected is not None
    assert found is not None
    for one, other in zip(found, expected, strict=True):
        assert_same(one, other)
    assert (found[0] <= method.score(given) + 1e-9).all()
    assert (method.score(given) <= found[1] + 1e-9).all()


def test_a_method_with_views_and_no_bounds_has_none_in_a_trace_either() -> None:
    assert fitted("odin")[0].formula_bounds(fitted("odin")[1]) is None
    assert fitted("combined", members=("odin", "gen"))[0].formula_bounds(fitted("odin")[1]) is None


def edge_rows() -> dict[str, Tensor]:
    one = torch.zeros(1, 120)
    one[0, 7] = 2.0
    return {"zeros": torch.zeros(1, 120), "one": one, "negative": -torch.ones(1, 120), "equal": torch.ones(1, 120)}


@pytest.mark.parametrize("kind", list(edge_rows()))
@pytest.mark.parametrize("name", ["adascale_a", "adascale_l", "combined", "lts", "knn", "fdbd", "nnguide"])
def test_degenerate_rows(name: str, kind: str) -> None:
    method, _ = fitted(name)
    row = edge_rows()[kind]
    given = Outputs(method.head_(row).float(), row, {view: row + 0.1 for view in method.views})
    assert_same(method.formula(given), method.score(given))


@pytest.mark.parametrize("scores", [torch.arange(60.0), torch.zeros(8), torch.tensor([1.0, 1.0, 2.0])])
def test_evidence(scores: Tensor) -> None:
    evidence = Evidence.of(scores)
    probe = torch.linspace(-20, 90, 333, dtype=torch.float64)
    assert_same(evidence.formula(probe), evidence(probe))


def test_unit_rows_of_zeros_and_of_the_smallest_numbers() -> None:
    rows = torch.tensor([[0.0, 0.0], [0.0, 1e-100]], dtype=torch.float64)
    assert unit_rows(rows).tolist() == [[0, 0], [0, 1]]


def test_line_says_that_it_is_too_large_for_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    method, _ = fitted("line")
    assert method.untraceable == ""
    monkeypatch.setattr("adascale.detectors.line._MOST_TRACED", 100)
    assert "720 values" in method.untraceable
    assert "its member line" in fitted("combined", members=("line", "gen"))[0].untraceable
