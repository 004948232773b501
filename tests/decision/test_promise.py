"""`OODDetector` and its promises: alpha and confidence without fitting again, discoveries, tuning by Monte Carlo."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from adascale import AdascaleWarning, InputError, OODDetector, View
from adascale.decision.detector_file import DetectorFile
from adascale.maths.promise import allowed
from adascale.storage.tensors import save_tensors
from adascale.testing import example_outputs
from tests.conftest import SmallNet, images, seeded


def test_confidence_in_three_lines(net: nn.Module) -> None:
    detector = OODDetector(net, "scale", confidence=0.95).fit(images(100))
    verdict = detector(images(50, seed=1))
    assert detector.guarantee.startswith(
        "At most 5 % of fresh in-distribution images are flagged, with 95 % confidence"
    )
    assert torch.equal(verdict.is_ood, verdict.score > detector.threshold)
    assert detector.calibration is not None
    assert torch.equal(verdict.is_ood, verdict.p_value <= detector.calibration.level)
    assert torch.equal(verdict.is_ood, detector.is_ood(images(50, seed=1)))
    assert detector.threshold > OODDetector(net, "scale").fit(images(100)).threshold


def test_alpha_and_confidence_are_changed_without_fitting_again(net: nn.Module, tmp_path: Path) -> None:
    path = tmp_path / "d.safetensors"
    detector = OODDetector(net, "scale").fit(images(100))
    detector.save(path)
    before = detector.threshold
    detector.confidence = 0.95
    assert detector.threshold == OODDetector(net, "scale", confidence=0.95).fit(images(100)).threshold
    assert detector.threshold == OODDetector.load(path, net, confidence=0.95).threshold
    loose = OODDetector.load(path, net, alpha=0.3)
    assert (loose.alpha, loose.confidence) == (0.3, None)
    assert loose.threshold == OODDetector(net, "scale", alpha=0.3).fit(images(100)).threshold
    assert OODDetector.load(path, net).threshold == before
    detector.save(path)  # now with confidence
    assert OODDetector.load(path, net).confidence == 0.95
    assert OODDetector.load(path, net, alpha=0.3).guarantee.startswith(
        "At most 30 % of fresh in-distribution images are"
    )
    detector.confidence = None
    assert detector.threshold == before
    for refused in (5, 0.2):
        with pytest.raises(InputError, match="how sure the promise is"):
            detector.confidence = refused
    with pytest.raises(InputError, match="how sure the promise is"):
        OODDetector(net, confidence=95)


def test_fit_says_how_many_images_a_confident_promise_needs(net: nn.Module) -> None:
    words = r"At most 9\.5 % .*, with 95 % confidence; .* 5 % needs at least 59 .*\. Give fit at least 73 images"
    with pytest.warns(AdascaleWarning, match=words):
        OODDetector(net, confidence=0.95).fit(images(40))
    assert OODDetector(net, confidence=0.95).fit(images(73)).guarantee.startswith("At most 5 % ")


def test_tuning_leaves_enough_images_for_the_promise(net: nn.Module) -> None:
    """Of 100 images 50 would be left: enough for 5 % on average, too few for 5 % with 95 % confidence."""
    assert len(OODDetector(net).plan().chosen(100)) == 50
    plan = OODDetector(net, confidence=0.95).plan()
    assert plan.chosen(100) == []
    assert plan.why_not(100) == (
        "defaults; tuning would leave too few of 100 images to promise 5 % with 95 % confidence"
    )
    assert len(plan.chosen(120)) == 60


def test_the_file_says_when_and_on_what(net: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    detector = OODDetector(net, "scale", confidence=0.9).fit(images(100))
    record = detector.save(tmp_path / "d.safetensors")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", record["fitted"]["date"])
    assert (record["fitted"]["images"], record["fitted"]["source"]) == (100, "a tensor (100, 3, 16, 16)")
    saved = record["calibration"]
    assert (saved["threshold"], saved["confidence"]) == (detector.threshold, 0.9)
    assert saved["range"] == list(detector.calibration.rate_range)  # type: ignore[union-attr]
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert (
        OODDetector.load(tmp_path / "d.safetensors", net).save(tmp_path / "e.safetensors")["fitted"] == record["fitted"]
    )
    assert detector.fit(images(100)).fitted["date"] == "2023-11-14 22:13:20 UTC"


def test_files_of_earlier_versions_load(net: nn.Module, tmp_path: Path) -> None:
    path = tmp_path / "d.safetensors"
    detector = OODDetector(net, "scale").fit(images(100))
    detector.save(path)
    file = DetectorFile.read(path)
    record = {k: v for k, v in file.record.items() if k not in ("fitted", "format", "format_version")}
    old = ("alpha", "images", "reference_images", "split_seed")
    record["calibration"] = {k: file.record["calibration"][k] for k in old} | {"guarantee": "At most 5 %."}
    save_tensors(path, file.tensors, record, file.record["format"])
    loaded = OODDetector.load(path, net)
    assert (loaded.threshold, loaded.confidence, loaded.fitted) == (detector.threshold, None, {})
    described = DetectorFile.read(path).described()
    assert described["calibration"] == file.record["calibration"]  # the sentence of today


def test_discoveries_depend_on_the_whole_batch(net: nn.Module) -> None:
    detector = OODDetector(net, "mls", alpha=0.2).fit(images(99))
    batch = torch.cat([images(20, seed=1), -6 * images(3, seed=2).abs(), 0 * images(7)])
    verdict, found = detector(batch), detector.discoveries(batch, fdr=0.3)
    order = verdict.p_value.sort().values
    bound = max((float(p) for i, p in enumerate(order, 1) if p <= 0.3 * i / 30), default=0)
    assert torch.equal(found.is_ood, verdict.p_value <= bound)
    assert 0 < int(found.is_ood.sum()) < 30
    assert torch.equal(found.p_value, verdict.p_value)
    assert not torch.equal(found.is_ood, verdict.is_ood)
    with pytest.warns(AdascaleWarning, match="with 99 calibration images at least 2 of 20 images must score above all"):
        assert not detector.discoveries(batch[:20]).is_ood.any()
    with pytest.raises(InputError, match="share of discoveries that may be false"):
        detector.discoveries(batch, fdr=10)


@pytest.mark.parametrize("draws", [50, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.long])])
def test_both_promises_hold_with_tuning(draws: int) -> None:
    """Monte Carlo through fit: the rate of each detector on the 3,850 other images of a population of 4,000."""
    stats = pytest.importorskip("scipy.stats")
    population, head = example_outputs(4000, (View(),), seed=21)
    detector = OODDetector(seeded(lambda: SmallNet(len(head.weight))), "adascale_a", alpha=0.1)
    object.__setattr__(detector.classifier, "_head", head)
    n, left = 150, 75
    average, confident = [], []
    for draw in range(draws):
        order = torch.randperm(len(population), generator=torch.Generator().manual_seed(draw))
        sample, fresh = population[order[:n]], population[order[n:]]
        chosen = sample[torch.tensor(detector.plan().chosen(n))]
        harder = {view: a * 1.2 for view, a in chosen.views.items()}
        detector.confidence = None
        detector.fit_outputs(sample, outliers={"made up": replace(chosen, views=harder)})
        assert detector.tuning is not None
        assert detector.calibration is not None
        assert len(detector.calibration.scores) == left
        scores = detector.judge(fresh).score
        average.append(float((scores > detector.threshold).double().mean()))
        detector.confidence = 0.95
        confident.append(float((scores > detector.threshold).double().mean()))
    rates, k = torch.tensor(average), allowed(left, 0.1)
    error = 3.5 * float(rates.std()) / draws**0.5
    assert k / (left + 1) - error <= float(rates.mean()) <= 0.1 + error
    # How often the rate in a finite population exceeds 10 %: exactly that of a beta-binomial distribution.
    k = allowed(left, 0.1, 0.95)
    expected = float(stats.betabinom.sf(int(0.1 * (4000 - n)), 4000 - n, k, left + 1 - k))
    above = sum(rate > 0.1 for rate in confident) / draws
    assert expected <= 0.05
    assert above <= expected + 3.5 * (expected * (1 - expected) / draws) ** 0.5
    assert max(confident) > 0.07  # and not because nothing is ever flagged


@pytest.mark.parametrize("wrong", ["0.05", "5%", [0.05], float("nan"), 5])
def test_what_is_no_share_is_refused_in_one_sentence(net: nn.Module, tmp_path: Path, wrong: Any) -> None:
    detector = OODDetector(net, "ebo").fit(images(40))
    detector.save(tmp_path / "d.safetensors")
    before = detector.threshold
    with pytest.raises(InputError, match=r"^alpha=.*a number above 0 and below 1\.$"):
        OODDetector(net, alpha=wrong)
    with pytest.raises(InputError, match=r"^confidence=.*a number from 0.5 to below 1"):
        OODDetector(net, confidence=wrong)
    with pytest.raises(InputError, match=r"^alpha="):
        detector.alpha = wrong
    with pytest.raises(InputError, match=r"^confidence="):
        detector.confidence = wrong
    with pytest.raises(InputError, match=r"^alpha="):
        OODDetector.load(tmp_path / "d.safetensors", net, alpha=wrong)
    with pytest.raises(InputError, match=r"^fdr=.*a number above 0 and below 1\.$"):
        detector.discoveries(images(5), fdr=wrong)
    assert detector.threshold == before
    detector.alpha = np.float32(0.1)
    assert detector.threshold < before
