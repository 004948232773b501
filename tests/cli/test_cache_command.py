"""``adascale cache``, and what ``bench`` says about the cache."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.shell import inside


@pytest.fixture
def filled(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A cache with two suites of the same network and images, and an entry of a version without records."""
    cache = place / "cache"
    monkeypatch.setenv("ADASCALE_CACHE", str(cache))
    monkeypatch.chdir(place)
    shutil.copytree("id", "new")
    shutil.copytree("id", "far")
    for name in ("one", "two"):
        Path(f"{name}.toml").write_text(f'id = "id"\nval = "new"\n[far]\n{name} = "far"\n')
    bench(monkeypatch, "one.toml")
    (cache / (32 * "0")).mkdir()
    (cache / (32 * "0") / "000000.safetensors").write_bytes(bytes(500))
    capsys.readouterr()
    return cache


def bench(monkeypatch: pytest.MonkeyPatch, suite: str, *more: str) -> None:
    model = ["--model", "nets.py:Net", "--no-report", "--method", "msp", "--out", "results"]
    assert inside(monkeypatch, "bench", suite, *model, *more) == 0


def answer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert inside(monkeypatch, "cache", *arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_bench_says_how_much_is_kept(
    filled: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench(monkeypatch, "one.toml")
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("activations: ")
    assert line.endswith(f"B are kept in {filled} (limit 50.0 GB; see adascale cache)")


def test_list_and_size(filled: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(monkeypatch, capsys, "list")["entries"]
    known = {(*entry["suites"], *entry["networks"], *entry["sets"]) for entry in found}
    assert known == {("one", "Net", "id"), ("one", "Net", "val"), ("one", "Net", "one"), ("unknown",) * 3}
    size = answer(monkeypatch, capsys, "size")
    written = [file.stat().st_size for file in filled.glob("*/*") if file.parent.name != ".running"]
    assert (size["entries"], size["size"]) == (4, sum(written))
    assert inside(monkeypatch, "cache") == 0
    out = capsys.readouterr().out
    assert "one" in out
    assert out.splitlines()[-1].startswith("4 entries, ")


def test_clean_by_suite_keeps_what_another_suite_uses(
    filled: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("two.toml").write_text('id = "id"\nval = "new"\n[far]\ntwo = "id2"\n')
    shutil.copytree("id", "id2")
    bench(monkeypatch, "two.toml")
    capsys.readouterr()
    assert len(answer(monkeypatch, capsys, "clean", "--suite", "one")["removed"]) == 1
    left = answer(monkeypatch, capsys, "list")["entries"]
    assert sorted(entry["suites"] for entry in left) == [["one", "two"], ["one", "two"], ["two"], ["unknown"]]
    assert len(answer(monkeypatch, capsys, "clean", "--suite", "unknown")["removed"]) == 1
    assert len(answer(monkeypatch, capsys, "clean", "--all")["removed"]) == 3
    assert answer(monkeypatch, capsys, "size")["size"] == 0


def test_clean_by_age(filled: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(monkeypatch, capsys, "clean", "--older-than", "30d")["removed"] == []
    old = next(path for path in filled.glob("*/about.json"))
    os.utime(old, (0, 0))
    assert answer(monkeypatch, capsys, "clean", "--older-than", "30d")["removed"] == [old.parent.name]


def test_a_limit_removes_other_sets_and_none_of_this_run(
    filled: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench(monkeypatch, "two.toml", "--cache-limit", "1kB")
    assert "removed 1 cached sets" in capsys.readouterr().err  # that without a record; the images are the same
    shutil.copytree("id", "id2")
    Path("two.toml").write_text('id = "id2"\n[far]\ntwo = "far"\n')
    monkeypatch.setenv("ADASCALE_CACHE_LIMIT", "1kB")
    bench(monkeypatch, "two.toml")
    assert "removed 2 cached sets" in capsys.readouterr().err  # id and val of the first suite
    found = answer(monkeypatch, capsys, "list")["entries"]
    assert sorted(name for entry in found for name in entry["sets"]) == ["id", "one", "two", "val"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["clean"], "cache clean without an option; say what"),
        (["clean", "--all", "--suite", "one"], "--all beside other options"),
        (["clean", "--older-than", "30"], "--older-than 30: give a number with m, h, d or w"),
        (["clean", "--suite", "onn"], "nothing of the suite onn; did you mean 'one'?"),
        (["list", "--cache", "nets.py"], "is a file; give a folder"),
    ],
)
def test_mistakes_remove_nothing(
    filled: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    assert inside(monkeypatch, "cache", *arguments) == 2
    assert words in capsys.readouterr().err
    assert answer(monkeypatch, capsys, "size")["entries"] == 4
