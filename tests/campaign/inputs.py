"""Images of every format and files of every kind, mutated: an answer of the right form, or one clear line."""

from __future__ import annotations

import io
import json
import random
import warnings
from pathlib import Path

import torch
from torch import Tensor

from adascale import AdascaleError, InputError, OODDetector
from adascale.decision.detector_file import KIND
from adascale.storage.tensors import load_tensors, save_tensors
from tests.campaign.parsed import Use, parsed
from tests.campaign.tries import Tries, mutated
from tests.conftest import SmallNet, seeded
from tests.images.pictures import GREY, RGB, picture
from tests.service.hostile import bomb

METHODS = ("adascale_a", "combined", "knn", "mds")
FORMATS = {
    **{"JPEG": ("RGB", "L", "CMYK"), "PNG": ("RGB", "RGBA", "L", "P", "1", "I;16"), "GIF": ("P", "L")},
    **{"WEBP": ("RGB", "RGBA"), "TIFF": ("RGB", "CMYK", "I;16", "1"), "BMP": ("RGB", "P"), "PPM": ("RGB", "L")},
}


def images(tries: Tries, folder: Path) -> None:
    """Mutated pictures and bombs: a tensor of the right shape, or an `InputError` of one line."""
    known, bombs = _pictures(), [bomb(13_300, 13_300), bomb(60_000, 60_000), bomb(9_000, 9_000), bomb(2**31 - 1, 1)]
    for name, data in tries.cases():
        tries.attempt(lambda name=name, data=data: _read(name, data), data, name)  # type: ignore[misc]
    for draw in tries.each():
        data = draw.choice(bombs) if draw.random() < 0.005 else mutated(draw.choice(known), draw)
        name = draw.choice(("rgb.image", "grey.image"))
        tries.attempt(lambda name=name, data=data: _read(name, data), data, name)  # type: ignore[misc]


def _read(name: str, data: bytes) -> str | None:
    made = RGB if name == "rgb.image" else GREY
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tensor = made(data)
        except InputError as error:
            return "more than one line" if "\n" in str(error) else None
    fine = tensor.shape == (len(made.mean), 16, 16) and bool(tensor.isfinite().all())
    return None if fine else f"a tensor {tuple(tensor.shape)}"


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
    """Mutated files of every kind, and detector files that were crafted with a right checksum."""
    uses = {**parsed(folder), **_detectors(folder)}
    kinds = [name for name in sorted(uses) if not name.startswith("crafted.")]
    for name, data in tries.cases():
        tries.attempt(lambda name=name, data=data: _used(uses[name][1], folder / name, data), data, name)  # type: ignore[misc]
    for draw in tries.each():
        name = draw.choice(METHODS) + ".safetensors" if draw.random() < 0.4 else draw.choice(kinds)
        if name.removesuffix(".safetensors") in METHODS and draw.random() < 0.5:
            _craft(uses[name][0], folder / "made.st", draw)
            name, data = f"crafted.{name}", (folder / "made.st").read_bytes()
        else:
            data = mutated(uses[name][0], draw)
        tries.attempt(lambda name=name, data=data: _used(uses[name][1], folder / name, data), data, name)  # type: ignore[misc]


def _detectors(folder: Path) -> dict[str, tuple[bytes, Use]]:
    """Detector files. One that was only damaged gives the scores of the intact file, or none."""
    network, images = seeded(SmallNet), torch.rand(60, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    train = (torch.rand(60, 3, 8, 8, generator=torch.Generator().manual_seed(1)), torch.arange(60) % 5)
    found: dict[str, tuple[bytes, Use]] = {}
    for method in METHODS:
        file, parameters = folder / f"{method}.safetensors", {"k": 5} if method == "knn" else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            detector = OODDetector(network, method, **parameters).fit(images, train)  # type: ignore[arg-type]
        detector.save(file)
        expected, content = detector.score(images[:4]), file.read_bytes()
        for prefix, wanted in (("", expected), ("crafted.", None)):

            def use(path: Path, wanted: Tensor | None = wanted) -> str | None:
                scores = OODDetector.load(path, network).score(images[:4])
                return None if wanted is None or torch.equal(scores, wanted) else "other scores in silence"

            found[f"{prefix}{method}.safetensors"] = content, use
    return found


def _used(use: Use, path: Path, data: bytes) -> str | None:
    path.write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return use(path)
        except AdascaleError as error:
            return "more than one line" if "\n" in str(error) else None


def _craft(content: bytes, out: Path, draw: random.Random) -> None:
    """Change a field or a tensor of the file, and make its checksum right."""
    out.write_bytes(content)
    found = load_tensors(out, KIND)
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
