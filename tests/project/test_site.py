"""The site: it builds strictly, every public name has a docstring, and every command and name has a page."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

import adascale
from benchmarks.site import command_pages, hooks, name_pages
from tests.browser import needs_browser
from tests.conftest import ROOT
from tests.devtools import Page, barriers


def parts(kind: type) -> dict[str, Any]:
    """The public methods and properties of a class, also those of its bases in the package, by name."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("adascale"):
            found |= vars(base)
    fields = getattr(kind, "__dataclass_fields__", {})
    public = [name for name in found if name == "__call__" or not (name.startswith("_") or name in fields)]
    return {name: found[name] for name in public if _is_part(found[name])}


def _is_part(value: Any) -> bool:
    return isinstance(value, property | cached_property) or inspect.isroutine(getattr(value, "__func__", value))


def documented(thing: Any, name: str) -> list[str]:
    """The public parts of a class or function that have no docstring."""
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        return []
    missing = [] if inspect.getdoc(thing) else [name]
    of = parts(thing) if inspect.isclass(thing) else {}
    return missing + [f"{name}.{part}" for part in of if not inspect.getdoc(getattr(thing, part))]


def test_public_names_have_docstrings() -> None:
    found = [missing for name in adascale.__all__ for missing in documented(getattr(adascale, name), name)]
    for module, names in name_pages.listed().items():
        loaded = importlib.import_module(module)
        found += [] if loaded.__doc__ else [module]
        found += [missing for name in names for missing in documented(getattr(loaded, name), f"{module}.{name}")]
    assert found == []


def test_every_command_and_every_public_name_is_on_a_page() -> None:
    pages = hooks.pages()
    for name, command in command_pages.commands().items():
        page = pages[f"reference/cli/{name}.md"]
        assert all(
            f"`{option}`" in page for one in command.params if one.param_type_name == "option" for option in one.opts
        )
    reference = "\n".join(text for address, text in pages.items() if address.startswith("reference/python/"))
    homes = [f"adascale.{home}.{name}" for home, names in adascale._HOMES.items() for name in names]
    assert [name for name in homes if f"::: {name}\n" not in reference] == []
    assert [module for module in name_pages.listed() if f"::: {module}\n" not in reference] == []


def test_links_that_leave_the_docs_lead_to_pages() -> None:
    text = (
        "[costs](../benchmarks/RESULTS.md#int8), [code](../benchmarks/docs.py), [a](https://example.org), [b](api.md)"
    )
    expected = "[costs](results/costs.md#int8), code, [a](https://example.org), [b](api.md)"
    assert hooks.relinked(text, "speed.md") == expected
    assert hooks.relinked("[a](docs/api.md)", "project/contributing.md") == "[a](../api.md)"
    assert hooks.relinked("[a](../none.md)", "speed.md") == "[a](../none.md)"  # for the strict build to complain about


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return out


@pytest.mark.slow
def test_the_site_fetches_nothing(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    for page in pages:
        text = page.read_text("utf8")
        fetched = [part for tag in ("script", "link", "img") for part in _sources(text, tag) if "://" in part]
        assert fetched == [], page.name
    assert "OODDetector" in (site / "search" / "search_index.js").read_text("utf8")


@pytest.mark.slow
def test_every_method_of_a_public_class_has_a_place_on_its_page(site: Path) -> None:
    text = (site / "reference" / "python" / "adascale.html").read_text("utf8")
    places = set(re.findall(r'\bid="([^"]+)"', text))
    homes = {name: f"adascale.{home}.{name}" for home, names in adascale._HOMES.items() for name in names}
    classes = {homes[name]: found for name in homes if inspect.isclass(found := getattr(adascale, name))}
    wanted = {f"{home}.{part}" for home, found in classes.items() for part in parts(found)}
    assert "adascale.decision.ood_detector.OODDetector.is_ood" in wanted  # which it inherits
    assert sorted(wanted - places) == []


@needs_browser
@pytest.mark.slow
def test_pages_opened_as_files_are_searched_and_have_no_barrier(site: Path, browser: Page, axe: str) -> None:
    for name in ("index", "start", "explain", "reference/cli/score", "tutorials/reject-unknowns"):
        for scheme, width in (("light", 390), ("light", 1280), ("dark", 1280)):
            browser.look(width, 900, scheme)
            browser.open((site / f"{name}.html").as_uri())
            assert browser.run("document.documentElement.scrollWidth") <= width, name
            wanted = {"light": "default", "dark": "slate"}[scheme]
            assert browser.run("document.body.getAttribute('data-md-color-scheme')") == wanted  # as the system is
            assert [one for one in barriers(browser, axe) if one[0] in ("serious", "critical")] == [], (name, scheme)
    browser.run("""(() => { const field = document.querySelector(".md-search__input");
        field.focus(); field.value = "confidence"; field.dispatchEvent(new Event("input", {bubbles: true}));
        field.dispatchEvent(new KeyboardEvent("keyup", {bubbles: true})); })()""")
    found = browser.wait("document.querySelector('.md-search-result__list').textContent")
    assert "Choose alpha and confidence" in found
    assert browser.errors == []


def _sources(text: str, tag: str) -> list[str]:
    """What the tags of a page load."""
    found = re.findall(rf"<{tag}\b[^>]*>", text)
    return [source for one in found if "canonical" not in one for source in re.findall(r'(?:src|href)="([^"]*)"', one)]
