"""The studies of figures, cost, corruptions and other trainings: values by hand, relations, rows."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from adascale import InputError, Preprocess, detectors, metrics
from adascale.bench.run import Network
from adascale.bench.suites import Source, Suite, SuiteImages, load_suite
from adascale.images.sources import ImageSet
from adascale.network.classifier import Classifier
from adascale.paper import figures as paper
from adascale.paper import studies
from adascale.paper.studies import robustness
from adascale.paper.studies.base import Block
from adascale.paper.studies.inside import looked_into
from adascale.paper.studies.latency import BATCHES, SIZES, Latency
from adascale.paper.studies.setting import Setting, Subject
from adascale.paper.studies.tuned import tuned
from adascale.paper.studies.write import studies_page
from adascale.report.charts import plot
from adascale.report.document import Chart, Series
from adascale.training.recipes import RECIPES
from tests.studying import Run, line, named

pytestmark = pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")
STEP = 0.25
FIGURES = ("shift", "perturbed-activations", "q-ratio", "separation")
DARK, BRIGHT = (60, 70, 80), (120, 130, 200)  # grey levels of whole images


class Squares(nn.Module):
    """Each feature is the square of a pixel; all weights are positive, so that every pixel's gradient is."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(16, 2)
        nn.init.constant_(self.fc.weight, 0.5)
        nn.init.zeros_(self.fc.bias)

    def forward(self, x: Tensor) -> Any:
        return self.fc(x.flatten(1).square())


def flat(levels: tuple[int, ...]) -> ImageSet:
    array = np.repeat(np.array(levels, dtype=np.uint8), 16).reshape(-1, 4, 4)
    return ImageSet([str(level) for level in levels], array=array)


@pytest.fixture
def by_hand(tmp_path: Path) -> Setting:
    """Flat images x: every activation is x^2 and becomes (x + STEP)^2."""
    suite = Suite("flat", Source("id"), near={"bright": Source("near")})
    images = SuiteImages(flat(DARK), flat(DARK), None, {"bright": flat(BRIGHT)}, {}, {}, {})
    network = Network("squares", Classifier(Squares().eval()), Preprocess(4, 4, (0.0,), (1.0,)))
    return Setting(suite, images, [Subject(network)], tmp_path, given={"pixels": "all", "epsilon": STEP})


def x_of(levels: tuple[int, ...]) -> Tensor:
    return torch.tensor(levels, dtype=torch.float64) / 255


def measured(block: Block, column: str) -> list[float]:
    values = [each.cells[column].measured for each in block.lines]
    return [value for value in values if value is not None]


def test_shift_by_hand(by_hand: Setting) -> None:
    (block,) = studies.get("shift").run(by_hand).blocks
    for name, levels in (("id", DARK), ("bright", BRIGHT)):
        shift = (x_of(levels) + STEP).square() - x_of(levels).square()
        assert measured(block, name) == pytest.approx([float(shift.mean())] * len(block.lines), rel=1e-5)
        spreads = [each.cells[name].spread for each in block.lines]
        assert spreads == pytest.approx([float(shift.std(correction=0))] * len(block.lines), rel=1e-4)
    assert all(ratio > 1 for ratio in measured(block, "bright/id"))
    (chart,) = block.charts
    known, bright = chart.series
    assert (known.name, bright.name) == ("id", "bright")
    assert known.y[0] == block.lines[0].cells["id"].measured
    assert bright.spread[0] == block.lines[0].cells["bright"].spread
    assert list(known.x) == [100 * (i + 1) / 16 for i in range(16)]


def test_perturbed_activations_by_hand(by_hand: Setting) -> None:
    (block,) = studies.get("perturbed-activations").run(by_hand).blocks
    expected = float((x_of(BRIGHT) + STEP).square().mean())
    assert measured(block, "bright") == pytest.approx([expected] * len(block.lines), rel=1e-5)
    assert all(ratio > 1 for ratio in measured(block, "bright/id"))


def test_q_ratio_by_hand(by_hand: Setting) -> None:
    """One activation counts for Q and for C_o: 1 % and 5 % of 16 are less than one."""
    (block,) = studies.get("q-ratio").run(by_hand).blocks
    (bright,) = block.lines
    q, after = ([f(x_of(levels)).mean() for levels in (BRIGHT, DARK)] for f in (_shift, lambda x: (x + STEP).square()))
    assert bright.cells["q"].measured == pytest.approx(float(q[0] / q[1]), rel=1e-5)
    expected = (10 * q[0] + after[0]) / (10 * q[1] + after[1])
    assert bright.cells["q_prime"].measured == pytest.approx(float(expected), rel=1e-5)
    assert (bright.cells["q"].measured or 0) > 1
    (chart,) = block.charts
    assert [list(one.y) for one in chart.series] == [[bright.cells[key].measured] for key in ("q", "q_prime")]


def _shift(x: Tensor) -> Tensor:
    return (x + STEP).square() - x.square()


def test_unreadable_images_are_said(by_hand: Setting, tmp_path: Path) -> None:
    """Left out of the figures, named under them."""
    for level in BRIGHT:
        Image.new("L", (4, 4), level).save(tmp_path / f"{level}.png")
    (tmp_path / "broken.png").write_text("no picture")
    names = [*(f"{level}.png" for level in BRIGHT), "broken.png"]
    images = replace(by_hand.images, near={"bright": ImageSet(names, [tmp_path / name for name in names])})
    whole = {name: studies.get(name).run(by_hand).blocks[0] for name in FIGURES}
    for name in FIGURES:
        block = studies.get(name).run(replace(by_hand, images=images)).blocks[0]
        assert "1 images of bright could not be read, such as broken.png" in block.note
        assert block.unreadable == 1
        assert block.lines == whole[name].lines


def test_nothing_to_show(by_hand: Setting) -> None:
    with pytest.raises(InputError, match=r"squares: nothing to show.*no perturbed view"):
        studies.get("shift").run(replace(by_hand, given={"statistic": "top"}))


def test_separation(setting: Setting, run: Run) -> None:
    (block,) = run("separation").blocks
    scores = looked_into(setting, setting.subjects[0]).scores
    for name, each in zip(("digits 8 and 9", "photographs"), block.lines, strict=True):
        assert each.label.startswith(name)
        for method in ("scale", "adascale_a"):
            expected = 100 * metrics.auroc(scores[method]["id"], scores[method][name])
            assert each.cells[f"{method}.auroc"].measured == pytest.approx(expected)
    assert [chart.title for chart in block.charts] == [
        f"{method}: {name}" for name in ("digits 8 and 9", "photographs") for method in ("scale", "adascale_a")
    ]
    for chart in block.charts:
        assert all(len(one.x) == len(one.y) + 1 and 0.9 < _sum(chart, i) <= 1 for i, one in enumerate(chart.series))
    assert _mean(block.charts[0], 1) > _mean(block.charts[0], 0)  # OOD to the right


def _sum(chart: Chart, place: int) -> float:
    return sum(value or 0 for value in chart.series[place].y)


def _mean(chart: Chart, place: int) -> float:
    one = chart.series[place]
    return sum((value or 0) * x for value, x in zip(one.y, one.x[:-1], strict=True))


def test_latency(setting: Setting) -> None:
    study = studies.get("latency")
    assert isinstance(study, Latency)
    result = replace(study, repeats=1).run(replace(named(setting, "imagenet/vit-b-16"), given={"lam": 3}))
    single, many, total = result.blocks
    (settings,) = result.about["settings"].values()
    plain = detectors.AdaSCALE_A().parameters  # the preset and what was given are not timed
    assert settings["timed"] == {"after the network": plain, "random": {**plain, "pixels": "random"}, "trivial": plain}
    assert set(settings) == {"threads", "repeats", "timed"}
    assert not any("was given" in note for note in result.notes)
    assert BATCHES == (1, 256)
    for block in (single, many):
        assert [each.label for each in block.lines] == [f"D={size}" for size in SIZES]
        for each in block.lines:
            assert len(each.cells) == 6
            assert all((cell.measured or 0) > 0 for cell in each.cells.values())
    papers = [each.cells["scale.ratio"].paper for each in single.lines]
    assert papers == [4.66, 3.76, 3.42, 3.14, 3.02]
    others = [cell.paper for each in many.lines for cell in each.cells.values()]
    assert set(others) == {None}
    assert [each.label for each in total.lines] == ["plain forward", "random", "trivial"]
    assert [each.cells["forwards"].paper for each in total.lines] == [None, 1.56, 2.91]
    assert total.lines[0].cells["forwards"].measured == 1


def test_corruption_of_nothing_is_clean(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sigma of a hundredth of a pixel moves nothing: had anything been fitted again, the figures would move."""
    monkeypatch.setattr(robustness, "SIGMAS", ((0.01, 0.01), (2.0, 2.0)))
    clean, same, blurred, jpeg = studies.get("corruption").run(setting).blocks
    for method in ("scale", "optfs", "adascale_a"):
        assert line(same, method) == line(same, f"{method}, ID alone") == line(clean, method)
        assert line(blurred, method) != line(clean, method)
        assert line(blurred, method) != line(blurred, f"{method}, ID alone")
        assert line(jpeg, method) != line(clean, method)
        assert (line(blurred, f"{method}, ID alone")["ood.far.auroc"] or 0) < (
            line(clean, method)["ood.far.auroc"] or 0
        )


def test_only_what_is_tested_is_corrupted(setting: Setting) -> None:
    images, (_, change) = setting.images, robustness.changes(seed=0)[1]
    both, alone = robustness.everywhere(images, change), robustness.known_only(images, change)
    for found in (both, alone):
        assert found.val is images.val
        assert found.train is images.train
        assert found.id.change == change
    assert all(found.change == change for found in (*both.near.values(), *both.far.values()))
    assert all(found.change is None for found in (*alone.near.values(), *alone.far.values()))


def test_the_papers_corruptions(setting: Setting, run: Run) -> None:
    result = run("corruption")
    assert [block.title for block in result.blocks] == [
        f"digits: {text}" for text in ("clean", "blur, sigma 0.01 to 0.5", "blur, sigma 0.1 to 2", "JPEG, quality 50")
    ]
    assert result.about["settings"] == {"digits": detectors.AdaSCALE_A().parameters}
    clean, mild, strong, _ = (line(block, "scale, ID alone" if i else "scale") for i, block in enumerate(result.blocks))
    assert (strong["ood.far.auroc"] or 0) < (mild["ood.far.auroc"] or 0) <= (clean["ood.far.auroc"] or 0) + 1
    place = named(setting, "imagenet/resnet-50")
    cells = studies.get("corruption").run(place).blocks[3].lines[-1].cells
    assert [cells[f"ood.{kind}.auroc"].paper for kind in ("near", "far")] == [77.59, 94.06]


def test_adversarial_on_the_digits(setting: Setting, run: Run) -> None:
    before = {
        name: tensor.clone() for name, tensor in setting.subjects[0].network.classifier.model.state_dict().items()
    }
    ratios, methods = run("adversarial").blocks
    assert [column.key for column in ratios.columns] == ["as given", "eps=0.01", "eps=0.05"]
    assert line(ratios, "photographs (Far-OOD)")["as given"] == pytest.approx(
        line(run("q-ratio").blocks[0], "photographs (Far-OOD)")["q"]
    )
    assert ratios.note.count("under PGD") == 2
    assert [each.label for each in methods.lines] == [
        f"{network} {method}"
        for network in ("as given", "eps=0.01", "eps=0.05")
        for method in ("scale", "optfs", "adascale_a")
    ]
    assert line(methods, "eps=0.05 scale") != line(methods, "as given scale")
    after = setting.subjects[0].network.classifier.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_network_is_made_once(setting: Setting) -> None:
    recipe = replace(RECIPES["ish"], epochs=1, batch_size=32, augment=False)
    first = tuned(setting, setting.subjects[0], recipe)
    times = {path: os.stat(path).st_mtime_ns for path in (setting.cache / "trained").iterdir()}
    second = tuned(setting, setting.subjects[0], recipe)
    assert {path: os.stat(path).st_mtime_ns for path in (setting.cache / "trained").iterdir()} == times
    assert first.record == second.record
    prints = {made.subject.network.classifier.fingerprint() for made in (first, second)}
    assert len(prints) == 1
    assert prints != {setting.subjects[0].network.classifier.fingerprint()}


def test_a_network_that_says_how_it_was_trained(setting: Setting) -> None:
    here = named(setting, "imagenet/resnet-50")
    (subject,) = here.subjects
    trained = {"loss": "adversarial", "eps": 0.05}
    known = replace(subject, network=replace(subject.network, trained=trained))
    images = replace(setting.images, near={"ssb_hard": setting.images.near["digits 8 and 9"]})
    ratios, methods = studies.get("adversarial").run(replace(here, subjects=[known], images=images)).blocks
    assert [column.key for column in ratios.columns] == ["eps=0.05"]
    assert [each.cells["eps=0.05"].paper for each in ratios.lines] == [1.73, None]
    assert [each.cells["ood.near.fpr95"].paper for each in methods.lines] == [66.99, 70.11, 60.21]
    assert paper.other("adversarial-ratio", known.place, "SSB-hard", "eps=0.05") == 1.73


def test_ish_on_the_digits(run: Run) -> None:
    (block,) = run("ish").blocks
    assert [each.label for each in block.lines] == [
        f"{network}: {method}" for network in ("digits", "digits (ISH)") for method in ("scale", "optfs", "adascale_a")
    ]
    assert line(block, "digits: optfs") == line(run("corruption").blocks[0], "optfs")
    assert line(block, "digits (ISH): scale") != line(block, "digits: scale")
    assert block.note.count("accuracy") == 2


@pytest.mark.parametrize(("name", "words"), [("adversarial", "nothing says"), ("ish", "No network here says")])
def test_elsewhere_nothing_is_trained(setting: Setting, tmp_path: Path, name: str, words: str) -> None:
    """A suite that is called digits is not the package's."""
    (tmp_path / "digits.toml").write_text('id = "digits:test"\n[far]\nphotographs = "digits:far"\n')
    suite = load_suite(str(tmp_path / "digits.toml"))
    assert suite.name == setting.suite.name
    other = replace(setting, suite=suite, cache=tmp_path)
    result = studies.get(name).run(other)
    assert not (tmp_path / "trained").exists()
    assert len(result.blocks[-1].lines) == 3
    assert words in result.notes[0]


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


def test_every_section_has_its_charts(run: Run) -> None:
    results = [run(name) for name in ("corruption", "adversarial", "ish", "shift", "q-ratio", "separation")]
    text = studies_page(results)
    assert text.count("<svg") == sum(len(block.charts) for result in results for block in result.blocks) > 10
