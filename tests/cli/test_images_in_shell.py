"""Images in the shell: their names, their classes, and an image on standard input."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from adascale import OODDetector
from adascale.core.extras import optional
from tests.images.pictures import picture
from tests.shell import fit, inside, rows

NAMES = "ant\nbee\ncat\ndog\n"


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


def test_an_image_on_standard_input(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``cat id/03.png | adascale score - -d d.safetensors``"""
    detector = fit(place, monkeypatch)
    capsys.readouterr()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO((place / "id" / "03.png").read_bytes())))
    assert inside(monkeypatch, "score", "-", "-d", detector) == 0
    (piped,) = table(capsys.readouterr().out)
    assert inside(monkeypatch, "score", place / "id" / "03.png", "-d", detector) == 0
    (named,) = table(capsys.readouterr().out)
    assert (piped.pop("image"), named.pop("image")) == ("-", f"{place}/id/03.png")
    assert piped == named
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{place}/id/03.png\n".encode())))
    assert inside(monkeypatch, "score", "-", "-d", detector) == 0
    assert table(capsys.readouterr().out)[0]["image"] == f"{place}/id/03.png"


def test_class_names_go_from_fit_to_rows(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "names.txt").write_text(NAMES)
    detector = fit(place, monkeypatch, "--classes", place / "names.txt")
    capsys.readouterr()
    letters = NAMES.split()
    for extra in ([], ["--decide"]):
        assert inside(monkeypatch, "score", place / "id", "-d", detector, *extra) == 0
        lines = table(capsys.readouterr().out)
        assert list(lines[0])[-3:] == ["prediction", "class", "error"]
        assert [row["class"] for row in lines] == [letters[int(row["prediction"])] for row in lines]
    (place / "id" / "30.png").write_text("no image")
    for suffix in ("jsonl", "parquet"):
        assert inside(monkeypatch, "score", place / "id", "-d", detector, "-o", place / f"s.{suffix}") == 3
    written = [json.loads(line) for line in (place / "s.jsonl").read_text().splitlines()]
    assert pytest.importorskip("pyarrow.parquet").read_table(place / "s.parquet").to_pylist() == written
    assert (written[0]["class"], written[30]["class"]) == (letters[written[0]["prediction"]], None)
    capsys.readouterr()
    assert inside(monkeypatch, "inspect", detector) == 0
    assert "ant" in capsys.readouterr().out
    assert OODDetector.load(detector, trust=True)(place / "id" / "00.png").label == [written[0]["class"]]


def test_class_names_given_to_score(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    detector = fit(place, monkeypatch)
    (place / "names.json").write_text(json.dumps({"0": "A", "1": "B", "2": "C", "3": "D"}))
    capsys.readouterr()
    assert inside(monkeypatch, "score", place / "id", "-d", detector, "--classes", place / "names.json") == 0
    assert {row["class"] for row in table(capsys.readouterr().out)} <= set("ABCD")


@pytest.mark.parametrize("verb", ["fit", "score"])
def test_a_wrong_number_of_names_costs_one_line(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    detector = fit(place, monkeypatch)
    (place / "names.txt").write_text(NAMES + "elk\n")
    how = ["--model", f"{place / 'nets.py'}:Net", "-o", place / "x.st"] if verb == "fit" else ["-d", detector]
    monkeypatch.setenv("CALLS", str(place / "calls"))
    capsys.readouterr()
    assert inside(monkeypatch, verb, place / "id", *how, "--classes", place / "names.txt") == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.startswith("adascale: --classes has 5 names (ant, ...), and the network has 4 classes; give one")
    assert "30" not in (place / "calls").read_text().split()  # told before the images go through the network


def test_another_spelling_of_the_folder_does_not_mix_names(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    detector = fit(place, monkeypatch)
    monkeypatch.chdir(place)
    from adascale.decision import folders

    whole = folders.score_images

    def first_batch(*args: object, **kwargs: object) -> object:
        yield next(iter(whole(*args, **kwargs)))  # type: ignore[arg-type]
        raise KeyboardInterrupt

    command = ["-d", detector, "-o", "s.csv", "--batch-size", "10"]
    with monkeypatch.context() as patched:
        patched.setattr(folders, "score_images", first_batch)
        assert inside(patched, "score", "id", *command) == 130
    capsys.readouterr()
    assert inside(monkeypatch, "score", "./id", *command) == 0
    assert "resuming" not in capsys.readouterr().err
    assert [row["image"] for row in rows(place / "s.csv")] == [f"./id/{i:02d}.png" for i in range(30)]
    with monkeypatch.context() as patched:
        patched.setattr(folders, "score_images", first_batch)
        assert inside(patched, "score", "id", *command) == 130
    capsys.readouterr()
    assert inside(monkeypatch, "score", "id", *command) == 0
    assert "resuming after 10 of 30 images" in capsys.readouterr().err
    assert [row["image"] for row in rows(place / "s.csv")] == [f"id/{i:02d}.png" for i in range(30)]


@pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")
def test_a_folder_fitted_from_the_shell_is_that_fitted_in_python(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    parts = ["id/0*.png", "id/1*", "id/2*.png"]
    assert inside(monkeypatch, "fit", *parts, "--model", "nets.py:Net", "-o", "d.safetensors") == 0
    shell = OODDetector.load("d.safetensors", trust=True)
    python = OODDetector.from_spec("nets.py:Net").fit("id")
    assert python.threshold == pytest.approx(shell.threshold, rel=1e-5)
    python.save("p.safetensors")
    assert inside(monkeypatch, "score", "id", "-d", "p.safetensors", "-o", "s.csv") == 0  # the file names its network
    expected = python("id")
    assert [float(row["score"]) for row in rows(place / "s.csv")] == pytest.approx(expected.score.tolist(), rel=1e-5)
    assert [row["image"] for row in rows(place / "s.csv")] == expected.names


def test_a_hugging_face_folder_without_a_processor(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    optional("torchvision", "torchvision")
    transformers = optional("transformers", "huggingface")
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_labels=4)
    torch.manual_seed(0)
    transformers.ResNetForImageClassification(config).save_pretrained(place / "hf")
    base = ["fit", place / "id", "--model", f"hf:{place / 'hf'}", "--method", "ebo", "-o", place / "x.st"]
    capsys.readouterr()
    assert inside(monkeypatch, *base) == 2
    assert "pass --size, --crop, --mean and --std" in capsys.readouterr().err
    look = ["--size", "20", "--crop", "16", "--mean", "0.5,0.5,0.5", "--std", "0.2,0.2,0.2"]
    assert inside(monkeypatch, *base, *look) == 0


@pytest.mark.filterwarnings("default::adascale.AdascaleWarning")
def test_twelve_bit_images_get_a_hint(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    detector = fit(place, monkeypatch)
    (place / "deep").mkdir()
    dark = np.random.default_rng(0).integers(0, 4096, (18, 20)).astype(np.uint16)
    Image.fromarray(dark).save(place / "deep" / "a.png")
    picture().save(place / "deep" / "b.png")
    monkeypatch.chdir(place)
    capsys.readouterr()
    assert inside(monkeypatch, "score", "deep", "-d", detector) == 0
    (note,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
    assert note.startswith("note: All values of deep/a.png are below 4096 of 65535")


def test_the_report_of_a_benchmark_names_classes(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "names.txt").write_text(NAMES)
    (place / "near").mkdir()
    picture(seed=99).save(place / "near" / "a.png")
    how = ["--model", f"{place / 'nets.py'}:Net", "--methods", "ebo", "--classes", place / "names.txt"]
    own = ["--id", place / "id", "--near", place / "near", "--out", place / "out"]
    assert inside(monkeypatch, "bench", *own, *how) == 0
    shown = set(re.findall(r"taken for <b>(\w+)<", (place / "out" / "report.html").read_text("utf8")))
    assert shown
    assert shown <= set(NAMES.split())
