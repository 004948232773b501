"""Hostile names of files, made by Hypothesis: every image has its row, and the row names it."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from adascale.images.loader import load_batches
from adascale.images.sources import find_images
from adascale.storage.reading import read_rows
from adascale.storage.rows import Journal
from tests.campaign.tries import Tries
from tests.images.pictures import RGB, picture

ODD = [
    "=1+1",
    "+a",
    "-b",
    "@c",
    "\ttab",
    "cr\rlf\n",
    "\u2028",
    "\ufeff",
    "a,b",
    'q"q',
    "\x0c",
    "%00",
    "..a",
    " ",
    "\udcff",
]
_any = st.integers(1, 0x10FFFF).filter(lambda n: n != ord("/") and not 0xD800 <= n <= 0xDFFF).map(chr)
_text = st.text(_any | st.sampled_from("=+-@\t\r\n,;\"'\\ \udc80\udcff"), min_size=1, max_size=40)
_names = st.sampled_from(ODD) | _text.filter(lambda text: len(os.fsencode(text)) < 200)
_sets = st.lists(_names, min_size=1, max_size=6, unique=True)


def names(tries: Tries, folder: Path) -> None:
    data = folder / "one.png"
    picture().save(data)
    for draw in tries.each():
        tries.attempt(lambda draw=draw: _tried(folder, data, draw))  # type: ignore[misc]


def _tried(folder: Path, data: Path, draw: random.Random) -> str | None:
    """One set of names; Hypothesis makes it smaller if it fails."""
    phases = (Phase.generate, Phase.shrink)

    @settings(max_examples=1, database=None, deadline=None, phases=phases, suppress_health_check=list(HealthCheck))
    @given(_sets)
    def check(found: list[str]) -> None:
        wrong = _wrong(folder / "images", data, found, draw.choice((".csv", ".jsonl", ".json", ".parquet")))
        assert wrong is None, f"{wrong}: {found!r}"

    seed(draw.randrange(2**31))(check)()
    return None


def _wrong(images: Path, data: Path, made: list[str], suffix: str) -> str | None:
    shutil.rmtree(images, ignore_errors=True)
    images.mkdir()
    for name in made:
        shutil.copy(os.fsencode(data), os.fsencode(images) + b"/" + os.fsencode(name) + b".png")
    found = find_images(str(images))
    read = [i for batch in load_batches(found, RGB, 2) for i in (*batch.indices, *batch.failures)]
    seen = sorted(os.path.basename(name) for name in found.names)
    if seen != sorted(f"{name}.png" for name in made) or sorted(read) != list(range(len(made))):
        return "images without a row"
    out = images.with_name(f"out{suffix}")
    journal = Journal(out, "key")
    journal.append([{"image": os.path.relpath(name, images), "score": 0.5} for name in found.names])
    journal.finish(["image", "score"], len(made))
    rows = [str(row["image"]) for row in read_rows(str(out), None)]
    expected = [os.path.relpath(name, images) for name in found.names]
    if suffix == ".parquet":  # which holds UTF-8 alone
        expected = [os.fsencode(name).decode("utf8", "replace") for name in expected]
    back = [os.path.relpath(row) if suffix == ".csv" else row for row in rows]
    return None if back == expected else f"rows of {suffix} name {json.dumps(back)}"
