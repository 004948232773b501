"""`adascale bench`, `tune` and `compare`: passes, caches, tables, interruption."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from adascale import detectors, metrics
from adascale.bench.compare import compare
from adascale.bench.figures import run_jobs
from adascale.bench.results import Run
from adascale.report.document import ranked
from tests.bench.runs import METHODS, bench, networks, table
from tests.counting import counted
from tests.inside import INSIDE
from tests.shell import inside, run

pytestmark = pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")

PROBE = 7  # two images find the head, try the channels last, show whether norms can be folded; one comes alone


def test_one_pass_an_image_and_one_a_view_for_any_number_of_methods(
    suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe, sets = PROBE, 40 + 70 + 20 + 20
    # trivial pixels: a pass with the gradient, a perturbed pass; no method here learns from training images
    assert sum(bench(suite, monkeypatch, "a", *METHODS)) == probe + 2 * sets
    assert bench(suite, monkeypatch, "b", *METHODS) == []
    assert (suite / "a" / "results.csv").read_bytes() == (suite / "b" / "results.csv").read_bytes()
    # more methods, other parameters: none; another view: its own passes alone (a gradient and a perturbed one)
    more = ["--method", "adascale_l,knn,gen", "--set", "adascale_l.p_max=90"]
    assert (
        sum(bench(suite, monkeypatch, "c", *more)) == probe + 40
    )  # knn learns from training images, which have no view
    assert bench(suite, monkeypatch, "c", *more) == []
    assert (
        sum(bench(suite, monkeypatch, "d", "--method", "adascale_a", "--set", "pixels=random", "--tune", "none"))
        == probe + sets
    )
    everything = sum(bench(suite, monkeypatch, "e", "--method", "all", "--tune", "none"))
    # the views of ODIN and I-ODIN are new and share their gradient, which serves the inner layers too; two images show
    # where these are, and the training images are looked at once more, for theirs. MDS-ODIN is fitted before the tested
    # images are extracted, so that its gradient comes from the same pass; the images fitted on are not perturbed by it
    assert everything == probe + 2 + 3 * sets + 40 + (sets - 70)
    # whether it has the layers that some methods look at is asked of the network itself
    assert sum(bench(suite, monkeypatch, "f", "--method", "all", "--tune", "none")) == probe + 2


def test_a_method_with_infinite_scores_is_not_the_one_that_is_shown(
    suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Run] = []

    def kept(*given: Any) -> Run:
        found.append(run_jobs(*given))
        return found[0]

    monkeypatch.setattr("adascale.cli.bench.run_jobs", kept)
    monkeypatch.setattr(detectors.AdaSCALE_A, "score", lambda _, outputs: torch.full((len(outputs),), torch.inf))
    bench(suite, monkeypatch, "a", *METHODS)
    (model,) = found[0].models
    assert set(model.scores) == {"scale", "msp"}
    assert "infinite scores" in model.left_out["adascale_a"]
    assert (model.shown, dict(model.profiles)) == ("scale", {})


@pytest.mark.parametrize("extra", [[], ["--tune", "self"]])
def test_a_run_hashes_its_network_once_and_verifies_each_shard_once(
    suite: Path, monkeypatch: pytest.MonkeyPatch, extra: list[str]
) -> None:
    cold = counted(monkeypatch)
    bench(suite, monkeypatch, "a", *METHODS, *extra)
    shards = len(list(Path(os.environ["ADASCALE_CACHE"]).rglob("*.safetensors")))
    assert (cold["fingerprint"], cold["code"]) == (1, 1)
    assert cold["checksum"] == shards + 1  # for writing it and the scores; what was just written is not verified
    warm = counted(monkeypatch)
    bench(suite, monkeypatch, "b", *METHODS, *extra)
    assert (warm["fingerprint"], warm["code"]) == (1, 1)
    assert warm["checksum"] == shards + 1


def test_everything_from_a_fresh_cache(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All methods: one pass with the gradients and all inner layers, trivial pixels, random pixels, ODIN's, I-ODIN's;
    of the tested images also MDS-ODIN's, whose gradient comes from the same one pass.

    Two images show the inner layers, once. This network has no second stage and no dropout to change.
    """
    settings = ["--set", "knn.k=5", "--set", "vim.dim=8", "--tune", "none"]
    passed = sum(bench(suite, monkeypatch, "a", "--method", "all", *settings))
    assert passed == PROBE + 2 + 5 * (40 + 70 + 20 + 20) + 40 + (40 + 20 + 20)
    rows = table(suite, "a")
    labels = {row["method"] for row in rows}
    left_out = json.loads((suite / "a" / "results.json").read_text())["reproduce"]["networks"]["Net"]["left_out"]
    assert labels | set(left_out) == {cls.name for cls in detectors.ALL}
    assert labels >= {"gram", "mds_ensemble", "nac", "mds_odin"}
    assert "no dropout module" in left_out["mc_dropout"]
    assert "fewer than 2 stages" in left_out["rankfeat"]
    assert {row["dataset"] for row in rows} == {"n", "f", "nearood", "farood"}


STAGED = """
        def stage(given, made, stride):
            first = [nn.Conv2d(given, made, 3, stride, 1), nn.BatchNorm2d(made), nn.ReLU(inplace=True)]
            return nn.Sequential(*first, nn.Conv2d(made, made, 3, 1, 1), nn.ReLU(inplace=True))
        self.conv = nn.Sequential(stage(3, 8, 1), stage(8, 12, 2), stage(12, 128, 2), nn.Dropout(0.2))
"""


def test_inner_layers_cost_no_pass_and_changed_networks_one_each(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All methods that need more than a plain pass, on a network with stages, norms and dropout: a pass of the network
    itself with all inner layers; one for each of the four perturbed inputs; two of RankFeat, ten of MC dropout; and of
    the tested images one more, perturbed by what MDS-ODIN has learned.
    """
    network = (suite / "nets.py").read_text()
    plain = "        self.conv = nn.Conv2d(3, 128, 3, stride=2)\n"
    assert plain in network
    (suite / "nets.py").write_text(network.replace(plain, STAGED.lstrip("\n")))
    wanted = [cls.name for cls in detectors.ALL if cls().wants or cls.learns_view]
    passed = sum(bench(suite, monkeypatch, "a", "--method", ",".join(wanted), "--set", "combood.k=5", "--tune", "none"))
    probe = PROBE + 4 + 2  # whether its norms can be folded is tried; two images show the inner layers
    assert passed == probe + (1 + 4 + 2 + 10) * (40 + 70 + 20 + 20) + 40 + (40 + 20 + 20)
    assert {row["method"] for row in table(suite, "a")} == {*wanted} >= INSIDE


def test_a_broken_or_foreign_cache_is_never_used(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench(suite, monkeypatch, "a", *METHODS)
    shards = sorted(Path(os.environ["ADASCALE_CACHE"]).rglob("*.safetensors"))
    content = bytearray(shards[0].read_bytes())
    content[-3] ^= 1
    shards[0].write_bytes(content)
    shards[-1].write_bytes(shards[-1].read_bytes()[:100])
    again = bench(suite, monkeypatch, "b", *METHODS)
    assert 0 < sum(again) < 150
    assert (suite / "a" / "results.csv").read_bytes() == (suite / "b" / "results.csv").read_bytes()
    # Other weights, other images, other preprocessing: nothing is reused.
    network = (suite / "nets.py").read_text()
    for change in (("manual_seed(0)", "manual_seed(1)"), ('"std": [0.25', '"std": [0.26')):
        (suite / "nets.py").write_text(network.replace(*change))
        assert sum(bench(suite, monkeypatch, "c", *METHODS)) > 300
    (suite / "nets.py").write_text(network.replace("torch.relu(", "torch.sigmoid("))  # the same weights and layers
    assert sum(bench(suite, monkeypatch, "c", *METHODS)) > 300
    (suite / "nets.py").write_text(network)
    shards[0].write_bytes(shards[0].read_bytes().replace(b"failures", b'f"ilures', 1))
    assert 0 < sum(bench(suite, monkeypatch, "c", *METHODS)) < 150
    pixels = np.load(suite / "near.npz")["images"]
    np.savez(suite / "near.npz", images=255 - pixels)
    assert sum(bench(suite, monkeypatch, "d", *METHODS)) == PROBE + 2 * 20


def test_the_figures_are_those_of_the_scores(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors.torch import load_file

    bench(suite, monkeypatch, "a", *METHODS)
    scores, rows = load_file(suite / "a" / "scores.safetensors"), table(suite, "a")
    for row in rows:
        if row["dataset"] in ("n", "f"):
            known, unknown = (scores[f"Net/{row['method']}/{name}"] for name in ("id", row["dataset"]))
            exact = metrics.evaluate(known, unknown)
            assert row["AUROC"] == f"{100 * exact.auroc:.4f}"
            assert row["FPR@95"] == f"{100 * exact.fpr95:.4f}"
            assert float(row["AUROC_low"]) <= float(row["AUROC"]) <= float(row["AUROC_high"])
            assert (row["id_images"], row["ood_images"]) == ("40", "20")
    columns = "model,method,dataset,FPR@95,AUROC,AUPR_IN,AUPR_OUT,ACC"
    assert (suite / "a" / "results.csv").read_text().startswith(columns)
    document = json.loads((suite / "a" / "results.json").read_text())
    assert document["reproduce"]["networks"]["Net"]["methods"]["scale"]["parameters"]["percentile"] == 85
    assert set(document["reproduce"]["sets"]) == {"id", "val", "train", "n", "f"}
    markdown, tex = ((suite / "a" / name).read_text() for name in ("tables.md", "tables.tex"))
    assert "**" in markdown
    assert "<u>" in markdown
    assert r"adascale\_a" in tex
    assert r"\textbf{" in tex


def test_several_networks_and_the_full_spectrum(
    suite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (suite / "nets.py").write_text((suite / "nets.py").read_text() + "\nclass Other(Net):\n    pass\n")
    model = [f"--model={suite / 'nets.py'}:{name}" for name in ("Net", "Other")]
    own = ["--id", suite / "id.npz", "--near", f"n={suite / 'near.npz'}", "--far", suite / "far.npz"]
    out = ["--out", suite / "o", "--no-report", "--shifted", "noise:3", "--shifted", "rotate:90"]
    assert inside(monkeypatch, "bench", *model, *own, *out, *METHODS) == 0
    rows = table(suite, "o")
    assert {row["model"] for row in rows} == {"Net", "Other"}
    full = [row for row in rows if row["spectrum"] == "full"]
    assert {row["id_images"] for row in full} == {str(3 * 30)}  # ten of the forty were set aside to fit on
    assert {row["dataset"] for row in full} == {"n", "far", "nearood", "farood"}
    assert "mean and deviation over 2 networks" in (suite / "o" / "tables.md").read_text()
    assert "spectrum" in capsys.readouterr().out


def test_two_runs_side_by_side(
    suite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench(suite, monkeypatch, "a", *METHODS)
    bench(suite, monkeypatch, "b", "--method", "scale,msp,gen", "--set", "scale.percentile=60")
    found = compare(suite / "a", suite / "b")
    assert found.only == (["adascale_a"], ["gen"])
    assert {row.method for row in found.moved if row.change} == {"scale"}
    assert found.moved[0].method == "scale"
    assert found.settings["networks.network.methods.scale.parameters.percentile"] == (85, 60)
    capsys.readouterr()
    assert inside(monkeypatch, "compare", suite / "a", suite / "b", "--all") == 0
    out = capsys.readouterr().out
    assert "only in" in out
    assert "percentile: 85 -> 60" in out
    assert inside(monkeypatch, "compare", suite / "a", suite / "nets.py") == 2
    assert "cannot be read as a benchmark's results" in capsys.readouterr().err


def test_tuning_from_the_shell(
    suite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ["--model", f"{suite / 'nets.py'}:Net"]
    assert inside(monkeypatch, "tune", suite / "suite.toml", *model, "--out", suite / "t.csv", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["trials"]) == 45
    assert found["auroc"] > max(auroc for _, auroc in found["trials"]) - 0.0076
    assert "outliers made from them" in found["judged_by"]
    assert len((suite / "t.csv").read_text().splitlines()) == 46
    # On one's own images, with OOD validation images, on a grid by name and one that changes a view.
    own = ["--id", suite / "val.npz", "--ood-val", f"x={suite / 'far.npz'}", *model]
    assert inside(monkeypatch, "tune", *own, "--grid", "one-knob") == 0
    out = capsys.readouterr().out
    assert "chosen from 8 by AUROC" in out
    assert "OOD validation images (x)" in out
    assert "--set p_min=60 --set p_max=" in out
    assert inside(monkeypatch, "tune", *own, "--grid", "epsilon=0.1,0.5 k2=5,10", "--by", "self", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["trials"]) == 4
    for wrong in ("p_max=85 p_max=90", "p_max=", "nothing=1", "p_max=nan,85", ""):
        assert inside(monkeypatch, "tune", *own, "--grid", wrong) == 2, wrong
    capsys.readouterr()
    assert inside(monkeypatch, "tune", *own, "--set", "p_max=90", "--set", "lam=1") == 0
    out = capsys.readouterr().out
    assert "chosen from 7 by AUROC" in out  # p_min up to 90; what was given is kept, and said again
    assert "--set p_max=90 --set lam=1 --set p_min=" in out
    # fit finds the same as tune on the same images
    fitting = ["fit", suite / "val.npz", *model, "-o", suite / "d.safetensors", "--json"]
    assert inside(monkeypatch, *fitting) == 0
    assert "chosen from 45 by AUROC" in json.loads(capsys.readouterr().out)["setting"]
    assert inside(monkeypatch, "tune", "--id", suite / "id.npz", *model) == 2
    assert "40 ID images are too few to tune on" in capsys.readouterr().err


def test_a_network_that_does_not_say_how_it_wants_its_images(
    suite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    network = (suite / "nets.py").read_text()
    (suite / "nets.py").write_text(network.replace("PREPROCESS", "OTHER"))
    arguments = ["bench", suite / "suite.toml", "--model", f"{suite / 'nets.py'}:Net", "--no-report", *METHODS]
    assert inside(monkeypatch, *arguments, "--out", suite / "a") == 2
    assert "pass --size" in capsys.readouterr().err
    look = ["--size", "20", "--crop", "16", "--mean", "0.5,0.5,0.5", "--std", "0.25,0.25,0.25"]
    assert inside(monkeypatch, *arguments, *look, "--out", suite / "a") == 0
    (suite / "nets.py").write_text(network)
    assert inside(monkeypatch, *arguments, "--out", suite / "b") == 0
    assert (suite / "a" / "results.csv").read_bytes() == (suite / "b" / "results.csv").read_bytes()


def test_tuned_lines(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench(suite, monkeypatch, "a", *METHODS, "--tune", "self", "--preset", "imagenet/resnet-50")
    labels = list(dict.fromkeys(row["method"] for row in table(suite, "a")))
    twins = networks(suite, "a")["twins"]
    every = ["adascale_a", "adascale_a (preset)", "adascale_a (tuned)", "scale", "scale (tuned)", "msp"]
    assert labels == [label for label in every if label not in twins]  # the order of the rows is kept
    assert {"adascale_a (tuned)", "adascale_a (preset)", "scale", "msp"} <= set(labels)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Give either a suite"),
        (["suite.toml", "--id", "id.npz"], "Give either a suite"),
        (["nothing"], "There is no suite nothing"),
        (["suite.toml"], "Which network? Give --model"),
        (["suite.toml", "--model", "nets.py:Net", "--method", "magic"], "no method 'magic'"),
        (["cifar10", "--model", "nets.py:Net"], "lacks"),
        (["suite.toml", "--model", "nets.py:Net", "--set", "scale.nothing=1"], "no parameter 'nothing'"),
        (["suite.toml", "--model", "nets.py:Net", "--tune", "ood"], "no OOD validation images"),
        (
            ["suite.toml", "--model", "nets.py:Net", "--method", "msp", "--preset", "cifar10/wrn-28-10"],
            "there are presets for",
        ),
        (["suite.toml", "--model", "nets.py:Net", "--out", "nets.py"], "is a file; give a folder"),
        (["suite.toml", "--model", "nets.py:Net", "--cache", "nets.py"], "is a file; give a folder"),
        (["suite.toml", "--model", "nets.py:Net", "--weights", "a.st", "--weights", "b.st"], "no weights file"),
    ],
)
def test_mistakes_are_told_in_one_line(
    suite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(suite)
    assert inside(monkeypatch, "bench", *arguments, "--no-report") == 2
    assert words in capsys.readouterr().err.strip().splitlines()[-1]


def test_places_are_shared_by_equal_values() -> None:
    assert ranked([3.0, 1.0, 1.0, 2.0], lower_is_better=True) == ["", "best", "best", "second"]
    assert ranked([3.0, 1.0, 1.0, 2.0], lower_is_better=False) == ["best", "", "", "second"]
    assert ranked([1.0, None], lower_is_better=True) == ["best", ""]


@pytest.mark.long
@pytest.mark.slow
def test_killed_ten_times_it_ends_with_the_same_bytes(suite: Path) -> None:
    arguments = ["bench", "suite.toml", "--model", "nets.py:Net", "--no-report", "--batch-size", "5", *METHODS]
    command = [sys.executable, "-m", "adascale", *arguments, "--out", "killed"]
    draw, kills, quiet = random.Random(0), 0, subprocess.DEVNULL
    environment = {**os.environ, "SLOW": "0.05"}
    while kills < 10:
        process = subprocess.Popen(command, cwd=suite, env=environment, stdout=quiet, stderr=quiet)
        time.sleep(2 + draw.random() * 3)
        if process.poll() is not None:  # done before it could be killed: start over from nothing
            for shard in Path(os.environ["ADASCALE_CACHE"]).rglob("*.safetensors"):
                shard.unlink()
            continue
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
    assert run(suite, *arguments, "--out", "killed").returncode == 0
    whole = run(suite, *arguments, "--out", "whole", ADASCALE_CACHE=str(suite / "fresh"))
    assert whole.returncode == 0, whole.stderr
    assert (suite / "killed" / "results.csv").read_bytes() == (suite / "whole" / "results.csv").read_bytes()
