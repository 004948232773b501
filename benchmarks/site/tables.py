"""Tables of the site that are computed, and the marks that say by which command every table of figures was made.

    python -m benchmarks.site.tables

writes the computed ones between their marks. Those with numbers of pictures take them from docs/pictures/numbers.json
(python -m benchmarks.site.pictures).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adascale.maths.promise import images_needed
from adascale.report.markdown import markdown_table

DOCS = Path(__file__).parents[2] / "docs"
NUMBERS = DOCS / "pictures" / "numbers.json"
# What may stand around a table of figures. The older marks name a part that a command of benchmarks/ writes.
_OPENS = re.compile(
    r"<!-- (made by: .+|study \S+(?: \(.+\))?|generalise \S+|who has what|not here|agreement|not measured: .+) -->$"
)
_ENDS = re.compile(r"<!-- end( of .*)? -->$")
_FIGURE = re.compile(r"(?<![\w.`])\d+\.\d+(?![\w.`])")


@dataclass(frozen=True)
class Found:
    """A table with figures: where it begins, and the mark that it stands under."""

    line: int
    mark: str


def tables_of_figures(text: str) -> list[Found]:
    """Every table with a decimal number outside of code; ``mark`` is empty where nothing says what made it."""
    found: list[Found] = []
    mark, block, start = "", False, 0
    lines = without_code(text).splitlines()
    for number, line in enumerate(lines, start=1):
        if opened := _OPENS.match(line.strip()):
            mark, block = opened[1], any(_ENDS.match(later.strip()) for later in lines[number : _next(lines, number)])
        elif _ENDS.match(line.strip()):
            mark = ""
        elif line.startswith("|"):
            start = start or number
            if _FIGURE.search(re.sub(r"`[^`]*`", "", line)) and (not found or found[-1].line != start):
                found.append(Found(start, mark))
        elif line.strip():
            if start and not block:
                mark = ""  # a mark without an end is for the next table
            start = 0
        else:
            mark, start = ("", 0) if start and not block else (mark, 0)
    return found


def without_code(text: str) -> str:
    """The page with empty lines in the place of blocks of code."""
    return re.sub(r"^```.*?^```", lambda code: "\n" * code[0].count("\n"), text, flags=re.DOTALL | re.M)


def _next(lines: list[str], number: int) -> int:
    """The line of the next opening mark."""
    return next((i for i in range(number, len(lines)) if _OPENS.match(lines[i].strip())), len(lines))


def needed() -> str:
    """The fewest calibration images for a promise."""
    shares, confidences = (0.1, 0.05, 0.02, 0.01), (None, 0.9, 0.95)
    header = ["calibration images needed for", "on average", "with 90 % confidence", "with 95 % confidence"]
    lines = [
        [f"alpha = {100 * share:g} %", *(str(images_needed(share, confidence)) for confidence in confidences)]
        for share in shares
    ]
    return markdown_table(header, lines).rstrip()


def _numbers() -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(NUMBERS.read_text("utf8"))
    return found


def spectrum() -> str:
    shares = _numbers()["spectrum"]["flagged"]
    lines = [[name, f"{100 * share:.1f} %"] for name, share in shares.items()]
    return markdown_table(["images", "flagged, alpha = 5 %"], lines).rstrip()


STEPS = {
    "q": "movement of the strongest 1 %, `Q`",
    "c_o": "size of the strongest 5 % afterwards, `C_o`",
    "q_prime": "`Q' = 10 Q + C_o`",
    "share": "share of known images with a `Q'` at most as large, `F`",
    "percentile": "percentile `p`",
    "ratio": "`r`",
    "energy": "energy before scaling",
    "scaled_energy": "energy after scaling",
    "score": "score: minus that energy",
    "threshold": "threshold",
    "p_value": "p-value",
}
WORDS = {"known digit": ("passes", "is flagged by mistake"), "photograph": ("is missed", "is flagged")}


def steps() -> str:
    found = _numbers()["adascale"]
    lines = [[title, *(f"{one[key]:.3f}" for one in found.values())] for key, title in STEPS.items()]
    verdicts = [
        f"the {name} (p = {one['p_value']:.3f}) {WORDS[name][one['score'] > one['threshold']]}"
        for name, one in found.items()
    ]
    said = f"At {100 * _numbers()['verdicts']['alpha']:g} %, {' and '.join(verdicts)}."
    return f"{markdown_table(['step', *found], lines)}\n{said}"


BLOCKS: Mapping[str, tuple[str, Callable[[], str]]] = {
    "images needed": ("how-to/few-images.md", needed),
    "spectrum": ("concepts/near-and-far.md", spectrum),
    "adascale": ("concepts/adascale.md", steps),
}


def block(name: str) -> re.Pattern[str]:
    """The part of a page between the marks of this name."""
    opens = rf"<!-- made by: python -m benchmarks.site.tables \({name}\) -->"
    return re.compile(rf"({opens}\n\n)(.*?)(\n\n<!-- end -->)", re.DOTALL)


def main() -> None:
    for name, (address, made) in BLOCKS.items():
        page = DOCS / address
        text = made()
        page.write_text(block(name).sub(rf"\g<1>{text}\g<3>", page.read_text("utf8")), "utf8")


if __name__ == "__main__":
    main()
