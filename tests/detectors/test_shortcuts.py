"""Shortcuts of the methods give what their formulas give: at ties, at the borders of chunks and blocks, where the
shortcut does not do, and on rows that are not finite.
"""

from __future__ import annotations

import math
from dataclasses import replace
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from adascale import Detector, Head, Outputs, detectors
from adascale.detectors import ash, klm, relation
from adascale.detectors.shaping import Shaping
from adascale.maths.activations import unit_rows
from adascale.maths.shortlist import pair_products
from adascale.maths.sparse import pays, sparse_product
from adascale.testing import example_outputs


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def outputs_of(features: Tensor, head: Head) -> Outputs:
    return Outputs(head(features).float(), features)


HEAD = Head(drawn(5, 12) / 3, drawn(5, seed=1))


# KNN ------------------------------------------------------------------------------------------------------------------


def kth_distance(queries: Tensor, bank: Tensor, k: int) -> Tensor:
    unit, known = (unit_rows(rows) for rows in (queries, bank))
    exact = torch.cdist(unit, known, compute_mode="donot_use_mm_for_euclid_dist")
    return exact.sort(1).values[:, k - 1]


def knn_scores(queries: Tensor, bank: Tensor, k: int) -> Tensor:
    method: Detector = detectors.KNN(k=k).fit(outputs_of(bank, HEAD), HEAD)
    return method.score(outputs_of(queries, HEAD))


@pytest.mark.parametrize("k", [1, 50, 300, 9000])
def test_knn_over_blocks_and_chunks(k: int) -> None:
    """9,000 training samples are three blocks; 1,100 queries are two chunks."""
    queries, bank = drawn(1100, 12), drawn(9000, 12, seed=1)
    assert torch.allclose(knn_scores(queries, bank, k), kth_distance(queries, bank, k), rtol=1e-9, atol=1e-12)


def test_knn_among_neighbours_that_float32_cannot_tell_apart() -> None:
    """Distances of 1e-6 to 1e-5: the float32 products of all of them are equal."""
    centre = drawn(1, 12).double()
    bank = torch.cat([centre + 1e-5 * drawn(20, 12, seed=1), drawn(5000, 12, seed=2).double()])
    for k in (1, 7, 20):
        assert torch.allclose(knn_scores(centre, bank, k), kth_distance(centre, bank, k), rtol=1e-9)


def test_knn_searches_in_float64_where_the_list_is_cut_off() -> None:
    centre = drawn(1, 12).double()
    bank = torch.cat([centre + 1e-6 * drawn(600, 12, seed=1), drawn(5000, 12, seed=2).double()])
    queries = torch.cat([centre, drawn(3, 12, seed=3).double()])
    assert torch.allclose(knn_scores(queries, bank, 5), kth_distance(queries, bank, 5), rtol=1e-6)


def test_knn_with_equal_training_samples() -> None:
    bank = drawn(3, 12).repeat_interleave(2000, 0)
    queries = torch.cat([bank[:1], bank[-1:], drawn(5, 12, seed=1)])
    for k in (1, 2000, 2001, 6000):
        assert torch.allclose(knn_scores(queries, bank, k), kth_distance(queries, bank, k), rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_knn_of_lengths_that_float32_does_not_hold(size: float) -> None:
    queries, bank = drawn(20, 12), drawn(5000, 12, seed=1)
    scaled = bank.clone()
    scaled[::2] *= size
    assert torch.allclose(knn_scores(queries, scaled, 5), kth_distance(queries, scaled.double(), 5), rtol=1e-9)


def test_knn_from_a_file_without_lengths() -> None:
    reference = outputs_of(drawn(5000, 12), HEAD)
    fitted = detectors.KNN(k=3).fit(reference, HEAD)
    earlier = {"bank_": fitted.state()["bank_"]}
    assert torch.equal(detectors.KNN(k=3).restore(earlier, HEAD).score(reference), fitted.score(reference))


# KLM ------------------------------------------------------------------------------------------------------------------


def divergence(logits: Tensor, log_means: Tensor) -> Tensor:
    log_p = logits.double().log_softmax(1)
    return (log_p.exp()[:, None] * (log_p[:, None] - log_means)).sum(2).amin(1)


@pytest.mark.parametrize("sharpness", [0.0, 1e-4, 1.0, 30.0])
def test_klm_is_the_least_divergence(sharpness: float) -> None:
    """Sharpness 0: every class is a candidate, and one product in float64 decides."""
    head = Head(torch.zeros(60, 3))
    logits = sharpness * drawn(1500, 60)
    method = detectors.KLM().fit(Outputs(logits, torch.zeros(1500, 3)), head)
    scores = method.score(Outputs(logits, torch.zeros(1500, 3)))
    assert torch.allclose(scores, divergence(logits, method.log_means_), rtol=1e-9, atol=1e-14)


def test_klm_with_few_candidates_needs_no_second_product() -> None:
    logits = 3 * drawn(400, 60)
    method = detectors.KLM().fit(Outputs(logits, torch.zeros(400, 3)), Head(torch.zeros(60, 3)))
    with patch.object(klm, "pair_products", side_effect=pair_products) as pairs:
        method.score(Outputs(logits, torch.zeros(400, 3)))
    assert 400 <= len(pairs.call_args.args[2]) < 500


# Relation -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [-0.5, 0.0, 0.03, 0.3, 0.99])
@pytest.mark.parametrize("sharpness", [0.1, 5.0])
def test_relation_is_the_sum_of_its_edges(threshold: float, sharpness: float) -> None:
    bank, queries = (Outputs(sharpness * drawn(n, 30, seed=n), drawn(n, 12, seed=n + 1)) for n in (2500, 70))
    head = Head(torch.zeros(30, 12))
    scores = detectors.Relation(power=2, threshold=threshold).fit(bank, head).score(queries)
    units = [part.features.double() / part.features.double().norm(dim=1, keepdim=True) for part in (queries, bank)]
    p, q = (part.logits.double().softmax(1) for part in (queries, bank))
    kernel = (units[0] @ units[1].T).clamp_min(0) * (p @ q.T)
    expected = -torch.where(kernel > threshold, kernel**2, 0.0).sum(1)
    assert torch.allclose(scores, expected, rtol=1e-9, atol=1e-12)


def test_relation_without_a_candidate_needs_no_product_of_features() -> None:
    bank, head = Outputs(0.1 * drawn(100, 30), drawn(100, 12)), Head(torch.zeros(30, 12))
    method = detectors.Relation(threshold=0.1).fit(bank, head)
    with patch.object(relation, "pair_products") as pairs:
        assert (method.score(bank) == 0).all()
    pairs.assert_not_called()


# NNGuide --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "fraction"), [(40, 0.01), (40, 1.0), (1, 1.0), (2100, 1.0)])
def test_nnguide_is_the_mean_of_the_largest_products(k: int, fraction: float) -> None:
    """With a bank of k samples (0.01), of one block and of more."""
    bank, queries = (outputs_of(drawn(n, 12, seed=n), HEAD) for n in (2100, 30))
    method = detectors.NNGuide(k=k, fraction=fraction).fit(bank, HEAD)
    queries.features[3] = 0
    features = queries.features.double()
    unit = features / features.norm(dim=1, keepdim=True).clamp_min(1e-300)
    guidance = (unit @ method.bank_.T).sort(1, descending=True).values[:, :k].mean(1)
    expected = -queries.logits.double().logsumexp(1) * guidance
    assert torch.allclose(method.score(queries), expected, rtol=1e-10, atol=1e-13)


# ViM, ASH -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outside", [1.0, 1e-2, 1e-6, 0.0])
def test_a_residual_much_smaller_than_the_features(outside: float) -> None:
    reference = outputs_of(drawn(400, 12).double(), HEAD)
    method = detectors.Residual(dim=4).fit(reference, HEAD)
    basis, _ = torch.linalg.qr(method.principal_, mode="complete")
    inside = 100 * drawn(30, 4, seed=1).double() @ method.principal_.T
    length = outside * (1 + torch.arange(30).double())
    rows = HEAD.origin + inside + length[:, None] * basis[:, 7]
    assert torch.allclose(method.score(outputs_of(rows, HEAD)), length, rtol=1e-7, atol=1e-11)


@pytest.mark.parametrize("name", ["ash_p", "ash_b", "ash_s"])
def test_ash_keeps_the_lowest_indices_of_equal_values(name: str) -> None:
    """Two of four are kept: 3 and, of the equal ones, the first."""
    head = Head(torch.eye(4))
    features = torch.tensor([[1.0, 3.0, 1.0, 1.0], [2.0, 2.0, 2.0, 2.0], [0.0, 0.0, 0.0, 0.0]])
    method = detectors.get(name)(percentile=50, relu=False).fit(None, head)
    assert isinstance(method, Shaping)
    kept = torch.tensor([[1.0, 3.0, 0.0, 0.0], [2.0, 2.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]).double()
    expected = {
        "ash_p": kept,
        "ash_b": torch.tensor([[3.0, 3.0, 0.0, 0.0], [4.0, 4.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]).double(),
        "ash_s": kept * torch.tensor([6 / 4, 8 / 4, 1.0]).double().exp()[:, None],
    }[name]
    shaped = method.shaped_logits(Outputs(features, features))
    assert torch.allclose(shaped, expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["ash_p", "ash_b", "ash_s"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ash_over_the_kept_activations_alone(name: str, dtype: torch.dtype) -> None:
    """30 of 300 are kept: the product skips the others. 70 classes are three blocks, 1,100 rows are two chunks; every
    third row has many equal values, some rows have no positive one.
    """
    head = Head(drawn(70, 300) / 9, drawn(70, seed=1))
    features = drawn(1100, 300, seed=2).clamp_min(0).to(dtype)
    features[::3] = features[::3].round()
    features[::50] = 0
    made = Outputs(head(features).to(dtype), features)
    method = detectors.get(name)(relu=False).fit(None, head)
    with patch.object(ash, "sparse_product", side_effect=sparse_product) as products:
        scores = method.score(made)
    assert products.call_count == (2 if pays(30, 300) else 0)
    assert torch.allclose(scores, method.formula(made), rtol=1e-12)
    alone = torch.cat([method.score(made[i : i + 1]) for i in range(0, 1100, 40)])
    assert torch.allclose(scores[::40], alone, rtol=1e-13)


# What a method reads --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["msp", "mls", "ebo", "gen", "klm"])
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_methods_of_logits_ask_for_finite_logits_alone(name: str, wrong: float) -> None:
    reference, head = example_outputs(1000, ())
    method = detectors.get(name)().fit(reference, head)
    expected = method.score(reference)
    logits, features = reference.logits.clone(), reference.features.clone()
    logits[3, 2], features[5, 2] = wrong, wrong
    scores = method.score(Outputs(logits, features))
    assert scores[3] == math.inf
    others = torch.arange(1000) != 3
    assert torch.allclose(scores[others], expected[others], rtol=1e-12)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_infinite_features_that_only_the_score_shows(wrong: float, dtype: torch.dtype) -> None:
    """Against stored means that are 0 there, and with a weight of 0, too; and logits that only name a class."""
    made, head = example_outputs(300, ())
    made = Outputs(made.logits.to(dtype), made.features.to(dtype), labels=made.labels)
    made.features[:, 4] = 0
    logits, features = made.logits.clone(), made.features.clone()
    features[7, 4], features[9, 2], logits[11, 3] = wrong, wrong, wrong
    methods = [detectors.SHE(metric=metric) for metric in ("inner_product", "euclidean", "cosine")]
    for method in (*methods, detectors.NCI(), detectors.NCI(norm_weight=0), detectors.FDBD()):
        method.fit(made, head)
        expected = method.score(made)
        for given, rows in ((Outputs(made.logits, features), [7, 9]), (Outputs(logits, made.features), [11])):
            scores = method.score(given)
            others = torch.ones(300, dtype=torch.bool).index_fill(0, torch.tensor(rows), False)
            assert (scores[rows] == math.inf).all(), method
            assert torch.equal(scores[others], expected[others]), method


@pytest.mark.parametrize("name", ["gradnorm", "she", "fdbd", "nci"])
def test_light_methods_at_the_borders_of_their_small_chunks(name: str) -> None:
    """1,024 features: pieces of 64 or 256 rows, in chunks of 1,024."""
    head = Head(drawn(5, 1024) / 9, drawn(5, seed=1))
    labels = torch.arange(1100) % 5
    features = drawn(1100, 1024, seed=2) + 9 * head.weight[labels]
    made = Outputs(head(features).float(), features, labels=labels)
    method = detectors.get(name)().fit(made, head)
    expected = torch.cat([method.score(made[i : i + 1]) for i in range(1100)])
    features[255, 1] = math.nan
    scores = method.score(made)
    assert scores[255] == math.inf
    others = torch.arange(1100) != 255
    assert torch.allclose(scores[others], expected[others], rtol=1e-11)


def test_no_score_writes_into_float64_outputs() -> None:
    """Where no conversion makes a copy, an operation in place would reach the caller's tensors."""
    for cls in detectors.ALL:
        made, head = example_outputs(300, cls().wants)
        views = {view: moved.double() for view, moved in made.views.items()}
        taps = {tap: tuple(layer.double() for layer in layers) for tap, layers in made.taps.items()}
        given = Outputs(made.logits.double(), made.features.double(), views, made.labels, taps)
        method = cls().fit(given, head)
        late = {view: given.features + 0.01 for view in method.views if view not in given.views}
        given = replace(given, views={**given.views, **late})
        before = [given.logits.clone(), given.features.clone(), *(view.clone() for view in given.views.values())]
        method.score(given)
        after = [given.logits, given.features, *given.views.values()]
        assert all(map(torch.equal, before, after)), cls.name


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_fdbd_looks_at_the_logits_of_a_row_at_the_mean(broken: float) -> None:
    """Such a row scores 0, because it has no direction; not if its logits are no numbers."""
    features = torch.rand(40, 6, generator=torch.Generator().manual_seed(0))
    head = Head(torch.randn(3, 6, generator=torch.Generator().manual_seed(1)))
    method = detectors.get("fdbd")().fit(Outputs(features @ head.weight.T, features), head)
    at_the_mean = method.state()["mean_"].expand(2, -1)
    scores = method.score(Outputs(torch.tensor([[1.0, 2.0, 3.0], [1.0, broken, 3.0]]).double(), at_the_mean))
    assert scores.tolist() == [0, math.inf]
