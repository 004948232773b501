"""Machines that do not share what they must are told so; no image seems missing or is left out for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from adascale import Classifier, InputError
from adascale.cluster import shared
from adascale.cluster.activations import NetworkRecipe, SpreadOver
from adascale.cluster.executor import Crew, Executor
from adascale.cluster.job import ScoreJob, ShardsError
from adascale.cluster.scoring import Judges
from adascale.extraction.batches import Passes
from adascale.extraction.cache import Extractor
from adascale.images.shards import list_shards
from adascale.images.sources import find_images
from adascale.network.loading import load_network
from tests.cluster.crews import Elsewhere, Here
from tests.images.pictures import RGB


def extractor(place: Path, crew: Crew) -> Extractor:
    spec = f"{place / 'nets.py'}:Net"
    spread = SpreadOver(Executor(crew), NetworkRecipe(spec))
    model, known = load_network(spec, None)
    return Extractor(Classifier(model), known or RGB, place / "cache", Passes(4, 1), spread)


def test_a_cache_that_the_driver_does_not_see(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "PATIENCE_SECONDS", 0.01)
    with pytest.raises(InputError, match=r"not seen here; all machines must share this folder: give --cache"):
        extractor(place, Elsewhere()).extract(find_images(str(place / "id")), ())


def test_images_that_a_worker_does_not_see_are_not_called_unreadable(place: Path) -> None:
    """The cache would keep that for ever. A file that is missing for the driver, too, is the fault of the list."""
    images = place / "id"
    (place / "list.txt").write_text("id/gone.png\nid/00.png\nid/01.png\n")
    with pytest.raises(InputError, match=r"00\.png is there where the job was started, but not on"):
        extractor(place, Here(lambda: images.exists() and images.rename(place / "away"))).extract(
            find_images(str(place / "list.txt")), ()
        )
    assert not list((place / "cache").rglob("*.safetensors"))
    (place / "away").rename(images)
    found = extractor(place, Here()).extract(find_images(str(place / "list.txt")), ())
    assert (list(found.failures), len(found)) == (["id/gone.png"], 2)


def test_a_shard_whose_images_a_worker_does_not_see_is_given_up(place: Path) -> None:
    images = place / "id"
    job = ScoreJob(list_shards(str(images)), place / "out", Judges((), "digits"))
    crew = Here(lambda: images.exists() and images.rename(place / "away"))
    with pytest.raises(ShardsError, match=r"00\.png is there where the job was started, but not on"):
        job.run(Executor(crew))
    assert not list((place / "out").glob("part-*"))
