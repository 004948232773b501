"""Hooks of MkDocs: generated pages join the files of docs/, and links that leave docs/ lead to them.

mkdocs build --strict
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT)]  # MkDocs loads this file by its path

from benchmarks.site import command_pages, name_pages, notebook_pages  # noqa: E402

# Files beside docs/ that are pages of the site as well.
ADOPTED = {
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security-policy.md",
    "benchmarks/RESULTS.md": "results/costs.md",
}
ALONE = ("index.md", "start.md")  # nothing would stand in the column on the left but their own names
_LINK = re.compile(r"(!?)\[((?:[^\]`]|`[^`]*`)*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def pages() -> dict[str, str]:
    """Address of every generated page -> its Markdown."""
    found = {address: (ROOT / name).read_text("utf8") for name, address in ADOPTED.items()}
    return found | command_pages.pages() | name_pages.pages() | notebook_pages.pages()


def on_config(config: Any) -> Any:
    """Fill the parts of the navigation that have a page for each command or module."""
    names = [
        name.removeprefix("adascale.") for name in sorted({".".join(m.split(".")[:2]) for m in name_pages.listed()})
    ]
    filled: dict[str, list[Any]] = {
        "Modules": [{name: f"reference/python/{name}.md"} for name in names],
        "Commands": [
            "reference/cli/index.md",
            *({name: f"reference/cli/{name}.md"} for name in command_pages.commands()),
        ],
    }
    config.nav = _navigation(config.nav, filled)
    return config


def _navigation(nav: list[Any], filled: dict[str, list[Any]]) -> list[Any]:
    found = []
    for entry in nav:
        for title, below in entry.items() if isinstance(entry, dict) else ((None, entry),):
            if title in filled:
                found.append({title: filled[title]})
            elif isinstance(below, list):
                found.append({title: _navigation(below, filled)})
            else:
                found.append(entry)
    return found


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for address, text in pages().items():
        files.append(File.generated(config, address, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    if page.file.src_uri in ALONE:
        page.meta["hide"] = ["navigation"]
    return relinked(markdown, page.file.src_uri)


def relinked(text: str, address: str) -> str:
    """The page with its links to files of the repository turned into links within the site.

    Files that are no pages, such as code, keep their words and lose the link.
    """
    source = next((name for name, adopted in ADOPTED.items() if adopted == address), f"docs/{address}")
    if address in notebook_pages.SOURCES:
        source = notebook_pages.SOURCES[address]

    def link(found: re.Match[str]) -> str:
        mark, words, target, anchor = found[1], found[2], found[3], found[4] or ""
        if "://" in target or target.startswith("mailto:"):
            return found[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        goal = _address(file)
        if goal is None:
            return words if (ROOT / file).exists() else found[0]
        return f"{mark}[{words}]({posixpath.relpath(goal, posixpath.dirname(address) or '.')}{anchor})"

    return _LINK.sub(link, text)


def _address(file: str) -> str | None:
    """Where a file of the repository is in the site; None where it is not."""
    if file in ADOPTED:
        return ADOPTED[file]
    for address, source in notebook_pages.SOURCES.items():
        if source == file:
            return address
    return file.removeprefix("docs/") if file.startswith("docs/") else None
