"""The demo: real images, no network, the same every time."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from adascale import OODDetector, detectors, load_network
from adascale.bench.run import DEFAULT
from adascale.cli.commands import DemoCommand
from adascale.cli.demo import demo
from adascale.decision.detector_file import DetectorFile


def test_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo(DemoCommand(out=tmp_path / "a", as_json=True, every_method=True))
    first = json.loads(capsys.readouterr().out)
    assert first["accuracy"] > 0.97
    labels = {f"{cls.name} (tuned)" if cls.tuned_by_default else cls.name for cls in detectors.ALL}
    labels.remove("mc_dropout")  # the network of the digits has no dropout
    assert {row["method"] for row in first["methods"]} == labels
    auroc = {(row["method"], row["kind"]): row["auroc"] for row in first["methods"]}
    assert [key for key, value in auroc.items() if key[1] == "far" and value < 0.5] == []
    for kind in ("near", "far"):
        assert auroc[f"{DEFAULT} (tuned)", kind] > 0.95
    assert "chosen from 45 by AUROC" in first["setting"]
    truth = [row["image"].startswith("known") for row in first["verdicts"]]
    assert [not row["is_ood"] for row in first["verdicts"]] == truth
    demo(DemoCommand(out=tmp_path / "b", as_json=True))
    second = json.loads(capsys.readouterr().out)
    assert all(second[key] == first[key] for key in ("accuracy", "verdicts", "guarantee", "setting"))
    assert all(row in first["methods"] for row in second["methods"])
    few = {row["method"] for row in second["methods"]}  # what a newcomer sees first: nothing that is not deployed so
    assert 8 <= len(few) <= 12
    assert few >= {*(label for label in labels if label.endswith(" (tuned)")), "scale", "ebo", "msp"}
    about = DetectorFile.read(tmp_path / "a" / "detector.safetensors").record["about"]
    network, _ = load_network(about["model"], about["weights"])
    detector = OODDetector.load(tmp_path / "a" / "detector.safetensors", network)
    assert detector.guarantee == first["guarantee"]
    assert "<svg" in (tmp_path / "a" / "report.html").read_text()


def test_the_printed_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo(DemoCommand(out=tmp_path, method=["combined", "ebo"]))
    out = capsys.readouterr().out
    assert "What to take from it: combined (tuned), which adascale fit gives you, scores an unseen digit above" in out
    (sentence,) = json.loads((tmp_path / "results.json").read_text())["headline"]
    assert sentence.startswith("ebo has the highest near-OOD AUROC")
    verdict = "more than" if "more than chance" in sentence else "within"
    assert re.search(rf"ebo does best on the digits \([\d.]+ %; the difference is {verdict} chance\), but", out)
    assert "near-OOD: the digits 8 and 9; far-OOD: patches of photographs." in out
    assert "scale " not in out.replace("adascale", "")
    assert "combined (tuned)" in out
    assert "out-of-distribution" in out
    assert "At most 5 %" in out
    assert "report.html" in out
