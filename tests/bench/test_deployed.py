"""`adascale bench` measures what `adascale fit` deploys; equal lines appear once; limits and unreadable sets."""

from __future__ import annotations

import csv
import hashlib
import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from adascale import Shards
from adascale.bench.run import DEFAULT
from adascale.images import image_set
from tests.bench.runs import bench, networks, table
from tests.shell import inside

pytestmark = pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")


def labels(place: Path, out: str) -> list[str]:
    return list(dict.fromkeys(row["method"] for row in table(place, out)))


def test_bench_has_the_detector_that_fit_writes(
    suite: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`adascale fit VAL`, then `adascale score FAR`: the scores and parameters of the line in the table."""
    bench(suite, monkeypatch, "a", "--method", f"{DEFAULT},msp")
    assert labels(suite, "a") == [f"{DEFAULT} (tuned)", "msp"]
    capsys.readouterr()
    model = ["--model", f"{suite / 'nets.py'}:Net"]
    assert (
        inside(
            monkeypatch,
            "fit",
            suite / "val.npz",
            *model,
            "--train",
            suite / "train.npz",
            "-o",
            suite / "d.safetensors",
            "--json",
        )
        == 0
    )
    fitted = json.loads(capsys.readouterr().out)
    line = networks(suite, "a")["methods"][f"{DEFAULT} (tuned)"]
    assert fitted["setting"].endswith("; " + line["tuned"])
    assert "chosen from" in line["tuned"]
    out = suite / "scores.csv"
    assert inside(monkeypatch, "score", suite / "far.npz", "-d", suite / "d.safetensors", "-o", out) == 0
    with open(out, newline="") as file:
        scored = [float(row["score"]) for row in csv.DictReader(file)]
    measured = load_file(suite / "a" / "scores.safetensors")[f"Net/{DEFAULT} (tuned)/f"]
    assert measured.tolist() == pytest.approx(scored, rel=1e-9)


def test_a_training_set_beyond_the_memory_gives_the_same_bits(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    methods = ["--method", "combined,mds,vim,knn,react,she", "--set", "knn.k=5", "--tune", "none"]
    monkeypatch.setattr("adascale.detectors.learning.BLOCK_ROWS", 16)
    bench(suite, monkeypatch, "a", *methods)
    made: list[Shards] = []

    def shards(*given: Any) -> Shards:
        made.append(Shards(*given))
        return made[-1]

    monkeypatch.setattr("adascale.extraction.cache.memory_bytes", lambda: 100)
    monkeypatch.setattr("adascale.extraction.cache.Shards", shards)
    bench(suite, monkeypatch, "b", *methods)
    assert [len(found) for found in made] == [40]
    one, other = (load_file(suite / out / "scores.safetensors") for out in "ab")
    assert "Net/mds/f" in one
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


def test_the_untuned_line_on_request_and_no_tuning_at_all(
    suite: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench(suite, monkeypatch, "a", "--method", "adascale_a,msp", "--untuned")
    assert labels(suite, "a") == ["adascale_a", "adascale_a (tuned)", "msp"]
    bench(suite, monkeypatch, "b", "--method", "adascale_a,msp", "--tune", "none")
    assert labels(suite, "b") == ["adascale_a", "msp"]
    bench(suite, monkeypatch, "c", "--method", "adascale_a", "--set", "p_max=90")  # fit would not tune it either
    assert labels(suite, "c") == ["adascale_a"]
    assert networks(suite, "c")["methods"]["adascale_a"]["parameters"]["p_max"] == 90


def test_with_few_images_it_is_not_tuned_as_fit_would_not(
    suite: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench(suite, monkeypatch, "a", "--method", "adascale_a", "--untuned", "--limit-fit", "63")
    assert labels(suite, "a") == ["adascale_a"]
    assert "63 images are too few to tune on" in networks(suite, "a")["methods"]["adascale_a"]["setting"]


def test_tuned_twins_with_the_same_parameters_appear_once(
    suite: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("adascale.detectors.SCALE.search_space", {"percentile": (85,)})
    bench(suite, monkeypatch, "a", "--method", "scale,gen", "--tune", "self")
    assert "scale (tuned)" not in labels(suite, "a")
    assert networks(suite, "a")["twins"]["scale (tuned)"] == "scale"
    assert "scale (tuned) = scale" in capsys.readouterr().err
    assert "scale (tuned) = scale" in (suite / "a" / "tables.md").read_text()


def test_every_image_set_is_hashed_once(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six sets: id, val, train, near, far, and the part of val that outliers are made from."""
    made: Counter[str] = Counter()

    def sha256(start: bytes = b"") -> Any:
        made[start.decode()] += 1
        return hashlib.sha256(start)

    monkeypatch.setattr(image_set, "hashlib", SimpleNamespace(sha256=sha256))
    bench(suite, monkeypatch, "a", "--method", "adascale_a,adascale_l,knn")
    assert len(made) == 6
    assert set(made.values()) == {1}


def test_a_set_without_a_readable_image_is_left_out_and_named(
    suite: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (suite / "broken").mkdir()
    for name in ("a.png", "b.png"):
        (suite / "broken" / name).write_bytes(b"no image")
    text = (suite / "suite.toml").read_text()
    (suite / "broken.toml").write_text(text.replace("[far]", 'broken = "broken"\n[far]'))
    monkeypatch.setenv("CALLS", str(suite / "calls"))
    arguments = ["bench", suite / "broken.toml", "--model", f"{suite / 'nets.py'}:Net", "--method", "msp,ebo"]
    assert inside(monkeypatch, *arguments, "--out", suite / "o", "--no-report") == 3
    told = capsys.readouterr()
    assert f"Left out set broken: none of its 2 images can be read ({suite / 'broken' / 'a.png'}: " in told.err
    assert "2 of " in told.err
    assert {row["dataset"] for row in table(suite, "o")} == {"n", "f", "nearood", "farood"}
    document = json.loads((suite / "o" / "results.json").read_text())
    assert [Path(name).name for name in document["failures"]["Net"]["broken"]] == ["a.png", "b.png"]
    only = text.replace('"near.npz"', '"broken"').replace('[far]\nf = "far.npz"\n', "")
    (suite / "none.toml").write_text(only)
    arguments[1] = suite / "none.toml"
    assert inside(monkeypatch, *arguments, "--out", suite / "p", "--no-report") == 2
    assert "no OOD set has an image that can be read: n (" in capsys.readouterr().err
    Image.fromarray(np.zeros((20, 20, 3), np.uint8)).save(suite / "broken" / "a.png")
    arguments[1] = suite / "broken.toml"
    assert inside(monkeypatch, *arguments, "--out", suite / "q", "--no-report") == 3
    assert "broken" in {row["dataset"] for row in table(suite, "q")}


def test_limit_cuts_tested_sets_and_not_what_methods_learn_from(
    suite: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bench(suite, monkeypatch, "whole", "--method", "knn,msp", "--set", "knn.k=5")
    bench(suite, monkeypatch, "cut", "--method", "knn,msp", "--set", "knn.k=5", "--limit", "15")
    assert "fitted on all 70 validation and 40 training images" in capsys.readouterr().err
    sizes = [json.loads((suite / out / "results.json").read_text())["reproduce"] for out in ("whole", "cut")]
    assert [about["sets"]["id"]["images"] for about in sizes] == [40, 15]
    assert [about["sets"]["train"] for about in sizes] == [sizes[0]["sets"]["train"]] * 2
    assert [networks(suite, out)["methods"]["knn"]["images"] for out in ("whole", "cut")] == [40, 40]
    bench(suite, monkeypatch, "few", "--method", "knn,msp", "--set", "knn.k=5", "--limit-fit", "30")
    told = capsys.readouterr().err
    assert "30 of 70 validation images and 30 of 40 training images" in told
    assert "fewer training images matter for knn" in told
    assert networks(suite, "few")["methods"]["knn"]["images"] == 30
