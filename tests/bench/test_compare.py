"""`compare`: what changed between two runs, and whether it is more than chance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import load_file, save_file

from adascale import metrics
from adascale.bench.compare import compare
from tests.bench.runs import METHODS, bench
from tests.shell import inside

pytestmark = pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")


def test_compare_tells_chance_from_change(
    suite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing prints `-> None`; each change has its paired interval; what one run has alone takes one line."""
    bench(suite, monkeypatch, "a", *METHODS)
    bench(suite, monkeypatch, "b", "--method", "all", "--set", "scale.percentile=60", "--set", "knn.k=5")
    found = compare(suite / "a", suite / "b")
    scores = [load_file(suite / out / "scores.safetensors") for out in ("a", "b")]
    for row in found.moved:
        before, after = ([one[f"Net/{row.method}/{name}"] for name in ("id", row.dataset[0])] for one in scores)
        exact = metrics.paired_bootstrap(after, before)
        assert row.change == pytest.approx(100 * exact.value, abs=1e-9)
        assert row.interval == pytest.approx((100 * exact.low, 100 * exact.high))
        assert row.beyond_chance == exact.beyond_chance
    capsys.readouterr()
    assert inside(monkeypatch, "compare", suite / "a", suite / "b") == 0
    told = capsys.readouterr()
    assert "None" not in told.out
    assert "unchanged: msp" in told.out
    assert len(told.out.splitlines()) < 15
    assert sum(line.startswith("only in") for line in told.out.splitlines()) == 2
    assert "adascale bench --untuned" in told.err  # a has adascale_a, b has it tuned


def test_compare_with_scores_that_are_old_damaged_or_missing(
    suite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench(suite, monkeypatch, "a", *METHODS)
    bench(suite, monkeypatch, "b", *METHODS, "--set", "scale.percentile=60")
    file = suite / "b" / "scores.safetensors"
    whole, intervals = file.read_bytes(), [row.interval for row in compare(suite / "a", suite / "b").moved]
    save_file(load_file(file), file)  # as older versions wrote it: no checksum
    assert [row.interval for row in compare(suite / "a", suite / "b").moved] == intervals
    file.write_bytes(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:])
    found = compare(suite / "a", suite / "b")
    assert {row.interval for row in found.moved} == {None}
    assert "does not match its checksum" in found.notes[0]
    file.unlink()
    capsys.readouterr()
    assert inside(monkeypatch, "compare", suite / "a", suite / "b") == 0
    assert "has no scores.safetensors, so there are no intervals" in capsys.readouterr().err


def test_compare_gives_no_interval_where_the_images_differ(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench(suite, monkeypatch, "a", *METHODS)
    pixels = np.load(suite / "near.npz")["images"]
    np.savez(suite / "near.npz", images=255 - pixels)
    bench(suite, monkeypatch, "b", *METHODS)
    found = compare(suite / "a", suite / "b")
    assert found.other_sets == ["n"]
    assert {row.dataset: row.interval is None for row in found.moved} == {"nearood": True, "farood": False}
    assert len(found.notes) == 1
    assert found.notes[0].startswith("nearood: no interval, ")
    assert found.notes[0].endswith("for the images differ (n has other images)")


def test_compare_ignores_a_set_that_was_left_out(
    suite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One run had a set that could not be read: the means are over the same sets, and are compared."""
    (suite / "bad").mkdir()
    for name in ("a.png", "b.png"):
        (suite / "bad" / name).write_bytes(b"no image")
    text = (suite / "suite.toml").read_text()
    (suite / "bad.toml").write_text(text.replace("[far]", 'bad = "bad"\n[far]'))
    bench(suite, monkeypatch, "a", *METHODS)
    command = ["bench", suite / "bad.toml", "--model", f"{suite / 'nets.py'}:Net", "--no-report", "--out"]
    assert inside(monkeypatch, *command, suite / "b", *METHODS, "--set", "scale.percentile=60") == 3
    found = compare(suite / "a", suite / "b")
    assert (found.other_sets, found.notes) == ([], ())
    assert None not in {row.interval for row in found.moved}
    capsys.readouterr()
    assert inside(monkeypatch, "compare", suite / "a", suite / "b") == 0
    assert "cannot be compared" not in (told := capsys.readouterr().err)
    assert "differ" not in told
    Image.fromarray(np.zeros((20, 20, 3), np.uint8)).save(suite / "bad" / "a.png")
    assert inside(monkeypatch, *command, suite / "c", *METHODS) == 3
    for first, second, why in (
        ("b", "c", "bad could not be read in the first run"),
        ("c", "a", "bad is in the first run only"),
    ):
        found = compare(suite / first, suite / second)
        assert {row.dataset: row.interval is None for row in found.moved} == {"nearood": True, "farood": False}
        assert found.notes[0].endswith(f"for the images differ ({why})")


def test_compare_says_in_one_line_why_intervals_are_empty(
    suite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """bench, then bench --limit 15 --limit-fit 60: other images in every set."""
    bench(suite, monkeypatch, "a", *METHODS)
    bench(suite, monkeypatch, "b", *METHODS, "--limit", "15", "--limit-fit", "60")
    capsys.readouterr()
    assert inside(monkeypatch, "compare", suite / "a", suite / "b") == 0
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
    assert notes == [
        "note: nearood, farood: no interval, and a change is not that of the methods alone, for the images differ "
        "(f has 20 and 15 images; id has 40 and 15 images; n has 20 and 15 images).",
        "note: the methods learned from other images (val has 70 and 60 images).",
    ]


def test_a_line_that_stands_for_two_is_compared_with_both(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adascale.detectors.SCALE.search_space", {"percentile": (65,)})
    bench(suite, monkeypatch, "old", "--method", "scale", "--tune", "self")
    monkeypatch.setattr("adascale.detectors.SCALE.search_space", {"percentile": (85,)})
    bench(suite, monkeypatch, "new", "--method", "scale", "--tune", "self")
    found = compare(suite / "old", suite / "new")
    assert {row.method for row in found.moved} == {"scale", "scale (tuned)"}
    assert found.only == ([], [])
