"""Every method against the golden files: values of an independent transcription of the definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from adascale import Classifier, Detector, Head, Outputs, View, detectors, extract_batch
from adascale.detectors.adaptive import Adaptive
from tests.golden import files
from tests.inside import INSIDE

FEATURE_CASES = [name for name in files.manifest()["cases"] if name != "network"]
METHODS = [cls.name for cls in detectors.ALL if cls.name not in INSIDE]

TOLERANCE = {
    "rmds": 1e-7,  # the difference of two nearly equal distances
}

pytestmark = pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")  # signed features, on purpose


def compare(ours: Tensor, expected: Tensor, what: str, relative: float = 1e-9) -> None:
    np.testing.assert_allclose(ours.numpy(), expected.numpy(), rtol=relative, atol=1e-12, err_msg=what)


def outputs(case: str, split: str, views: tuple[View, ...]) -> Outputs:
    """The golden inputs as a network would have given them; every view is the perturbed copy."""
    arrays = files.arrays(case)
    labels = arrays["y_train"] if split == "train" else None
    features = arrays[f"a_{split}"]
    logits = Head(arrays["W"], arrays["b"])(features)
    return Outputs(logits, features, {view: arrays[f"a_eps_{split}"] for view in views}, labels)


def fitted(case: str, entry: dict[str, Any]) -> Detector:
    detector = detectors.get(entry["method"])(**entry["parameters"])
    arrays = files.arrays(case)
    return detector.fit(outputs(case, entry["fitted_on"], detector.views), Head(arrays["W"], arrays["b"]))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", FEATURE_CASES)
def test_scores(case: str, method: str) -> None:
    chosen = {key: entry for key, entry in files.entries(case).items() if entry["method"] == method}
    assert chosen, f"{method} has no golden values: add it to tests/reference and tests/golden/cases.py"
    for key, entry in chosen.items():
        detector = fitted(case, entry)
        scores = detector.score(outputs(case, "test", detector.views))
        compare(scores, files.arrays(case)[key], f"{case}: {key}", TOLERANCE.get(method, 1e-9))


@pytest.mark.parametrize("case", FEATURE_CASES)
def test_a_row_alone_has_the_same_golden_score(case: str) -> None:
    """One sample takes another path through the code than many."""
    for method in METHODS:
        key, entry = next((key, entry) for key, entry in files.entries(case).items() if entry["method"] == method)
        detector = fitted(case, entry)
        test = outputs(case, "test", detector.views)
        alone = torch.cat([detector.score(test[i : i + 1]) for i in range(len(test))])
        compare(alone, files.arrays(case)[key], f"{case}: {key}", TOLERANCE.get(method, 1e-9))


@pytest.mark.parametrize("name", ["adascale_a", "adascale_l"])
@pytest.mark.parametrize("case", FEATURE_CASES)
def test_every_step_of_adascale(case: str, name: str) -> None:
    arrays = files.arrays(case)
    for key, entry in files.entries(case).items():
        if entry["method"] != "adascale_a":
            continue
        detector = fitted(case, {**entry, "method": name})
        assert isinstance(detector, Adaptive)
        test = outputs(case, "test", (View(),))
        percentiles = detector.percentiles(test)
        found = {
            "statistic": detector.shift_statistic(test),
            "F": 1 - (percentiles - detector.p_min) / (detector.p_max - detector.p_min),
            "percentile": percentiles,
            "r": detector.ratios(test),
        }
        for step, statistic in (("Q", "q"), ("C_o", "c_o")):
            part = fitted(case, {**entry, "parameters": {**entry["parameters"], "statistic": statistic}})
            assert isinstance(part, Adaptive)
            found[step] = part.shift_statistic(test)
        for step, values in found.items():
            compare(values, arrays[f"{key}: {step}"], f"{case}: {key}: {step}")


@pytest.mark.parametrize("name", ["adascale_a", "adascale_l"])
@pytest.mark.parametrize("case", FEATURE_CASES)
def test_a_search_finds_the_same_scores_and_bounds_hold(case: str, name: str) -> None:
    """A search sorts once for all its points; a bound is given before the perturbed activations are known."""
    arrays = files.arrays(case)
    chosen = [(key, entry["parameters"]) for key, entry in files.entries(case).items() if entry["method"] == name]
    val, test = (outputs(case, split, (View(),)) for split in ("val", "test"))
    found = detectors.get(name)().sweep([given for _, given in chosen], val, Head(arrays["W"], arrays["b"]), [test])
    points = {i: scores for i, scores in found}
    for i, (key, given) in enumerate(chosen):
        scores = points[i]
        assert scores is not None
        compare(scores[0], arrays[key], f"{case}: {key}")
        bounds = fitted(case, {"method": name, "parameters": given, "fitted_on": "val"}).bounds(test)
        assert bounds is not None
        slack = 1e-9 * (1 + arrays[key].abs())
        assert (bounds[0] <= arrays[key] + slack).all(), key
        assert (arrays[key] <= bounds[1] + slack).all(), key


def test_every_method_through_a_network_has_values_from_images() -> None:
    with_views = {cls.name for cls in detectors.ALL if cls().views or cls.learns_view} - INSIDE
    assert {entry["method"] for entry in files.entries("network").values()} == with_views


@pytest.mark.parametrize("key", files.entries("network"))
def test_from_images(key: str) -> None:
    """Gradient, choice of pixels, perturbed pass and score, for a network whose gradient is known by hand."""
    arrays, entry = files.arrays("network"), files.entries("network")[key]
    model = nn.Sequential(nn.Flatten(), nn.Linear(108, 24), nn.ReLU(), nn.Linear(24, 5)).double().eval()
    names = {"1.weight": "V", "1.bias": "v", "3.weight": "W", "3.bias": "b"}
    model.load_state_dict({name: arrays[array].double() for name, array in names.items()})
    detector = detectors.get(entry["method"])(**entry["parameters"])
    images, labels = arrays["x_val"].double(), model(arrays["x_val"].double()).argmax(1)
    val = extract_batch(Classifier(model), images, detector.views, labels)
    detector.fit(val, Head(arrays["W"], arrays["b"]))
    test = extract_batch(Classifier(model), arrays["x_test"].double(), detector.views)
    compare(detector.score(test), arrays[key], key)
