"""Image sets on disk: what is extracted once, what is extracted again, and what counts as damaged."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from adascale import Classifier, InputError, Outputs, Preprocess, Shards, View
from adascale.extraction.batches import Passes
from adascale.extraction.cache import Extractor
from adascale.images.sources import ImageSet
from adascale.storage.remote import Place, Url
from tests.conftest import SmallNet, seeded
from tests.counting import counted

PREPROCESS = Preprocess(size=16, crop=16, mean=(0.5,) * 3, std=(0.2,) * 3)
PIXELS = np.random.default_rng(0).integers(0, 256, (10, 16, 16, 3), dtype=np.uint8)
IMAGES = ImageSet([str(i) for i in range(10)], array=PIXELS)
RANDOM = View("random")


def extractor(folder: Place, net: nn.Module | None = None) -> Extractor:
    return Extractor(Classifier(net or seeded(SmallNet)), PREPROCESS, folder, Passes(4))


def test_a_set_that_was_extracted_is_not_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = extractor(tmp_path)
    first = made.extract(IMAGES, [RANDOM])
    counts = counted(monkeypatch)
    again = made.extract(IMAGES, [RANDOM])
    assert counts == {}
    assert torch.equal(first.load().views[RANDOM], again.load().views[RANDOM])
    assert (counts["opened"], counts["checksum"]) == (6, 0)  # three shards, read for each load


def test_a_cache_at_a_url(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process finds what was extracted, and a damaged object is extracted again."""
    system = pytest.importorskip("fsspec").filesystem("memory")
    system.store.clear()
    folder = Url("memory://activations")
    first = extractor(folder).extract(IMAGES, [RANDOM], about={"suite": "test"}).load()
    with monkeypatch.context() as patched:
        patched.setattr("adascale.extraction.cache.extract_batch", lambda *_: pytest.fail("a network pass"))
        again = extractor(folder).extract(IMAGES, [RANDOM]).load()
    assert torch.equal(first.views[RANDOM], again.views[RANDOM])
    shard = min(system.find("/activations"))
    system.pipe_file(shard, system.cat_file(shard)[:-1] + b"x")
    assert torch.equal(extractor(folder).extract(IMAGES, [RANDOM]).load().features, first.features)


def test_a_view_that_is_added_later_equals_one_from_the_start(tmp_path: Path) -> None:
    made = extractor(tmp_path / "a")
    made.extract(IMAGES, ())
    later = made.extract(IMAGES, [View()]).load()
    at_once = extractor(tmp_path / "b").extract(IMAGES, [View()]).load()
    assert torch.equal(later.features, at_once.features)
    assert torch.equal(later.views[View()], at_once.views[View()])
    assert torch.equal(extractor(tmp_path / "a").extract(IMAGES, [View()]).load().views[View()], later.views[View()])


def test_damaged_shards_and_views_are_extracted_again(tmp_path: Path) -> None:
    made = extractor(tmp_path)
    made.extract(IMAGES, ())
    before = made.extract(IMAGES, [RANDOM]).load()
    files = sorted(tmp_path.rglob("*.safetensors"))
    assert len(files) == 6
    for file in files[:3]:
        content = bytearray(file.read_bytes())
        content[-2] ^= 1
        file.write_bytes(content)
    after = extractor(tmp_path).extract(IMAGES, [RANDOM]).load()
    # Up to rounding: with the view at once the batch is larger, which some processors round differently.
    torch.testing.assert_close(before.logits, after.logits)
    torch.testing.assert_close(before.views[RANDOM], after.views[RANDOM])


def test_shards_hold_what_is_loaded_and_can_be_sent_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = extractor(tmp_path).extract(IMAGES, [RANDOM])
    sent = pickle.loads(pickle.dumps(found.shards()))
    assert (list(sent.rows), len(sent)) == ([4, 4, 2], 10)
    for outputs in (sent.load(), Outputs.cat(list(sent.chunks(3)))):
        assert torch.equal(outputs.logits, found.load().logits)
        assert torch.equal(outputs.views[RANDOM], found.load().views[RANDOM])
    assert isinstance(found.learnable(), Outputs)
    monkeypatch.setattr("adascale.extraction.cache.memory_bytes", lambda: 100)
    assert isinstance(found.learnable(), Shards)


def test_other_weights_or_precision_have_a_place_of_their_own(tmp_path: Path) -> None:
    changed = seeded(SmallNet)
    with torch.no_grad():
        changed.get_parameter("fc.bias").add_(1)
    places = {made.cache_of(IMAGES).key for made in (extractor(tmp_path), extractor(tmp_path, changed))}
    low = extractor(tmp_path)
    low.classifier.precision = "bf16"
    places.add(low.cache_of(IMAGES).key)
    assert len(places) == 3
    assert extractor(tmp_path).cache_of(IMAGES).key in places


def test_a_shard_that_is_removed_during_the_run_is_named(tmp_path: Path) -> None:
    found = extractor(tmp_path).extract(IMAGES, ())
    next(tmp_path.rglob("000001.safetensors")).unlink()
    with pytest.raises(InputError, match=r"Shard 1 in .* was removed or damaged during the run; run again"):
        found.load()


def test_a_batch_holds_at_least_one_image() -> None:
    with pytest.raises(InputError, match="batch_size=0; it counts images, at least 1"):
        Passes(0)
