"""Two commands on one output: the second is refused in one line, and the first loses nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adascale.storage.locks import claimed
from tests.shell import fit, inside, rows


def commands(place: Path) -> dict[str, tuple[list[Any], Path, bool]]:
    """The arguments, the output, and whether it is a folder."""
    model = ["--model", f"{place / 'nets.py'}:Net"]
    own = ["--id", place / "id", "--near", place / "near", *model, "--no-report", "--out", place / "o"]
    return {
        "score": (
            ["score", place / "id", "-d", place / "d.safetensors", "-o", place / "s.csv"],
            place / "s.csv",
            False,
        ),
        "fit": (["fit", place / "id", *model, "-o", place / "e.safetensors"], place / "e.safetensors", False),
        "fit several": (
            ["fit", place / "id", *model, "--method", "msp,ebo", "-o", place / "both"],
            place / "both",
            True,
        ),
        "bench": (["bench", *own, "--method", "msp"], place / "o", True),
        "study": (["study", "lambda", *own], place / "o", True),
        "train": (
            ["train", "--data", place / "classes", *model, "--epochs", 1, "-o", place / "t"],
            place / "t" / "seed0.safetensors",
            False,
        ),
    }


@pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")
@pytest.mark.parametrize("name", ["score", "fit", "fit several", "bench", "study", "train"])
def test_the_second_is_refused(
    name: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fit(place, monkeypatch, "--method", "msp")
    for kind, first in (("near", 0), ("classes/a", 10), ("classes/b", 20)):
        (place / kind).mkdir(parents=True)
        for i in range(first, first + 4):
            (place / "id" / f"{i:02d}.png").rename(place / kind / f"{i:02d}.png")
    arguments, output, folder = commands(place)[name]
    with claimed(output, folder):
        before = sorted(place.rglob("*"))
        capsys.readouterr()
        assert inside(monkeypatch, *arguments) == 2
        assert f"{output} is being written by another run (process" in capsys.readouterr().err
        assert sorted(path for path in place.rglob("*") if "__pycache__" not in str(path)) == [
            path for path in before if "__pycache__" not in str(path)
        ]


def test_a_cut_journal_gives_the_same_bytes(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill within a batch: the batch is computed again, because other batches give other last digits."""
    detector = fit(place, monkeypatch)
    command = ["score", place / "id", "-d", detector, "-o", place / "s.csv", "--batch-size", "8"]
    assert inside(monkeypatch, *command) == 0
    whole = (place / "s.csv").read_bytes()
    from adascale.storage import rows as storage

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(storage, "write_rows", full)
        assert inside(patched, *command) == 2
    journal = place / "s.csv.part"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:14]) + lines[14][:9])  # the key, 13 rows, and a torn one
    assert inside(monkeypatch, *command) == 0
    assert (place / "s.csv").read_bytes() == whole
    assert len(rows(place / "s.csv")) == 30
