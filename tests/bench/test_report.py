"""The report and its plots: what is on the page, that it is safe, and that a real browser shows it."""

from __future__ import annotations

import dataclasses
import html
import re
from pathlib import Path
from typing import Literal

import markupsafe
import numpy as np
import pytest
import torch
from PIL import Image

from adascale.bench.columns import Kind, Look
from adascale.bench.evidence import evidence_table
from adascale.bench.page import report_page, write_report
from adascale.bench.results import Example, Run
from adascale.report import html as pages
from adascale.report.document import DASH, Cell, Column, Document, Line, Table
from adascale.report.latex import to_latex
from adascale.report.markdown import to_markdown
from tests.bench.runs import FEW, small
from tests.browser import ask, needs_browser, screenshot
from tests.made_up_run import METHODS, made_up_run

NASTY = "<script>alert('&\"')</script>"


@pytest.fixture(scope="module")
def text(run: Run) -> str:
    return report_page(run)


@pytest.fixture(scope="module")
def two() -> Run:
    return made_up_run(("one", "two"), METHODS[:3], FEW, images=60, full=False, profiles=False)


def changed(run: Run, **values: object) -> Run:
    """The run with its first network changed."""
    return dataclasses.replace(run, models=[dataclasses.replace(run.models[0], **values), *run.models[1:]])  # type: ignore[arg-type]


def cells(text: str) -> list[list[str]]:
    """The rows of the first table of the text, as what one reads."""
    body = re.search(r"<tbody>(.*?)</tbody>", text, re.DOTALL)
    assert body
    rows = re.findall(r"<tr>(.*?)</tr>", body[1], re.DOTALL)
    return [
        [html.unescape(re.sub("<[^>]*>", "", cell)) for cell in re.findall(r"<t[hd].*?</t[hd]>", row)] for row in rows
    ]


def test_every_figure_of_every_row_is_there(run: Run, text: str) -> None:
    plain = re.sub("<[^>]*>", " ", text)
    for row in run.rows:
        for share in (row.auroc, row.fpr95, row.fpr95_id):
            assert f" {100 * share:.2f} " in plain
        if row.low is not None and row.high is not None:
            assert f"{100 * row.low:.2f}{DASH}{100 * row.high:.2f}" in plain
    for part in ("76.13 %", "torchvision:resnet50", "needs training images with labels", "cannot identify image file"):
        assert part in plain


def test_summary_has_near_far_and_the_full_spectrum(run: Run, text: str) -> None:
    assert re.findall(r'class="group">([^<]*)<', text)[:4] == [
        "Near-OOD", "Far-OOD", "Near-OOD, full spectrum", "Far-OOD, full spectrum",
    ]  # fmt: skip
    lines = cells(text)
    found = {(row.method, row.dataset, row.spectrum): row for row in run.rows}
    assert [line[0] for line in lines] == sorted(METHODS, key=lambda method: -found[method, "nearood", "ood"].auroc)
    for line in lines:
        far = found[line[0], "farood", "full"]
        assert line[10:] == [f"{100 * share:.2f}" for share in (far.fpr95, far.auroc, far.fpr95_id)]


def made_up_table(good: Literal["low", "high"], rivals: str = "aaaaa") -> Table:
    values = [50, 90.001, 90.002, 70, None]
    lines = [Line(f"m{place}", {"v": Cell(value)}, rivals[place]) for place, value in enumerate(values)]
    return Table("t", [Column("v", "v", good=good)], lines)


def classes(table: Table) -> list[str]:
    text = pages.page("studies.html", notice=[], documents={"s": Document("d", [table])}, about={"s": {}})
    return re.findall(r'<td class="([^"]*)"', text)


def test_best_and_second_are_marked_as_printed() -> None:
    assert classes(made_up_table("high")) == ["number", "best number", "best number", "second number", "number"]
    assert classes(made_up_table("low")) == ["best number", "number", "number", "second number", "number"]
    grouped = classes(made_up_table("high", "aabbb"))
    assert grouped == ["second number", "best number", "best number", "second number", "number"]
    document = Document("d", [made_up_table("high")])
    assert "| m1 | **90.00** |\n| m2 | **90.00** |\n| m3 | <u>70.00</u> |" in to_markdown(document, marked=True)
    assert r"m1 & \textbf{90.00} \\" in to_latex(document)
    assert "**" not in to_markdown(document)


def test_a_column_without_a_second_value_has_no_best_one_on_a_page() -> None:
    lines = [Line(name, {"v": Cell(50)}) for name in "ab"]
    assert classes(Table("t", [Column("v", "v", good="high")], lines)) == ["number", "number"]


def test_several_networks_have_mean_and_deviation(two: Run) -> None:
    text = report_page(two)
    aurocs = [row.auroc for row in two.rows if row.method == "msp" and row.dataset == "nearood"]
    assert f"{100 * np.mean(aurocs):.2f} ± {100 * np.std(aurocs, ddof=1):.2f}" in [line[2] for line in cells(text)]
    assert text.count('class="network"') == 2
    ids = re.findall(r' id="([^"]*)"', text)
    assert ids
    assert len(ids) == len(set(ids))
    assert {found for found in re.findall(r"url\(#([^)]*)\)", text)} <= set(ids)


def test_a_method_missing_on_a_network_is_not_ranked(two: Run) -> None:
    rows = [row for row in two.rows if (row.model, row.method) != ("two", "adascale_a")]
    models = [dataclasses.replace(model, scores={}) for model in two.models]
    text = report_page(dataclasses.replace(two, rows=rows, models=models))
    line = re.search(r'<tbody>.*?(<tr><th scope="row" data-value="adascale_a">.*?</tr>)\n</tbody>', text, re.DOTALL)
    assert line, "it is the last line"
    assert "1 of 2 networks" in line[1]
    assert "best" not in line[1]


def test_parts_that_do_not_exist_are_not_shown(text: str) -> None:
    bare = changed(small(profiles=False, labels=False, full=False), examples={}, left_out={})
    other = report_page(bare)
    for part in ("Inside adascale_a", "The hardest images", "Methods that could not be fitted", "full spectrum)"):
        assert part in text
        assert part not in other
    assert "no labels" in other


def test_everything_is_escaped() -> None:
    sets: dict[str, Kind] = {f"id {NASTY}": "id", f"near {NASTY}": "near", f"_far $x^2$ {NASTY}": "far"}
    run = made_up_run((f"net {NASTY}",), (f"method {NASTY}", "msp"), sets, 30, full=False)
    names = (
        NASTY,
        "\udcff\udc80.png",
        "a\x00\x1b[31mb\n.png",
        "<!--",
        "猫/\N{RIGHT-TO-LEFT OVERRIDE}gnp.png",
        "x" * 300,
    )
    pictures = [Example(NASTY, name, -1.0, 3, Image.new("RGB", (9, 9))) for name in names]
    run = changed(run, examples={"ood": pictures}, left_out={NASTY: NASTY})
    run = dataclasses.replace(run, suite=NASTY, reproduce={NASTY: [NASTY, Path("/x"), "\udcff"]})
    text = report_page(run)
    text.encode()
    assert NASTY not in text
    assert text.count("<script>") == text.count("</script>") == 1
    for part in (
        str(markupsafe.escape(NASTY)),
        r"\udcff\udc80.png",
        r"a\x00\x1b[31mb\n.png",
        "猫",
        r"\u202e",
        "&lt;!--",
    ):
        assert part in text
    assert "x" * 300 in text, "in the title"


def test_nothing_is_loaded_and_the_page_is_small(run: Run, text: str) -> None:
    rows = [dataclasses.replace(row, method=f"{row.method} {turn}") for turn in range(6) for row in run.rows]
    tables = report_page(changed(dataclasses.replace(run, rows=rows), scores={}, profiles={}))
    assert tables.count('<th scope="row"') > 33 * 6
    assert len(text.encode()) + len(tables.encode()) < 1.5e6
    assert not re.search(r"https?://|@import|url\((?!#)", text)
    addresses = re.findall(r'(?:src|href)="([^"]*)"', text)
    assert all(address.startswith(("data:", "#")) for address in addresses)


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.html", "deep/b.html"):
        write_report(small(profiles=False), tmp_path / name)
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "deep" / "b.html").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "deep"]


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.html").write_text("before")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write_report(small(profiles=False), tmp_path / "a.html")
    assert [path.name for path in tmp_path.iterdir()] == ["a.html"]
    assert (tmp_path / "a.html").read_text() == "before"


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P", "1", "CMYK", "LA", "I", "F"])
def test_pictures_of_any_mode_become_thumbnails(mode: str, run: Run) -> None:
    example = Example("noise", "a.png", 0.5, 1, Image.new(mode, (400, 3)))
    text = report_page(changed(dataclasses.replace(run, rows=[]), examples={"id": [example]}, scores={}, profiles={}))
    assert "data:image/jpeg;base64," in text


SORT = """
const table = document.querySelector("table");
const column = (place) => [...table.tBodies[0].rows].map((row) => row.cells[place].textContent);
function look() {
  const button = table.querySelectorAll("thead button")[PLACE];
  const head = button.closest("th"), found = [[head.ariaSort, column(0), column(PLACE)]];
  for (let turn = 0; turn < 2; turn++) { button.click(); found.push([head.ariaSort, column(0), column(PLACE)]); }
  return {found, sorted: document.querySelectorAll('[aria-sort]:not([aria-sort="none"])').length};
}"""
MEASURE = """function look() {
  for (const part of document.querySelectorAll("details")) part.open = true;
  const wide = [...document.querySelectorAll("main *")].filter((part) => !part.closest(".scroll, svg")
    && part.getBoundingClientRect().right > innerWidth + 1).map((part) => part.outerHTML.slice(0, 80));
  return {scroll: document.documentElement.scrollWidth, wide, svgs: document.querySelectorAll("svg").length,
    images: [...document.images].every((image) => image.complete && image.naturalWidth > 0)};
}"""


@needs_browser
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_browser_sorts_by_the_heading_pressed(place: int, tmp_path: Path) -> None:
    run = made_up_run(images=30, sets=FEW, profiles=False, methods=[*METHODS, "10", "9"])
    rows = [dataclasses.replace(row, fpr95=1.0) if row.method == "knn" else row for row in run.rows]
    rows = [dataclasses.replace(row, fpr95=0.05) if row.method == "ebo" else row for row in rows]  # 5 < 100, as numbers
    told = ask(
        report_page(dataclasses.replace(changed(run, scores={}), rows=rows), Look(sort="method")),
        SORT.replace("PLACE", str(place)),
        tmp_path,
    )
    assert told["errors"] == []
    assert told["answer"]["sorted"] == 1
    (before, names, values), *after = told["answer"]["found"]
    assert before == "none"
    assert names == [*METHODS, "10", "9"]
    good = "descending" if place == 2 else "ascending"  # AUROC: the highest first
    bad = "ascending" if place == 2 else "descending"
    assert [order for order, _, _ in after] == [good, bad]
    wanted = sorted(values, key=str if place == 0 else float, reverse=place == 2)
    assert [value for _, _, value in after] == [
        wanted,
        sorted(values, key=str if place == 0 else float, reverse=place != 2),
    ]


@needs_browser
@pytest.mark.parametrize("width", [320, 390, 1280])
def test_a_browser_shows_all_and_never_scrolls_sideways(width: int, text: str, tmp_path: Path) -> None:
    told = ask(text, MEASURE, tmp_path, width)
    assert told["width"] == width
    assert told["errors"] == []
    answer = told["answer"]
    assert answer["scroll"] <= width
    assert answer["wide"] == []
    assert answer["images"]
    assert answer["svgs"] == text.count("<svg ")


@needs_browser
def test_screenshots_are_light_and_dark(text: str, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(text)
    levels = {}
    for name, scheme in (("light", 1), ("dark", 0)):
        picture = tmp_path / f"{name}.png"
        screenshot(tmp_path / "report.html", picture, f"--blink-settings=preferredColorScheme={scheme}")
        pixels = np.asarray(Image.open(picture).convert("L"), dtype=float)
        assert pixels.std() > 10, "not blank"
        levels[name] = float(np.median(pixels))
    assert levels["light"] > 200 > 60 > levels["dark"]


def test_the_page_says_which_member_spoke() -> None:
    """Two members, two images of each set: the mean evidence of each, and how often it added the most."""
    made = made_up_run(images=2, profiles=False)
    (model,) = made.models
    told = {"first": torch.tensor([1.0, 4.0]), "second": torch.tensor([3.0, 0.25])}
    found = evidence_table(dataclasses.replace(model, evidence={"textures": told}))
    assert found is not None
    assert found.texts() == [["textures (Far-OOD)", "2.50", "1.62", "50.00", "50.00"]]
    page = report_page(dataclasses.replace(made, models=[dataclasses.replace(model, evidence={"textures": told})]))
    assert "Which member spoke" in page
    assert "times its weight" in page
    assert "first ()" not in page  # evidence has no unit
    assert [one.title for one in found.shown()][1:3] == [
        "Mean evidence second",
        "Adds the most, in % of the images first",
    ]
    assert "Which member spoke" not in report_page(made)
    assert evidence_table(model) is None
