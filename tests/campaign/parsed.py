"""Files of every kind that is parsed, intact: their content, and what reads them and says what is wrong."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save as as_safetensors

from adascale.bench.suites import load_suite
from adascale.core.types import Outputs
from adascale.extraction.shard_cache import ShardCache, ShardInfo
from adascale.images.loader import load_batches
from adascale.images.sources import find_images
from adascale.monitoring import Monitor
from adascale.network.class_names import class_names
from adascale.network.trained import registered
from adascale.network.weights import read_weights
from adascale.storage.reading import read_rows
from adascale.storage.rows import write_rows
from adascale.storage.tensors import save_tensors
from adascale.training.checkpoint import load_checkpoint
from tests.images.pictures import RGB, picture

Use = Callable[[Path], str | None]
KEY = "0123456789abcdef" * 4
SUITE = 'name = "s"\nid = "id"\n[near]\nn = "near"\n[far]\nf = {images = "far", rows = [0, 2]}\n'


def parsed(folder: Path) -> dict[str, tuple[bytes, Use]]:
    """The content of a file of each kind, by name, and its use. An answer must be that of the intact file, or none."""
    return {**_images(folder), **_tensors(folder), **_texts(folder), **_rows(folder)}


def _images(folder: Path) -> dict[str, tuple[bytes, Use]]:
    for i in range(3):
        picture(seed=i).save(folder / f"{i}.png")
    packed = io.BytesIO()
    np.savez_compressed(packed, images=np.zeros((3, 8, 8, 3), np.uint8), labels=np.arange(3))

    def read(path: Path) -> str | None:
        found = find_images(path)
        found.fingerprint()
        rows = sum(len(batch.indices) + len(batch.failures) for batch in load_batches(found, RGB))
        return None if rows == len(found) else f"{rows} rows for {len(found)} images"

    return {"list.txt": (b"0.png 1\n1.png 2\n\xff.png 3\n", read), "a.npz": (packed.getvalue(), read)}


def _tensors(folder: Path) -> dict[str, tuple[bytes, Use]]:
    """Checksummed files: an answer from a damaged one has the values of the intact one."""
    kept = Outputs(torch.rand(2, 3), torch.rand(2, 4))
    cache = ShardCache(folder / "shards", KEY)
    cache.write(0, kept, ShardInfo(2, {}, "fc", (3, 8, 8)))
    shard = next(Path(str(cache.folder)).iterdir())
    weights = {"a": torch.rand(3)}
    save_tensors(folder / "run.st", weights, {"settings": {}}, "adascale-training")
    monitor = Monitor(torch.rand(30), torch.arange(30) % 3)
    for i in range(20):
        monitor.update(i / 20, i % 3, str(i))
    monitor.save(folder / "state.st")
    summary, buffer = json.dumps(monitor.summary()), io.BytesIO()
    torch.save(weights, buffer)

    def look_up(path: Path) -> str | None:
        os.replace(path, shard)
        fresh = ShardCache(folder / "shards", KEY)
        info, _ = fresh.look_up(0, ())
        same = info is None or torch.equal(fresh.read(0, ())["features"], kept.features)
        return None if same else "other activations in silence"

    def resume(path: Path) -> str | None:
        found = load_checkpoint(path)
        return None if found is None or torch.equal(found.tensors["a"], weights["a"]) else "other weights in silence"

    def watch(path: Path) -> str | None:
        return None if json.dumps(Monitor.load(path).summary()) == summary else "another monitor in silence"

    def load(path: Path) -> None:  # without a checksum: what can be read is taken
        read_weights(path)

    return {
        "shard.st": (shard.read_bytes(), look_up),
        "checkpoint.st": ((folder / "run.st").read_bytes(), resume),
        "state.st": ((folder / "state.st").read_bytes(), watch),
        "weights.safetensors": (as_safetensors(weights), load),
        "weights.pth": (buffer.getvalue(), load),
    }


def _texts(folder: Path) -> dict[str, tuple[bytes, Use]]:
    network = {"name": "a", "model": "digits", "weights": "a.safetensors"}
    listed = {"format": "adascale-networks", "format_version": 1, "networks": [network]}
    return {
        "networks.json": (json.dumps(listed).encode(), lambda path: _nothing(registered(path))),
        "suite.toml": (SUITE.encode(), lambda path: _nothing(load_suite(str(path)))),
        "classes.txt": ("ant\nbée\ncat\n".encode(), lambda path: _nothing(class_names(path))),
        "classes.json": (b'{"0": "ant", "1": "bee"}', lambda path: _nothing(class_names(path))),
    }


def _rows(folder: Path) -> dict[str, tuple[bytes, Use]]:
    rows = [{"image": f"{i}.png", "score": i / 7, "prediction": i} for i in range(5)]
    found: dict[str, tuple[bytes, Use]] = {}
    for suffix in (".csv", ".json", ".jsonl", ".parquet"):
        write_rows(folder / f"rows{suffix}", rows, list(rows[0]))
        content = (folder / f"rows{suffix}").read_bytes()
        found[f"rows{suffix}"] = content, lambda path: _nothing(list(read_rows(str(path))))
    return found


def _nothing(_: object) -> None:
    return None
