"""Plots: the same each time, thinned without a change, in the colours of the page."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from adascale import metrics
from adascale.bench import plots
from adascale.bench.columns import Kind
from adascale.bench.results import Run
from adascale.core.errors import InputError
from adascale.report.charts import ID_COLOUR, INK, label, limits, plot, printable, styles
from adascale.report.svg import figure_bytes, inline_svg
from tests.bench.runs import small
from tests.made_up_run import SETS, made_up_run


def test_all_plots_are_saved_the_same_each_time(tmp_path: Path) -> None:
    run = small()
    twin = dataclasses.replace(run, models=[run.models[0], dataclasses.replace(run.models[0], profiles={})])
    written = plots.save_all(twin, tmp_path / "a", ["svg"])
    assert len(written) == len(set(written)) == 10 + 5  # without profiles: rankings, heat-map, histograms, ROC
    again = plots.save_all(run, tmp_path / "b", ["svg"])
    assert all(path.read_bytes() == (tmp_path / "a" / path.name).read_bytes() for path in again)
    for svg in (path.read_text() for path in written):
        assert len(svg) < 250_000
        assert "date" not in svg


def test_plots_are_saved_as_pictures(tmp_path: Path) -> None:
    for path in plots.save_all(small(profiles=False), tmp_path):
        if path.suffix == ".png":
            assert np.asarray(Image.open(path).convert("L")).std() > 5
    with pytest.raises(InputError, match="one of png, svg, pdf"):
        plots.save_all(small(), tmp_path / "c", ["bmp"])
    assert not (tmp_path / "c").exists()


def test_roc_is_thinned_without_being_changed() -> None:
    run = made_up_run(methods=["msp"], images=3000, profiles=False).models[0]
    lines = plot(*plots.roc_curves(run, ["msp"])).axes[0].lines[:5]
    for line, name in zip(lines, list(SETS)[2:], strict=True):
        x, y = map(np.asarray, line.get_data())
        assert len(x) <= 200
        assert (x[0], y[0], x[-1], y[-1]) == (0, 0, 1, 1)
        exact = metrics.auroc(run.scores["msp"]["imagenet_200"], run.scores["msp"][name])
        assert np.trapezoid(y, x) == pytest.approx(exact, abs=2e-3)


def test_colours_are_the_same_everywhere() -> None:
    look = styles(SETS)
    assert look["imagenet_200"].colour == ID_COLOUR
    assert len(set(look.values())) == len(SETS)
    assert look == styles(dict(reversed(SETS.items()))) | look
    many: dict[str, Kind] = {"id": "id", **{f"set {place}": "far" for place in range(15)}}
    assert len(set(styles(many).values())) == 16


def test_names_and_limits_of_plots() -> None:
    assert label("a$b$") == r"a\$b\$"
    assert len(label("x" * 99)) == 30
    assert label("a" * 20 + "b" * 20, 7) == "aaa…bbb"
    assert printable("ä\t") == r"ä\t"
    assert limits([torch.full((5,), 2.0)]) == (1.5, 2.5)
    assert limits([torch.tensor([torch.nan, torch.inf])]) == (0, 1)
    values = torch.cat([torch.linspace(0, 1, 1000), torch.tensor([1e9])])
    assert limits([values])[1] < 1.01


def test_wrong_calls_of_plots_are_told(run: Run) -> None:
    model = run.models[0]
    with pytest.raises(InputError, match="no scores of 'nothing'"):
        plots.histograms(model, ["nothing"])
    with pytest.raises(InputError, match="nothing to draw"):
        plots.histograms(model, ["msp"], [])
    with pytest.raises(InputError, match="ID and at least one other set"):
        plots.q_ratios(dataclasses.replace(model, profiles={"ninco": model.profiles["ninco"]}))


def test_inline_plots_take_the_colour_of_the_page(run: Run) -> None:
    figure = plot(*plots.q_ratios(run.models[0]))
    assert INK in figure_bytes(figure, "svg").decode()
    box, svg = inline_svg(figure, "z-")
    assert INK not in svg
    assert ID_COLOUR not in svg
    assert "currentColor" in svg
    assert len(box.split()) == 4
    assert "<svg" not in svg
    assert "<style" not in svg
