"""Runs that are killed, or that disk, input or neighbour fail: the output is complete and right, or absent."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adascale.storage.reading import read_rows
from tests.campaign.starter import Ended, Runs
from tests.campaign.tries import Tries
from tests.images.pictures import picture
from tests.shell import NETWORK

MODEL = ["--model", "nets.py:Net"]
SCORE = ["score", "id", "-d", "d.safetensors", "--trust", "--batch-size", "3", "-o"]
OWN = [*MODEL, "--batch-size", "11", "--id"]
COMMANDS: dict[str, list[str]] = {
    **{f"score {form}": [*SCORE, f"out.{form}"] for form in ("csv", "json", "jsonl", "parquet")},
    "score --decide": [*SCORE, "out.csv", "--decide"],
    "score --fdr": [*SCORE, "out.csv", "--fdr", "0.2"],
    "score several": [*SCORE, "out.parquet", "-d", "e.safetensors"],
    "fit": ["fit", "id", *MODEL, "--batch-size", "3", "-o", "out.safetensors"],
    "fit several": ["fit", "id", *MODEL, "--batch-size", "3", "--method", "msp,scale", "-o", "out"],
    "fit --tune": ["fit", "many", *MODEL, "--batch-size", "11", "--method", "scale", "--tune", "-o", "out.safetensors"],
    "bench": ["bench", *OWN, "id", "--near", "near=near", "--method", "msp,scale", "--no-report", "--out", "out"],
    "tune": ["tune", *OWN, "many", "--method", "scale", "--out", "out.csv"],
    "train": [
        "train",
        "--data",
        "classes",
        *MODEL,
        "--epochs",
        "2",
        "--batch-size",
        "4",
        "--save-every",
        "0",
        "-o",
        "out",
    ],
    "export": ["export", "e.safetensors", "--trust", "-o", "out.onnx"],
    "monitor": ["monitor", "rows.csv", "-d", "d.safetensors", "--state", "out.state"],
    "recalibrate": ["recalibrate", "d.safetensors", "--trust", "--with", "near", "-o", "out.safetensors"],
}
SLOW: dict[str, Any] = {"SLOW": "0.02"}


@dataclass
class Place:
    """A folder with a network, images and detectors; the runs in it; what commands give that are left alone."""

    folder: Path
    runs: Runs
    expected: dict[str, tuple[dict[str, bytes], float]]
    hits: int = 0  # signals that ended a run before it was complete

    def whole(self, name: str) -> tuple[dict[str, bytes], float]:
        """The files of a run that was left alone, and how long it took."""
        if name not in self.expected:
            self.clean()
            ended = self.runs.good(*COMMANDS[name], **SLOW)
            self.expected[name] = self.outputs(), ended.seconds
        return self.expected[name]

    def clean(self) -> None:
        for path in (*self.folder.glob("out*"), *self.folder.glob(".out*"), self.folder / "cache"):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def outputs(self) -> dict[str, bytes]:
        """Every file whose name begins like an output, also locks, journals and temporary files."""
        names = (*self.folder.glob("out*"), *self.folder.glob(".out*"))
        found = (one for name in names for one in ([name] if name.is_file() else name.rglob("*")) if one.is_file())
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in found}

    def resumes(self, name: str) -> str | None:
        """Whether the same command now gives what it gives if it is left alone, and nothing else."""
        if wrong := self.runs(*COMMANDS[name]).unclean(0):
            return f"{name}, again: {wrong}"
        found, expected = self.outputs(), self.whole(name)[0]
        if found.keys() != expected.keys():
            return f"{name}: other files: {sorted(found.keys() ^ expected.keys())}"
        return next((f"{name}: other bytes in {one}" for one in found if found[one] != expected[one]), None)


@contextmanager
def prepared(tries: Tries, folder: Path) -> Iterator[Place]:
    work = folder / "work"
    for kind, count, first in (
        ("id", 24, 0),
        ("many", 88, 0),
        ("near", 8, 100),
        ("classes/a", 6, 200),
        ("classes/b", 6, 300),
    ):
        (work / kind).mkdir(parents=True)
        for i in range(count):
            picture(seed=first + i).save(work / kind / f"{i:02d}.png")
    (work / "nets.py").write_text(NETWORK)
    place = Place(work, Runs(work), {})
    try:
        for name, method in (("d", "combined"), ("e", "msp")):
            place.runs.good("fit", "id", *MODEL, "--method", method, "-o", f"{name}.safetensors")
        place.runs.good("score", "id", "near", "-d", "d.safetensors", "--trust", "-o", "rows.csv")
        yield place
    finally:
        tries.peak = max(tries.peak, place.runs.peak)
        place.runs.close()


def kills(tries: Tries, folder: Path) -> None:
    """SIGKILL or SIGTERM at a random moment: the same command then gives the bytes of a run that was left alone."""
    names = sorted(COMMANDS)
    with prepared(tries, folder) as place:
        for draw in tries.each():
            name = names[(tries.first + tries.count) % len(names)]
            tries.attempt(lambda name=name, draw=draw: _killed(place, name, draw))  # type: ignore[misc]
        print(f"kills: {place.hits} signals ended a run before it was complete", file=sys.stderr, flush=True)


def _killed(place: Place, name: str, draw: random.Random) -> str | None:
    _, seconds = place.whole(name)
    place.clean()
    for _ in range(draw.choice((1, 1, 2))):
        number = draw.choice((signal.SIGKILL, signal.SIGTERM))
        ended = place.runs(*COMMANDS[name], number=number, after=draw.uniform(0.01, 0.9 * seconds), **SLOW)
        place.hits += ended.code != 0
        if wrong := _badly_ended(ended, number):
            return f"{name}, {number.name}: {wrong}"
    return place.resumes(name)


def _badly_ended(ended: Ended, number: signal.Signals) -> str | None:
    """0: it was complete already. A signal before the command line is reached ends the process itself."""
    if wrong := ended.unclean(0, -number, *([143] if number == signal.SIGTERM else [])):
        return wrong
    lines = [line for line in ended.told.splitlines() if line.startswith("adascale: ")]
    fine = len(lines) == 1 and lines[0].startswith("adascale: terminated")
    return f"told {lines}" if ended.code == 143 and not fine else None


def faults(tries: Tries, folder: Path) -> None:
    """A full disk, a read-only folder, input that vanishes, two runs on one output and on one cache."""
    kinds: list[Callable[[Place, random.Random], str | None]] = [_full, _too_large, _read_only, _vanishing, _neighbours]
    with prepared(tries, folder) as place:
        for draw in tries.each():
            kind = kinds[(tries.first + tries.count) % len(kinds)]
            tries.attempt(lambda kind=kind, draw=draw: kind(place, draw))  # type: ignore[misc]


def _writing(draw: random.Random) -> str:
    return draw.choice(sorted(COMMANDS))


def _refused(place: Place, name: str, ended: Ended) -> str | None:
    """A run that could not write: complete, or refused in one line without a torn output; and it can be repeated."""
    if wrong := ended.unclean(0, 2):
        return f"{name}: {wrong}"
    torn = [one for one in place.outputs() if Path(one).name.startswith(".out")]
    if torn:
        return f"{name}: left {torn}"
    return place.resumes(name)


def _too_large(place: Place, draw: random.Random) -> str | None:
    """The system refuses to let a file grow beyond a size."""
    name = _writing(draw)
    place.whole(name)
    place.clean()
    return _refused(place, name, place.runs(*COMMANDS[name], limit=draw.choice((1, 100, 1000, 5000, 20000))))


def _full(place: Place, draw: random.Random) -> str | None:
    """Outputs and cache on a small disk of their own (tmpfs), where that can be mounted."""
    name, size = _writing(draw), draw.choice((4, 8, 16, 32, 64))
    expected, _ = place.whole(name)
    place.clean()
    with tempfile.TemporaryDirectory() as other, _mounted(Path(other), f"size={size}k") as mounted:
        if not mounted:
            return _too_large(place, draw)
        moved = [str(Path(other) / one) if one.startswith("out") else one for one in COMMANDS[name]]
        ended = place.runs(*moved, ADASCALE_CACHE=str(Path(other) / "cache"))
        if wrong := ended.unclean(0, 2):
            return f"{name} on {size} KB: {wrong}"
        found = {path.name for path in Path(other).rglob("*") if path.is_file()}
        torn = [one for one in found if one.startswith(".out")]
        done = {Path(one).name for one in expected} <= found
    return f"{name} on {size} KB: left {torn}" if torn else None if ended.code or done else f"{name}: not complete"


def _read_only(place: Place, draw: random.Random) -> str | None:
    name = _writing(draw)
    with tempfile.TemporaryDirectory() as other, _mounted(Path(other), "ro") as mounted:
        if not mounted:
            os.chmod(other, 0o555)
            if os.access(other, os.W_OK):  # the administrator may always write
                return None
        moved = [str(Path(other) / one) if one.startswith("out") else one for one in COMMANDS[name]]
        ended = place.runs(*moved, ADASCALE_CACHE=str(Path(other) / "cache"))
        os.chmod(other, 0o755) if not mounted else None
    wrong = ended.unclean(2)
    return f"{name} in a read-only folder: {wrong}" if wrong else None


@contextmanager
def _mounted(folder: Path, options: str) -> Iterator[bool]:
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    done = shutil.which("mount") is not None and subprocess.run(command, capture_output=True).returncode == 0
    try:
        yield done
    finally:
        if done:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def _vanishing(place: Place, draw: random.Random) -> str | None:
    """Images are removed or overwritten while they are scored: every image has a row, and a score or a reason."""
    place.clean()
    images = place.folder / "vanishing"
    shutil.copytree(place.folder / "id", images, dirs_exist_ok=True)
    gone = draw.sample(sorted(path.name for path in images.iterdir()), 6)
    command = ["vanishing" if part == "id" else part for part in COMMANDS["score csv"]]
    seconds = place.whole("score csv")[1]
    place.clean()

    def remove() -> None:
        for name in gone[:3]:
            (images / name).unlink()
        for name in gone[3:]:
            (images / name).write_bytes(b"overwritten")

    timer = _later(draw.uniform(0, seconds), remove)
    ended = place.runs(*command, **SLOW)
    timer.join()
    if wrong := ended.unclean(0, 3):
        return f"vanishing: {wrong}"
    rows = {Path(str(row["image"])).name: row for row in read_rows(str(place.folder / "out.csv"), None)}
    left = {path.name for path in images.iterdir()}
    shutil.rmtree(images)
    unlisted = sorted(left - rows.keys())
    silent = [name for name, row in rows.items() if bool(row["score"]) == bool(row["error"])]
    spoilt = [name for name, row in rows.items() if row["error"] and name not in gone]
    found = {"without a row": unlisted, "without score and reason": silent, "failed, but was there": spoilt}
    return next((f"vanishing: {what}: {names}" for what, names in found.items() if names), None)


def _later(seconds: float, action: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(seconds, action)
    timer.start()
    return timer


def _neighbours(place: Place, draw: random.Random) -> str | None:
    """Two runs with one cache, and two with one output, of which one may be killed."""
    name = draw.choice(("bench", "tune", "fit", "score csv", "train"))
    expected, seconds = place.whole(name)
    place.clean()
    if name in ("bench", "tune") and draw.random() < 0.7:
        other = ["out2" if one == "out" else "out2.csv" if one == "out.csv" else one for one in COMMANDS[name]]
        ended = place.runs.all([COMMANDS[name], other], **SLOW)
        wrong = next((one.unclean(0) for one in ended if one.unclean(0)), None)
        found = {key.replace("out2", "out"): value for key, value in place.outputs().items() if "out2" in key}
        return f"{name}, one cache: {wrong or 'other bytes'}" if wrong or found != expected else None
    number = draw.choice((0, signal.SIGKILL))
    ended = place.runs.all([COMMANDS[name]] * 2, number=number, after=draw.uniform(0.01, seconds), **SLOW)
    wrong = ended[0].unclean(0, 2, -signal.SIGKILL) or ended[1].unclean(0, 2)
    if not wrong and {one.code for one in ended} == {2}:
        wrong = "both were refused"
    return f"{name}, one output: {wrong}" if wrong else place.resumes(name)
