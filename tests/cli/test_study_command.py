"""`adascale study` from the shell: tables, files, mistakes; the charts of every kind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from adascale.network.trained import Registered, write_network_list
from adascale.paper import studies
from adascale.paper.studies.base import Block, Result
from adascale.paper.studies.write import result_document
from adascale.report.charts import plot
from adascale.report.document import DASH, Cell, Chart, Column, Line, Series
from adascale.report.markdown import to_markdown
from adascale.report.svg import figure_bytes
from tests.shell import inside

pytestmark = pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")
PLACES = ["--preset", "cifar10/wrn-28-10", "--preset", "cifar10/densenet-101"]


def test_what_is_printed() -> None:
    block = Block("n", [Column("k", "FPR@95")], [Line("a", {"k": Cell(12.345, 10.0, 0.5)}), Line("b", {})])
    text = to_markdown(result_document(Result("s", "T", "t", "Q?", "suite", [block])))
    assert "| a | 10.00 | 12.35 ± 0.50 | +2.35 |" in text
    assert f"| b | {DASH} | {DASH} | {DASH} |" in text


def near(place: Path) -> Path:
    """Ten of the thirty images in a folder of their own."""
    (place / "n").mkdir()
    for i in range(10):
        (place / "id" / f"{i:02d}.png").rename(place / "n" / f"{i:02d}.png")
    return place / "n"


def test_from_the_shell(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    calls = place / "calls"
    monkeypatch.setenv("CALLS", str(calls))
    own = ["--id", place / "id", "--near", near(place), "--model", f"{place / 'nets.py'}:Net", "--out", place / "o"]
    assert inside(monkeypatch, "study", "lambda", *own, "--preset", "imagenet/resnet-50", "--set", "k2=5") == 0
    out = capsys.readouterr().out
    assert "Net (imagenet/resnet-50): Near-OOD" in out
    assert "58.97" in out
    passed = calls.read_text()
    assert passed
    assert inside(monkeypatch, "study", "lambda", "k2", *own, "--json") == 0
    assert calls.read_text() == passed  # all from the cache
    first, second = json.loads(capsys.readouterr().out)
    assert (first["study"], second["study"]) == ("lambda", "k2")
    text = (place / "o" / "report.html").read_text()
    assert text.count("<section") == 2
    assert "study lambda k2 --id" in text
    assert inside(monkeypatch, "study", "k1", *own) == 0
    sections = [
        name for name in ("lambda", "k1", "k2") if f'<section id="{name}">' in (place / "o/report.html").read_text()
    ]
    assert sections == ["lambda", "k1", "k2"]


def test_the_seeds_of_a_recipe(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that training listed in a networks.json: mean and deviation over them."""
    source, trained = (place / "nets.py").read_text(), place / "trained"
    trained.mkdir()
    entries = []
    for seed in (0, 1):
        scope: dict[str, Any] = {}
        exec(source.replace("manual_seed(0)", f"manual_seed({seed})"), scope)
        save_file(scope["Net"]().state_dict(), trained / f"{seed}.safetensors")
        entries.append(Registered(f"seed {seed}", f"{place / 'nets.py'}:Net", trained / f"{seed}.safetensors", {}))
    write_network_list(trained, entries)
    own = ["--id", place / "id", "--near", near(place), "--model", trained, "--out", place / "o"]
    assert inside(monkeypatch, "study", "cifar", *own, "--no-report", "--json") == 0
    (result,) = json.loads(capsys.readouterr().out)
    titles = [block["title"] for block in result["blocks"]]
    assert titles == ["mean and deviation over 2 networks", "seed 0", "seed 1"]
    mean, *each = ([line["cells"]["ood.near.auroc"] for line in block["lines"]] for block in result["blocks"])
    for cell, first, second in zip(mean, *each, strict=True):
        assert cell["measured"] == pytest.approx((first["measured"] + second["measured"]) / 2)
        assert cell["spread"] == pytest.approx(abs(first["measured"] - second["measured"]) / 2**0.5)
    assert inside(monkeypatch, "study", "cifar", *own, "--weights", trained / "0.safetensors") == 2
    assert "which names its own" in capsys.readouterr().err


def test_an_image_that_cannot_be_read(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ["--id", place / "id", "--near", near(place), "--model", f"{place / 'nets.py'}:Net", "--out", place / "o"]
    (place / "n" / "00.png").write_bytes(b"nothing")
    assert inside(monkeypatch, "study", "k1", *own, "--no-report") == 3
    captured = capsys.readouterr()
    assert f"1 image of n could not be read, such as {place / 'n' / '00.png'}" in " ".join(captured.out.split())
    assert "1 of 20 images could not be read" in captured.err


def test_of_all_studies_those_that_cannot_be_run_are_left_out(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ["--id", place / "id", "--near", near(place), "--model", f"{place / 'nets.py'}:Net", "--out", place / "o"]
    monkeypatch.setattr(studies, "ALL", [studies.get("one-knob"), studies.get("k1")])
    (place / "o").mkdir()
    for name in ("one-knob.json", "one-knob.csv", "one-knob.md", "k2.json"):
        (place / "o" / name).write_text("of an older run")
    assert inside(monkeypatch, "study", "all", *own, "--no-report") == 0
    assert "left out one-knob: 10 ID images are too few to tune on" in capsys.readouterr().err
    assert sorted(path.name for path in (place / "o").iterdir()) == ["k1.csv", "k1.json", "k1.md", "k2.json"]
    assert inside(monkeypatch, "study", "one-knob", *own, "--no-report") == 2


def test_a_report_of_several_runs_says_so(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ["--near", near(place), "--model", f"{place / 'nets.py'}:Net", "--out", place / "o"]
    page, words = place / "o" / "report.html", "Not all sections are of the same"
    assert inside(monkeypatch, "study", "k1", "lambda", "--id", place / "id", *own) == 0
    assert words not in page.read_text()
    assert inside(monkeypatch, "study", "k1", "--id", place / "id", *own, "--limit", "5", "--limit-fit", "5") == 0
    assert f"{words} images; do not compare across them." in page.read_text()
    assert (
        "<li>30 images of the suite id, on Net: lambda</li><li>15 images of the suite id, on Net: k1</li>"
        in page.read_text()
    )
    assert inside(monkeypatch, "study", "k1", "--id", f"other={place / 'id'}", *own) == 0
    assert f"{words} suite; " in page.read_text()
    (place / "nets.py").write_text((place / "nets.py").read_text().replace("manual_seed(0)", "manual_seed(1)"))
    assert inside(monkeypatch, "study", "k1", "--id", place / "id", *own) == 0
    assert f"{words} networks; " in page.read_text()


def test_the_list(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert inside(monkeypatch, "study", "list", "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in listed] == [study.name for study in studies.ALL]
    assert all(all(entry.values()) for entry in listed)
    assert inside(monkeypatch, "study", "list") == 0
    out = capsys.readouterr().out
    assert all(study.name in out for study in studies.ALL)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["magic"], "There is no study 'magic'"),
        (["all", "lamda"], "There is no study 'lamda'"),
        (["lambda", "--model", "digits"], "--model without images"),
        (["lambda", "--preset", "resnet-50"], "give DATA/NETWORK"),
        (["lambda", "--preset", "imagenet/resnet-49"], "No preset for imagenet/resnet-49"),
        (["lambda", "--suite", "digits", "--model", "nets.py:Net", *PLACES], "1 networks and 2 --preset"),
        (["lambda", "--set", "nothing=1"], "no parameter 'nothing'"),
        (["lambda", "--out", "nets.py"], "is a file; give a folder"),
        (["lambda", "--suite", "nothing"], "There is no suite nothing"),
    ],
)
def test_mistakes_are_told_in_one_line(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(place)
    assert inside(monkeypatch, "study", *arguments) == 2
    assert words in capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.parametrize("kind", ["lines", "dots", "bars", "steps", "grid"])
def test_charts_of_every_kind(kind: Any) -> None:
    x = (0.0, 1.0, 2.0, 3.0) if kind == "steps" else ()
    labels = () if kind == "steps" else ("a", "b_$", "c")
    spread = (0.1, 0.2, 0.3) if kind in ("lines", "dots") else ()
    known, far = Series("id", (1.0, 2.0, 3.0), x, spread), Series("far", (2.0, None, 1.0), x)
    series = [known, far, replace(far, y=(2.5, 2.0, 1.0), paper=True)]
    text = figure_bytes(plot(Chart(kind, "A title", series, labels, "over", "quantity")), "svg").decode()
    assert "A title" in text
    assert "quantity" in text
    assert ("hollow: the paper" in text) == (kind != "grid")
    assert ("c</text>" in text) == bool(labels)
