"""`combined`: members, what is left out, evidence, bounds, files."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from adascale import Detector, DetectorFileError, InputError, OODDetector, Outputs, View, detectors
from adascale.decision.detector_file import DetectorFile
from adascale.decision.fitting import Plan
from adascale.detectors import registry
from adascale.detectors.combined import Combined
from adascale.maths.conformal import Calibration
from adascale.testing import check_detector, example_outputs
from tests.conftest import SmallNet, images, seeded

RANDOM = View("random")


def made(**parameters: Any) -> Combined:
    found = detectors.get("combined")(**parameters)
    assert isinstance(found, Combined)
    return found


def fitted(n: int = 200, train: int = 0, **parameters: Any) -> Combined:
    reference, head = example_outputs(n, (RANDOM,), seed=3)
    return made(**parameters).fit(reference, head, example_outputs(train, (), seed=4)[0] if train else None)


TEST = Outputs.cat([example_outputs(60, (RANDOM,), ood=ood, seed=8)[0] for ood in (False, True)])


@pytest.mark.parametrize(
    "parameters",
    [
        {"weights": "equal"},
        {"weights": (2.0, 0.0, 1.0, 1.0), "rule": "tippett"},
        {"members": ("adascale_a", "odin", "mds", "knn"), "pixels": "trivial"},
    ],
)
def test_any_members_keep_the_contract(parameters: dict[str, Any]) -> None:
    check_detector(lambda: made(**parameters))


def test_a_member_may_be_a_class_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\nfrom adascale import Detector\n\n@dataclass\nclass Mine(Detector):\n"
        "    name = 'mine'\n    summary = 'one'\n\n    def _score(self, outputs):\n"
        "        return -outputs.features.double().amax(1)\n"
    )
    found = fitted(members=("gen", f"{tmp_path / 'mine.py'}:Mine"))
    assert found.speakers == ("gen", "mine")
    again = made(**json.loads(json.dumps(found.parameters))).restore(found.state(), found.head_)
    assert torch.equal(again.score(TEST), found.score(TEST))


def test_the_score_is_the_sum_of_what_the_members_add() -> None:
    found = fitted()
    score, evidence = found.explained(TEST)
    assert tuple(evidence) == found.speakers == ("adascale_l", "fdbd", "gen", "vim")
    assert torch.equal(score, found.score(TEST))
    torch.testing.assert_close(sum(evidence.values()), score)
    largest = fitted(rule="tippett").explained(TEST)
    assert torch.equal(largest[0], torch.stack(list(largest[1].values())).amax(0))
    broken = replace(TEST, features=TEST.features.clone())
    broken.features[5, 0] = math.nan
    assert found.explained(broken)[1]["gen"][5] == found.score(broken)[5] == math.inf


def test_what_cannot_be_fitted_is_left_out_and_named() -> None:
    reference, head = example_outputs(100, (RANDOM,))
    unlabelled = Outputs(reference.logits, reference.features, reference.views)
    found = made(members=("gen", "mds", "knn"), settings={"knn": {"k": 90}}).fit(unlabelled, head)
    assert found.speakers == ("gen",)
    assert "left out mds: mds needs the training labels" in found.note
    assert "left out knn: " in found.note
    with pytest.raises(InputError, match="None of the members can be fitted: mds needs the training labels"):
        made(members=("mds",)).fit(unlabelled, head)


def test_members_learn_from_training_images_where_that_is_asked_for() -> None:
    reference, head = example_outputs(50, (RANDOM,), seed=3)
    train = example_outputs(400, (), seed=4)[0]
    assert torch.equal(made().fit(reference, head, train).score(TEST), made().fit(reference, head).score(TEST))
    assert not made().learns_from_train
    asked = made(learn_from="train")
    assert asked.learns_from_train
    both, alone = asked.fit(reference, head, train), made().fit(reference, head)
    assert torch.equal(both.voices_["fdbd"].method.state()["mean_"], train.features.double().mean(0))
    assert torch.equal(alone.voices_["fdbd"].method.state()["mean_"], reference.features.double().mean(0))
    known = both.voices_["adascale_l"].method.state()["reference_"]
    assert len(known) == len(reference)  # AdaSCALE needs the perturbed view


def test_members_that_need_labels_learn_from_training_images() -> None:
    reference, head = example_outputs(50, (RANDOM,), seed=3)
    train = example_outputs(400, (), seed=4)[0]
    asked = made(members=("gen", "mds"))
    assert asked.learns_from_train
    found = asked.fit(Outputs(reference.logits, reference.features, reference.views), head, train)
    assert torch.equal(found.voices_["mds"].method.score(TEST), detectors.get("mds")().fit(train, head).score(TEST))


def test_images_are_ranked_by_members_that_have_not_learned_from_them() -> None:
    """The nearest neighbour of an image that was learned from is that image: fresh ID images would all look unusual."""
    reference, head = example_outputs(200, (RANDOM,), seed=3)
    fresh = example_outputs(1000, (RANDOM,), seed=9)[0]
    found = made(members=("knn",), settings={"knn": {"k": 1}}).fit(reference, head)
    flagged = (found.score(fresh) > math.log(10)).double().mean()  # a p-value below a tenth
    assert 0.04 < flagged < 0.14


@pytest.mark.parametrize("weights", ["equal", "decorrelated"])
@pytest.mark.parametrize("rule", ["fisher", "tippett"])
def test_bounds_hold_whatever_the_views_are(rule: str, weights: str) -> None:
    found = fitted(rule=rule, weights=weights)
    clean = Outputs(TEST.logits, TEST.features)
    bounds = found.bounds(clean)
    assert bounds is not None
    for seed in range(5):
        noise = torch.randn(TEST.features.shape, generator=torch.Generator().manual_seed(seed)) * 10.0 ** (seed - 3)
        scores = found.score(Outputs(TEST.logits, TEST.features, {RANDOM: TEST.features + noise}))
        assert (bounds[0] <= scores + 1e-9).all()
        assert (scores <= bounds[1] + 1e-9).all()
    assert made(members=("gen", "odin")).fit(*example_outputs(50, made(members=("odin",)).views)).bounds(clean) is None


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"members": ()}, "members is empty"),
        ({"members": ("gen", "gen")}, "gen is given twice"),
        ({"members": ("gne",)}, "did you mean 'gen'"),
        ({"settings": {"knn": {"k": 5}}}, "'knn', which is no member"),
        ({"settings": {"vim": {"k": 5}}}, "vim has no parameter 'k'"),
        ({"weights": (1.0,)}, "a number of at least 0 for each of adascale_l, fdbd, gen, vim"),
        ({"weights": (1.0, 1.0, -1.0, 1.0)}, "at least 0"),
        ({"p_max": 50}, "p_min=60 is above p_max=50"),
    ],
)
def test_bad_parameters_are_named(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        made(**parameters)


def test_percentiles_and_pixels_are_those_of_the_members() -> None:
    found = made(p_min=70, p_max=90, pixels="trivial").made()["adascale_l"]
    assert (found.parameters["p_min"], found.parameters["p_max"], found.views) == (70, 90, (View(),))
    own = made(p_max=90, settings={"adascale_l": {"p_max": 95}}).made()["adascale_l"]
    assert own.parameters["p_max"] == 95
    assert made(members=("odin",)).for_input((0.5, 0.5, 0.5)).parameters["settings"]["odin"]["std"] == (0.5, 0.5, 0.5)


def test_members_made_for_training_images_count_less_where_they_have_few_images() -> None:
    reference, head = example_outputs(40, (RANDOM,), seed=3)
    full, fewer = made(few=0).fit(reference, head), made().fit(reference, head)
    for name in ("adascale_l", "gen"):
        assert fewer.voices_[name].weight == full.voices_[name].weight
    for name in ("fdbd", "vim"):
        torch.testing.assert_close(fewer.voices_[name].weight, full.voices_[name].weight * 40 / 50)
    train = example_outputs(400, (), seed=4)[0]
    taught = made(learn_from="train").fit(reference, head, train), made(learn_from="train", few=0)
    assert taught[0].voices_["vim"].weight == taught[1].fit(reference, head, train).voices_["vim"].weight
    too_few = example_outputs(2, (), seed=4)[0]  # ViM cannot learn from them, and learns from the ID images
    untaught = [made(learn_from="train", few=few).fit(reference, head, too_few).voices_["vim"] for few in (0, 10)]
    torch.testing.assert_close(untaught[1].weight, untaught[0].weight * 40 / 50)
    equal = made(weights="equal").fit(reference, head)
    assert {float(voice.weight) for voice in equal.voices_.values()} == {1}


@pytest.mark.parametrize("n", [2, 3, 10, 30])
def test_few_images_are_enough(n: int) -> None:
    found = fitted(n)
    scores = found.score(TEST)
    assert scores.isfinite().all()
    assert (scores[60:, None] > scores[None, :60]).double().mean() > 0.95


@pytest.mark.parametrize("n", [30, 64, 200, pytest.param(1000, marks=pytest.mark.slow)])
def test_the_false_alarm_promise_holds(n: int) -> None:
    """Monte Carlo over draws of the images, with all that `fit` does; the members are dependent, as they always are."""
    population, head = example_outputs(4000, (RANDOM,), seed=21)
    plan, flagged, promised, draws = Plan(made(), alpha=0.1), [], [], 25
    for draw in range(draws):
        order = torch.randperm(len(population), generator=torch.Generator().manual_seed(draw))
        sample, fresh = population[order[:n]], population[order[n : n + 300]]
        result = plan.fit(sample, head, None, lambda chosen, _, sample=sample: _outliers(sample, chosen))  # type: ignore[misc]
        assert isinstance(result.calibration, Calibration)
        flagged.append(float(result.calibration.is_ood(result.method.score(fresh)).double().mean()))
        promised.append(result.calibration.level)
    mean = sum(flagged) / draws
    deviation = math.sqrt(sum((x - mean) ** 2 for x in flagged) / (draws - 1) / draws)
    assert mean <= sum(promised) / draws + 3 * deviation
    assert mean > 0.02


def _outliers(sample: Outputs, chosen: Any) -> dict[str, Outputs]:
    part = sample[torch.tensor(list(chosen))]
    return {"made up": replace(part, views={view: a * 1.2 for view, a in part.views.items()})}


def test_a_detector_file_does_not_run_a_file_that_it_names(tmp_path: Path) -> None:
    """A member in a file is used only if this process has loaded it."""
    (tmp_path / "other.py").write_text(
        "from dataclasses import dataclass\nfrom adascale.detectors.mls import MLS\n\n@dataclass\nclass Other(MLS):\n"
        "    name = 'other'\n    summary = 'one'\n"
    )
    net, spec = seeded(SmallNet), f"{tmp_path / 'other.py'}:Other"
    detector = OODDetector(net, "combined", members=("gen", spec)).fit(images(40))
    detector.save(tmp_path / "d.safetensors")
    loaded = OODDetector.load(tmp_path / "d.safetensors", net)
    assert torch.equal(loaded.score(images(5)), detector.score(images(5)))
    (tmp_path / "bad.py").write_text("raise SystemExit('this ran')\n")
    file = DetectorFile.read(tmp_path / "d.safetensors")
    members = ["gen", f"{tmp_path / 'bad.py'}:Bad"]
    forged = replace(file, record={**file.record, "parameters": {**file.record["parameters"], "members": members}})
    with pytest.raises(DetectorFileError, match="which is not loaded"):
        forged.method()


@dataclass
class _Constant(Detector):
    name = "constant"
    summary = "always the same"

    def _score(self, outputs: Outputs) -> torch.Tensor:
        return torch.zeros(len(outputs), dtype=torch.float64)


def test_a_member_that_says_nothing_changes_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "REGISTERED", {})
    detectors.register(_Constant)
    with_it, without = fitted(members=("gen", "constant")), fitted(members=("gen",))
    assert torch.equal(with_it.score(TEST).argsort(), without.score(TEST).argsort())
