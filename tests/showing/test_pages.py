"""The pages of scored images and of explanations: their numbers are those of the rows and of the record."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from adascale import OODDetector, Preprocess
from adascale.images.sources import ImageSet
from adascale.maths.binomial import share_interval
from adascale.showing.explain_page import explain_page
from adascale.showing.score_page import PICTURES, Scored, class_table, score_page, verdict
from tests.conftest import SmallNet, images, seeded
from tests.shell import fit, inside, rows

NASTY = "<script>alert('&\"')</script>"
PREPROCESS = Preprocess(size=16, crop=16, mean=(0.5, 0.4, 0.3), std=(0.25, 0.2, 0.3))


@pytest.fixture(scope="module")
def detector() -> OODDetector:
    return OODDetector(seeded(SmallNet), preprocess=PREPROCESS).fit(images(60), tune=False)


def row(place: int, p: float, **other: Any) -> dict[str, Any]:
    known = {"image": f"{place}.png", "score": 1 - p, "p_value": p, "is_ood": p <= 0.05, "prediction": place % 3}
    return {**known, "class": "abc"[place % 3], "error": None, **other}


def many(count: int, flagged: int) -> list[dict[str, Any]]:
    return [row(place, 0.04 if place < flagged else 0.5 + place / 1000) for place in range(count)]


def pictures(count: int) -> ImageSet:
    return ImageSet([f"{i}.png" for i in range(count)], items=[Image.new("RGB", (9, 9), (i % 255, 0, 0))
                                                             for i in range(count)])  # fmt: skip


def test_the_page_adds_up_what_the_rows_say(detector: OODDetector) -> None:
    found = [*many(100, 30), row(100, 0.0, prediction=None, error=f"broken {NASTY}", image=NASTY)]
    whole, parts = Scored(), Scored()
    whole.add(found)
    for start in range(0, len(found), 7):
        parts.add(found[start : start + 7])
    page = score_page(whole, pictures(101), detector, NASTY)
    assert page == score_page(parts, pictures(101), detector, NASTY)
    low, high = share_interval(30, 100)
    plain = re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", page))
    assert "30 of 100 images are flagged, 30.0 %." in plain
    assert f"30 of 100; 95 % interval {100 * low:.1f} to {100 * high:.1f} %" in plain
    assert "Images that could not be read: 1" in plain
    assert NASTY not in page
    table = {line.label: line.cells for line in class_table(whole).lines}
    assert {name: cells["flagged"].measured for name, cells in table.items()} == {"a": 10, "b": 10, "c": 10}
    assert sum(cells["images"].measured or 0 for cells in table.values()) == 100


def test_the_gallery_has_the_smallest_p_values_and_is_bounded(detector: OODDetector) -> None:
    scored = Scored()
    scored.add([row(place, 0.9 - place / 1000) for place in range(400)])
    assert [one.place for one in scored.top] == list(range(399, 399 - PICTURES, -1))
    page = score_page(scored, pictures(400), detector, "folder")
    assert page.count("<img ") == PICTURES == 60
    assert page.index(">399.png<") < page.index(">398.png<")
    tied = Scored()
    tied.add([row(0, 0.1, score=1.0), row(1, 0.1, score=None), row(2, 0.1, score=2.0)])
    assert [one.place for one in tied.top] == [1, 2, 0]  # of equal p-values the highest score, no finite one first


def test_the_share_that_is_flagged_is_judged_against_the_promise(detector: OODDetector) -> None:
    told = []
    for flagged in (0, 10, 100):
        scored = Scored()
        scored.add(many(200, flagged))
        told.append(verdict(scored, detector).split(":")[0])
    assert told[1] == "In-distribution images alone could explain it"
    assert told[2] == "More is flagged than in-distribution images explain"
    assert told[0] != told[2]


def test_the_page_of_explanations_has_every_number(detector: OODDetector) -> None:
    found = [detector.explain(images(1, seed=seed)) for seed in (1, 2)]
    page = explain_page(found, detector)
    for one in found:
        for step in one.steps:
            assert step.value is None or f">{step.value:.9g}<" in page
    assert "Side by side" in page
    assert page.count("<svg ") == 2 * 5
    assert page.count("data:image/png") == 2 * 2  # the input, and the pixels that were moved
    alone = explain_page(found[:1], detector)
    assert "Side by side" not in alone
    assert alone == explain_page(found[:1], detector)


def test_explain_and_the_report_of_score_in_the_shell(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = fit(place, monkeypatch)
    for suffix in ("csv", "jsonl", "parquet"):
        page = place / f"{suffix}.html"
        out = place / f"scores.{suffix}"
        assert inside(monkeypatch, "score", place / "id", "-d", made, "-o", out, "--report", page) == 0
    scored = rows(place / "scores.csv")
    flagged = sum(one["is_ood"] == "true" for one in scored)
    assert f"{flagged} of {len(scored)} images are flagged" in page.read_text()
    assert len({(place / f"{suffix}.html").read_text() for suffix in ("csv", "jsonl", "parquet")}) == 1
    capsys.readouterr()
    image = place / "id" / "03.png"
    assert inside(monkeypatch, "explain", image, "-d", made, "-o", place / "why.html", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    known = next(one for one in scored if one["image"].endswith("03.png"))
    assert told["score"] == pytest.approx(float(known["score"]), rel=1e-4)  # a batch of one rounds otherwise
    assert "Why this verdict?" in (place / "why.html").read_text()
    assert inside(monkeypatch, "explain", place / "id", "-d", made) == 2
    assert "explain takes up to 8" in capsys.readouterr().err
    assert inside(monkeypatch, "score", place / "id", "-d", made, "--decide", "--report", place / "x.html") == 2
