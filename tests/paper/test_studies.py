"""`adascale study`: rows, relations that hold by construction, files, the report."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from adascale import detectors
from adascale.decision.tuning import TOLERANCE
from adascale.paper import figures as paper
from adascale.paper import studies
from adascale.paper.studies.headline import Comparison
from adascale.paper.studies.joint import Joint
from adascale.paper.studies.setting import Setting
from adascale.paper.studies.variation import Variation
from adascale.paper.studies.write import load_result, result_document, save_result, studies_page, write_page
from adascale.report.markdown import to_markdown
from tests.studying import Run, line, named

pytestmark = pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")


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


def test_no_range_of_percentiles_is_scale_or_lts(run: Run) -> None:
    """By construction, to the last bit."""
    (lower,), (upper,) = run("p-min").blocks, run("p-max").blocks
    assert line(lower, "p_min=85") == line(lower, "scale at 85")
    assert line(lower, "L: p_min=85") == line(lower, "lts at 85")
    assert line(upper, "p_max=60") == line(upper, "scale at 60")
    assert line(upper, "L: p_max=60") == line(upper, "lts at 60")
    assert line(lower, "p_min=60") == line(upper, "p_max=85")
    assert line(lower, "p_min=60") != line(lower, "p_min=85")


def test_without_q_the_statistic_is_c_o(run: Run) -> None:
    statistic = run("statistic").blocks[0]
    assert line(run("lambda").blocks[0], "lambda=0") == line(statistic, "C_o")
    assert line(run("lambda").blocks[0], "lambda=10") == line(statistic, "lambda Q + C_o")
    assert line(run("q-vs-qprime").blocks[0], "Q") == line(statistic, "Q")
    assert line(run("q-vs-qprime").blocks[0], "Q'") == line(statistic, "lambda Q + C_o")
    assert [each.label for each in statistic.lines] == [
        *("Q as the score", "Q", "C_o", "lambda Q + C_o", "top k2 of a", "lambda Q + top k2 of a")
    ]
    assert len({tuple(each.cells.items()) for each in statistic.lines}) == 6


def test_more_images_differ_less_from_draw_to_draw(run: Run) -> None:
    (block,) = run("n-val").blocks
    few, _, many = block.lines
    assert [each.label for each in block.lines] == ["n=10", "n=100", "n=110"]
    assert all((cell.spread or 0) > 0 for cell in few.cells.values())
    assert all(cell.spread == pytest.approx(0, abs=1e-9) for cell in many.cells.values())
    whole = {key: cell.measured for key, cell in many.cells.items()}
    assert whole == pytest.approx(line(run("lambda").blocks[0], "lambda=10"))


def test_pixels_and_the_full_spectrum(setting: Setting, run: Run) -> None:
    result = run("perturbation")
    (block,) = result.blocks
    assert [each.label for each in block.lines] == [
        *(f"{pixels} {share} %" for pixels in ("random", "trivial", "salient") for share in (1, 5, 10, 50)),
        "all",
    ]
    assert len(block.columns) == 8
    assert line(block, "trivial 5 %")["ood.far.auroc"] == line(run("lambda").blocks[0], "lambda=10")["ood.far.auroc"]
    assert line(block, "all")["ood.near.auroc"] == line(run("o").blocks[0], "o=100")["ood.near.auroc"]
    assert line(block, "trivial 5 %") != line(block, "salient 5 %")
    assert list(setting.full.shifted) == ["noise:3", "blur:3", "jpeg:3", "brightness:3", "contrast:3"]
    assert sum(map(len, setting.full.shifted.values())) == len(setting.images.id)
    assert any("corrupted, a fifth of them each" in note for note in result.notes)
    full = run("fsood").blocks[0]
    assert line(full, "adascale_a")["full.near.auroc"] == line(block, "trivial 5 %")["full.near.auroc"]


def test_joint_grids(run: Run) -> None:
    first, second, third, validation = run("joint").blocks
    assert [len(block.lines) for block in (first, second, third, validation)] == [12, 15, 20, 81]
    assert line(first, "lambda=10 p_max=85") == line(run("lambda").blocks[0], "lambda=10")
    assert (
        line(first, "lambda=10 p_max=95") == line(second, "k1=1 p_max=95") == line(run("p-max").blocks[0], "p_max=95")
    )
    assert line(third, "k1=50 lambda=10") == line(run("k1").blocks[0], "k1=50")
    assert "outliers made from them" in validation.note
    chart = validation.charts[0]
    assert (len(chart.series), len(chart.labels)) == (9, 9)
    assert all(value is not None for series in chart.series for value in series.y)


def test_the_headline_table(setting: Setting, run: Run) -> None:
    (block,) = run("main").blocks
    tuned = {"adascale_a (tuned)", "adascale_l (tuned)"}
    shown_ones = {each.label for each in block.lines}
    assert shown_ones | {"vim", "residual"} == {cls.name for cls in detectors.ALL} | tuned
    assert "Left out: vim: vim with dim=256 got 110 samples" in block.note
    assert [column.title for column in block.columns] == ["FPR@95", "AUROC", "FPR@95-ID"] * 2
    here = named(setting, "cifar100/densenet-101", "cifar100/wrn-28-10")
    comparison = studies.get("main")
    assert isinstance(comparison, Comparison)
    comparison = replace(comparison, methods=("scale", "adascale_a"))
    densenet, wrn, mean = comparison.run(here).blocks
    labels = ["scale", "adascale_a (preset)", "adascale_a (k2=5 %)", "adascale_a", "adascale_a (tuned)"]
    assert [each.label for each in densenet.lines] == [each.label for each in mean.lines] == labels
    known = {each.label: each.cells["ood.near.fpr95"].paper for each in densenet.lines}
    assert [known[label] for label in labels] == [58.38, 57.33, 57.33, None, None]
    assert "means over wrn-28-10, densenet-101, three training seeds each" in densenet.note
    assert line(densenet, "adascale_a (k2=5 %)") != line(densenet, "adascale_a (preset)")
    assert line(mean, "scale") == pytest.approx(line(wrn, "scale"))
    assert mean.lines[0].cells["ood.near.auroc"].spread == pytest.approx(0, abs=1e-9)
    assert (mean.lines[1].cells["ood.near.auroc"].spread or 0) > 0.01  # another preset
    assert any("k2=5 % serves all" in note for note in comparison.run(here).notes)


def test_averages_of_the_paper_only_over_its_networks(setting: Setting) -> None:
    every = [f"imagenet/{network}" for network in paper.networks("imagenet")]
    study = studies.get("q-vs-qprime")
    *each, mean = study.run(named(setting, *every)).blocks
    assert [block.lines[1].cells["ood.far.auroc"].paper for block in each[:2]] == [96.14, 95.95]
    assert mean.lines[1].cells["ood.far.auroc"].paper == 92.73
    *_, some = study.run(named(setting, *every[:2])).blocks
    assert some.lines[1].cells["ood.far.auroc"].paper is None
    *_, mixed = study.run(named(setting, every[0], "cifar10/densenet-101")).blocks
    assert mixed.lines[1].cells["ood.far.auroc"].paper is None


def test_one_knob_and_distances(run: Run) -> None:
    result = run("one-knob")
    methods, grid = result.blocks
    assert [each.label for each in methods.lines] == ["optfs", "adascale_a", "adascale_l"]
    assert [each.label for each in grid.lines] == [f"p_max={p}" for p in (65, 70, 75, 80, 85, 90, 95, 99)]
    chosen = re.search(r"adascale_a p_min=60, p_max=(\d+)", methods.note)
    assert chosen is not None
    best = line(grid, f"p_max={chosen[1]}")
    judged = [each.cells["judge.auroc"].measured or 0 for each in grid.lines]
    assert (best.pop("judge.auroc") or 0) >= max(judged) - 100 * TOLERANCE
    assert best == line(methods, "adascale_a")
    assert result.about["settings"]["digits"]["k2"] == 5
    assert [each.label for each in run("distance").blocks[0].lines] == ["line", "nnguide", "mds", "adascale_a"]
    assert len(run("cifar").blocks[0].lines) == 11


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


def test_the_papers_columns_only_where_network_and_data_match(setting: Setting, run: Run) -> None:
    assert all(not column.part for column in run("lambda").blocks[0].shown())
    here = named(setting, "imagenet/resnet-50", "cifar10/densenet-101")
    resnet, densenet, mean = studies.get("lambda").run(here).blocks
    assert [column.part for column in resnet.shown()] == ["paper", "measured", "difference"] * 4
    assert all(not column.part for block in (densenet, mean) for column in block.shown())
    cells = {each.label: each.cells["ood.near.fpr95"] for each in resnet.lines}
    assert cells["lambda=10"].paper == 58.97
    assert cells["lambda=10"].difference == pytest.approx((cells["lambda=10"].measured or 0) - 58.97)
    assert cells["lambda=20"].paper is None


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
def test_every_figure_of_the_paper_has_its_place(setting: Setting, name: str) -> None:
    """The rows of a study are called as those of the paper's tables: no figure is left without a row."""
    here, place = named(setting, name), paper.place(name)
    for study in studies.ALL:
        table = study.table if isinstance(study, Comparison) else study.name
        wanted = [line for line in paper.lines("figures") if (line["table"], line["network"]) == (table, place.network)]
        if not wanted or not isinstance(study, Comparison | Variation | Joint):
            continue
        shown_ones = {
            (each.label, key): cell.paper
            for block in study.run(here).blocks
            for each in block.lines
            for key, cell in each.cells.items()
            if cell.paper is not None
        }
        assert shown_ones == _wanted(wanted, isinstance(study, Comparison) and study.claim), study.name


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


def test_a_second_run_needs_no_network(setting: Setting, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    first = {study.name: run(study.name) for study in studies.ALL}

    def refuse(*_: object) -> None:
        raise AssertionError("a network pass")

    monkeypatch.setattr("adascale.extraction.sets.extract_batch", refuse)
    monkeypatch.setattr("adascale.extraction.sets.extract_views", refuse)
    for study in studies.ALL:
        if study.name != "latency":  # whose times are never the same
            assert study.run(setting) == first[study.name], study.name
