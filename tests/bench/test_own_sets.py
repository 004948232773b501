"""Sets from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from adascale.bench.suites import Source, Suite, name_and_path, open_suite, own_suite
from adascale.images.corruptions import Corruption
from adascale.images.sources import ImageSet
from tests.bench.sets import folder, refusal


def test_sets_from_the_command_line(tmp_path: Path) -> None:
    known, near = folder(tmp_path / "id"), folder(tmp_path / "near.v2")
    odd = folder(tmp_path / "lr=1" / "far")
    listed = tmp_path / "far_list.txt"
    folder(tmp_path / "others")
    listed.write_text("others/000.png\n")
    suite = own_suite(str(known), str(listed), None, [str(near)], [str(odd), f"other={near}"], ["all", "dark=rotate:9"])
    assert suite.name == "id"
    assert suite.val == Source(str(listed))
    assert (list(suite.near), list(suite.far)) == (["near.v2"], ["far", "other"])
    assert len(suite.shifted) == 26
    assert suite.shifted["jpeg:4"] == Source(None, corrupt=Corruption("jpeg", 4))
    assert suite.shifted["dark"].corrupt == Corruption("rotate", 9)
    assert isinstance(open_suite(suite).shifted["blur:1"], ImageSet)


def test_globs_are_sets_as_score_takes_them(tmp_path: Path) -> None:
    """bench --id 'id/*.png' --val 'new/*.png' --train ... --near n=GLOB --far GLOB --shifted GLOB."""
    globs = {}
    for name in ("id", "new", "train", "near", "far", "shifted"):
        folder(tmp_path / name, 3)
        (tmp_path / name / "readme.md").write_text("not an image")
        globs[name] = f"{tmp_path / name}/*.png"
    near, far, shifted = [f"n={globs['near']}"], [globs["far"]], [globs["shifted"]]
    suite = own_suite(globs["id"], globs["new"], globs["train"], near, far, shifted)
    assert (suite.name, list(suite.near), list(suite.far), list(suite.shifted)) == ("id", ["n"], ["far"], ["shifted"])
    images = open_suite(suite)
    sets = images.id, images.val, images.train or (), images.near["n"], images.far["far"], images.shifted["shifted"]
    assert [len(found) for found in sets] == [3] * 6
    assert list(images.val.names) == [f"{tmp_path}/new/{i:03d}.png" for i in range(3)]
    nothing = own_suite(globs["id"], f"{tmp_path}/new/*.jpg", None, near, [], [])
    assert f"val (expected: {tmp_path}/new/*.jpg)" in refusal(open_suite, nothing)
    table = tmp_path / "classes.csv"
    table.write_text("".join(f"{i:03d}.png,{i}\n" for i in range(3)))
    labelled = Suite("a", Source(globs["id"], labels=str(table)), Source(globs["new"]), far=suite.far)
    assert open_suite(labelled).id.labels == [0, 1, 2]


def test_a_glob_is_called_like_its_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(folder(tmp_path / "here"))
    names = {
        text: name_and_path(text)[0] for text in ("new/*.png", "new/**/cat_?.png", "a[12]/*", "x=a/*.png", "*.png")
    }
    assert list(names.values()) == ["new", "new", "here", "x", "here"]


@pytest.mark.parametrize(
    ("near", "far", "shifted", "reason"),
    [
        ([], [], ["noise:1"], "at least one near or far"),
        (["a/x", "b/x"], [], [], "named x"),
        (["a/x"], ["b/x.txt"], [], "two sets named x"),
        (["=x"], [], [], "lacks a name"),
        (["x="], [], [], "lacks a name"),
        (["x"], [], ["noise:9"], "severity"),
        (["x"], [], ["all", "noise:1"], "named noise:1"),
        (["x=id"], [], [], "of the ID test set"),
        (["a/id"], [], [], "which is reserved"),
        ([], ["nearood=x"], [], "which is reserved"),
    ],
)
def test_texts_that_do_not_fit(near: list[str], far: list[str], shifted: list[str], reason: str) -> None:
    assert reason in refusal(own_suite, "id", None, None, near, far, shifted)


def test_the_same_file_on_both_sides_is_refused_whatever_leads_to_it(tmp_path: Path) -> None:
    known, near = folder(tmp_path / "id"), folder(tmp_path / "near")
    listed = tmp_path / "same.txt"
    listed.write_text("id/000.png\n")
    for val, unknown in ((str(listed), str(near)), (None, f"x={listed}")):
        suite = own_suite(str(known), val, None, [unknown], [], [])
        assert "share 1 images" in refusal(open_suite, suite)
