"""The public surface: names, layers, documentation."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

import adascale
from adascale import detectors
from tests.conftest import ROOT

SOURCE = ROOT / "src" / "adascale"
# A file imports only from files above it.
LAYERS = """
    version errors types stats ranking perturb heads passes model extract compat
    detectors.base detectors.presets detectors.shaping detectors.classes detectors.msp detectors.mls detectors.ebo
    detectors.gen detectors.odin detectors.gradnorm detectors.scale detectors.lts detectors.adaptive detectors.adascale
    detectors.react
    detectors.ash detectors.bfact detectors.vra detectors.optfs detectors.dice detectors.line detectors.nnguide
    detectors.knn detectors.mds detectors.rmds detectors.vim detectors.klm detectors.she detectors.fdbd detectors.nci
    detectors.relation detectors metrics calibrate outliers tune data corrupt digits networks suites store identity
    timing early detector specs cache rows progress ish attack augment engine checkpoint recipes registry train jobs
    results profile benchmark table files tables compare drawing plots markup report paper
    studies.base studies.setting studies.measure studies.build studies.charts studies.write studies.page
    studies.variation studies.headline studies.samples studies.ablations studies.sensitivity studies.joint
    studies.latency studies.inside studies.tuned studies.robustness studies
    demo testing options describe console cli_inputs cli_fit cli_bench cli_train cli_study cli __main__
""".split()


def modules() -> dict[str, Path]:
    found = {".".join(path.relative_to(SOURCE).with_suffix("").parts): path for path in SOURCE.rglob("*.py")}
    return {name.removesuffix(".__init__"): path for name, path in found.items()}


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "adascale":
            inside = node.module.removeprefix("adascale").lstrip(".")
            names |= {inside} if inside else {alias.name for alias in node.names}
    return names


def test_files_import_only_from_above() -> None:
    found = modules()
    assert set(LAYERS) | {"__init__"} == set(found)
    for name, path in found.items():
        if name != "__init__":
            above = LAYERS[: LAYERS.index(name)]
            assert imported(path) <= set(above), f"{name} imports {imported(path) - set(above)}"


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


def test_public_names_are_documented() -> None:
    page = (ROOT / "docs" / "api.md").read_text()
    missing = [name for name in adascale.__all__ if f"`{name}`" not in page]
    assert missing == []


def test_readme_lists_every_method() -> None:
    readme = (ROOT / "README.md").read_text()
    assert all(f"`{cls.name}`" in readme for cls in detectors.ALL)
