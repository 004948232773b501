"""The examples in docstrings of public names run, and every class and function of `adascale` has one."""

from __future__ import annotations

import doctest
import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest

import adascale
from adascale.bench.tables import write_results
from adascale.images.sources import find_images
from adascale.testing import example_outputs
from tests.project.blocks import prepare

MODULES = [f"adascale.{home}" for home in adascale._HOMES if home != "detectors"]
MODULES += [
    "adascale.detectors.base",
    "adascale.maths.metrics",
    "adascale.detectors.checks",
    "adascale.monitoring.monitor",
    "adascale.maths.promise",
    "adascale.maths.discoveries",
    "adascale.maths.share",
    "adascale.network.class_names",
    "adascale.images.sources",
    "adascale.images.corruptions",
    "adascale.bench.suites",
    "adascale.bench.scores",
    "adascale.bench.tables",
    "adascale.storage.reading",
    "adascale.storage.entries",
    "adascale.decision.tuning",
    "adascale.paper.published",
    "adascale.core.timing",
]
# Names that the examples of others show.
SHOWN_WITH = {
    "__version__",
    "detectors",
    "metrics",
    "testing",
}


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A folder and the names of tests/project/blocks.py, and all public names."""
    folder = tmp_path_factory.mktemp("examples")
    names = {name: getattr(adascale, name) for name in adascale.__all__} | prepare(folder)
    names |= {"find_images": find_images, "write_results": write_results}
    reference, head = example_outputs(20, tuple(need for one in ("scale", "react") for need in _needs(one)))
    return folder, names | {"reference": reference, "head": head, "verdict": names["detector"](names["images"])}


def _needs(method: str) -> tuple[Any, ...]:
    return tuple(adascale.detectors.get(method)().views)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.filterwarnings("ignore")
def test_examples_run(module: str, reader: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, names = reader
    monkeypatch.chdir(folder)
    loaded = importlib.import_module(module)
    finder, said = doctest.DocTestFinder(), list[str]()
    tests = [one for one in finder.find(loaded, globs={**names, **vars(loaded)}) if one.examples]
    assert tests
    for one in tests:
        doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(one, out=said.append)
    assert "".join(said) == ""


@pytest.mark.parametrize("name", [name for name in adascale.__all__ if name not in SHOWN_WITH])
def test_every_public_name_has_an_example(name: str) -> None:
    text = inspect.getdoc(getattr(adascale, name)) or ""
    assert "\n    >>> " in text, "an example, indented by four spaces: the site shows that as code"
