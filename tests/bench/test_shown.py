"""What people see of a benchmark: the sentence on top, the order of the lines, chosen columns, LaTeX; `compare`."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import Tensor

from adascale.bench import plots
from adascale.bench.columns import Look
from adascale.bench.figures import figures
from adascale.bench.headline import headline, standing
from adascale.bench.page import report_page
from adascale.bench.results import ModelRun, Run, SetInfo
from adascale.bench.tables import for_terminal, leads, run_document, write_results
from adascale.core.errors import InputError
from adascale.report.document import Cell, Column, Document, Line, Table
from adascale.report.latex import to_latex
from adascale.report.terminal import compact
from tests.bench.runs import METHODS, bench, table
from tests.made_up_run import made_up_run
from tests.shell import inside

pytestmark = pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")


def scored(skills: dict[str, float], kinds: tuple[str, ...] = ("near", "far"), n: int = 200, noise: float = 0.3) -> Run:
    """Methods that see the same images more or less clearly; ``plain`` is the deployed one."""
    generator = torch.Generator().manual_seed(0)
    seen = {"id": torch.randn(n, generator=generator)}
    seen |= {name: torch.randn(n, generator=generator) + 1 for name in kinds}

    def scores(skill: float) -> dict[str, Tensor]:
        return {name: skill * part + noise * torch.randn(n, generator=generator) for name, part in seen.items()}

    sets = {name: SetInfo(name, n) for name in seen}  # type: ignore[arg-type]
    found = {method: scores(skill) for method, skill in skills.items()}
    model = ModelRun("net", sets, None, found, {}, "plain", deployed="plain" if "plain" in skills else "")
    first = standing(model)
    assert first is not None
    return Run("suite", [model], figures(model, intervals=False), {"sets": {}, "networks": {}}, {"net": first})


def test_the_sentence_says_who_leads_and_by_how_much_over_the_second_and_the_deployed() -> None:
    run = scored({"plain": 0.2, "next": 4.9, "best": 5.0})
    found = run.standings["net"]
    near = {row.method: row.auroc for row in run.rows if row.dataset == "nearood"}
    assert (found.kind, found.best, found.second, found.deployed) == ("near", "best", "next", "plain")
    assert found.auroc == near["best"]
    assert found.ahead is not None
    assert found.gap is not None
    assert found.ahead.value == pytest.approx(near["best"] - near["next"])
    assert found.gap.value == pytest.approx(near["best"] - near["plain"])
    assert not found.ahead.beyond_chance
    assert found.gap.beyond_chance
    text = headline(found)
    assert text.startswith(f"best has the highest near-OOD AUROC, {100 * near['best']:.2f} %: ")
    assert f"{100 * found.ahead.value:.2f} points above the second, next (within chance: 95 % interval " in text
    assert f"{100 * found.gap.value:.2f} points above plain, which fit deploys by default (more than chance: " in text


def test_the_sentence_where_the_deployed_is_best_second_or_alone() -> None:
    best = headline(scored({"plain": 5.0, "other": 0.2}).standings["net"])
    assert best.startswith("plain, which fit deploys by default, has the highest near-OOD AUROC")
    assert best.count("more than chance") == 1
    second = headline(scored({"plain": 0.2, "other": 5.0}).standings["net"])
    assert "points above plain, which fit deploys by default (more than chance" in second
    assert second.count("interval") == 1
    assert "no other method was run" in headline(scored({"plain": 1.0}).standings["net"])
    assert "far-OOD AUROC" in headline(scored({"a": 1.0, "b": 2.0}, kinds=("far",)).standings["net"])


def test_the_sentence_stands_on_top_everywhere(
    suite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench(suite, monkeypatch, "a", *METHODS)
    out = capsys.readouterr().out
    (sentence,) = json.loads((suite / "a" / "results.json").read_text())["headline"]
    assert "has the highest near-OOD AUROC" in sentence
    assert out.splitlines()[0] == sentence
    assert (suite / "a" / "tables.md").read_text().splitlines()[2] == sentence
    run = scored({"plain": 0.2, "best": 5.0})
    page = report_page(run)
    assert leads(run)[0] in page
    assert page.index(leads(run)[0]) < page.index("<table")


def order(run: Run, **look: object) -> list[str]:
    return [line.label for line in for_terminal(run, run.models[0], Look(**look)).lines]  # type: ignore[arg-type]


def test_tables_are_sorted_by_the_near_auroc_or_as_asked() -> None:
    run = scored({"plain": 0.2, "best": 5.0, "fair": 0.8})
    assert order(run) == ["best", "fair", "plain"]
    assert order(run, sort="method") == ["plain", "best", "fair"]
    far = {row.method: row for row in run.rows if row.dataset == "farood"}
    assert order(run, sort="far-fpr95") == sorted(far, key=lambda method: far[method].fpr95)
    assert order(run, sort="far-aupr-in") == sorted(far, key=lambda method: -far[method].aupr_in)
    assert order(scored({"plain": 0.2, "best": 5.0}, kinds=("far",))) == ["best", "plain"]  # there is no near set
    with pytest.raises(InputError, match=r"There is no column 'magic'\. Give one of near-fpr95, near-auroc"):
        Look(sort="magic")


def test_top_cuts_what_people_read_and_not_the_files(tmp_path: Path) -> None:
    run = scored({"plain": 0.2, "best": 5.0, "fair": 0.8})
    assert order(run, top=2) == ["best", "fair", "plain"]  # plain is the deployed line
    write_results(run, tmp_path / "all")
    write_results(run, tmp_path / "top", Look(top=2))
    for name in ("results.csv", "results.json"):
        assert (tmp_path / "all" / name).read_bytes() == (tmp_path / "top" / name).read_bytes()
    csv_order = [line.split(",")[1] for line in (tmp_path / "top" / "results.csv").read_text().splitlines()[1:]]
    assert list(dict.fromkeys(csv_order)) == ["plain", "best", "fair"]
    for name in ("tables.md", "tables.tex"):
        text = (tmp_path / "top" / name).read_text()
        assert "plain (rank 3)" in text
    page = report_page(run, Look(top=1))
    assert '<th scope="row" data-value="best"' in page
    assert '<th scope="row" data-value="fair"' not in page


def test_top_keeps_the_deployed_line_with_its_rank(tmp_path: Path) -> None:
    """bench --top 2: the line that the first sentence speaks of is there, wherever it stands."""
    run = scored({"plain": 0.2, "a": 5.0, "b": 2.0, "c": 0.8, "worst (tuned)": 0.1})
    shown = for_terminal(run, run.models[0], Look(top=2))
    assert [line.whole_label for line in shown.lines] == ["a", "b", "plain (rank 4)"]
    assert shown.note == "The first 2 of 5 lines by Near-OOD AUROC, and plain (rank 4); results.csv has all of them."
    assert [line.whole_label for line in for_terminal(run, run.models[0], Look(top=4)).lines][3:] == ["plain"]
    printed = io.StringIO()
    Console(file=printed).print(compact(shown))
    assert "plain (rank 4)" in printed.getvalue()
    write_results(run, tmp_path, Look(top=2))
    assert re.findall(r"^\| (.*?) \|", (tmp_path / "tables.md").read_text(), re.M)[1:] == ["a", "b", "plain (rank 4)"]
    assert re.findall(r"^(\w.*?) & ", (tmp_path / "tables.tex").read_text(), re.M)[1:] == ["a", "b", "plain (rank 4)"]
    page = report_page(run, Look(top=2))
    assert re.findall(r'data-value="plain">plain <small class="note">(.*?)<', page) == ["rank 4"] * 3  # means, 2 sets
    assert 'data-value="c"' not in page
    (model,) = run.models
    other = dataclasses.replace(model, deployed="", as_fit="worst (tuned)")  # the default was not run
    lines = for_terminal(dataclasses.replace(run, models=[other]), other, Look(top=1)).lines
    assert [line.whole_label for line in lines] == ["a", "worst (tuned, rank 5)"]
    listed = for_terminal(run, other, Look("method", 1)).lines  # this order has no ranks
    assert [line.whole_label for line in listed] == ["plain", "worst (tuned)"]


def test_the_line_that_is_kept_is_the_first_that_fit_tunes(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for methods, kept in (("msp,adascale_l,adascale_a", "adascale_l (tuned)"), ("msp,combined", "combined (tuned)")):
        bench(suite, monkeypatch, "a", "--method", methods, "--sort", "method", "--top", "1")
        labels = re.findall(r"^\| (.*?) \|", (suite / "a" / "tables.md").read_text(), re.MULTILINE)
        assert labels == ["method", "msp", kept]


def test_the_best_of_a_column_is_marked_even_if_it_is_cut() -> None:
    lines = [Line(name, {"v": Cell(value)}) for name, value in (("a", 50.0), ("b", 70.0), ("c", 90.0))]
    cut = Table("t", [Column("v", "v", good="high")], lines[:2], rest=lines[2:])
    assert cut.marks(cut.shown()[0]) == ["", "second"]


def test_chosen_columns_in_the_terminal_and_the_files(
    suite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench(
        suite, monkeypatch, "a", *METHODS, "--columns", "near-auroc,far-fpr95-id", "--sort", "far-auroc", "--top", "2"
    )
    out = capsys.readouterr().out
    assert "AUROC" in out
    assert "FPR@95-ID" in out
    far = {row["method"]: float(row["AUROC"]) for row in table(suite, "a") if row["dataset"] == "farood"}
    tex = (suite / "a" / "tables.tex").read_text()
    assert re.findall(r"^(\S+) & \S+ & \S+ \\\\$", tex, re.MULTILINE) == [
        name.replace("_", r"\_") for name in sorted(far, key=lambda name: -far[name])[:2]
    ]
    assert r"Method & AUROC $\uparrow$ & FPR@95-ID $\downarrow$ \\" in tex


@pytest.mark.parametrize("option", ["--sort", "--columns"])
@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("near-aurok", "near-auroc"),
        ("near-aurocc", "near-auroc"),
        ("FAR-FPR95", "far-fpr95"),
        ("far_auroc", "far-auroc"),
    ],
)
def test_an_unknown_column_is_told_in_one_line(
    option: str, given: str, meant: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert inside(monkeypatch, "bench", "digits", option, given) == 2
    told = capsys.readouterr().err
    assert f"There is no column '{given}'; did you mean '{meant}'? Give one of near-fpr95, near-auroc" in told
    assert len(told.splitlines()) == 1


def test_figures_show_the_deployed_and_the_best() -> None:
    run = scored({"plain": 0.2, "best": 5.0, "scale": 0.5, "msp": 0.4}).models[0]
    assert plots.compared(run) == ["plain", "best", "scale"]
    assert plots.compared(scored({"plain": 5.0, "scale": 0.5, "msp": 0.4}).models[0]) == ["plain", "scale", "msp"]


NASTY = Table(
    "a_b & 100 %",
    [Column("v", "FPR@95", "Near_OOD #1", good="low"), Column("w", "AUROC", "Near_OOD #1", good="high")],
    [Line("x_y (50 %) & <z>", {"v": Cell(10, spread=1), "w": Cell(90)}), Line(r"\cmd^~{}$", {"v": Cell(20)})],
)


def test_latex_has_rules_a_caption_a_label_and_escaped_names() -> None:
    text = to_latex(Document("my_suite", [NASTY, NASTY]))
    for part in (r"\toprule", r"\midrule", r"\bottomrule", r"\end{table}", r"\caption{my\_suite, a\_b \& 100 \%: "):
        assert text.count(part) == 2
    assert re.findall(r"\\label{(.*)}", text) == ["tab:my-suite-a-b-100", "tab:my-suite-a-b-100-2"]
    assert r" & \multicolumn{2}{c}{Near\_OOD \#1} \\" + "\n" + r"\cmidrule(lr){2-3}" in text
    assert r"x\_y (50 \%) \& \textless{}z\textgreater{} & \textbf{10.00 $\pm$ 1.00} & \textbf{90.00} \\" in text
    assert r"\textbackslash{}cmd\textasciicircum{}\textasciitilde{}\{\}\$ & \underline{20.00} & -- \\" in text
    plain = re.sub(r"\\[_&%#${}]", "", re.sub(r"\$\\\w+\$", "", text)).removeprefix("% \\usepackage{booktabs}\n")
    assert not re.search(r"[_%#$]", re.sub(r"\\label{.*}", "", plain))
    assert plain.count("{") == plain.count("}")


def test_latex_captions_are_fit_for_a_paper(tmp_path: Path) -> None:
    """What is shown and how it is read, no name of a file, and no name twice."""
    run = scored({"plain": 0.2, "a": 5.0, "b": 2.0, "c": 0.8})

    def captions(of: Run, **look: object) -> list[str]:
        write_results(of, tmp_path, Look(**look))  # type: ignore[arg-type]
        return re.findall(r"\\caption{(.*)}", (tmp_path / "tables.tex").read_text())

    meaning = r"FPR@95 is the share of ID images that are flagged where 95 \% of the OOD images are caught."
    shows = "FPR@95 and AUROC in percent, means over the near-OOD and far-OOD sets"
    assert captions(run) == [
        f"OOD detection on suite with net: {shows}. {meaning} "
        "In each column the best value is bold and the second best is underlined."
    ]
    (cut,) = captions(run, top=2)
    assert "the best value of all 4 methods is bold" in cut
    assert cut.endswith(" Of 4 methods, the 2 best by near-OOD AUROC are shown, and plain (rank 4).")
    assert "Of 4 methods, the best by near-OOD AUROC is shown, and plain (rank 4)." in captions(run, top=1)[0]
    (other,) = captions(run, top=2, columns=["far-fpr95-id"], sort="far-aupr-in")
    assert "FPR@95-ID is the share of OOD images that are accepted where 95" in other
    assert ": FPR@95-ID in percent, means over the far-OOD sets." in other
    assert "the 2 best by far-OOD AUPR-in are shown" in other
    assert captions(dataclasses.replace(run, suite="net"))[0].startswith("OOD detection on net: FPR@95 and")
    assert re.findall(r"\\label{(.*)}", (tmp_path / "tables.tex").read_text()) == ["tab:net"]
    mean = captions(made_up_run(("one", "two"), images=40), top=1)[-1]
    assert "with 2 networks: " in mean
    assert r"with the mean $\pm$ standard deviation over the networks." in mean
    assert not re.search(r"csv|json|\.md", "".join([cut, other, mean]))


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex on PATH")
def test_latex_compiles(tmp_path: Path) -> None:
    body = to_latex(Document("my_suite", [NASTY])) + to_latex(run_document(made_up_run(("one", "two"), images=40)))
    head = "\\documentclass{article}\n\\usepackage[T1]{fontenc}\n\\usepackage{booktabs}\n\\begin{document}\n"
    (tmp_path / "t.tex").write_text(f"{head}{body}\\end{{document}}\n")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


def test_the_mean_over_networks_has_its_own_sentence() -> None:
    run = made_up_run(("one", "two"), ("adascale_a", "scale"), images=60, full=False, profiles=False)
    standings = {model.model: found for model in run.models if (found := standing(model))}
    first, *others = leads(dataclasses.replace(run, standings=standings))
    assert re.match(r"Over the 2 networks adascale_a has the highest mean near-OOD AUROC, .* on [12] of 2\.$", first)
    assert [text.split(":")[0] for text in others] == ["one", "two"]
