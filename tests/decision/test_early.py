"""Early decisions are the decisions of the full computation, always."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from adascale import Calibration, Head, OODDetector, Outputs, View, detectors
from tests.conftest import SmallNet, images, seeded
from tests.shell import fit, inside, rows


class SignedNet(SmallNet):
    """Features of both signs."""

    def features(self, x: Tensor) -> Tensor:
        return torch.tanh(self.norm(self.conv(x))).mean((2, 3)) - 0.05


def random_case(seed: int, classes: int, signed: bool, spread: float) -> tuple[Outputs, Outputs, Head]:
    generator = torch.Generator().manual_seed(seed)

    def made(n: int) -> Outputs:
        features = torch.randn(n, 50, generator=generator) * spread
        features = features if signed else features.clamp_min(0)
        features[0] = 0
        moved = features + torch.randn(n, 50, generator=generator)
        return Outputs(head(features).float(), features, {View(): moved})

    head = Head(torch.randn(classes, 50, generator=generator), 3 * torch.randn(classes, generator=generator))
    return made(20), made(60), head


@pytest.mark.parametrize("variant", ["adascale_a", "adascale_l"])
@pytest.mark.parametrize("bias", [0.1, 2.0, 100.0, 1e4])
@pytest.mark.parametrize(("p_min", "p_max"), [(60, 99), (0, 100)])
def test_bounds_hold_for_huge_scales(variant: str, bias: float, p_min: float, p_max: float) -> None:
    """Flat features and a high percentile make e^r as large as 1e19 and more, where naive tangents cancel."""
    generator = torch.Generator().manual_seed(int(bias))
    features = 0.5 + 0.1 * torch.rand(200, 448, generator=generator)
    head = Head(0.02 * torch.randn(6, 448, generator=generator), bias * torch.randn(6, generator=generator))
    outputs = Outputs(head(features), features)
    method = detectors.get(variant)(p_min=p_min, p_max=p_max)
    for share in torch.linspace(0, 1, 41).tolist():
        p = p_min + share * (p_max - p_min)
        fixed = detectors.get(variant)(p_min=p, p_max=p, statistic="top").fit(outputs, head)
        bounds = method.restore({"reference_": torch.zeros(1)}, head).bounds(outputs)
        assert bounds is not None
        scores, (low, high) = fixed.score(outputs), bounds
        assert (low <= scores + 1e-9 * (1 + scores.abs())).all()
        assert (scores <= high + 1e-9 * (1 + scores.abs())).all()


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    variant=st.sampled_from(["adascale_a", "adascale_l"]),
    statistic=st.sampled_from(["q_prime", "q", "c_o", "top", "q_top"]),
    p=st.lists(st.floats(0, 100), min_size=2, max_size=2).map(sorted),
    classes=st.sampled_from([1, 2, 7]),
    signed=st.booleans(),
    spread=st.sampled_from([0.01, 1.0, 30.0]),
    more=st.lists(st.lists(st.floats(0, 100), min_size=2, max_size=2).map(sorted), max_size=4),
)
def test_every_score_lies_within_its_bounds(
    seed: int, variant: str, statistic: Any, p: list[float], classes: int, signed: bool, spread: float, more: Any
) -> None:
    reference, outputs, head = random_case(seed, classes, signed, spread)
    parameters = {"p_min": p[0], "p_max": p[1], "more_pairs": tuple(value for pair in more for value in pair)}
    method = detectors.get(variant)(**parameters, statistic=statistic).fit(reference, head)
    clean = Outputs(outputs.logits, outputs.features)
    bounds = method.bounds(clean)
    assert bounds is not None
    scores, (low, high) = method.score(outputs), bounds
    slack = 1e-9 * (1 + scores.abs())
    assert (low <= scores + slack).all()
    assert (scores <= high + slack).all()


def test_bounds_hold_where_the_energy_turns() -> None:
    """Negative and positive logits: E(s z) falls first and grows then, so its minimum lies inside."""
    head = Head(torch.tensor([[1.0, -1.0]]).repeat(3, 1), torch.zeros(3))
    logits = torch.tensor([[-2.0, 0.1, -3.0]]).repeat(50, 1)
    features = torch.rand(50, 2, generator=torch.Generator().manual_seed(0)) + 0.1
    method = detectors.AdaSCALE_L(p_min=0, p_max=50).fit(Outputs(logits, features, {View(): features}), head)
    bounds = method.bounds(Outputs(logits, features))
    assert bounds is not None
    inside = torch.stack(
        [-torch.logsumexp(logits.double() * s, 1) for s in torch.linspace(1, 4, 400, dtype=torch.float64).tolist()]
    )
    ends = torch.maximum(inside[0], inside[-1])
    assert (inside.amax(0) > ends).any()  # the case is there
    for i in range(50):
        scales = torch.linspace(
            1, float(features[i].double().sum() / features[i].double().max()) ** 2, 200, dtype=torch.float64
        ).tolist()
        within = torch.stack([-torch.logsumexp(logits[i].double() * s, 0) for s in scales])
        assert within.max() <= bounds[1][i] + 1e-9
        assert within.min() >= bounds[0][i] - 1e-9


@pytest.mark.parametrize("make", [SmallNet, SignedNet])
@pytest.mark.parametrize("method", ["adascale_a", "adascale_l", "combined"])
@pytest.mark.parametrize("pixels", ["trivial", "random"])
def test_decisions_are_those_of_the_verdict(make: type[nn.Module], method: str, pixels: str) -> None:
    net, pictures = seeded(make), images(70, seed=3) * torch.linspace(0.2, 3, 70).view(-1, 1, 1, 1)
    detector = OODDetector(net, method, pixels=pixels, p_min=60, p_max=90, batch_size=16).fit(images(40))
    scores = detector.score(pictures)
    early = 0
    for share in (0.02, 0.3, 0.5, 0.8, 0.97):
        tau = float(scores.quantile(share))
        detector.calibration = Calibration(torch.full((19,), tau))  # the threshold is tau
        decision = detector.decide(pictures)
        clear = (scores - tau).abs() > 1e-5  # another batch may round the last digits differently
        assert torch.equal(decision.is_ood[clear], (scores > tau)[clear])
        assert clear.sum() >= 68
        assert torch.equal(decision.prediction, detector(pictures).prediction)
        early += int(decision.early.sum())
    assert 0 < early < 5 * 70


def test_open_cases_are_gathered_over_batches() -> None:
    net = seeded(SmallNet)
    detector = OODDetector(net, pixels="random", p_min=60, p_max=90, batch_size=8).fit(images(40))
    pictures = images(64, seed=5)
    detector.calibration = Calibration(detector.score(pictures).median().repeat(19))
    sizes: list[int] = []
    handle = net.register_forward_pre_hook(lambda _, args: sizes.append(len(args[0])))
    decision = detector.decide(pictures)
    handle.remove()
    extra = sum(sizes) - 64
    assert extra == int((~decision.early).sum())  # one more pass for each open image, none for the others
    assert len(sizes) - 8 <= extra // 8 + 1


def test_other_methods_are_decided_too() -> None:
    for name, early in (("scale", 30), ("msp", 30), ("odin", 0)):
        detector = OODDetector(seeded(SmallNet), name).fit(images(40))
        decision = detector.decide(images(30, seed=2))
        assert torch.equal(decision.is_ood, detector(images(30, seed=2)).is_ood)
        assert int(decision.early.sum()) == early


def test_broken_images_are_flagged_at_once() -> None:
    detector = OODDetector(seeded(SmallNet), p_min=60, p_max=90).fit(images(40))
    pictures = images(5, seed=2)
    pictures[2, 0, 0, 0] = torch.nan
    decision = detector.decide(pictures)
    assert bool(decision.is_ood[2])
    assert bool(decision.early[2])
    assert torch.equal(decision.is_ood, detector(pictures).is_ood)


def test_an_infinite_logit_is_never_in_distribution() -> None:
    outputs, _, head = random_case(1, 4, signed=False, spread=1.0)
    outputs.logits[:5, 3] = -torch.inf
    method = detectors.AdaSCALE_A().fit(outputs[10:], head)
    bounds = method.bounds(outputs)
    assert bounds is not None
    assert (bounds[0][:5] == torch.inf).all()
    assert bounds[1][5:].isfinite().all()


def test_a_stream_is_answered_before_it_ends() -> None:
    detector = OODDetector(seeded(SmallNet), p_min=60, p_max=90, batch_size=8).fit(images(40))
    pictures, read = images(8, seed=6), 0
    detector.calibration = Calibration(detector.score(pictures).median().repeat(19))

    def endless() -> Iterator[Tensor]:
        nonlocal read
        while True:
            read += 1
            yield pictures[:1] if read > 1 else pictures

    next(detector.decisions(endless()))
    assert read <= 16


def test_images_of_several_sizes() -> None:
    detector = OODDetector(seeded(SmallNet), p_min=60, p_max=90).fit([images(20), images(20, size=20)])
    mixed = [images(9, seed=4), images(9, size=20, seed=4), images(9, seed=5)]
    assert torch.equal(detector.is_ood(mixed), detector(mixed).is_ood)


@pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")
def test_decisions_from_the_shell(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    detector = fit(place, monkeypatch, "--alpha", "0.3", "--set", "p_min=84", "--set", "p_max=85")
    for broken in ("00a.png", "29z.png"):
        (place / "id" / broken).write_text("no image")
    full = ["score", place / "id", "-d", detector, "--batch-size", "4"]
    assert inside(monkeypatch, *full, "-o", place / "full.csv") == 3
    assert inside(monkeypatch, *full, "--decide", "-o", place / "quick.csv") == 3
    scored, decided = rows(place / "full.csv"), rows(place / "quick.csv")
    assert list(decided[0]) == ["image", "is_ood", "early", "prediction", "error"]
    for column in ("image", "is_ood", "prediction", "error"):
        assert [row[column] for row in decided] == [row[column] for row in scored]
    assert {row["early"] for row in decided} >= {"true"}
    capsys.readouterr()
    assert inside(monkeypatch, *full, "--decide") == 3
    assert len(capsys.readouterr().out.splitlines()) == 33
