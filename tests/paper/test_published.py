"""The paper's figures as they are shipped."""

from __future__ import annotations

import pytest

from adascale import detectors
from adascale.core.errors import InputError
from adascale.paper import published as paper
from tests.paper.tables import READERS, TABLES, combined, others, printed

needs_tables = pytest.mark.skipif(not TABLES.is_dir(), reason=f"the paper's tables are not at {TABLES}")


@needs_tables
def test_every_table_of_the_paper_is_looked_at() -> None:
    here = {line["source"] for name in ("figures", "others") for line in paper.lines(name)} - {"text"}
    read = {*READERS, "corruption_combined", "adv_ratio", "latency"}
    assert here == read == {path.stem for path in TABLES.glob("*.csv")} - {"dataset_setup_ood"}


@needs_tables
@pytest.mark.parametrize("source", READERS)
def test_every_figure_of_a_table_is_shipped_in_its_place(source: str) -> None:
    lines = [line for line in paper.lines("figures") if line["source"] == source]
    names = ("data", "network", "row", "spectrum", "kind")
    shipped = {tuple(line[name] for name in names): (line["fpr95"], line["auroc"]) for line in lines}
    assert len(shipped) == len(lines)
    assert shipped == printed(source)


@needs_tables
def test_the_other_tables_are_shipped_in_their_places() -> None:
    lines = [line for line in paper.lines("figures") if line["source"] == "corruption_combined"]
    shipped = {(line["table"], line["row"], line["kind"]): (line["fpr95"], line["auroc"]) for line in lines}
    assert shipped == combined()
    assert {(line["data"], line["network"], line["spectrum"]) for line in lines} == {("imagenet", "resnet-50", "ood")}
    rest = [line for line in paper.lines("others") if line["source"] != "text"]
    assert {(line["table"], line["row"], line["column"]): line["value"] for line in rest} == others()


def test_figures_are_in_the_table_of_their_study() -> None:
    """A source of the paper is one table here, but for those that hold several."""
    found: dict[str, set[str]] = {}
    for line in paper.lines("figures"):
        found.setdefault(line["source"], set()).add(line["table"])
    several = {source: tables for source, tables in found.items() if len(tables) > 1}
    assert set(several) == {"sensitivity_resnet50", "sensitivity_single", "corruption_combined"}
    for line in paper.lines("figures"):
        if line["source"].startswith("sensitivity_") and line["source"] in several:
            assert line["table"] == line["row"].partition("=")[0].replace("_", "-")


def test_no_two_lines_contradict() -> None:
    known: dict[tuple[str, ...], tuple[str, ...]] = {}
    for line in paper.lines("figures"):
        key = tuple(line[name] for name in ("table", "data", "network", "row", "spectrum", "kind"))
        assert known.setdefault(key, (line["fpr95"], line["auroc"])) == (line["fpr95"], line["auroc"])
        assert line["network"] in (*paper.paper_networks(line["data"]), paper.AVERAGE)


def test_looking_figures_up() -> None:
    resnet, densenet = paper.place("imagenet/ResNet50"), paper.place("cifar10/densenet-101")
    assert paper.figure("main", resnet, "adascale_a", "near") == (58.98, 78.98, "resnet-50")
    assert paper.figure("main", densenet, "msp", "far") == (34.49, 90.88, "average")
    assert paper.figure("lambda", resnet, "lambda=10", "far") == (17.84, 96.14, "resnet-50")
    assert paper.figure("lambda", densenet, "lambda=10", "far") is None
    assert paper.figure("lambda", None, "lambda=10", "far") is None
    assert paper.figure("fsood", resnet, "lts", "near", "full") == (86.46, 53.29, "average")
    assert paper.other("latency", resnet, "variable", "D=2048") == 152
    assert paper.other("adversarial-ratio", None, "NINCO", "eps=0.05") is None
    assert len(paper.paper_networks("imagenet")) == 8
    for text in ("resnet-50", "imagenet/resnet-49"):
        with pytest.raises(InputError, match="imagenet/resnet-50"):
            paper.place(text)
    with pytest.raises(InputError, match="presets for adascale_a"):
        detectors.preset("scale", "imagenet", "resnet-50")
