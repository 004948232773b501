"""Parts of pages that are shown as text."""

from __future__ import annotations

import json

from adascale.report.html import _lines


def test_a_list_of_numbers_stands_on_one_line_and_nothing_else_changes() -> None:
    value = {"pairs": [60, -2.5, 1e-06], "names": ["a", "b"], "none": [], "text": "[ 1, 2 ]", "rows": [[1, 2], [3]]}
    lines = _lines(value)
    assert '  "pairs": [60, -2.5, 1e-06],' in lines
    assert '    "a",' in lines
    assert json.loads("\n".join(lines)) == value
