"""Activations made by workers are those that one process makes, in the same cache."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from adascale import Classifier, View
from adascale.cluster.activations import NetworkRecipe, SpreadOver
from adascale.cluster.executor import Executor, WorkersError
from adascale.cluster.local import LocalCrew
from adascale.core.centres import Centres
from adascale.decision.detector_file import DetectorFile
from adascale.extraction.batches import Passes
from adascale.extraction.cache import Extractor
from adascale.images.outliers import Blurred
from adascale.images.sources import find_images
from adascale.network.loading import load_network
from tests.images.pictures import RGB
from tests.shell import fit, inside


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*.safetensors"))}


def tensors(file: Path) -> dict[str, torch.Tensor]:
    return dict(DetectorFile.read(file).tensors)


def test_workers_write_the_same_shards_and_only_those_that_are_missing(place: Path) -> None:
    """Clean outputs, views that are added later (one with what a method learned), outliers, an unreadable image."""
    learned = View("all", step=-0.01, towards=Centres(torch.zeros(128), torch.eye(128), torch.rand(3, 128)))
    (place / "id" / "05.png").write_bytes(b"no image")
    spec, passes, images = f"{place / 'nets.py'}:Net", Passes(4, 1), find_images(str(place / "id"))
    with Executor(LocalCrew(2)) as executor:
        made = {}
        for name, spread in (("here", None), ("there", SpreadOver(executor, NetworkRecipe(spec)))):
            model, known = load_network(spec, None)
            preprocess = known or RGB
            extractor = Extractor(Classifier(model), preprocess, place / name, passes, spread)
            extractor.extract(images, ())
            extractor.extract(images, [View()])
            extractor.extract(images, [learned])
            found = extractor.extract(images, [], tamper=Blurred())
            assert list(found.failures) == [str(place / "id" / "05.png")]
            assert (len(found), extractor.classifier.head_name) == (29, "fc")
            made[name] = content(place / name)
        assert made["there"] == made["here"]
        folder = Path(str(found.cache.folder))
        before = {file: file.stat().st_mtime_ns for file in folder.glob("*.safetensors")}
        first = min(before)
        first.unlink()
        Extractor(Classifier(model), preprocess, place / "there", passes, spread).extract(images, (), tamper=Blurred())
        after = {file: file.stat().st_mtime_ns for file in before}
        assert {file for file in before if after[file] != before[file]} == {first}

        (place / "nets.py").write_text((place / "nets.py").read_text().replace("manual_seed(0)", "manual_seed(1)"))
        extractor = Extractor(
            Classifier(model), preprocess, place / "other", passes, SpreadOver(executor, _moved(place))
        )
        with pytest.raises(WorkersError, match="another one than here"):
            extractor.extract(images, ())


def _moved(place: Path) -> NetworkRecipe:
    """The recipe of a network whose file has changed, under another name."""
    (place / "nets.py").rename(place / "changed.py")
    return NetworkRecipe(f"{place / 'changed.py'}:Net")


@pytest.mark.slow
def test_fit_with_workers_writes_the_same_detector(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    options = ("--method", "adascale_a", "--batch-size", "8")
    expected = tensors(fit(place, monkeypatch, *options))
    found = tensors(fit(place, monkeypatch, *options, "--on", "local", "--workers", "2"))
    # The features of the probe are those of a pass in this process, which had no other pass here: they may be rounded
    # otherwise, and loading allows for that.
    assert torch.allclose(found.pop("probe.features"), expected.pop("probe.features"), rtol=1e-5)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert {"calibration.scores", "method.reference_"} <= set(found) == set(expected)
    assert inside(monkeypatch, "fit", "id", "--model", "nets.py:Net", "-o", "x.st", "--address", "auto") == 2
