"""The demo: real images, no network, the same every time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adascale import OODDetector, detectors, load_network, store
from adascale.demo import run


def test_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path / "a", as_json=True)
    first = json.loads(capsys.readouterr().out)
    assert first["accuracy"] > 0.97
    assert {row["method"] for row in first["methods"]} == {cls.name for cls in detectors.ALL}
    worse_than_chance = [row["method"] for row in first["methods"] if row["far_auroc"] < 50]
    assert worse_than_chance == []
    best = first["methods"][0]
    assert best["near_auroc"] > 95
    assert best["far_auroc"] > 95
    truth = [row["image"].startswith("known") for row in first["verdicts"]]
    assert [not row["is_ood"] for row in first["verdicts"]] == truth
    run(tmp_path / "b", as_json=True)
    assert json.loads(capsys.readouterr().out) == first
    about = store.read(tmp_path / "a" / "detector.safetensors")[1]["about"]
    network, _ = load_network(about["model"], about["weights"])
    detector = OODDetector.load(tmp_path / "a" / "detector.safetensors", network)
    assert detector.guarantee == first["guarantee"]


def test_the_printed_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, names=["adascale_a", "ebo"])
    out = capsys.readouterr().out
    assert "scale " not in out.replace("adascale", "")
    assert "adascale_a (p 80 to 85)" in out
    assert "out-of-distribution" in out
    assert "At most 5 %" in out
