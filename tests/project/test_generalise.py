"""Leave-one-network-out: a choice does not see the network that it is measured on, and figures are exact."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from adascale import Head, InputError, Outputs, detectors
from adascale.metrics import auroc, fpr_at_tpr
from benchmarks import networks
from benchmarks.generalise.activations import VIEW, Subject, subject
from benchmarks.generalise.candidates import DEFAULT, single_methods, variants
from benchmarks.generalise.choosing import gap, left_out_choices
from benchmarks.generalise.few import few_images
from benchmarks.generalise.floors import floors
from benchmarks.generalise.measuring import Candidate, Figures, Resamples, figures, scores
from benchmarks.generalise.networks_at_hand import TRAINED
from benchmarks.generalise.page import filled
from benchmarks.generalise.results import Results, against_demands, on_average
from benchmarks.generalise.rules import LIKELY, RULES, SHIPPED, Rule, Tuned, likely, swept, tuned

LOGITS = detectors.get("adascale_l")(pixels="random")
HEAD = Head(torch.randn(4, 24, generator=torch.Generator().manual_seed(0)))


def outputs(n: int, seed: int, strength: float) -> Outputs:
    """ID images have strong features of one class, OOD images weak ones."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (n,), generator=generator)
    features = torch.relu(torch.randn(n, 24, generator=generator) + strength * HEAD.weight[labels])
    perturbed = torch.relu(features + 0.1 * torch.randn(n, 24, generator=generator))
    return Outputs(HEAD(features).float(), features, {VIEW: perturbed}, labels)


def made_up(name: str = "made up", n: int = 100) -> Subject:
    near, far = {"a": outputs(40, 3, 0.6), "b": outputs(30, 4, 0.4)}, {"c": outputs(50, 5, 0.0)}
    made = {"shuffled": outputs(n, 6, 0.3), "mixed": outputs(n, 7, 0.5)}
    return Subject(name, HEAD, outputs(n, 1, 1.0), outputs(120, 8, 1.0), outputs(60, 2, 1.0), near, far, made)


def test_the_network_that_is_left_out_has_no_say() -> None:
    table = {
        "steady": {"x": Figures(90, 0), "y": Figures(90, 0), "z": Figures(60, 0)},
        "lucky": {"x": Figures(80, 0), "y": Figures(80, 0), "z": Figures(100, 0)},
        "partial": {"x": Figures(99, 0), "y": Figures(99, 0)},
    }
    assert left_out_choices(table, ["x", "y", "z"]) == {"x": "lucky", "y": "lucky", "z": "steady"}
    table["lucky"]["z"] = Figures(0, 0)  # what is chosen for z is the same; what is chosen for x and y is not
    assert left_out_choices(table, ["x", "y", "z"]) == {"x": "steady", "y": "steady", "z": "steady"}


def test_near_and_far_count_the_same() -> None:
    one, method = made_up(), Candidate("mls", detectors.get("mls")())
    found = scores(one, method)
    assert torch.allclose(found["a"], -one.near["a"].logits.double().amax(1))
    a, b, c = (auroc(found["id"], found[name]) for name in "abc")
    assert figures(one, found).auroc == pytest.approx(100 * ((a + b) / 2 + c) / 2)
    a, b, c = (fpr_at_tpr(found["id"], found[name]) for name in "abc")
    assert figures(one, found).fpr95 == pytest.approx(100 * ((a + b) / 2 + c) / 2)


def test_a_resample_has_the_figures_of_the_images_drawn() -> None:
    one = made_up()
    found = {name: (3 * part).round() for name, part in scores(one, Candidate("mls", detectors.get("mls")())).items()}
    resamples = Resamples(one, draws=5, seed=1)  # rounded scores have ties
    aurocs, fprs = resamples.figures(found)
    for draw in range(5):
        again = {
            name: part.repeat_interleave(torch.from_numpy(resamples.counts[name][draw])) for name, part in found.items()
        }
        expected = figures(one, again)
        assert aurocs[draw] == pytest.approx(expected.auroc)
        assert fprs[draw] == pytest.approx(expected.fpr95)


def test_a_difference_between_equals_is_none() -> None:
    found = gap(0.0, [np.zeros(50), np.zeros(50)])
    assert found.images == found.networks == (0, 0)
    far = gap(2.0, [np.full(50, 1.0), np.full(50, 3.0)])
    assert far.images == (2, 2)
    assert far.networks == (1, 3)  # one of the two networks may be drawn twice


def test_fewer_images_are_a_part_of_all() -> None:
    one = made_up()
    few = few_images(one, [Candidate("mls", detectors.get("mls")()), Candidate("fdbd", detectors.get("fdbd")())])
    assert len(set(few["mls"].values())) == 1
    whole = figures(one, scores(one, Candidate("fdbd", detectors.get("fdbd")(), train=False))).auroc
    assert few["fdbd"][300] == pytest.approx(whole, abs=3)  # another order, hence another split


def test_one_good_pair_is_its_own_average() -> None:
    sweep = swept(made_up(), "adascale_l")
    only = replace(sweep, judged=sweep.judged * 0 + torch.arange(float(len(sweep.points)), dtype=torch.float64))
    for rule in (Rule("mean", 0.0, "best"), Rule("least", 0.5, "ratios"), Rule("both", 0.5, "scores")):
        assert only.auroc_of(rule) == pytest.approx(float(sweep.measured[-1]))
    assert sweep.points[-1] == {"p_min": 99, "p_max": 99}


def test_equal_pairs_average_to_themselves_and_criteria_differ() -> None:
    sweep = swept(made_up(), "adascale_l")
    same = torch.tensor([[90.0, 90.0], [80.0, 80.0]]).double()
    twins = replace(sweep, points=[sweep.points[3]] * 2, judged=same, tested=[sweep.tested[3]] * 2)
    for pick in ("ratios", "scores"):
        assert twins.auroc_of(Rule("mean", 1.0, pick)) == pytest.approx(float(sweep.measured[3]))
    kinds = torch.tensor([[90.0, 80.0], [60.0, 65.0]]).double()  # both: 67.5 and 68.75
    two = replace(sweep, points=sweep.points[:2], judged=kinds, measured=torch.tensor([1.0, 2.0]))
    assert [two.auroc_of(Rule(of, 0.0, "best")) for of in ("mean", "least", "both")] == [1, 2, 2]


def test_pairs_that_may_be_the_best_are_those_that_are_in_some_draws() -> None:
    values = torch.tensor([[0.9, 0.899, 0.5], [0.8, 0.799, 0.6], [0.7, 0.699, 0.1], [0.6, 0.599, 0.2]])
    assert likely(values) == [1, 0, 0]  # close, but not in doubt
    assert likely(torch.tensor([[0.5, 0.5, 0.1], [0.5, 0.6, 0.1]])) == [0.25, 0.75, 0]
    sweep = swept(made_up(), "adascale_l")
    spread = (sweep.drawn.mean(0) - sweep.judged).abs().max()
    assert 0 < float(spread) < 1.5  # the mean over the draws is the AUROC itself
    rule = Rule("sides", 0.0, "likely")
    again = torch.zeros(20, len(sweep.judged), len(sweep.points)).double()
    again[0, :, 5] = again[1:, :, 7] = 100.0
    clear = torch.zeros_like(sweep.judged)
    clear[:, 7] = 100.0
    both = replace(sweep, judged=clear, drawn=again)
    twice = Rule("sides", 1.0, "ratios")
    clear = clear.clone()
    clear[:, 5] = 99.5
    assert LIKELY == 1 / 20
    assert both.auroc_of(rule) == pytest.approx(replace(sweep, judged=clear).auroc_of(twice))
    assert replace(both, drawn=again[1:]).auroc_of(rule) == pytest.approx(float(sweep.measured[7]))


def test_the_shipped_rule_is_one_of_those_compared() -> None:
    one = made_up()
    found = tuned(one, "adascale_l", splits=2)
    assert found.shipped == pytest.approx(found.rules[SHIPPED])
    shipped = [figures(one, scores(one, Candidate("x", LOGITS), seed=seed)).auroc for seed in (0, 1)]
    assert found.shipped == pytest.approx(sum(shipped) / 2)


def test_the_default_is_what_users_get() -> None:
    first = variants()[0]
    assert first.name == DEFAULT
    assert first.method.parameters == detectors.get("combined")().parameters
    assert DEFAULT not in {one.name for one in single_methods()}


def results(default: float, single: float) -> Results:
    """Two networks with these AUROCs; FPR@95 is 100 minus the AUROC."""
    found = Results(networks=["x", "y"])
    draws = {name: (np.full(4, value), np.full(4, 100 - value)) for name, value in ((DEFAULT, default), ("o", single))}
    for name in found.networks:
        found.variants.setdefault(DEFAULT, {})[name] = Figures(default, 100 - default)
        for other in ("adascale_l", "fdbd"):
            found.singles.setdefault(other, {})[name] = Figures(single, 100 - single)
            found.draws.setdefault(other, {})[name] = draws["o"]
        found.draws.setdefault(DEFAULT, {})[name] = draws[DEFAULT]
        for method in found.tuned.values():
            method[name] = Tuned(default=80, shipped=90, hindsight=90.3, rules=dict.fromkeys(RULES, 90.1))
        found.few[name] = {DEFAULT: {30: default - 2, 300: default}, "mls": {30: default - 2.5, 300: 0}}
    return found


def test_floors() -> None:
    assert all(floor.met for floor in floors(results(92, 89)))
    missed = [floor.text for floor in floors(results(90, 91.5)) if not floor.met]
    assert len(missed) == 4  # AUROC, FPR@95, and below both single methods
    assert "more than 1.0 below fdbd" in missed[-1]


def test_the_rule_of_the_other_networks_is_held_to_the_same_floors() -> None:
    found = results(92, 89)
    lucky = {**dict.fromkeys(RULES, 89.0), RULES[0]: 90.3}  # on x another rule is the best than on y
    unlucky = {**dict.fromkeys(RULES, 89.0), RULES[1]: 90.3}
    for name, rules in (("x", lucky), ("y", unlucky)):
        found.tuned["adascale_a"][name] = found.tuned["adascale_a"][name]._replace(rules=rules)
    missed = [floor for floor in floors(found) if not floor.met]
    assert [floor.text.split(" loses")[0] for floor in missed] == ["adascale_a with the rule of the other networks"] * 2
    assert missed[0].found == "1.30"


def test_a_rule_is_judged_by_what_is_demanded_of_it() -> None:
    """The larger of mean over 0.4 and worst over 1.0, whatever loses less on average."""
    assert against_demands([[0.1, 0.1], [0.2, 0.4]]) == pytest.approx(0.75)
    assert against_demands([[0.0, 0.9], [0.0, 0.0]]) == pytest.approx(0.45 / 0.4)
    found = results(92, 89)
    uneven, even = {"x": 89.4, "y": 90.3, "z": 90.3}, {"x": 90.0, "y": 90.0, "z": 90.0}  # of 90.3
    one = found.tuned["adascale_a"]["x"]
    for each in found.tuned.values():
        for name in uneven:
            rules = dict.fromkeys(RULES, 80.0) | {RULES[0]: uneven[name], RULES[1]: even[name]}
            each[name] = one._replace(hindsight=90.3, rules=rules)
    assert found.rule_without("nothing", on_average) is RULES[0]
    assert found.rule_without("nothing") is RULES[1]
    assert found.losses("adascale_a")["x"] == pytest.approx(0.9)  # the others would take the uneven one


def test_a_page_keeps_what_stands_between_its_tables() -> None:
    found = results(92, 89)
    text = "before\n<!-- generalise floors -->\nold\n<!-- end -->\nafter\n"
    new = filled(text, found)
    assert "old" not in new
    assert new.startswith("before\n<!-- generalise floors -->\n\n- met: the mean AUROC")
    assert new.endswith("<!-- end -->\nafter\n")
    assert filled(new, found) == new


def test_a_network_that_cannot_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ADASCALE_DATA", raising=False)
    with pytest.raises(InputError, match="ADASCALE_DATA"):
        subject("cifar10_vit", tmp_path, None)
    with pytest.raises(InputError, match="narrow_resnet has to be trained"):
        subject("narrow_resnet", tmp_path, None)


@pytest.mark.parametrize("name", TRAINED)
def test_the_networks_to_train_have_a_head(name: str) -> None:
    from adascale import Classifier

    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    network = getattr(networks, name)().eval()
    assert Classifier(network).locate(images).head_name == "head"
    loss = network(images).square().mean()
    torch.autograd.backward(loss)
    assert all(parameter.grad is not None for parameter in network.parameters())
