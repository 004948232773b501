"""The promise from the shell: --alpha and --confidence without fitting again, --fdr for all images together."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from adascale import OODDetector, load_network
from adascale.decision import folders
from adascale.storage.rows import Journal
from tests.images.pictures import picture
from tests.shell import inside, rows


@pytest.fixture
def fitted(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with detectors of two methods, fitted on 100 images, and with 25 new images, five of them odd."""
    for i in range(30, 100):
        picture(seed=i).save(place / "id" / f"{i}.png")
    (place / "new").mkdir()
    for i in range(20):
        picture(seed=1000 + i).save(place / "new" / f"{i:02d}.png")
    for i in range(5):
        Image.fromarray(np.full((20, 20, 3), 40 * i, np.uint8)).save(place / "new" / f"odd{i}.png")
    base = ["fit", place / "id", "--model", f"{place / 'nets.py'}:Net", "--method", "scale", "--method", "mls"]
    assert inside(monkeypatch, *base, "-o", place / "both") == 0
    return place


def test_alpha_and_confidence_at_scoring_time(
    fitted: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    detector, network = fitted / "both" / "scale.safetensors", load_network(f"{fitted / 'nets.py'}:Net")[0]
    for options, alpha, confidence in (
        (["--alpha", "0.2"], 0.2, None),
        (["--confidence", "0.9"], None, 0.9),
        (["--alpha", "0.2", "--confidence", "0.9"], 0.2, 0.9),
    ):
        capsys.readouterr()
        assert inside(monkeypatch, "score", fitted / "id", "-d", detector, *options, "-o", fitted / "s.csv") == 0
        loaded = OODDetector.load(detector, network, alpha=alpha, confidence=confidence)
        assert loaded.guarantee in capsys.readouterr().err
        flagged = [float(row["score"]) > loaded.threshold for row in rows(fitted / "s.csv")]
        assert [row["is_ood"] == "true" for row in rows(fitted / "s.csv")] == flagged
        assert any(flagged)
    loaded.save(fitted / "sure.safetensors", model=f"{fitted / 'nets.py'}:Net")
    assert inside(monkeypatch, "score", fitted / "id", "-d", fitted / "sure.safetensors", "--no-confidence") == 0
    assert "20 % of fresh in-distribution images are flagged on average" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")
def test_a_run_with_another_promise_does_not_resume(
    fitted: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    detector = fitted / "both" / "scale.safetensors"
    base = ["score", fitted / "id", "-d", detector, "-o", fitted / "s.csv", "--batch-size", "10"]
    interrupted = _interrupt_after(monkeypatch, 3)
    assert inside(monkeypatch, *base, "--alpha", "0.3") == 130
    assert interrupted
    monkeypatch.undo()
    capsys.readouterr()
    assert (
        inside(monkeypatch, *base, "--alpha", "0.3", "--fdr", "0.2") == 0
    )  # the share of discoveries is no part of it
    assert "resuming after 30 of 100 images" in capsys.readouterr().err
    resumed = rows(fitted / "s.csv")
    assert "discovery" in resumed[0]
    _interrupt_after(monkeypatch, 3)
    assert inside(monkeypatch, *base, "--alpha", "0.3") == 130
    monkeypatch.undo()
    capsys.readouterr()
    assert inside(monkeypatch, *base, "--alpha", "0.01") == 0
    assert "resuming" not in capsys.readouterr().err
    strict, loose = (sum(row["is_ood"] == "true" for row in table) for table in (rows(fitted / "s.csv"), resumed))
    assert strict <= 1 < 20 < loose


def _interrupt_after(monkeypatch: pytest.MonkeyPatch, batches: int) -> list[int]:
    """Ctrl-C after so many batches. Returns a list that is not empty once it happened."""
    score_images, happened = folders.score_images, list[int]()

    def interrupted(*args: object) -> object:
        for i, batch in enumerate(score_images(*args)):  # type: ignore[arg-type]
            if i == batches:
                happened.append(i)
                raise KeyboardInterrupt
            yield batch

    monkeypatch.setattr(folders, "score_images", interrupted)
    return happened


@pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")
def test_discoveries_in_every_format(
    fitted: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    (fitted / "new" / "broken.png").write_text("not an image")
    base = ["score", fitted / "new", "-d", fitted / "both", "--fdr", "0.2"]
    for suffix in ("csv", "jsonl", "parquet"):
        assert inside(monkeypatch, *base, "-o", fitted / f"s.{suffix}") == 3
    lines = [json.loads(line) for line in (fitted / "s.jsonl").read_text().splitlines()]
    assert list(lines[0])[:5] == ["image", "mls.score", "mls.p_value", "mls.is_ood", "mls.discovery"]
    assert parquet.read_table(fitted / "s.parquet").to_pylist() == lines
    for method, marked in (("scale", 5), ("mls", 0)):
        p = sorted(line[f"{method}.p_value"] for line in lines if not line["image"].endswith("broken.png"))
        largest = max((value for i, value in enumerate(p, 1) if value <= 0.2 * i / 25), default=0)
        assert [line["image"] for line in lines if line[f"{method}.discovery"] is None] == [f"{fitted}/new/broken.png"]
        others = [line for line in lines if not line["image"].endswith("broken.png")]
        assert [line[f"{method}.discovery"] for line in others] == [x[f"{method}.p_value"] <= largest for x in others]
        assert sum(line[f"{method}.discovery"] for line in others) == marked
    text = [{k: "" if v is None else str(v).lower() for k, v in line.items()} for line in lines]
    names = ("image", "scale.discovery", "mls.discovery")
    assert [[row[k] for k in names] for row in rows(fitted / "s.csv")] == [[row[k] for k in names] for row in text]
    capsys.readouterr()
    assert inside(monkeypatch, *base) == 3  # the same on stdout
    assert list(csv.DictReader(capsys.readouterr().out.splitlines())) == rows(fitted / "s.csv")
    assert inside(monkeypatch, *base, "-o", fitted / "s.csv", "--json") == 3
    assert json.loads(capsys.readouterr().out)["discoveries"] == {"mls.discovery": 0, "scale.discovery": 5}


def test_rows_that_wait_for_discoveries_are_not_lost(
    fitted: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _interrupt_after(monkeypatch, 2)
    detector = fitted / "both" / "mls.safetensors"
    capsys.readouterr()
    assert inside(monkeypatch, "score", fitted / "id", "-d", detector, "--fdr", "0.2", "--batch-size", "10") == 130
    printed = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [Path(row["image"]).name for row in printed] == [f"{i:02d}.png" for i in range(20)]
    assert all(row["score"] for row in printed)


@pytest.mark.filterwarnings("default::adascale.AdascaleWarning")
def test_too_few_calibration_images_for_discoveries_are_told(
    fitted: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert inside(monkeypatch, "score", fitted / "new", "-d", fitted / "both", "--fdr", "0.005") == 0
    words = "note: scale: --fdr 0.005: with 100 calibration images no p-value is below 1/101, so there can be no"
    assert words in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")
def test_inspect_says_what_is_promised_and_what_it_was_fitted_on(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    base = ["fit", "id", "--model", "nets.py:Net", "-o", "d.st", "--confidence", "0.95", "--json"]
    assert inside(monkeypatch, *base) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["fitted"] == {"date": "2023-11-14 22:13:20 UTC", "images": 30, "source": "id"}
    assert inside(monkeypatch, "inspect", "d.st") == 0
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if len(line.split()) > 1)
    assert shown["fitted.date"].strip() == "2023-11-14 22:13:20 UTC"
    assert float(shown["calibration.threshold"]) == record["calibration"]["threshold"]
    assert shown["calibration.guarantee"].strip() == record["calibration"]["guarantee"]
    assert "At most 13.9 % of fresh in-distribution images are flagged, with 95 %" in shown["calibration.guarantee"]
    assert shown["calibration.range"].startswith("0.3 to 13.9 %")


def test_a_journal_takes_rows_with_something_added(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "s.csv", key="k")
    journal.append([{"image": "a"}])
    journal.finish(["image", "discovery"], 1, ({**row, "discovery": True} for row in journal.rows()))
    assert rows(tmp_path / "s.csv") == [{"image": "a", "discovery": "true"}]
    assert not journal.path.exists()
