"""What the documents say about the methods of this package and of others."""

from __future__ import annotations

import re

import pytest

from adascale.detectors import registry
from benchmarks import field
from tests.conftest import ROOT


@pytest.mark.parametrize("name", field.BLOCKS)
def test_the_page_is_what_the_registry_gives(name: str) -> None:
    found = field.block(name).search(field.PAGE.read_text("utf8"))
    assert found is not None
    assert found[2] == field.BLOCKS[name](), "run python -m benchmarks.field"


def test_counts_of_methods_are_those_of_the_registry() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    counts = [
        int(count) for page in pages for count in re.findall(r"(\d+) methods(?: in all|;)", page.read_text("utf8"))
    ]
    assert len(counts) >= 3
    assert set(counts) == {len(registry.OURS)}


@pytest.mark.parametrize("theirs", [field.OPENOOD, field.PYTORCH_OOD])
def test_every_method_of_theirs_is_one_of_ours_or_has_a_reason(theirs: dict[str, str]) -> None:
    assert set(field.ours_by_name(theirs)) <= set(registry.OURS)
    assert all(len(said.split()) > 3 for said in theirs.values() if said.startswith("-"))
