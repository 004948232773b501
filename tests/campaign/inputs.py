"""Images of every format and files of every kind, mutated: an answer of the right form, or one clear line."""

from __future__ import annotations

import io
import json
import random
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from adascale import AdascaleError, InputError, OODDetector
from adascale.bench.suites import load_suite
from adascale.decision.detector_file import KIND
from adascale.images.loader import load_batches
from adascale.images.sources import find_images
from adascale.network.trained import registered
from adascale.storage.tensors import TensorFileError, load_tensors, save_tensors
from adascale.training.checkpoint import load_checkpoint
from tests.campaign.tries import Tries, mutated
from tests.conftest import SmallNet, seeded
from tests.images.pictures import GREY, RGB, picture

FORMATS = {
    **{"JPEG": ("RGB", "L", "CMYK"), "PNG": ("RGB", "RGBA", "L", "P", "1", "I;16"), "GIF": ("P", "L")},
    **{"WEBP": ("RGB", "RGBA"), "TIFF": ("RGB", "CMYK", "I;16", "1"), "BMP": ("RGB", "P"), "PPM": ("RGB", "L")},
}


def images(tries: Tries, folder: Path) -> None:
    """Mutated pictures: a tensor of the right shape, or an `InputError` of one line."""
    known = _pictures()
    for draw in tries.each():
        data = mutated(draw.choice(known), draw)
        preprocess = draw.choice((RGB, GREY))

        def read(data: bytes = data, preprocess: object = preprocess) -> str | None:
            made = RGB if preprocess is RGB else GREY
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    tensor = made(data)
                except InputError as error:
                    return "more than one line" if "\n" in str(error) else None
            fine = tensor.shape == (len(made.mean), 16, 16) and bool(tensor.isfinite().all())
            return None if fine else f"a tensor {tuple(tensor.shape)}"

        tries.attempt(read, data, ".image")


def _pictures() -> list[bytes]:
    found = []
    for form, modes in FORMATS.items():
        for number, mode in enumerate(modes):
            image = picture(30 + number, 24)
            image = image.convert("I").convert("I;16") if mode == "I;16" else image.convert(mode)
            buffer = io.BytesIO()
            image.save(buffer, form)
            found.append(buffer.getvalue())
    return found


def files(tries: Tries, folder: Path) -> None:
    """Mutated files of every kind. One with a right checksum may still be read, and then it gives scores."""
    network, images = seeded(SmallNet), torch.rand(60, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    saved = []
    for method in ("combined", "knn", "adascale_a", "mds"):
        train = (torch.rand(60, 3, 8, 8, generator=torch.Generator().manual_seed(1)), torch.arange(60) % 5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parameters = {"k": 5} if method == "knn" else {}
            detector = OODDetector(network, method, **parameters).fit(images, train)  # type: ignore[arg-type]
        detector.save(folder / f"{method}.safetensors")
        saved.append((folder / f"{method}.safetensors", detector.score(images[:4])))
    others = _others(folder)
    for draw in tries.each():
        if draw.random() < 0.5:
            path, expected = draw.choice(saved)
            crafted = draw.random() < 0.5
            given = folder / "given.safetensors"
            if crafted:
                _craft(path, given, draw)
            else:
                given.write_bytes(mutated(path.read_bytes(), draw))

            def load(given: Path = given, expected: Tensor | None = None if crafted else expected) -> str | None:
                return _loaded(given, network, images[:4], expected)

            tries.attempt(load, given.read_bytes(), ".safetensors")
        else:
            name = draw.choice(sorted(others))
            content, use = others[name]
            given = folder / name
            given.write_bytes(mutated(content, draw))
            tries.attempt(lambda given=given, use=use: _used(use, given), given.read_bytes(), given.suffix)  # type: ignore[misc]


def _loaded(path: Path, network: nn.Module, images: Tensor, expected: Tensor | None) -> str | None:
    """expected: the scores that a file must give if it can be read at all; None for a crafted one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            scores = OODDetector.load(path, network).score(images)
        except AdascaleError as error:
            return "more than one line" if "\n" in str(error) else None
    return "other scores in silence" if expected is not None and not torch.equal(scores, expected) else None


def _craft(path: Path, out: Path, draw: random.Random) -> None:
    """Change a field or a tensor of the file, and make its checksum right."""
    found = load_tensors(path, KIND)
    record, tensors = json.loads(json.dumps(found.record)), dict(found.tensors)
    for _ in range(draw.choice((1, 2))):
        if draw.random() < 0.5:
            section = record
            while (
                isinstance(inner := section[key := draw.choice(sorted(section))], dict)
                and inner
                and draw.random() < 0.8
            ):
                section = inner
            section[key] = draw.choice((None, -1, 0, 10**9, "", "x", [], {}, [1], True, 0.5, "cpu:"))
            if draw.random() < 0.3:
                del section[key]
        else:
            name = draw.choice(sorted(tensors))
            old = tensors[name]
            made = (
                old.flatten()[:0],
                old.flatten()[:1],
                old.double(),
                torch.full_like(old, torch.nan if old.is_floating_point() else 7),
            )
            tensors[name] = draw.choice((*made, old.unsqueeze(0), torch.zeros(3, dtype=torch.int64)))
    clean = {key: value for key, value in record.items() if not key.startswith("format")}
    save_tensors(out, tensors, clean, KIND)


def _others(folder: Path) -> dict[str, tuple[bytes, Callable[[Path], object]]]:
    """The content of other files that are parsed, by name, and what parses them."""
    for i in range(3):
        picture(seed=i).save(folder / f"{i}.png")
    np.savez_compressed(folder / "a.npz", images=np.zeros((3, 8, 8, 3), np.uint8), labels=np.arange(3))
    save_tensors(folder / "shard.safetensors", {"logits": torch.zeros(2, 3)}, {"key": "k"}, "adascale-shard")
    save_tensors(folder / "run.safetensors", {"a": torch.zeros(2)}, {"settings": {}}, "adascale-training")
    network = {"name": "a", "model": "digits", "weights": "a.safetensors"}
    listed = {"format": "adascale-networks", "format_version": 1, "networks": [network]}
    suite = 'name = "s"\nid = "id"\n[near]\nn = "near"\n[far]\nf = {images = "far", rows = [0, 2]}\n'

    def read(path: Path) -> None:
        found = find_images(path)
        found.fingerprint()
        assert sum(len(b.indices) + len(b.failures) for b in load_batches(found, RGB)) == len(found)

    return {
        "list.txt": (b"0.png 1\n1.png 2\n\xff.png 3\n", read),
        "a.npz": ((folder / "a.npz").read_bytes(), read),
        "networks.json": (json.dumps(listed).encode(), registered),
        "suite.toml": (suite.encode(), lambda path: load_suite(str(path))),
        "shard.st": ((folder / "shard.safetensors").read_bytes(), lambda path: load_tensors(path, "adascale-shard")),
        "run.st": ((folder / "run.safetensors").read_bytes(), load_checkpoint),
    }


def _used(use: Callable[[Path], object], path: Path) -> str | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            use(path)
        except (InputError, TensorFileError) as error:
            return "more than one line" if "\n" in str(error) else None
    return None
