"""Parity with the stored reference scores, to far below the 1e-5 that float32 inputs would excuse."""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from adascale import AdascaleWarning, Classifier, Outputs, View, detectors, extract_batch
from adascale.detectors.adaptive import Adaptive
from tests.conftest import ORACLES, Case, needs_oracles, worst_relative
from tests.inside import INSIDE
from tests.reference.methods import UNPUBLISHED

pytestmark = needs_oracles

CASES = ("case_A_relu2048", "case_B_relu342", "case_C_signed768", "case_D_small64", "case_E_convnet")
SETTINGS = ("80_85_1_5_10", "60_95_1_80_10", "60_99_1_100_10", "75_85_5_5_1")
# Not ours on purpose: a VRA that raises small values and one with hand-set ends, the eigenbasis that is not orthonormal
# (the *_exact entries are the target), NNGuide on a fraction of the bank by batch size, and GMM (below).
NOT_OURS = ("vra_clip", "vra__a0p5", "vim__", "residual__", "nnguide__K10_a0p5", "gmm")


@lru_cache(maxsize=2)
def case(name: str) -> Case:
    return Case(name)


def adaptive(name: str, setting: str, features: int) -> Adaptive:
    p_min, p_max, k1, k2, lam = map(float, setting.split("_"))
    # The reference takes no feature at all where k1 % is less than one, so its Q is 0; ours takes one.
    # Parity of everything else is tested there with the weight of Q at 0.
    if features * k1 < 100:
        lam = 0.0
    made = detectors.get(name)(p_min=p_min, p_max=p_max, k1=k1, k2=k2, lam=lam)
    assert isinstance(made, Adaptive)
    return made


def number(text: str) -> float:
    """``a0p01`` is 0.01, ``pw90`` is 90."""
    return float(text.lstrip("abcdefghijklmnopqrstuvwxyzKTMN").replace("p", "."))


def configured(entry: str, features: int) -> Any:
    """The detector that an oracle's name describes."""
    name, _, setting = entry.partition("__")
    parts = setting.split("_")
    match name:
        case "adascale_a" | "adascale_l":
            return adaptive(name, setting, features)
        case "scale" | "ash_p" | "ash_b" | "ash_s":  # to the letter, on signed features too
            return detectors.get(name)(relu=False, **({"percentile": number(setting)} if setting else {}))
        case "ebo":
            return detectors.EBO(number(setting))
        case "gen":
            return detectors.GEN(number(parts[0]), int(number(parts[1])))
        case "react_train":
            return detectors.ReAct(number(setting))
        case "bfact":
            return detectors.BFAct(number(parts[0]), int(number(parts[1])))
        case "vra":
            return detectors.VRA(60, 95)
        case "optfs_vanilla":
            return detectors.OptFS()
        case "optfs_energy":
            return detectors.OptFS("logits")
        case "line":
            return detectors.LINe(*map(number, parts))
        case "knn":
            return detectors.KNN(int(number(setting)))
        case "nnguide":
            return detectors.NNGuide(int(number(parts[0])), fraction=1.0)
        case "vim_exact" | "residual_exact":
            return detectors.get(name.split("_")[0])(dim=int(number(setting)))
        case "she":
            return detectors.SHE(setting)
        case "fdbd":
            return detectors.FDBD("distance" if setting == "dist" else "norm")
        case "nci":
            return detectors.NCI(number(setting))
        case "relation":
            return detectors.Relation(number(setting))
    return detectors.get(name)(**({"percentile": number(setting)} if setting else {}))


def fitted_on(entry: str, oracle: Case) -> Outputs:
    """Train for most; val for those that need little; for NNGuide the rows of its bank."""
    if entry.startswith(("adascale", "react__", "klm", "residual_exact")):
        return oracle.outputs("val")
    if entry.startswith("nnguide"):
        return oracle.outputs("train")[: int(oracle.arrays[f"aux__{entry}__bank_size"])]
    return oracle.outputs("train")


@pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")
@pytest.mark.parametrize("name", CASES)
def test_every_score(name: str) -> None:
    oracle = case(name)
    tested = set()
    for entry in oracle.scores():
        plain, _, split = entry.partition("@")
        if plain.startswith((*NOT_OURS, "odin")):  # ODIN needs the network: below
            continue
        detector = configured(plain, oracle.head.weight.shape[1])
        scores = detector.fit(fitted_on(plain, oracle), oracle.head).score(oracle.outputs(split or "test"))
        if plain.startswith("knn"):
            scores = scores.square()  # the reference returns squared distances
        tolerance = 1e-6 if plain.startswith(("mds", "rmds", "vim", "residual")) else 1e-7
        assert worst_relative(-scores, oracle[f"score__{entry}"]) < tolerance, f"{name} {entry}"
        tested.add(detector.name)
    assert tested == {cls.name for cls in detectors.ALL} - {"odin"} - UNPUBLISHED - INSIDE


@pytest.mark.parametrize("name", ["case_B_relu342", "case_D_small64"])
def test_gmm_with_the_mixture_of_the_reference(name: str) -> None:
    """The fit depends on the library that makes it; the score of a fitted mixture does not."""
    oracle = case(name)
    means, precision, weights, projection = (
        oracle[f"aux__gmm__{part}"].double() for part in ("means", "precision", "weights", "projection")
    )
    root = torch.linalg.cholesky(precision)
    state = {
        "mean_": torch.zeros(len(projection), dtype=torch.float64),
        "projection_": projection @ root,
        "centres_": means @ root,
        "log_weights_": weights.log(),
    }
    scores = detectors.GMM(components=4, dim=8).restore(state, oracle.head).score(oracle.outputs("test"))
    assert worst_relative(-scores, oracle["score__gmm"]) < 1e-9


@pytest.mark.parametrize(("temperature", "eta"), [(1000, 0.0014), (1, 0.004), (1000, 0.05)])
def test_odin_through_the_network(temperature: float, eta: float) -> None:
    oracle = case("case_E_convnet")
    std = (0.2470, 0.2435, 0.2616)
    detector = detectors.ODIN(temperature, eta, std).fit(None, oracle.head)
    outputs = extract_batch(Classifier(OracleNet(oracle).double()), oracle["x_test"].double(), detector.views)
    expected = oracle[f"score__odin__T{temperature}_n{str(eta).replace('.', 'p')}"]
    assert worst_relative(-detector.score(outputs), expected) < 1e-12


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", CASES)
def test_every_intermediate_value(name: str, setting: str) -> None:
    oracle = case(name)
    val = oracle.outputs("val")
    detector = adaptive("adascale_a", setting, val.features.shape[1]).fit(val, oracle.head)
    for split in ("val", "test"):
        outputs = oracle.outputs(split)
        expected = {what: oracle[f"aux__ada__{setting}__{what}_{split}"] for what in ("Qprime", "percentile", "r")}
        assert worst_relative(detector.shift_statistic(outputs), expected["Qprime"]) < 1e-9
        assert worst_relative(detector.percentiles(outputs), expected["percentile"]) < 1e-12
        assert worst_relative(detector.ratios(outputs), expected["r"]) < 1e-9
        for statistic, what in (("q", "Q"), ("c_o", "Co")):
            part = detectors.get("adascale_a")(**{**detector.parameters, "statistic": statistic})
            assert isinstance(part, Adaptive)
            if statistic == "c_o" or val.features.shape[1] * detector.k1 >= 100:
                ours = part.shift_statistic(outputs)
                assert worst_relative(ours, oracle[f"aux__ada__{setting}__{what}_{split}"]) < 1e-9


@pytest.mark.parametrize("name", CASES)
def test_the_reference_set_scored_by_itself_is_uniform(name: str) -> None:
    oracle = case(name)
    val = oracle.outputs("val")
    detector = adaptive("adascale_a", SETTINGS[0], val.features.shape[1])
    detector.p_min, detector.p_max = 0, 100
    share = 1 - detector.fit(val, oracle.head).percentiles(val) / 100
    assert float(share.mean()) == pytest.approx(0.5 + 0.5 / len(val), abs=1e-12)


class OracleNet(nn.Module):
    def __init__(self, arrays: Case) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(32, 128, 3, stride=2, padding=1)
        self.fc = nn.Linear(128, 10)
        names = {"conv1": ("conv1_w", "conv1_b"), "conv2": ("conv2_w", "conv2_b"), "fc": ("W", "b")}
        state = {
            f"{m}.{kind}": arrays[a]
            for m, pair in names.items()
            for kind, a in zip(("weight", "bias"), pair, strict=True)
        }
        self.load_state_dict(state)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.conv2(torch.relu(self.conv1(x))))
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_end_to_end_from_images(dtype: torch.dtype) -> None:
    oracle = case("case_E_convnet")
    model = OracleNet(oracle).to(dtype)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-9
    found = {s: extract_batch(Classifier(model), oracle[f"x_{s}"].to(dtype), [View()]) for s in ("val", "test")}
    for split, outputs in found.items():
        assert worst_relative(outputs.features, oracle[f"net_feat_{split}"]) < tolerance
        assert worst_relative(outputs.views[View()], oracle[f"net_featp_{split}"]) < tolerance
    for setting in SETTINGS:
        for name in ("adascale_a", "adascale_l"):
            detector = adaptive(name, setting, 128).fit(found["val"], Classifier(model, "fc").head)
            expected = oracle[f"score__{name}__{setting}"]
            assert worst_relative(-detector.score(found["test"]), expected) < tolerance


def test_the_perturbed_images_themselves() -> None:
    from adascale.extraction.perturb import perturb

    oracle = case("case_E_convnet")
    x = oracle["x_test"].double()
    _, _, (gradient,) = Classifier(OracleNet(oracle).double(), "fc").forward_with_gradients(x)
    assert worst_relative(gradient, oracle["aux__grad_test"]) < 1e-6  # stored in float32
    assert torch.allclose(perturb(x, gradient, View()), oracle["aux__xpert_test"].double(), rtol=0, atol=1e-6)


def test_edge_rows_have_the_scores_that_follow_from_r_equal_1() -> None:
    oracle = Case("case_F_edge")
    outputs = oracle.outputs("test")
    flat = outputs.features.amax(1) <= 0
    assert flat.any()
    for name in ("scale", "lts", "adascale_l"):
        detector = detectors.get(name)().fit(oracle.outputs("val"), oracle.head)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AdascaleWarning)
            scores = detector.score(outputs)
        assert scores.isfinite().all()
        if name != "scale":
            assert torch.allclose(scores[flat], -torch.logsumexp(outputs.logits[flat], 1))


def test_metrics() -> None:
    import numpy as np

    from adascale.core.errors import InputError
    from adascale.maths.metrics import evaluate

    with np.load(ORACLES / "metrics.npz") as file:
        arrays = {key: file[key] for key in file.files}
    names = {key.split("__")[0] for key in arrays}
    refused = {"only_id", "only_ood", "with_nan", "posinf_neginf"}
    assert refused < names
    for name in names:
        # The oracle's scores are higher = more ID.
        pair = (-torch.from_numpy(arrays[f"{name}__id"]), -torch.from_numpy(arrays[f"{name}__ood"]))
        if name in refused:
            with pytest.raises(InputError):
                evaluate(*pair)
            continue
        ours = evaluate(*pair)
        expected = {
            "auroc": "exact_auroc",
            "fpr95": "exact_fpr95_ood_positive",
            "fpr95_id": "exact_fpr95_id_positive",
            "aupr_in": "aupr_in",
            "aupr_out": "aupr_out",
        }
        for field, key in expected.items():
            assert getattr(ours, field) == pytest.approx(float(arrays[f"{name}__{key}"]), abs=1e-12), f"{name} {field}"
