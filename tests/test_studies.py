"""`adascale study`: rows, relations that hold by construction, files, the report."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from adascale import Preprocess, digits, paper, studies
from adascale.benchmark import Network
from adascale.model import Classifier
from adascale.studies.base import Block, Cell, Column, Line, Result
from adascale.studies.page import page
from adascale.studies.setting import Setting, Subject
from adascale.studies.write import DASH, load, markdown, save, shown
from adascale.suites import load_suite, open_suite
from tests.shell import inside

pytestmark = pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")
Run = Callable[[str], Result]


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    """The digits with 90 images of each set and a quickly trained network."""
    suite = load_suite("digits")
    images, preprocess = open_suite(suite, limit=90), Preprocess(**digits.PREPROCESS)
    data, labels = digits.load_digits().train
    network = digits.train_network(torch.stack(list(map(preprocess, data))), labels, epochs=3)
    subject = Subject(Network("digits", Classifier(network), preprocess))
    return Setting(suite, images, [subject], tmp_path_factory.mktemp("cache"), options={"batch_size": 90})


@pytest.fixture(scope="module")
def run(setting: Setting) -> Run:
    """Each study once."""
    found: dict[str, Result] = {}
    return lambda name: found[name] if name in found else found.setdefault(name, studies.get(name).run(setting))


def named(setting: Setting, *places: str) -> Setting:
    """The same network under these names of the paper."""
    network = setting.subjects[0].network
    subjects = [Subject(replace(network, name=text), paper.place(text)) for text in places]
    return replace(setting, subjects=subjects)


def line(block: Block, label: str) -> dict[str, float | None]:
    (found,) = (each for each in block.lines if each.label == label)
    return {key: cell.measured for key, cell in found.cells.items()}


def test_one_parameter_at_a_time(run: Run) -> None:
    (block,) = run("lambda").blocks
    assert [each.label for each in block.lines] == [f"lambda={v}" for v in ("0", "0.1", "1", "10", "20", "30", "100")]
    assert [column.key for column in block.columns] == [
        f"ood.{kind}.{figure}" for kind in ("near", "far") for figure in ("fpr95", "auroc")
    ]
    assert line(block, "lambda=10") == line(run("epsilon").blocks[0], "epsilon=0.5")
    assert line(block, "lambda=10") == line(run("k2").blocks[0], "k2=5")
    assert all(
        50 < (cell.measured or 0) <= 100 for each in block.lines for k, cell in each.cells.items() if "auroc" in k
    )


def test_the_papers_columns_only_where_network_and_data_match(setting: Setting, run: Run) -> None:
    assert all(not column.part for column in shown(run("lambda").blocks[0]))
    resnet, densenet = studies.get("lambda").run(named(setting, "imagenet/resnet-50", "cifar10/densenet-101")).blocks
    assert [column.part for column in shown(resnet)] == ["paper", "measured", "difference"] * 4
    assert all(not column.part for column in shown(densenet))
    cells = {each.label: each.cells["ood.near.fpr95"] for each in resnet.lines}
    assert cells["lambda=10"].paper == 58.97
    assert cells["lambda=10"].difference == pytest.approx((cells["lambda=10"].measured or 0) - 58.97)
    assert cells["lambda=20"].paper is None


def test_files_and_back(run: Run, tmp_path: Path) -> None:
    result = run("lambda")
    assert [path.name for path in save(result, tmp_path)] == ["lambda.csv", "lambda.md", "lambda.json"]
    again = load(tmp_path / "lambda.json")
    assert json.dumps(again.document()) == json.dumps(result.document())
    assert markdown(again) == markdown(result) == (tmp_path / "lambda.md").read_text()
    assert page([again]) == page([result])
    with open(tmp_path / "lambda.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 7 * 4
    assert rows[0]["measured"] == f"{result.blocks[0].lines[0].cells['ood.near.fpr95'].measured:.4f}"
    for text in ('{"format": "other"}', "[]", "{", '{"format": "adascale-study", "format_version": 1}'):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(ValueError, match=r"x\.json"):
            load(tmp_path / "x.json")


def test_what_is_printed() -> None:
    block = Block("n", [Column("k", "FPR@95")], [Line("a", {"k": Cell(12.345, 10.0, 0.5)}), Line("b", {})])
    text = markdown(Result("s", "T", "t", "Q?", "suite", [block]))
    assert "| a | 10.00 | 12.35 ± 0.50 | +2.35 |" in text
    assert f"| b | {DASH} | {DASH} | {DASH} |" in text


def test_from_the_shell(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    calls = place / "calls"
    monkeypatch.setenv("CALLS", str(calls))
    (place / "n").mkdir()
    for i in range(10):
        (place / "id" / f"{i:02d}.png").rename(place / "n" / f"{i:02d}.png")
    own = ["--id", place / "id", "--near", place / "n", "--model", f"{place / 'nets.py'}:Net", "--out", place / "o"]
    assert inside(monkeypatch, "study", "lambda", *own, "--preset", "imagenet/resnet-50", "--set", "k2=20") == 0
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
        (["lambda", "--model", "digits"], "--model without images"),
        (["lambda", "--preset", "imagenet/resnet-49"], "No preset for imagenet/resnet-49"),
        (["lambda", "--preset", "cifar10/wrn-28-10", "--preset", "cifar10/wrn-28-10"], "1 networks and 2 --preset"),
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
