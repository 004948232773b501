"""What a `Monitor` says: alarms, words, restart, bad input."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from adascale.core.errors import InputError
from adascale.maths.draws import Draws
from adascale.maths.martingales import EXPONENTS
from adascale.monitoring import Monitor
from adascale.monitoring.history import History
from adascale.storage.tensors import TensorFileError
from benchmarks import streams


def normal(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=n)


def classes(n: int, seed: int = 0, number: int = 10) -> np.ndarray:
    return np.random.default_rng(seed + 1000).integers(0, number, n)


def monitor(n: int = 300, **options: Any) -> Monitor:
    return Monitor(normal(n), classes(n), **options)


def alarm(made: Monitor, name: str, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in made.summary()["alarms"] if (one["name"], one["kind"]) == (name, kind))
    return found


def test_evidence_by_hand() -> None:
    made = Monitor([1.0, 2.0, 3.0, 4.0], seed=3)
    p, draws = [], Draws(3, 3)
    for t, (above, equal) in enumerate([(0, 0), (3, 0), (0, 1)]):
        p.append((above + draws[t][0] * (equal + 1)) / (5 + t))
    made.update_many([5.0, 2.5, 5.0])
    bets = [[e * one ** (e - 1) for one in p] for e in EXPONENTS.tolist()]
    assert alarm(made, "unusual", "ever")["evidence"] == pytest.approx(np.mean([math.prod(row) for row in bets]))
    summed = np.mean([((a + 1) * b + 1) * c for a, b, c in bets])
    assert alarm(made, "unusual", "continuing")["evidence"] == pytest.approx(summed)
    apart = [min(d % 1, -d % 1) * 2 for d in np.diff(p)]
    close = np.mean([math.prod(e * one ** (e - 1) for one in apart) for e in EXPONENTS.tolist()])
    assert alarm(made, "repeated", "ever")["evidence"] == pytest.approx(close)


def test_a_monitor_is_one_of_the_streams_that_are_simulated_side_by_side() -> None:
    calibration, scores, draws = np.round(normal(50), 1), np.round(normal(200, 1), 1) + 1, Draws(5, 3)
    made = Monitor(calibration, seed=5, delta=0.1, run_length=200)
    made.update_many(scores)
    uniform = np.array([[draws[t][0] for t in range(200)]] * 2)
    p = streams.p_values(np.stack([calibration] * 2), np.stack([scores] * 2), uniform)
    found = streams.alarms(p, 0.1, 200, number=3)
    for kind, raised in found._asdict().items():
        names = ("unusual", "typical", "repeated")
        assert [alarm(made, name, kind)["raised_at"] or 0 for name in names] == raised[1].tolist()
    assert found.continuing[0, 0] > 0


def test_in_distribution_images_raise_nothing() -> None:
    made = monitor()
    assert made.update_many(normal(500, 1), classes(500, 1)) == []
    summary = made.summary()
    assert not summary["alarm"]
    assert summary["ood_share"]["low"] == 0
    assert (summary["images"], summary["used"]) == (500, 500)


def test_unusual_images_raise_the_alarm_and_are_named() -> None:
    made = monitor()
    made.update_many(normal(300, 1), classes(300, 1))
    random, images = np.random.default_rng(2), normal(200, 3)
    ood = random.random(200) < 0.3
    raised = made.update_many(
        images + 5 * ood, classes(200, 3), [f"{'ood' if o else 'id'}-{i}" for i, o in enumerate(ood)]
    )
    assert {"unusual"} <= {one.name for one in raised} <= {"unusual", "repeated"}  # unusual images follow each other
    summary, found = made.summary(), alarm(made, "unusual", "continuing")
    assert summary["alarm"]
    assert "unusual (continuing)" in summary["raised"]
    assert found["raised_at"] < 360
    assert 290 <= found["since"] <= 310
    assert len(found["top"]) == 10
    assert {one["name"][:3] for one in found["top"]} == {"ood"}
    factors = [one["log10_factor"] for one in found["top"]]
    assert factors == sorted(factors, reverse=True)
    assert found["evidence"] == pytest.approx(10 ** found["log10_evidence"])
    recent = Monitor(normal(300), window=200)
    recent.update_many([*normal(300, 1), *(images + 5 * ood)])
    share = recent.summary()["ood_share"]
    assert share["low"] <= ood.mean() <= share["high"]
    assert share["images"] == 200


@pytest.mark.parametrize(
    ("name", "scores", "predictions"),
    [
        ("typical", normal(300, 1) - 1.5, classes(300, 1)),
        ("repeated", np.full(300, 0.2), classes(300, 1)),
        ("repeated", 0.2 + 1e-3 * normal(300, 1), classes(300, 1)),
        ("classes", normal(300, 1), np.where(np.arange(300) % 3 == 0, 7, classes(300, 1))),
        ("unusual", np.full(300, np.nan), classes(300, 1)),
    ],
)
def test_other_changes_raise_their_own_alarm(name: str, scores: np.ndarray, predictions: np.ndarray) -> None:
    made = monitor()
    made.update_many(normal(200, 5), classes(200, 5))
    made.update_many(scores, predictions)
    assert name in {one.name for one in made.raised}
    assert alarm(made, name, "continuing")["raised"]


def test_scores_that_are_not_numbers_are_the_most_unusual() -> None:
    evidence = []
    for score in (math.nan, math.inf, -math.inf, 1e308, 0.0):
        made = monitor()
        made.update_many([score] * 5)
        evidence.append(alarm(made, "unusual", "ever")["evidence"])
    assert evidence[0] == evidence[1] == evidence[2] == evidence[3] > evidence[4]
    json.dumps(made.summary(), allow_nan=False)


@pytest.mark.parametrize("at", [1, 150, 400])
def test_a_restart_changes_nothing(at: int, tmp_path: Path) -> None:
    """capacity: gaps between scores begin after 100 images of the stream."""
    scores, predictions = np.append(normal(300, 1), normal(300, 2) + 1), classes(600, 1)
    names = [f"{i}.png" for i in range(600)]
    whole = monitor(capacity=400, every=2, seed=11)
    whole.update_many(scores, predictions, names)
    first = monitor(capacity=400, every=2, seed=11)
    first.update_many(scores[:at], predictions[:at], names[:at])
    first.save(tmp_path / "state")
    again = Monitor.load(tmp_path / "state")
    assert again.summary() == first.summary()
    again.update_many(scores[at:], predictions[at:], names[at:])
    assert again.summary() == whole.summary()
    assert again.history() == whole.history()
    assert whole.summary()["alarm"]
    again.save(tmp_path / "again")
    whole.save(tmp_path / "whole")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "whole").read_bytes()


def test_a_monitor_of_nothing_yet_is_saved_too(tmp_path: Path) -> None:
    Monitor(normal(20), 10).save(tmp_path / "state")
    made = Monitor.load(tmp_path / "state")
    assert made.summary() == Monitor(normal(20), 10).summary()
    assert made.history()["images"] == []
    json.dumps(made.summary(), allow_nan=False)


def test_a_damaged_state_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state"
    monitor().save(path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(TensorFileError, match="damaged"):
        Monitor.load(path)
    with pytest.raises(InputError, match="no file"):
        Monitor.load(tmp_path / "none")


def test_one_of_many_images_is_used() -> None:
    scores = normal(100, 1)
    made, thinned = monitor(every=10), monitor()
    made.update_many(scores)
    thinned.update_many(scores[::10])
    assert made.images == 100
    assert made.used == 10
    assert alarm(made, "unusual", "ever")["evidence"] == alarm(thinned, "unusual", "ever")["evidence"]


def test_without_classes_there_is_no_alarm_about_them() -> None:
    without, number = Monitor(normal(50)), Monitor(torch.tensor(normal(50)), 10)
    without.update_many(normal(30, 1), classes(30))
    assert "classes" not in {one.name for one in without.alarms}
    assert alarm(without, "unusual", "ever")["limit"] == pytest.approx(300)
    number.update(0.0)  # an image without a prediction says nothing about classes
    assert alarm(number, "classes", "ever")["evidence"] == 1
    number.update_many(normal(300, 1), np.append(classes(200), np.zeros(100, dtype=int)))
    assert alarm(number, "classes", "continuing")["raised"]


def test_promises_are_stated_and_add_up() -> None:
    summary = monitor(delta=0.02, run_length=500).summary()
    assert "at most 0.02" in summary["promise"]
    assert "n / 500" in summary["promise"]
    ever = [one for one in summary["alarms"] if one["kind"] == "ever"]
    continuing = [one for one in summary["alarms"] if one["kind"] == "continuing"]
    assert sum(1 / one["limit"] for one in ever) == pytest.approx(0.02)
    assert sum(1 / one["limit"] for one in continuing) == pytest.approx(1 / 500)
    assert "at most 0.005" in ever[0]["promise"]
    assert "2000 images or more" in continuing[0]["promise"]


def test_history_is_bounded_and_ends_with_the_present() -> None:
    made = Monitor(normal(20), capacity=64, window=5)
    made.update_many(np.tile(normal(50, 1), 50))
    history = made.history()
    assert len(history["images"]) <= 1025
    assert history["images"][-1] == 2500
    steps = np.diff(history["images"])
    assert len(set(steps[:-1].tolist())) == 1
    assert history["unusual (ever)"][-1] == alarm(made, "unusual", "ever")["log10_evidence"]
    json.dumps(history, allow_nan=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delta": 0}, "delta=0"),
        ({"run_length": 0.5}, "run_length=0.5"),
        ({"every": 0}, "every=0"),
        ({"seed": -1}, "seed=-1"),
        ({"window": 0}, "window=0"),
        ({"capacity": 3}, "capacity=3"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        monitor(**options)


def test_bad_input_is_refused_and_changes_nothing() -> None:
    made = monitor()
    for prediction in (-1, 1.5, True, 10**9):
        with pytest.raises(InputError, match="prediction="):
            made.update(0.0, prediction)  # type: ignore[arg-type]
    assert made.images == 0
    with pytest.raises(InputError, match="no scores"):
        Monitor([])


def test_a_thinned_history_is_restored_as_it_was() -> None:
    whole, first = History(2), History(2)
    for image in range(1, 5000):
        whole.add(image, [image, -image])
        if image <= 3333:
            first.add(image, [image, -image])
    again = History(2)
    again.restore({name: array.copy() for name, array in first.state().items()})
    for image in range(3334, 5000):
        again.add(image, [image, -image])
    assert again.images == whole.images
    assert np.array_equal(again.rows, whole.rows)
    assert len(whole.images) < 1024
    assert np.array_equal(whole.rows[:, 0], whole.images)
