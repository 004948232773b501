"""Our methods as post-processors of OpenOOD, and its files, by its documented interface."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from adascale import Classifier, InputError, detectors, extract_batch
from adascale.bench.compare import compare
from adascale.interop.openood import postprocessor, read_results, read_scores
from tests.conftest import SmallNet, images, seeded


def loader(n: int, seed: int, label: int | None = None) -> Any:
    """Batches as OpenOOD's loaders give them."""
    rows = [{"data": x, "label": i % 5 if label is None else label} for i, x in enumerate(images(n, seed=seed))]
    return DataLoader(rows, batch_size=16)  # type: ignore[arg-type]


def loaders() -> dict[str, Any]:
    return {"train": loader(80, 1), "val": loader(40, 2), "test": loader(30, 3)}


@pytest.mark.parametrize(
    ("method", "split"), [("msp", ""), ("adascale_a", "val"), ("knn", "train"), ("mds_odin", "train")]
)
@pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")
def test_fitted_on_the_split_that_the_method_declares(method: str, split: str) -> None:
    net = seeded(SmallNet)
    post = postprocessor(method)
    post.setup(net, loaders(), {})
    pred, conf, label = post.inference(net, loader(30, 3), progress=False)
    classifier, ours = Classifier(net), detectors.get(method)()
    known = {"train": images(80, seed=1), "val": images(40, seed=2)}.get(split)
    labels = None if known is None else torch.arange(len(known)) % 5
    reference = None if known is None else extract_batch(classifier, known, ours.views, labels)
    ours.fit(reference, classifier.locate(images(2)).head)
    test = extract_batch(classifier, images(30, seed=3), ours.views)
    expected = ours.score(test)
    assert np.allclose(conf, -expected.numpy(), rtol=1e-4)  # higher = more in-distribution there
    assert np.array_equal(pred, test.logits.argmax(1).numpy())
    assert np.array_equal(label, np.arange(30) % 5)
    assert (post.APS_mode, post.hyperparam_search_done) == (False, True)


def test_it_is_one_of_theirs_where_openood_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    class BasePostprocessor:
        def __init__(self, config: Any) -> None:
            raise AssertionError("it has no configuration")

    module = ModuleType("openood.postprocessors")
    module.BasePostprocessor = BasePostprocessor  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "openood", ModuleType("openood"))
    monkeypatch.setitem(sys.modules, "openood.postprocessors", module)
    assert isinstance(postprocessor("msp"), BasePostprocessor)


def test_mistakes_get_a_sentence() -> None:
    net = seeded(SmallNet)
    with pytest.raises(InputError, match="fitted on the ID split 'train'; the loaders are val"):
        postprocessor("knn").setup(net, {"val": loader(10, 1)}, {})
    with pytest.raises(InputError, match="another network"):
        postprocessor("msp").postprocess(net, images(2))
    with pytest.raises(InputError, match="no parameter 'q'"):
        postprocessor("msp", q=1)


def test_score_files(tmp_path: Path) -> None:
    (tmp_path / "scores").mkdir()
    conf = np.array([3.0, 1.0], dtype=np.float32)
    np.savez(tmp_path / "scores" / "svhn.npz", pred=np.zeros(2), conf=conf, label=-np.ones(2))
    assert {name: found.tolist() for name, found in read_scores(tmp_path).items()} == {"svhn": [-3.0, -1.0]}
    np.savez(tmp_path / "scores" / "svhn.npz", pred=np.zeros(2))
    with pytest.raises(InputError, match="no array 'conf'"):
        read_scores(tmp_path)
    with pytest.raises(InputError, match="no scores"):
        read_scores(tmp_path / "none")


CSV = """dataset,FPR@95,AUROC,AUPR_IN,AUPR_OUT,CCR_4,CCR_3,CCR_2,CCR_1,ACC
cifar100,{0},88.00,87.00,86.00,1,2,3,4,95.06
tin,30.00,90.00,89.00,88.00,1,2,3,4,95.06
nearood,{0},89.00,88.00,87.00,1,2,3,4,95.06
mnist,20.00,95.00,94.00,93.00,1,2,3,4,95.06
farood,20.00,95.00,94.00,93.00,1,2,3,4,95.06
"""


def test_result_files_and_their_comparison(tmp_path: Path) -> None:
    for name, value in (("a", "40.00"), ("b", "38.50")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ood.csv").write_text(CSV.format(value))
    rows = read_results(tmp_path / "a", "msp", into=tmp_path / "a")
    assert [(row.dataset, row.kind) for row in rows] == [
        *(("cifar100", "near"), ("tin", "near"), ("nearood", "near"), ("mnist", "far"), ("farood", "far"))
    ]
    assert (rows[0].fpr95, rows[0].auroc) == (0.4, 0.88)
    read_results(tmp_path / "b", "msp", into=tmp_path / "b")
    moved = {row.dataset: row.fpr95 for row in compare(tmp_path / "a", tmp_path / "b").moved}
    assert moved["nearood"] == pytest.approx((40, 38.5))
    assert moved["farood"] == pytest.approx((20, 20))
    (tmp_path / "b" / "ood.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="not a result file of OpenOOD"):
        read_results(tmp_path / "b", "msp")
    with pytest.raises(InputError, match=r"neither ood\.csv nor ood/msp\.csv"):
        read_results(tmp_path, "msp")


def test_tables_of_several_training_runs(tmp_path: Path) -> None:
    """What ``scripts/eval_ood.py --save-csv`` of OpenOOD 1.5 writes: a table for each method, the names of the data
    sets in a column without a name, means and deviations in one cell.
    """
    (tmp_path / "fsood").mkdir()
    (tmp_path / "ood").mkdir()
    cells = ",".join(f"{value:.2f} ± 0.30" for value in (40, 88, 87, 86, 1, 2, 3, 4, 95.06))
    columns = ",FPR@95,AUROC,AUPR_IN,AUPR_OUT,CCR_4,CCR_3,CCR_2,CCR_1,ACC"
    lines = [columns, *(f"{name},{cells}" for name in ("tin", "nearood", "mnist", "farood"))]
    for spectrum in ("ood", "fsood"):
        (tmp_path / spectrum / "msp.csv").write_text("\n".join(lines) + "\n", "utf8")
    rows = read_results(tmp_path, "msp")
    assert [(row.dataset, row.kind, row.spectrum) for row in rows[2:5]] == [
        *(("mnist", "far", "ood"), ("farood", "far", "ood"), ("tin", "near", "full"))
    ]
    assert (rows[0].fpr95, rows[0].auroc, rows[0].accuracy) == pytest.approx((0.4, 0.88, 0.9506))
