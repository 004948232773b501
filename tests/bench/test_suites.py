"""Suites: shipped ones, files of one's own, sets from the command line, and what is missing on disk."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from adascale.bench import SUITES
from adascale.bench.suites import Source, Suite, load_suite, open_suite, own_suite
from adascale.images.corruptions import Corruption
from tests.bench.sets import folder, refusal
from tests.conftest import DATA, ROOT, needs_data
from tests.images.pictures import saved

EXAMPLES = sorted((ROOT / "examples" / "suites").glob("*.toml"))
CIFAR_FAR = ["mnist", "svhn", "texture", "places365"]
LARGE_FAR = ["inaturalist", "textures", "openimage_o"]
SHIFTED = ["imagenet_v2", "imagenet_c", "imagenet_r"]
PROTOCOL: dict[str, tuple[list[str], list[str], list[str], list[str]]] = {
    "digits": (["digits 8 and 9"], ["photographs"], [], []),
    "cifar10": (["cifar100", "tin"], CIFAR_FAR, [], ["tin"]),
    "cifar100": (["cifar10", "tin"], CIFAR_FAR, [], ["tin"]),
    "imagenet200": (["ssb_hard", "ninco"], LARGE_FAR, SHIFTED, ["openimage_o"]),
    "imagenet": (["ssb_hard", "ninco"], LARGE_FAR, SHIFTED, ["openimage_o"]),
    "imagenet-paper": (["ssb_hard", "ninco", "imagenet_o"], [*LARGE_FAR, "places"], SHIFTED, ["openimage_o"]),
}


def sources(suite: Suite) -> dict[str, Source]:
    parts = {"id": suite.id, "val": suite.val, "train": suite.train}
    found = {name: source for name, source in parts.items() if source is not None}
    for group in ("near", "far", "shifted", "ood_val"):
        found |= {f"{group} {name}": source for name, source in getattr(suite, group).items()}
    return found


def layout(suite: Suite, count: int = 30) -> None:
    """The lists and images of an OpenOOD suite, tiny."""
    for label, source in sources(suite).items():
        assert source.images is not None
        assert source.root is not None
        listed, root = Path(source.images), Path(source.root)
        names = [f"{listed.stem}/{i:03d}.png" for i in range(count if label == "id" else 3)]
        folder(root / listed.stem, len(names))
        listed.parent.mkdir(parents=True, exist_ok=True)
        listed.write_text("".join(f"{name} {i % 3 if label == 'id' else -1}\n" for i, name in enumerate(names)))


def suite_file(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("name", SUITES)
def test_shipped_suites_follow_the_protocol(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENOOD_DATA", raising=False)
    suite = load_suite(name)
    assert suite.name == name
    assert tuple(list(group) for group in (suite.near, suite.far, suite.shifted, suite.ood_val)) == PROTOCOL[name]
    assert suite.val is not None
    assert suite.train is not None
    assert suite.note
    assert set(PROTOCOL) == set(SUITES)
    if name != "digits":
        assert suite.id.images is not None
        assert Path(suite.id.images).parts[:2] == ("data", "benchmark_imglist")
        monkeypatch.setenv("OPENOOD_DATA", "/somewhere")
        assert str(load_suite(name).id.root).startswith("/somewhere/images_")
        assert str(load_suite(name, Path("/else")).id.root).startswith("/else/images_")


@pytest.mark.parametrize("name", [name for name in SUITES if name != "digits"])
def test_openood_layout(name: str, tmp_path: Path) -> None:
    suite = load_suite(name, tmp_path)
    layout(suite)
    images = open_suite(suite)
    assert (len(images.id), len(images.val), images.missing) == (30, 3, {})
    assert images.id.labels == [i % 3 for i in range(30)]
    assert images.train is not None
    assert tuple(list(g) for g in (images.near, images.far, images.shifted, images.ood_val)) == PROTOCOL[name]
    assert images.far[PROTOCOL[name][1][0]].open(0).size == (8, 8)


def test_digits() -> None:
    images = open_suite(load_suite("digits"))
    assert images.train is not None
    assert [len(part) for part in (images.train, images.val, images.id)] == [865, 289, 289]
    assert images.id.labels is not None
    assert set(images.id.labels) == set(range(8))
    assert images.near["digits 8 and 9"].open(0).size == (8, 8)
    assert images.far["photographs"].open(0).size == (32, 32)
    assert "no part 'dev'" in refusal(open_suite, own_suite("digits:dev", None, None, ["digits:near"], [], []))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_parse(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADASCALE_DATA", "/data")
    suite = load_suite(str(path))
    assert suite.name == path.stem
    assert all(str(source.images).startswith("/data/") for source in sources(suite).values())
    monkeypatch.delenv("ADASCALE_DATA")
    assert "environment variable ADASCALE_DATA, which is not set" in refusal(load_suite, str(path))
    assert load_suite(str(path), Path("/here")).id.images is not None


@needs_data
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_open(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADASCALE_DATA", str(DATA))
    images = open_suite(load_suite(str(path)))
    for part in (images.id, images.val, images.train):
        assert part is not None
        assert part.labels is not None
        assert len(part.labels) == len(part)
    assert not set(images.id.names) & set(images.val.names)
    assert images.missing == {}


def test_every_form_of_a_source(tmp_path: Path) -> None:
    folder(tmp_path / "data" / "id", 6)
    folder(tmp_path / "elsewhere" / "x", 3)
    (tmp_path / "data" / "list.txt").write_text("x/000.png\nx/001.png\n")
    array = np.zeros((9, 8, 8, 3), np.uint8)
    saved(tmp_path / "data" / "far.npz", images=array, labels=np.arange(9))
    (tmp_path / "data" / "id.csv").write_text(
        "filename,class_index\n" + "".join(f"{i:03d}.png,{i}\n" for i in range(6))
    )
    path = suite_file(
        tmp_path / "mine.toml",
        """
        root = "data"
        note = "mine"
        id = { images = "id", rows = [2, 6], labels = "id.csv" }
        val = { images = "id", rows = [0, 2], labels = "id.csv" }
        [near]
        listed = { images = "list.txt", root = "../elsewhere" }
        [far]
        rows = { images = "far.npz", rows = [3, 5] }
        noisy = { images = "far.npz", corrupt = "noise:3" }
        [shifted]
        turned = { corrupt = "rotate:90" }
        """,
    )
    suite = load_suite(path)
    assert (suite.name, suite.note) == ("mine", "mine")
    images = open_suite(suite)
    assert images.id.labels == [2, 3, 4, 5]
    assert images.val.labels == [0, 1]
    assert images.train is None
    assert len(images.near["listed"]) == 2
    assert images.far["rows"].labels == [3, 4]
    assert images.far["noisy"].change == Corruption("noise", 3)
    assert images.shifted["turned"].names == images.id.names
    turned = np.asarray(images.shifted["turned"].open(0))
    assert np.array_equal(turned, np.rot90(np.asarray(images.id.open(0))))
    assert images.shifted["turned"].fingerprint() != images.id.fingerprint()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("id = 'a", "cannot be read as TOML"),
        ("near = {a = 'a'}", "give id = PATH"),
        ("id = 'a'", "at least one near or far"),
        ("id = 'a'\nfar = 'b'", "table of named sets"),
        ("id = 'a'\nfarr = {b = 'b'}\nfar = {b = 'b'}", "farr means nothing here"),
        ("id = 'a'\nfar = {b = {image = 'b'}}", "give a path, or a table"),
        ("id = 'a'\nfar = {b = {images = 3}}", "must be texts"),
        ("id = 'a'\nfar = {b = {images = 'b', rows = [1]}}", "one past the last"),
        ("id = 'a'\nfar = {b = {images = 'b', rows = [3, 3]}}", "one past the last"),
        ("id = 'a'\nfar = {b = {images = 'b', corrupt = 'fog:1'}}", "no corruption 'fog'"),
        ("id = 'a'\nfar = {b = {root = 'b'}}", "without images"),
        ("id = 'a'\nfar = {b = {corrupt = 'noise:1'}}", "outside of the shifted sets"),
        ("id = 'a'\nfar = {b = 'b'}\nnear = {b = 'c'}", "two sets named b"),
        ("id = 'a'\nval = 'a'\nfar = {b = 'b'}", "val has the images"),
        ("id = 'a'\nnear = {tin = 'a'}\nood_val = {tin = 'b'}", "tin has the images"),
        ("id = '${NOT_THERE}/a'\nfar = {b = 'b'}", "NOT_THERE, which is not set"),
    ],
)
def test_files_that_do_not_fit(tmp_path: Path, text: str, reason: str) -> None:
    message = refusal(load_suite, suite_file(tmp_path / "mine.toml", text))
    assert reason in message
    assert "mine.toml" in message


def test_no_such_suite() -> None:
    assert "cifar10" in refusal(load_suite, "cifar11")


def test_what_is_missing_is_one_error(tmp_path: Path) -> None:
    suite = load_suite("imagenet", tmp_path)
    layout(suite)
    lists = tmp_path / "benchmark_imglist" / "imagenet"
    (lists / "test_ninco.txt").unlink()
    (tmp_path / "images_classic" / "test_textures" / "000.png").unlink()
    (lists / "train_imagenet.txt").unlink()
    message = refusal(open_suite, suite)
    for part in ("lacks 3", "near ninco", "test_ninco.txt", "far textures", "000.png", "train", "available=True"):
        assert part in message
    images = open_suite(suite, available=True)
    assert list(images.near) == ["ssb_hard"]
    assert list(images.far) == ["inaturalist", "openimage_o"]
    assert images.train is None
    assert set(images.missing) == {"near ninco", "far textures", "train"}
    (lists / "test_imagenet.txt").unlink()
    assert "always needed" in refusal(open_suite, suite, available=True)


def test_one_ood_set_must_remain(tmp_path: Path) -> None:
    known, empty = folder(tmp_path / "id"), tmp_path / "empty"
    empty.mkdir()
    suite = own_suite(str(known), None, None, [str(tmp_path / "none")], [str(empty)], [])
    message = refusal(open_suite, suite, available=True)
    assert "at least one OOD set" in message
    assert "holds no image" in message


def test_rows_and_labels_that_do_not_fit(tmp_path: Path) -> None:
    known, far = folder(tmp_path / "id"), {"far": Source(str(folder(tmp_path / "far")))}
    suite = Suite("a", Source(str(known), rows=(0, 5)), far=far)
    assert "has 4 images" in refusal(open_suite, suite)
    table = tmp_path / "classes.csv"
    suite = Suite("a", Source(str(known), labels=str(table)), far=far)
    assert "classes.csv" in refusal(open_suite, suite)
    table.write_text("000.png,1\n")
    assert "no class for 001.png (3 such)" in refusal(open_suite, suite)


@pytest.mark.parametrize(("count", "aside"), [(2, 1), (6, 3), (15, 7), (30, 10), (100, 20), (6000, 1000)])
def test_val_is_set_aside(tmp_path: Path, count: int, aside: int) -> None:
    path = saved(tmp_path / "id.npz", images=np.zeros((count, 2, 2), np.uint8), labels=np.arange(count))
    suite = own_suite(str(path), None, None, [str(folder(tmp_path / "near"))], [], [])
    images = open_suite(suite)
    assert (len(images.val), len(images.id)) == (aside, count - aside)
    assert sorted([*images.val.names, *images.id.names]) == sorted(f"{path}[{i}]" for i in range(count))
    assert list(images.id.labels or []) == sorted(images.id.labels or [])
    assert open_suite(suite).val.names == images.val.names
    if count > 6:
        assert open_suite(suite, seed=1).val.names != images.val.names


def test_one_image_is_too_few(tmp_path: Path) -> None:
    suite = own_suite(str(folder(tmp_path / "id", 1)), None, None, [str(folder(tmp_path / "near"))], [], [])
    assert "has 1 image" in refusal(open_suite, suite)


def test_limit(tmp_path: Path) -> None:
    known, near = folder(tmp_path / "id", 20), folder(tmp_path / "near", 3)
    suite = own_suite(str(known), None, str(near), [f"n={near}"], [], ["noise:2"])
    images = open_suite(suite, limit=5)
    assert [len(s) for s in (images.id, images.val, images.near["n"], images.shifted["noise:2"])] == [5, 10, 3, 5]
    assert images.found == {"val": 10, "train": 3}
    learned = open_suite(suite, limit_fit=2)
    assert [len(s) for s in (learned.id, learned.val, learned.train or ())] == [10, 2, 2]
    assert "limit_fit=0; give at least 1" in refusal(open_suite, suite, limit_fit=0)
    assert list(images.id.names) == sorted(images.id.names)
    assert images.shifted["noise:2"].names == images.id.names
    assert open_suite(suite, limit=5).id.names == images.id.names
    assert open_suite(suite, limit=5, seed=3).id.names != images.id.names
    assert "at least 1" in refusal(open_suite, suite, limit=0)


def test_the_seed_reaches_the_corruptions(tmp_path: Path) -> None:
    suite = own_suite(str(folder(tmp_path / "id")), None, None, [str(folder(tmp_path / "near"))], [], ["noise:5"])
    first, second = (open_suite(suite, seed=seed).shifted["noise:5"].change for seed in (0, 1))
    assert first != second


def test_rows_that_overlap() -> None:
    first, later = Source("a", rows=(0, 5)), Source("a", rows=(5, 9))
    assert not first.overlaps(later)
    assert first.overlaps(Source("a"))
    assert Source("a", rows=(4, sys.maxsize)).overlaps(first)
    assert not first.overlaps(Source("b"))


def test_the_page_has_every_suite_and_a_file_that_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "suites.md").read_text()
    assert all(f"| `{name}` |" in page for name in SUITES)
    monkeypatch.setenv("BIRDS", "/birds")
    example = page.split("```toml\n")[1].split("```")[0]
    suite = load_suite(suite_file(tmp_path / "example.toml", example))
    assert suite.near["bats"].images == "/birds/images/bats"
    assert suite.shifted["noisy"].corrupt == Corruption("noise", 3)
