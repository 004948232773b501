"""Every code block of README and docs runs as it stands, or says why it is not run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.project.blocks import CODE, PAGES, SHOWN, STAND_INS, Block, blocks, commands, prepare
from tests.shell import inside

RUN = {page: [one for one in blocks(page) if one.language in CODE and not one.reason] for page in PAGES}
# Pages whose blocks export, tune or compare, which takes longer.
SLOW = {"choose-a-method.md", "export.md", "report.md", "speed.md", "studies.md"}

NOT_RUN = 51  # blocks of all pages that are marked "not run"; the number may only fall


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("reader")
    return folder, prepare(folder)


def parameters() -> list[Any]:
    return [
        pytest.param(page, id=page.name, marks=[pytest.mark.slow] if page.name in SLOW else [])
        for page, found in RUN.items()
        if found
    ]


@pytest.mark.parametrize("page", parameters())
@pytest.mark.filterwarnings("ignore")
def test_blocks_run(
    page: Path, prepared: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, given = prepared
    folder = tmp_path / "reader"
    shutil.copytree(source, folder)
    monkeypatch.chdir(folder)
    names = dict(given)
    for block in RUN[page]:
        try:
            _run(block, names, monkeypatch)
        except BaseException as error:  # an exit, too
            raise AssertionError(f"{block} fails: {type(error).__name__}: {error}") from error


def _run(block: Block, names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    code = block.code
    for text, stand_in in STAND_INS.items():
        code = code.replace(text, stand_in)
    if block.language != "sh":
        if code.startswith(("# ", '"""')) and code[2:60].split(".py")[0].strip('" ').isidentifier():
            Path(code.strip('#" ').split(".py")[0] + ".py").write_text(
                code
            )  # the block is a file: its first line says so
        exec(compile(code, str(block), "exec"), names)
        return
    for words in commands(code):
        assert words[0] == "adascale", f"{words[0]}: only commands of adascale are run; mark the block"
        assert inside(monkeypatch, *words[1:]) in (0, 4), " ".join(words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_has_a_language_and_every_mark_a_reason(page: Path) -> None:
    found = blocks(page)
    assert [str(one) for one in found if one.language not in CODE | SHOWN] == []
    assert [str(one) for one in found if one.reason and len(one.reason.split()) < 3] == []
    assert page.read_text("utf8").count("\n```") == 2 * len(found) or page.read_text("utf8").startswith("```")
    marks = page.read_text("utf8").count("<!-- not run:")
    assert marks == sum(bool(one.reason) for one in found), "a mark stands directly before its block"


def test_no_more_blocks_than_now_are_not_run() -> None:
    """Those that install, serve, train for hours, or need a cluster or images that are not part of the repository."""
    every = [one for page in PAGES for one in blocks(page) if one.language in CODE]
    assert len([one for one in every if one.reason]) <= NOT_RUN
