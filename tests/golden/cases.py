"""The inputs of the golden files: small, seeded, in steps of 1/4096 so that every machine draws the same numbers.

NumPy freezes the stream of ``RandomState`` for all versions; rounding removes what the mathematical library of the
platform may change in the last digit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tests.reference.common import Array, Head, Samples

STEP = 4096
SPLITS = ("train", "val", "test")


class Case(NamedTuple):
    description: str
    head: Head
    train: Samples
    val: Samples
    test: Samples


def rounded(values: Array) -> Array:
    steps: Array = np.round(values * STEP) / STEP
    return steps


def samples(head: Head, a: Array, a_eps: Array, y: Any) -> Samples:
    a, a_eps = rounded(a), rounded(a_eps)
    return Samples(a, np.array([head(row) for row in a]), a_eps, np.asarray(y, dtype=np.int64))


def drawn(
    description: str,
    seed: int,
    activation: Callable[[Array], Array],
    features: int,
    classes: int,
    train: int = 110,
    val: int = 40,
    test: int = 16,
) -> Case:
    """Features around class centres; the second half of the test rows lies around none. 8 % of the labels are wrong."""
    random = np.random.RandomState(seed)
    centres = random.normal(size=(classes, features))
    head = Head(rounded(0.4 * centres + 0.1 * random.normal(size=centres.shape)), rounded(random.normal(size=classes)))

    def split(n: int, known: int) -> Samples:
        y = random.permutation(np.arange(n) % classes)
        inside = np.arange(n)[:, None] < known
        before = np.where(inside, 0.6 * centres[y], 0) + random.normal(size=(n, features)) * np.where(inside, 0.6, 1)
        moved = before + random.normal(size=before.shape) * random.uniform(0.05, 0.6, size=(n, 1))
        labels = np.where(random.uniform(size=n) < 0.08, random.randint(classes, size=n), y)
        return samples(head, activation(before), activation(moved), labels)

    return Case(description, head, split(train, train), split(val, val), split(test, test // 2))


def relu(values: Array) -> Array:
    positive: Array = np.maximum(values, 0)
    return positive


def edges() -> Case:
    """Degenerate rows among ordinary training samples."""
    base = drawn("", 5, lambda v: relu(v + 0.4), features=64, classes=5, test=4)
    random = np.random.RandomState(50)
    a = np.tile(base.test.a[0], (11, 1))
    moved = a + random.normal(size=a.shape) * 0.1
    a[0] = 0
    a[1], a[1, 9] = 0, 1.5
    a[2] = 1
    a[3] = -np.abs(a[3]) - 0.25
    a[4] = 4 * (np.arange(64) == 3) / STEP
    a[5] *= 64
    a[6] = np.repeat(base.test.a[1, :32], 2)  # every value twice: cuts fall inside pairs
    a[7] = np.where(np.isin(np.arange(64), (4, 20, 41)), a[7] + 0.5, 0)
    a[8] = random.normal(size=64)
    a[9] = base.train.a[0]
    moved[10] = a[10]
    rows = (
        "all zero, one nonzero, constant, all negative, one tiny, large, pairs of equal values, three nonzero, "
        "signed, the first training row, perturbed equals original"
    )
    test = samples(base.head, a, moved, np.full(len(a), -1))
    return base._replace(description=f"degenerate rows, in this order: {rows}", test=test)


def cases() -> dict[str, Case]:
    return {
        "dense": drawn("ReLU-like features, about a tenth zero", 1, lambda v: relu(v + 1), features=48, classes=6),
        "sparse": drawn("ReLU-like features, about half zero", 2, relu, features=60, classes=5),
        "signed": drawn("signed features", 3, lambda v: v, features=40, classes=6),
        "small": drawn("24 features: 1 % is below one feature", 4, lambda v: relu(v + 0.5), features=24, classes=4),
        "edges": edges(),
        "few": drawn(
            "fewer training rows (30) than features (64): covariances without full rank",
            6,
            lambda v: relu(v + 0.3),
            features=64,
            classes=4,
            train=30,
            val=20,
        ),
        "ties": drawn(
            "features in steps of 1/4: cuts fall inside groups of equal values, where the lower index counts first",
            7,
            lambda v: np.round(relu(v) * 4) / 4,
            features=40,
            classes=5,
        ),
    }


def settings(case: Case) -> list[tuple[str, dict[str, Any]]]:
    """(method, parameters) for one case; no parameters: the defaults of the definition.

    At a percentile of 0 the cut is the least value itself: "at or below" shows there.
    """
    few = len(case.train.a) < 50
    other: dict[str, Any] = {"p_min": 65, "p_max": 95, "k1": 10, "k2": 50, "lam": 1}
    ablations: list[dict[str, Any]] = [{"statistic": name, "k1": 10, "k2": 20} for name in ("q", "c_o", "top", "q_top")]
    adaptive = [{}, {"p_min": 80, "p_max": 85}, other, *ablations]
    plain: dict[str, list[dict[str, Any]]] = {
        "combined": [{}, {"weights": "equal"}, {"rule": "tippett", "folds": 3}],
        "adascale_a": adaptive,
        "adascale_l": adaptive,
        "activation_shift": [{}, {"k1": 10}],
        "scale": [{}, {"percentile": 65}, {"relu": True}, {"relu": False}],
        "lts": [{}, {"percentile": 65}],
        "msp": [{}],
        "mls": [{}],
        "ebo": [{}, {"temperature": 2}],
        "odin": [{}, {"temperature": 10}],
        "iodin": [{}],
        "temp_scale": [{}],
        "entropy": [{}],
        "gen": [{}, {"gamma": 0.5, "top": 3}],
        "gradnorm": [{}],
        "grad_uncertainty": [{}],
        "react": [{}, {"percentile": 99}],
        "ash_p": [{}, {"percentile": 65}, {"relu": False}],
        "ash_b": [{}, {"percentile": 65}, {"relu": False}],
        "ash_s": [{}, {"percentile": 65}, {"relu": True}, {"relu": False}],
        "bfact": [{}, {"percentile": 85, "order": 3}],
        "vra": [{}, {"low": 50, "high": 90}],
        "laps": [{}, {"width": 2, "shift": 1}],
        "optfs": [{}, {"form": "logits"}, {"bins": 20}],
        "dice": [{}, {"percentile": 50}, {"percentile": 0}],
        "line": [
            {},
            {"p_w": 90, "p_a": 90, "clip": 1.0},
            {"p_w": 90, "p_a": 10, "clip": 1.0},
            {"p_w": 0, "p_a": 10},
            {"p_w": 10, "p_a": 0},
        ],
        "nnguide": [{"k": 10, "fraction": 1.0}, {"k": 25, "fraction": 1.0}],
        "knn": [{"k": 1}, {"k": 5} if few else {}],
        "cfood": [{"fraction": 1.0}, {"fraction": 1.0, "rho": 0.2}],
        "mds": [{}],
        "mds_odin": [{}],
        "rmds": [{}],
        "mahalanobis_pp": [{}],
        "gmm": [{"components": 3, "dim": 5}, {"components": 5, "dim": 8, "seed": 1}],
        "class_gmm": [{"reg": 0.01}, {"reg": 0.5}],
        "vim": [{"dim": 8}] if few else [{}, {"dim": 8}],
        "residual": [{"dim": 8}] if few else [{}, {"dim": 8}],
        "neco": [{}, {"dim": 5}, {"max_logit": False}],
        "sirc": [{}, {"first": "entropy"}, {"second": "residual", "dim": 8}],
        "pnml": [{}],
        "klm": [{}],
        "she": [{}, {"metric": "euclidean"}, {"metric": "cosine"}],
        "fdbd": [{}, {"normaliser": "norm"}],
        "nci": [{}, {"norm_weight": 0.01}],
        "relation": [{}, {"power": 4}],
        "caref": [{}],
        "cadref": [{}, {"logit_score": "gen"}],
        "openmax": [{"tail": 5}, {"tail": 3, "top": 2}],
        "weiper": [
            {"repeats": 10},
            {"repeats": 3, "bins": 20, "delta": 0.5, "smooth": 1, "smooth_perturbed": 2, "seed": 4},
        ],
    }
    return [(method, parameters) for method, each in plain.items() for parameters in each]


def score_pairs() -> dict[str, tuple[Array, Array]]:
    """(ID, OOD) score vectors for the metrics, higher = more OOD."""
    random = np.random.RandomState(8)
    apart = rounded(random.normal(size=60)), rounded(random.normal(size=80) + 1)
    return {
        "continuous": apart,
        "unbalanced": (rounded(random.normal(size=200)), rounded(random.normal(size=7) + 1)),
        "tied": (np.round(apart[0]), np.round(apart[1])),
        "all_equal": (np.zeros(5), np.zeros(9)),
        "separated": (np.arange(20.0), np.arange(30.0, 50.0)),
        "reversed": (np.arange(30.0, 50.0), np.arange(20.0)),
        "one_each": (np.array([1.0]), np.array([2.0])),
        "exactly_95_percent": (np.arange(20.0) + 0.5, np.arange(20.0)),
        "large_scores": (1e6 * apart[0], 1e6 * apart[1]),
        "tie_at_the_threshold": (np.array([0.0, 1, 1, 1, 2]), np.array([1.0] * 3 + [2.0] * 17)),
    }
