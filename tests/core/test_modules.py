"""Python files loaded by path: files of one name stay apart, and so do the files beside them."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

from adascale import InputError
from adascale.core.modules import load_file


def written(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def test_files_of_one_name_stay_apart(tmp_path: Path) -> None:
    made = [written(tmp_path / name, own=f"class Own: text = {name!r}") for name in ("a", "b")]
    first, second = (load_file(folder / "own.py") for folder in made)
    assert (first.Own.text, second.Own.text) == ("a", "b")
    assert sys.modules[first.Own.__module__] is first
    assert pickle.loads(pickle.dumps(first.Own)) is first.Own


def test_a_file_imports_its_own_neighbour(tmp_path: Path) -> None:
    text = "import beside_both\nvalue = beside_both.value"
    made = [written(tmp_path / name, own=text, beside_both=f"value = {name!r}") for name in ("a", "b")]
    assert [load_file(folder / "own.py").value for folder in (*made, made[0])] == ["a", "b", "a"]
    assert not {str(folder) for folder in made} & set(sys.path)


def test_a_file_that_breaks_leaves_nothing(tmp_path: Path) -> None:
    folder, before = written(tmp_path / "a", breaks="1 / 0"), set(sys.modules)
    with pytest.raises(ZeroDivisionError):
        load_file(folder / "breaks.py")
    assert str(folder) not in sys.path
    assert set(sys.modules) == before


@pytest.mark.parametrize("name", ["missing.py", "text.txt"])
def test_what_is_no_python_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("no code")
    with pytest.raises(InputError, match="Python file"):
        load_file(tmp_path / name)
