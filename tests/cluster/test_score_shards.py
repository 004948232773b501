"""`adascale score --on local` and `adascale merge`: the same rows as one process, resumed, checked, never mixed."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from pathlib import Path

import pytest

from adascale.cli.spellings import current
from tests.cluster.crews import Here
from tests.images.pictures import picture
from tests.shell import NETWORK, fit, inside
from tests.stores import contents, tar_of

SHARDS = ("--batch-size", "4", "--shard-size", "7")  # rounded up to 8: shards of 8, 8, 8 and 6 images


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 images, one of them broken, scored by two workers into ``parts``."""
    place = tmp_path_factory.mktemp("scored")
    (place / "nets.py").write_text(NETWORK)
    (place / "id").mkdir()
    for i in range(30):
        picture(seed=i).save(place / "id" / f"{i:02d}.png")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        detector = fit(place, patch, "--method", "scale")
        (place / "id" / "13.png").write_bytes(b"no image")
        on = ("--on", "local", "--workers", "2")
        assert inside(patch, "score", "id", "-d", detector, "-o", "parts", *SHARDS, *on) == 3
    return place


@pytest.fixture
def parts(scored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folder of shards. The working folder has the images and the detector."""
    monkeypatch.chdir(scored)
    return shutil.copytree(scored / "parts", tmp_path / "parts", copy_function=shutil.copy2)


def resumed(monkeypatch: pytest.MonkeyPatch, parts: Path, *options: str) -> int:
    """The same command again while the network is gone, so that only what is there can be used."""
    on = ("--on", "local", "--workers", "1")
    network = Path("nets.py").rename("gone.py")
    try:
        return inside(monkeypatch, "score", "id", "-d", "d.safetensors", "-o", parts, *SHARDS, *on, *options)
    finally:
        network.rename("nets.py")


def single(monkeypatch: pytest.MonkeyPatch, output: Path, *options: str) -> bytes:
    """The file that one process writes."""
    assert inside(monkeypatch, "score", "id", "-d", "d.safetensors", "-o", output, "--batch-size", "4", *options) == 3
    return output.read_bytes()


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_the_merged_file_is_that_of_one_process(parts: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    merged = parts.with_name(f"merged.{suffix}")
    assert inside(monkeypatch, "merge", parts, "-o", merged) == 0
    assert merged.read_bytes() == single(monkeypatch, parts.with_name(f"one.{suffix}"))


def test_discoveries_are_found_in_the_merged_rows(
    parts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    merged, fdr = parts.with_name("merged.csv"), ("--fdr", "0.9")
    notes = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")  # too few images for a discovery
        assert inside(monkeypatch, "merge", parts, "-o", merged, *fdr) == 0
        notes += [line for line in capsys.readouterr().err.splitlines() if "note" in line]
        expected = single(monkeypatch, parts.with_name("one.csv"), *fdr)
        notes += [line for line in capsys.readouterr().err.splitlines() if "note" in line]
    assert len(notes) == 2
    assert notes[0] == notes[1]
    assert merged.read_bytes() == expected
    assert b"discovery" in expected


def test_the_manifest_has_every_shard_with_its_rows_and_checksum(parts: Path) -> None:
    manifest = json.loads((parts / "manifest.json").read_text())
    assert (manifest["rows"], manifest["failed"], manifest["batch_size"]) == (30, 1, 4)
    assert [shard["rows"] for shard in manifest["shards"]] == [8, 8, 8, 6]
    assert [shard["failed"] for shard in manifest["shards"]] == [0, 1, 0, 0]
    assert {shard["file"] for shard in manifest["shards"]} == {file.name for file in parts.glob("*.parquet")}
    assert set(manifest["versions"]) == {"adascale", "Python", "torch"}


def test_shards_that_are_there_are_not_scored_again(parts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {file: os.stat(file).st_mtime_ns for file in parts.glob("*.parquet")}
    manifest = (parts / "manifest.json").read_bytes()
    (parts / "manifest.json").unlink()
    assert resumed(monkeypatch, parts) == 3  # 3: one image could not be read, as before
    assert {file: os.stat(file).st_mtime_ns for file in parts.glob("*.parquet")} == before
    assert (parts / "manifest.json").read_bytes() == manifest


def test_a_missing_shard_needs_the_network(
    parts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    next(parts.glob("part-000002-*")).unlink()
    assert resumed(monkeypatch, parts) == 2
    assert "nets.py" in capsys.readouterr().err


def test_a_folder_of_another_job_is_refused(
    parts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert resumed(monkeypatch, parts, "--alpha", "0.2") == 2
    assert "another job" in capsys.readouterr().err


def test_merging_refuses_unfinished_and_changed_shards(
    parts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    merged = parts.with_name("merged.csv")
    changed = next(parts.glob("part-000001-*"))
    changed.write_bytes(changed.read_bytes() + b" ")
    assert inside(monkeypatch, "merge", parts, "-o", merged) == 2
    assert f"{changed} is missing or was changed" in capsys.readouterr().err
    (parts / "manifest.json").unlink()
    assert inside(monkeypatch, "merge", parts, "-o", merged) == 2
    assert "resumes it" in capsys.readouterr().err
    assert not merged.exists()


def test_a_tar_that_cannot_be_read_can_be_skipped(
    parts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("adascale.cli.workers.LocalCrew", lambda *_: Here())
    images, tars, out = contents(Path("id")), tmp_path / "tars", tmp_path / "out"
    tars.mkdir()
    (tars / "a.tar").write_bytes(tar_of({name: images[name] for name in list(images)[:8]}))
    (tars / "b.tar").write_bytes(b"no tar")
    command = ("score", tars, "-d", "d.safetensors", "-o", out, "--on", "local")
    assert inside(monkeypatch, *command) == 2
    told = capsys.readouterr().err
    assert "1 of 2 shards failed" in told
    assert "--skip-failed" in told
    assert not (out / "manifest.json").exists()
    assert inside(monkeypatch, *command, "--skip-failed") == 3
    (skipped,) = json.loads((out / "manifest.json").read_text())["failed_shards"]
    assert "cannot be read as a tar" in skipped["reason"]
    capsys.readouterr()
    assert inside(monkeypatch, "merge", out, "-o", tmp_path / "all.csv") == 0
    assert f"without {skipped['source']}" in capsys.readouterr().err
    assert len((tmp_path / "all.csv").read_text().splitlines()) == 9


def test_decisions_have_no_discoveries(
    parts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("adascale.cli.workers.LocalCrew", lambda *_: Here())
    out, merged = tmp_path / "run.v1", tmp_path / "all.csv"  # a dot makes no file of a folder
    on = ("--on", "local", "--decide", *SHARDS)
    assert inside(monkeypatch, "score", "id", "-d", "d.safetensors", "-o", out, *on) == 3
    assert inside(monkeypatch, "merge", out, "-o", merged, "--fdr", "0.1") == 2
    assert "--fdr needs the p-values" in capsys.readouterr().err
    assert inside(monkeypatch, "merge", out, "-o", merged) == 0
    assert merged.read_bytes() == single(monkeypatch, tmp_path / "one.csv", "--decide")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", "s.csv", "--on", "local"], "name a folder, -o scores"),
        (["--on", "local"], "name a folder, -o scores"),
        (["-o", "parts"], "a folder of shards is made by --on local"),
        (["-o", "parts", "--on", "local", "--fdr", "0.1"], "give it to adascale merge"),
        (["-o", "parts", "--address", "auto"], "add --on ray"),
        (["-o", "s.csv", "--cpus-per-worker", "2"], "--on local or --on ray"),
        (["-o", "s.csv", "--skip-failed"], "add --on local or --on ray"),
    ],
)
def test_options_that_contradict_each_other_are_told(
    parts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert inside(monkeypatch, "score", "id", "-d", "d.safetensors", *options) == 2
    assert message in capsys.readouterr().err


def test_engine_ray_is_understood_as_on_ray(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["score", "id", "-d", "d.st", "-o", "parts", "--workers", "2"]
    assert current([*asked, "--engine", "ray"]) == current([*asked, "--engine=ray"]) == [*asked, "--on", "ray"]
    assert "note: --engine ray is taken for --on ray" in capsys.readouterr().err
    assert current([*asked, "--engine", "openvino", "ray"]) == [*asked, "--engine", "openvino", "ray"]
