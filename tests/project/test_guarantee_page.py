"""The tables of docs/guarantee.md are computed again."""

from __future__ import annotations

from adascale.maths.promise import allowed, images_needed, percent, promised, rate_range
from tests.conftest import ROOT


def table(first: str) -> list[list[str]]:
    """The cells of the table whose head begins with this word, without the rule below the head."""
    lines = (ROOT / "docs" / "guarantee.md").read_text("utf8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {first}"))
    end = next(i for i, line in enumerate(lines) if i > start and not line.startswith("|"))
    return [[cell.strip() for cell in lines[i].strip("|").split("|")] for i in range(start, end) if i != start + 1]


def test_images_needed() -> None:
    head, *body = table("alpha")
    assert head[1:] == ["on average", "90 % confidence", "95 % confidence", "99 % confidence"]
    assert [row[0] for row in body] == ["10 %", "5 %", "2 %", "1 %", "0.1 %"]
    for name, *cells in body:
        alpha = float(name.split()[0]) / 100
        expected = [images_needed(alpha, confidence) for confidence in (None, 0.9, 0.95, 0.99)]
        assert [int(cell.replace(",", "")) for cell in cells] == expected, name


def test_ranges() -> None:
    _, *body = table("calibration images")
    assert len(body) == 6
    for name, *cells in body:
        n = int(name.replace(",", ""))
        for cell, confidence in zip(cells, (None, 0.95), strict=True):
            low, high = map(percent, rate_range(n, allowed(n, 0.05, confidence)))
            short = promised(n, 0.05, confidence) > 0.05
            only = f"5 % cannot be promised, only {percent(promised(n, 0.05, confidence))} %"
            assert cell == (only if short else f"{low} to {high} %"), name
