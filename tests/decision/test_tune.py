"""Choosing parameters: sweeps, grids, and tuning without OOD data."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from adascale import InputError, OODDetector, Outputs, View, detectors
from adascale.decision.fitting import Plan
from adascale.decision.tuning import FAR, GRIDS, KIND_WEIGHTS, NEAR, Fold, chosen_count, grid, search_grid
from adascale.images.outliers import OUTLIERS, Blurred, Masked, Mixed, Sample, Shuffled, Zoomed
from adascale.maths.split import split
from adascale.testing import example_outputs
from tests.conftest import SmallNet, images, seeded

RANDOM = View("random")


def outputs(n: int, seed: int = 0, signed: bool = False) -> Outputs:
    made, _ = example_outputs(n, (View(), RANDOM), seed=seed)
    if not signed:
        return made
    views = {view: a - 0.5 for view, a in made.views.items()}
    return Outputs(made.logits, made.features - 0.5, views, made.labels)


HEAD = example_outputs(2, (View(),))[1]


@pytest.mark.parametrize("count", [40, 150])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("cls", [detectors.AdaSCALE_A, detectors.AdaSCALE_L])
def test_a_sweep_equals_refitting_and_rescoring(cls: type[detectors.Detector], signed: bool, count: int) -> None:
    """Trap: a search over stale state. Every point is compared with a detector of its own.

    More points than there are counts of kept entries are looked up in a table; fewer are computed one by one.
    """
    draw = random.Random(1)
    points = [
        {
            "p_min": (low := draw.choice([60, 75, 80.5, 95])),
            "p_max": max(low, draw.choice([80, 85, 99])),
            "k1": draw.choice([1, 5, 50]),
            "k2": draw.choice([1, 5, 100]),
            "lam": draw.choice([0, 1, 10]),
            "statistic": draw.choice(["q_prime", "q", "c_o", "top", "q_top"]),
            "pixels": draw.choice(["trivial", "random"]),
            "logit_score": draw.choice(["energy", "msp"]),
            "more_pairs": draw.choice([(), (60, 70, 80, 99)]),
        }
        for _ in range(count)
    ]
    reference, known, unknown = (outputs(n, seed, signed) for seed, n in enumerate((30, 50, 70)))
    known.features[3, 4] = torch.nan
    swept = dict(cls().sweep(points, reference, HEAD, [known, unknown]))
    assert sorted(swept) == list(range(count))
    for i, point in enumerate(points):
        alone = cls(**point).fit(reference, HEAD)
        found = swept[i]
        assert found is not None
        for part, expected in zip(found, (alone.score(known), alone.score(unknown)), strict=True):
            torch.testing.assert_close(part, expected, rtol=1e-12, atol=1e-12)
    assert swept[0] is not None
    assert swept[0][0][3] == torch.inf


def test_weipers_sweep_equals_refitting_and_rescoring() -> None:
    grid = detectors.WeiPer.search_space
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    reference, known = outputs(30), outputs(20, 1)
    known.features[3, 4] = torch.nan
    method = detectors.WeiPer(repeats=5)
    swept = dict(method.sweep([*points, {"lam_1": -1}], reference, HEAD, [known]))
    assert swept.pop(len(points)) is None
    for i, point in enumerate(points):
        found = swept[i]
        assert found is not None
        assert torch.equal(found[0], replace(method, **point).fit(reference, HEAD).score(known))
        assert found[0][3] == torch.inf


def test_points_that_make_no_sense_are_passed_over() -> None:
    reference, known = outputs(30), outputs(20, 1)
    points: list[dict[str, Any]] = [{"p_min": 90, "p_max": 80}, {"p_min": 80, "p_max": 90}]
    swept = dict(detectors.AdaSCALE_A().sweep(points, reference, HEAD, [known]))
    assert swept[0] is None
    assert swept[1] is not None
    ks = dict(detectors.KNN().sweep([{"k": 5}, {"k": 500}], reference, HEAD, [known]))
    assert ks[0] is not None
    assert ks[1] is None


@pytest.mark.parametrize("p", [60, 85, 99])
def test_equal_percentiles_are_scale_and_lts(p: float) -> None:
    reference, known = outputs(30), outputs(50, 1)
    for adaptive, fixed in (
        (detectors.AdaSCALE_A(p_min=p, p_max=p), detectors.SCALE(p, relu=True)),
        (detectors.AdaSCALE_L(p_min=p, p_max=p), detectors.LTS(p)),
    ):
        assert torch.equal(adaptive.fit(reference, HEAD).score(known), fixed.fit(None, HEAD).score(known))


def test_the_papers_grids() -> None:
    assert {name: len(points) for name, points in GRIDS.items()} == {"one-knob": 8, "paper": 36, "pairs": 45}
    assert len(grid(detectors.AdaSCALE_A())) == 45
    with pytest.raises(InputError, match="nothing left to tune"):
        grid(detectors.MLS())
    assert len(grid(detectors.AdaSCALE_A(), {"p_min": [60, 70], "p_max": [50, 80]})) == 2
    with pytest.raises(InputError, match="none of the 1 points"):
        grid(detectors.SCALE(), {"percentile": [120]})


def test_the_best_point_wins() -> None:
    """ReAct at 99 % clips nothing that separates; at 1 % it clips everything away."""
    reference, known = outputs(60), outputs(50, 1)
    unknown = Outputs(known.logits, known.features * 3, {view: a * 3 for view, a in known.views.items()})
    found = search_grid(
        detectors.ReAct(), [{"percentile": p} for p in (1, 50, 90)], [Fold(reference, known, {"x": unknown})], HEAD, "x"
    )
    aurocs = [auroc for _, auroc in found.trials]
    assert found.auroc == max(aurocs)
    assert found.chosen == found.trials[aurocs.index(max(aurocs))][0]
    assert found.default_auroc == aurocs[2]  # 90 is the default
    assert "chosen from 3 by AUROC" in str(found)
    other = Outputs(known.logits, known.features * 0.5, known.views)
    both = Fold(reference, known, {"x": unknown, "y": other})
    mean, weighted = (
        search_grid(detectors.ReAct(), [{"percentile": p} for p in (1, 50, 90)], [both], HEAD, "x", weights=of).trials
        for of in (None, {"y": 3.0})
    )
    alone = [
        search_grid(detectors.ReAct(), [{"percentile": p} for p in (1, 50, 90)], [fold], HEAD, "x").trials
        for fold in (Fold(reference, known, {"x": unknown}), Fold(reference, known, {"y": other}))
    ]
    for i in range(3):
        x, y = (trials[i][1] for trials in alone)
        assert mean[i][1] == pytest.approx((x + y) / 2)
        assert weighted[i][1] == pytest.approx((x + 3 * y) / 4)


def test_points_as_good_as_the_best_are_averaged_over_where_the_method_can() -> None:
    reference, known = outputs(60), outputs(50, 1)
    unknown = Outputs(known.logits - 1, known.features, {view: a * 1.3 for view, a in known.views.items()})
    fold = Fold(reference, known, {"x": unknown})
    method, points = detectors.AdaSCALE_L(), grid(detectors.AdaSCALE_L())
    alone = search_grid(method, points, [fold], HEAD, "x")
    assert set(alone.chosen) == {"p_min", "p_max"}
    found = search_grid(method, points, [fold], HEAD, "x", tolerance=0.02)
    by_value = sorted(range(45), key=lambda i: -found.trials[i][1])
    good = [points[i] for i in by_value if found.trials[i][1] >= found.auroc - 0.02]
    assert 1 < len(good) < 45
    assert found.auroc == alone.auroc == found.trials[by_value[0]][1]
    made = replace(method, **found.chosen)
    assert set(made.pairs) == {(point["p_min"], point["p_max"]) for point in good}
    assert made.pairs[0] == (alone.chosen["p_min"], alone.chosen["p_max"])
    assert "more_pairs=" in str(found)
    react = search_grid(detectors.ReAct(), [{"percentile": p} for p in (1, 50, 90)], [fold], HEAD, "x", tolerance=1)
    assert set(react.chosen) == {"percentile"}  # one point stands for all
    knob = search_grid(method, [{"p_max": 85}, {"p_max": 90}], [fold], HEAD, "x", tolerance=1)
    assert set(replace(method, **knob.chosen).pairs) == {(60, 85), (60, 90)}


def test_r_is_the_mean_over_the_pairs() -> None:
    reference, known = outputs(60), outputs(50, 1)
    pairs = ((60, 85), (70, 99), (80, 80))
    for cls in (detectors.AdaSCALE_A, detectors.AdaSCALE_L):
        several = cls(p_min=60, p_max=85, more_pairs=(70, 99, 80, 80)).fit(reference, HEAD)
        ones = [cls(p_min=low, p_max=high).fit(reference, HEAD) for low, high in pairs]
        torch.testing.assert_close(several.ratios(known), sum(one.ratios(known) for one in ones) / 3)
        torch.testing.assert_close(several.percentiles(known), sum(one.percentiles(known) for one in ones) / 3)
        alone = torch.cat([several.score(known[i : i + 1]) for i in range(len(known))])
        torch.testing.assert_close(alone, several.score(known), rtol=1e-12, atol=1e-12)
    twice = detectors.AdaSCALE_L(p_min=60, p_max=85, more_pairs=(60, 85)).fit(reference, HEAD)
    once = detectors.AdaSCALE_L().fit(reference, HEAD)
    torch.testing.assert_close(twice.score(known), once.score(known), rtol=1e-12, atol=1e-12)
    for wrong in ((60,), (80, 60), (60, 101)):
        with pytest.raises(InputError, match="more_pairs="):
            detectors.AdaSCALE_L(more_pairs=wrong)


def plan(method: str = "adascale_a", alpha: float = 0.05, tune: bool | None = None, **given: Any) -> Plan:
    return OODDetector(seeded(SmallNet), method, alpha=alpha, **given).plan(tune)


def test_when_a_detector_is_tuned() -> None:
    assert len(plan().chosen(64)) == 31
    assert plan().chosen(63) == []
    assert "63 images are too few" in plan().why_not(63)
    assert len(plan().chosen(100_000)) == 200
    assert plan(p_max=90).chosen(500) == []  # the user has chosen
    assert plan(p_max=90).why_not(500) == "as given"
    assert plan(more_pairs=(60, 80)).chosen(500) == []
    assert len(plan(lam=5).chosen(300)) == 150  # nothing that is tuned was given
    assert plan(tune=False).chosen(500) == []
    assert plan("scale").chosen(500) == []
    assert len(plan("scale", tune=True).chosen(500)) == 150
    assert len(plan(lam=5).chosen(500)) == 200
    assert plan(alpha=0.01).chosen(150) == []  # 75 images would not be enough to promise 1 %
    assert "too few of 150 images to promise 1 %" in plan(alpha=0.01).why_not(150)
    with pytest.raises(InputError, match="at least 64"):
        plan(tune=True).chosen(20)
    assert plan("mls", tune=True).chosen(500) == []
    assert plan("mls", tune=True).why_not(500) == "defaults; nothing is left to tune"


def test_images_for_fitting_choosing_and_the_threshold_stay_apart() -> None:
    for n in (64, 200, 3000):
        parts = split(n, 3, 0.2, chosen_count(n))
        first = split(n, 0, 0.2, chosen_count(n))
        assert plan().chosen(n) == torch.cat([first.chosen, first.fitted])[:200].tolist()
        together = torch.cat(parts).tolist()
        assert sorted(together) == list(range(n))


def test_a_stream_keeps_the_images_that_the_split_will_choose() -> None:
    sample, pictures = Sample(7, 20), images(90)
    for batch in pictures.split(8):  # type: ignore[no-untyped-call]
        sample.add(batch)
    chosen = split(90, 7, choosing=15).chosen
    kept = sample.stacked(chosen.tolist())
    assert kept is not None
    assert torch.equal(kept, pictures[chosen])


def test_near_and_far_outliers_count_the_same() -> None:
    assert KIND_WEIGHTS.keys() == OUTLIERS.keys()
    assert sum(KIND_WEIGHTS[kind] for kind in NEAR) == pytest.approx(sum(KIND_WEIGHTS[kind] for kind in FAR))


def test_fit_tunes_by_itself_and_says_so(tmp_path: Path) -> None:
    net, pictures = seeded(SmallNet), images(120)
    detector = OODDetector(net).fit(pictures)
    assert detector.tuning is not None
    assert {"p_min", "p_max"} <= set(detector.tuning.chosen) <= {"p_min", "p_max", "more_pairs"}
    assert detector.tuning.chosen.items() <= detector.method.parameters.items()
    assert len(detector.tuning.trials) == 45
    assert detector.setting.startswith("the evidence of adascale_l, fdbd, gen, vim is added; p_min=")
    assert "60 ID images against outliers made from them (shuffled, mixed, masked, blurred, zoomed)" in detector.setting
    assert len(detector.calibration.scores) == 60  # type: ignore[union-attr]
    detector.save(tmp_path / "d.safetensors")
    loaded = OODDetector.load(tmp_path / "d.safetensors", net)
    assert loaded.setting == detector.setting
    assert torch.equal(loaded.score(pictures[:9]), detector.score(pictures[:9]))
    # The same from a loader; another setting after another fit; off on request.
    again = OODDetector(net).fit(DataLoader(TensorDataset(pictures), batch_size=32))
    assert again.tuning == detector.tuning
    untuned = detector.fit(pictures, tune=False)
    assert untuned.method.parameters == detectors.get("combined")().parameters
    assert untuned.setting == "the evidence of adascale_l, fdbd, gen, vim is added; defaults"
    paper = OODDetector(net, "adascale_a").fit(pictures, tune=False)
    assert (paper.method.parameters, paper.setting) == (detectors.AdaSCALE_A().parameters, "defaults")


@pytest.mark.parametrize(("features", "p_max"), [(16, 60.2), (64, 60.8), (512, 66.2), (2048, 85), (4096, 85)])
def test_percentiles_that_cannot_be_tuned_suit_the_number_of_features(features: int, p_max: float) -> None:
    """60 and 85 are made for about 2,000 features; with fewer, the noise of Q' has too much weight in the range."""
    assert detectors.AdaSCALE_A().suited(features) == {"p_min": 60, "p_max": p_max}
    assert detectors.get("combined")().suited(features) == {"p_min": 60, "p_max": p_max}


@pytest.mark.parametrize("method", ["combined", "adascale_a", "adascale_l"])
def test_with_too_few_images_to_tune_on_the_number_of_features_sets_the_percentiles(method: str) -> None:
    detector = OODDetector(seeded(SmallNet), method).fit(images(40))
    words = "p_min=60, p_max=61.6 for 128 features; 40 images are too few to tune on (64)"
    assert detector.setting.endswith(words)
    assert detector.method.parameters["p_max"] == 61.6
    given = OODDetector(seeded(SmallNet), method, p_max=85).fit(images(40))
    assert given.setting.endswith("as given")
    assert given.method.parameters["p_max"] == 85


@pytest.mark.parametrize("method", ["scale", "react", "gen", "odin"])
def test_any_method_can_be_tuned(method: str) -> None:
    detector = OODDetector(seeded(SmallNet), method).fit(images(80), tune=True)
    assert detector.tuning is not None
    assert set(detector.tuning.chosen) == set(detector.method.search_space)


def test_images_of_several_sizes_are_not_tuned_on() -> None:
    mixed = [images(40), images(40, size=20)]
    detector = OODDetector(seeded(SmallNet)).fit(mixed)
    assert detector.tuning is None


def test_shuffled_images_keep_their_values() -> None:
    pictures = images(5, size=16)
    shuffled = Shuffled()(pictures)
    assert torch.equal(shuffled.flatten(1).sort().values, pictures.flatten(1).sort().values)
    assert not torch.equal(shuffled, pictures)
    assert torch.equal(Shuffled()(pictures), shuffled)
    first = pictures[0, 0, :4, :4]
    corners = [(i, j) for i in range(0, 16, 4) for j in range(0, 16, 4)]
    assert sum(torch.equal(shuffled[0, 0, i : i + 4, j : j + 4], first) for i, j in corners) == 1
    assert Shuffled()(images(2, size=18)).shape == (2, 3, 18, 18)  # a side that does not divide


def test_mixed_and_blurred_images() -> None:
    pictures = images(3)
    assert torch.equal(Mixed()(pictures)[1], (pictures[1] + pictures[0]) / 2)
    alone = Mixed()(pictures[:1])
    assert not torch.equal(alone, pictures[:1])
    flat = torch.full((2, 3, 20, 20), 0.7)
    torch.testing.assert_close(Blurred()(flat), flat)
    assert Blurred()(pictures).std() < 0.5 * pictures.std()
    by_hand = Blurred(0.3)(pictures)[0, 0, 5, 6]  # reach 2: a window of five
    torch.testing.assert_close(by_hand, pictures[0, 0, 3:8, 4:9].mean())


def test_masked_images_have_their_surroundings_in_the_middle() -> None:
    pictures = images(2, size=8)
    masked = Masked()(pictures)
    rows = [0, 1, 1, 0, 7, 6, 6, 7]  # two rows above and two below, mirrored
    assert torch.equal(masked[..., 2:6], pictures[:, :, rows, 2:6])
    assert torch.equal(masked[..., [0, 1, 6, 7]], pictures[..., [0, 1, 6, 7]])
    assert torch.equal(Masked()(images(2, size=10))[0, 0, 2:8, 5], images(2, size=10)[0, 0, [1, 0, 0, 9, 9, 8], 5])


def test_zoomed_images_show_the_inner_half() -> None:
    steps = torch.arange(16.0).expand(1, 1, 16, 16)
    zoomed = Zoomed()(steps)[0, 0, 8]
    slope = 4 + (torch.arange(4, 12) + 0.5) / 2 - 0.5  # half as steep
    torch.testing.assert_close(zoomed[4:12], slope, atol=0.05, rtol=0)
    assert float(zoomed.min()) > 3
    assert float(zoomed.max()) < 12


@pytest.mark.parametrize("size", [1, 3, 20])
def test_outliers_do_not_touch_their_input(size: int) -> None:
    for make in OUTLIERS.values():
        pictures = images(3, size=size)
        before: Tensor = pictures.clone()
        assert make(pictures).shape == before.shape
        assert torch.equal(pictures, before)
