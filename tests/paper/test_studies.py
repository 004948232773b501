"""What all studies have in common: the paper's figures beside the measured ones, files, the report."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from adascale.paper import published as paper
from adascale.paper import studies
from adascale.paper.studies.comparisons import MethodComparison
from adascale.paper.studies.experiment import Experiment
from adascale.paper.studies.joint import Joint
from adascale.paper.studies.variants import Variation
from adascale.paper.studies.write import load_result, result_document, save_result, studies_page, write_page
from adascale.report.charts import plot
from adascale.report.document import Chart, Series
from adascale.report.markdown import to_markdown
from tests.paper.conftest import Run, named

pytestmark = pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")


def test_every_study_in_one_report(run: Run, tmp_path: Path) -> None:
    for study in studies.ALL:
        save_result(run(study.name), tmp_path)
    text = write_page(tmp_path, [study.name for study in studies.ALL]).read_text()
    assert re.findall(r'<section id="(.*?)">', text) == [study.name for study in studies.ALL]
    assert all(f'href="#{study.name}"' in text for study in studies.ALL)
    assert text.count("<svg") == sum(len(block.charts) for study in studies.ALL for block in run(study.name).blocks)
    assert all(any(block.charts for block in run(study.name).blocks) for study in studies.ALL)
    ids = re.findall(r' id="(.*?)"', text)
    assert len(ids) == len(set(ids))
    assert "http://" not in text.replace("http://www.w3.org", "")


def test_every_section_has_its_charts(run: Run) -> None:
    results = [run(name) for name in ("corruption", "adversarial", "ish", "shift", "q-ratio", "separation")]
    text = studies_page(results)
    assert text.count("<svg") == sum(len(block.charts) for result in results for block in result.blocks) > 10


def test_how_lines_are_drawn() -> None:
    """A band does not go where no value can be; hollow markers are explained."""
    series = [Series("a", [0.1, 0.2], spread=[0.3, 0.1]), Series("a", [0.1, 0.1], paper=True)]
    (axes,) = plot(Chart("lines", "T", series, ["x", "y"])).axes
    assert _lowest(axes) == 0
    assert axes.get_title("right") == "hollow: the paper"
    (below,) = plot(Chart("lines", "T", [Series("a", [-0.1, 0.2], spread=[0.3, 0.1])], ["x", "y"])).axes
    assert _lowest(below) == pytest.approx(-0.4)


def _lowest(axes: Any) -> float:
    """Where the first band of a plot reaches down to."""
    return float(axes.collections[0].get_paths()[0].vertices[:, 1].min())


def test_files_and_back(run: Run, tmp_path: Path) -> None:
    result = run("lambda")
    assert [path.name for path in save_result(result, tmp_path)] == ["lambda.csv", "lambda.md", "lambda.json"]
    again = load_result(tmp_path / "lambda.json")
    assert json.dumps(again.document()) == json.dumps(result.document())
    assert (
        to_markdown(result_document(again))
        == to_markdown(result_document(result))
        == (tmp_path / "lambda.md").read_text()
    )
    assert studies_page([again]) == studies_page([result])
    with open(tmp_path / "lambda.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 7 * 4
    assert rows[0]["measured"] == f"{result.blocks[0].lines[0].cells['ood.near.fpr95'].measured:.4f}"
    for text in ('{"format": "other"}', "[]", "{", '{"format": "adascale-study", "format_version": 1}'):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(ValueError, match=r"x\.json"):
            load_result(tmp_path / "x.json")


@pytest.mark.parametrize("name", ["imagenet/resnet-50", "imagenet/vit-b-16"])
def test_every_figure_of_the_paper_has_its_place(experiment: Experiment, name: str) -> None:
    """The rows of a study are called as those of the paper's tables: no figure is left without a row."""
    here, place = named(experiment, name), paper.place(name)
    for study in studies.ALL:
        table = (study.table if isinstance(study, MethodComparison) else "") or study.name
        wanted = [line for line in paper.lines("figures") if (line["table"], line["network"]) == (table, place.network)]
        if not wanted or not isinstance(study, MethodComparison | Variation | Joint):
            continue
        shown_ones = {
            (each.label, key): cell.paper
            for block in study.run(here).blocks
            for each in block.lines
            for key, cell in each.cells.items()
            if cell.paper is not None
        }
        assert shown_ones == _wanted(wanted, isinstance(study, MethodComparison) and study.claim), study.name


def _wanted(lines: list[dict[str, str]], claim: bool) -> dict[tuple[str, str], float]:
    """(label, column) -> figure of the paper."""
    found: dict[tuple[str, str], float] = {}
    for each in lines:
        adaptive = each["row"].startswith("adascale_")
        labels = [f"{each['row']}{part}" for part in (" (preset)", *([" (k2=5 %)"] if claim else []))]
        for label in labels if adaptive else [each["row"]]:
            column = each["kind"] if each["kind"] == "val" else f"{each['spectrum']}.{each['kind']}"
            found |= {(label, f"{column}.{key}"): float(each[key]) for key in ("fpr95", "auroc") if each[key]}
    return found


def test_a_second_run_needs_no_network(experiment: Experiment, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    first = {study.name: run(study.name) for study in studies.ALL}

    def refuse(*_: object) -> None:
        raise AssertionError("a network pass")

    monkeypatch.setattr("adascale.extraction.cache.extract_batch", refuse)
    monkeypatch.setattr("adascale.extraction.cache.extract_needs", refuse)
    for study in studies.ALL:
        if study.name != "latency":  # whose times are never the same
            assert study.run(experiment) == first[study.name], study.name
