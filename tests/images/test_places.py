"""Images at URLs, in tars, Parquet files and data sets: the same pictures as local files, and as shards."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adascale.core.errors import InputError
from adascale.images.image_set import ImageSet
from adascale.images.shards import list_shards
from adascale.images.sources import find_images, find_labelled
from adascale.storage.remote import as_place
from tests.images.pictures import picture
from tests.stores import contents, parquet_of, tar_of


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Ten images of two classes: a local folder ``set``, and the same at ``memory://`` in every form."""
    monkeypatch.setenv("ADASCALE_CACHE", str(tmp_path / "cache"))
    for i in range(10):
        file = tmp_path / "set" / "ab"[i % 2] / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        picture(seed=i).save(file)
    system = pytest.importorskip("fsspec").filesystem("memory")
    system.store.clear()
    images = contents(tmp_path / "set")
    for name, data in images.items():
        system.pipe_file(f"/set/{name}", data)
    labels = [name.startswith("b") for name in images]
    classes = {
        name.replace(".png", ".cls"): str(int(label)).encode() for name, label in zip(images, labels, strict=True)
    }
    others = {
        "list.txt": "\n".join(f"set/{name} {int(label)}" for name, label in zip(images, labels, strict=True)).encode(),
        "tars/one.tar": tar_of(dict(sorted({**images, **classes}.items()))),
        "parquet/one.parquet": parquet_of(list(images.values()), [*map(int, labels)]),
    }
    np.savez(tmp_path / "all.npz", images=np.stack([np.asarray(picture(seed=i)) for i in range(10)]))
    others["all.npz"] = (tmp_path / "all.npz").read_bytes()
    for name, content in others.items():
        system.pipe_file(f"/{name}", content)
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return system


def pixels(images: ImageSet) -> list[bytes]:
    return [np.asarray(images.open(i)).tobytes() for i in range(len(images))]


SOURCES = ("set", "list.txt", "tars", "tars/one.tar", "parquet/one.parquet", "parquet/*.parquet")


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("where", ["memory:/", "local", "file"])
def test_the_same_pictures_in_the_same_order(memory: Any, tmp_path: Path, source: str, where: str) -> None:
    base = {"memory:/": "memory:/", "local": str(tmp_path), "file": f"file://{tmp_path}"}[where]
    local, found = find_images(tmp_path / "set"), find_images(f"{base}/{source}")
    assert pixels(found) == pixels(local)
    assert found.fingerprint() == find_images(f"{base}/{source}").fingerprint()
    if source != "set":
        assert found.labels == [0] * 5 + [1] * 5
    if where == "memory:/":
        assert all(name.startswith("memory://") for name in found.names)
    if source == "set":
        assert found.keys == local.keys


def test_names_are_urls(memory: Any, tmp_path: Path) -> None:
    assert find_images("memory://set").names[0] == "memory://set/a/0.png"
    assert find_images("memory://tars").names[0] == "memory://tars/one.tar/a/0.png"
    assert find_images("memory://parquet").names[9] == "memory://parquet/one.parquet[9]"
    assert find_images("memory://all.npz").names[1] == "memory://all.npz[1]"
    mixed = tmp_path / "mixed.txt"
    mixed.write_text(f"memory://set/a/0.png 3\n{tmp_path}/set/a/2.png 4\nset/a/4.png 5\n")
    found = find_images(mixed)
    assert found.names == ["memory://set/a/0.png", f"{tmp_path}/set/a/2.png", "set/a/4.png"]
    assert (found.labels, pixels(found)) == ([3, 4, 5], pixels(find_images(tmp_path / "set"))[:3])
    assert find_images("memory://list.txt").names[0] == "memory://set/a/0.png"
    rooted = find_images("memory://list.txt", root=tmp_path)
    assert (rooted.names[0], rooted.paths[0]) == ("set/a/0.png", tmp_path / "set" / "a" / "0.png")


def test_classes_are_folders_there_too(memory: Any, tmp_path: Path) -> None:
    here, there = (find_labelled(source) for source in (tmp_path / "set", "memory://set"))
    assert (here[1], here[0].labels, here[0].keys) == (there[1], there[0].labels, there[0].keys)


def test_a_change_of_the_content_changes_the_fingerprint(memory: Any) -> None:
    before = {source: find_images(f"memory://{source}").fingerprint() for source in ("set", "list.txt", "tars")}
    memory.pipe_file("/set/a/0.png", memory.cat_file("/set/a/2.png"))
    memory.pipe_file("/tars/one.tar", tar_of({"x.png": memory.cat_file("/set/a/2.png")}))
    assert all(find_images(f"memory://{source}").fingerprint() != old for source, old in before.items())
    assert find_images("memory://tars").keys == ["one.tar/x.png"]


def opened(shards: Sequence[Any]) -> tuple[list[str], list[bytes]]:
    names, pictures = list[str](), list[bytes]()
    for shard in pickle.loads(pickle.dumps(list(shards))):
        with shard.opened() as images:
            assert shard.rows in (None, len(images))
            names, pictures = [*names, *images.names], [*pictures, *pixels(images)]
    return names, pictures


@pytest.mark.parametrize("source", [*SOURCES, "all.npz"])
def test_shards_are_the_images_once_each(memory: Any, tmp_path: Path, source: str) -> None:
    for base in ("memory:/", str(tmp_path)):
        whole, shards = find_images(f"{base}/{source}"), list_shards(f"{base}/{source}", size=4)
        assert opened(shards) == (list(whole.names), pixels(whole))
        assert len(shards) == (1 if "tar" in source else 3)
        names = [shard.name for shard in shards]
        assert names == [shard.name for shard in list_shards(f"{base}/{source}", size=4)]
        assert len(set(names)) == len(names)
        assert not any("/" in name for name in names)
        assert len({shard.fingerprint() for shard in shards}) == len(shards)


def test_other_images_make_other_shards(memory: Any) -> None:
    before = {shard.name for shard in list_shards("memory://set", size=5)}
    memory.pipe_file("/set/b/0.png", memory.cat_file("/set/a/0.png"))
    after = [shard.name for shard in list_shards("memory://set", size=5)]
    assert len(before & set(after)) == 1  # the first five images are as they were
    memory.pipe_file("/tars/a.tar", memory.cat_file("/tars/one.tar"))
    old = "memory://tars/one.tar"
    assert list_shards(old)[0].name.rpartition("-")[2] == list_shards("memory://tars")[1].name.rpartition("-")[2]


def test_a_data_set_of_hugging_face(memory: Any, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    images = contents(tmp_path / "set")
    kinds = datasets.Features({"label": datasets.ClassLabel(names=["a", "b"]), "image": datasets.Image()})
    cells = [{"bytes": data, "path": None} for data in images.values()]
    made = datasets.Dataset.from_dict({"label": [0] * 5 + [1] * 5, "image": cells}, features=kinds)
    datasets.disable_progress_bars()
    datasets.DatasetDict({"test": made}).save_to_disk(tmp_path / "saved")
    text = f"hf-dataset:{tmp_path}/saved#test"
    found = find_images(text)
    assert pixels(found) == pixels(find_images(tmp_path / "set"))
    assert (found.names[9], found.labels) == (f"{text}[9]", [0] * 5 + [1] * 5)
    assert found.fingerprint() == find_images(text).fingerprint()
    assert opened(list_shards(text, size=4)) == (list(found.names), pixels(found))
    with pytest.raises(InputError, match="give one of the splits test"):
        find_images(f"hf-dataset:{tmp_path}/saved#train")


def test_files_that_are_none_are_refused_in_one_line(memory: Any, tmp_path: Path) -> None:
    whole = memory.cat_file("/tars/one.tar")
    cases = {
        "cut.tar": (whole[: len(whole) // 2], "cannot be read as a tar"),
        "packed.tar": (gzip.compress(whole), "without -z"),
        "none.tar": (tar_of({"a.txt": b"text"}), "holds no image"),
        "text.parquet": (b"text", "cannot be read as Parquet"),
        "none.parquet": (_parquet({"a": [1]}), "it needs one of image bytes, named image"),
        "text.npz": (b"text", "cannot be read as .npz"),
    }
    for name, (data, message) in cases.items():
        memory.pipe_file(f"/{name}", data)
        (tmp_path / name).write_bytes(data)
        for source in (f"memory://{name}", tmp_path / name):
            with pytest.raises(InputError, match=message) as caught:
                find_images(source)
            assert "\n" not in str(caught.value)


def test_a_row_group_larger_than_the_limit_is_refused(memory: Any) -> None:
    with pytest.raises(InputError, match="row_group_size=1000"):
        find_images("memory://parquet/one.parquet", max_pixels=100)
    assert len(find_images("memory://parquet/one.parquet", max_pixels=1000)) == 10


def test_damaged_members_are_rows_with_reasons(memory: Any) -> None:
    from adascale.images.loader import load_batches
    from tests.images.pictures import RGB

    fine = memory.cat_file("/set/a/0.png")
    memory.pipe_file("/some.tar", tar_of({"a.png": fine, "b.png": b"no image", "c.png": b"", "d.png": fine}))
    memory.pipe_file("/some.parquet", parquet_of([fine, b"no image", None, fine], [0] * 4))  # type: ignore[list-item]
    for source in ("some.tar", "some.parquet"):
        (batch,) = load_batches(find_images(f"memory://{source}"), RGB)
        assert (batch.indices, list(batch.failures)) == ([0, 3], [1, 2])


def _parquet(columns: dict[str, list[int]]) -> bytes:
    import io

    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), buffer)
    return buffer.getvalue()


def test_paths_of_urls() -> None:
    url: Any = as_place("s3://bucket/a/b.tar.gz")
    assert (url.name, url.suffix, url.stem, str(url.parent)) == ("b.tar.gz", ".gz", "b.tar", "s3://bucket/a")
    assert str(url.parent / "../c.png") == "s3://bucket/c.png"
    assert as_place("file:///a/b") == as_place("/a/b") == Path("/a/b")
