"""The public surface: names, sizes of files, docstrings."""

from __future__ import annotations

import importlib
import re

import pytest

import adascale
from adascale import detectors
from tests.conftest import ROOT

SOURCE = ROOT / "src" / "adascale"


def test_files_stay_small() -> None:
    sizes = {
        path.name: len(path.read_text().splitlines()) for path in [*SOURCE.rglob("*.py"), *ROOT.glob("tests/*.py")]
    }
    assert {name: size for name, size in sizes.items() if size > 350} == {}


@pytest.mark.parametrize("name", ["adascale", "adascale.detectors"])
def test_all_is_sorted_and_complete(name: str) -> None:
    module = importlib.import_module(name)
    listed = module.__all__
    assert len(listed) == len(set(listed))
    assert all(hasattr(module, entry) for entry in listed)
    assert listed == sorted(listed, key=_isort)


def _isort(name: str) -> tuple[int, str]:
    """Constants, classes, then the rest: the order that ruff keeps."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


@pytest.mark.parametrize("cls", detectors.ALL, ids=lambda cls: cls.name)
def test_docstrings_have_formula_and_source(cls: type[adascale.Detector]) -> None:
    text = " ".join(part.__doc__ or "" for part in (cls, *cls.__bases__))
    assert "S = " in text
    assert re.search(r"20\d\d|AdaSCALE", text), "the paper"
