"""``adascale score --on`` and ``adascale merge``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import typer

from adascale.cli import networks
from adascale.cli.checks import method_names
from adascale.cli.commands import MergeCommand, ScoreCommand
from adascale.cli.console import SOME_UNREADABLE, end, resumable, say
from adascale.cli.printed import note_limits, tell_scored
from adascale.cli.workers import executor_of
from adascale.cluster.job import ScoreJob, all_rows, read_manifest
from adascale.cluster.scoring import Judges
from adascale.core.errors import InputError
from adascale.core.extras import optional
from adascale.decision.detector_file import read_detectors
from adascale.decision.discovered import Discoveries, discovered, find_discoveries, with_discovery
from adascale.images.shards import list_shards
from adascale.network.class_names import class_names
from adascale.network.specs import absolute
from adascale.storage.locks import claimed
from adascale.storage.rows import write_rows


def score_shards(given: ScoreCommand) -> None:
    """Write the rows of every shard, then the manifest. Shards that are there are not scored again."""
    assert given.output is not None
    optional("pyarrow.parquet", "parquet")  # a missing package is told now
    files = read_detectors(given.detector)
    networks.check_asked(given, files)
    spec, weights = networks.named(files[0], given)
    size = -(-given.shard_size // given.batch_size) * given.batch_size
    shards = list_shards(given.images, given.root, size, given.max_pixels)
    judges = Judges(
        tuple((str(file.path.resolve()), file.sha256) for file in files),
        absolute(spec),
        None if weights is None else os.path.abspath(weights),
        given.device,
        given.compiled,
        given.engine,
        *given.promise,
        class_names(given.classes) if given.classes else (),
        tuple(method_names(given.method or [])),
    )
    about = {"calibration_images": [len(file.calibration.scores) for file in files]}
    how = given.passes(), given.decide, given.evidence, about, given.skip_failed
    job = ScoreJob(shards, given.output.resolve(), judges, *how)
    with claimed(given.output, folder=True), resumable(), executor_of(given) as executor:
        assert executor is not None
        manifest = job.run(executor)
    tell_scored(given.output, manifest, given.as_json)
    _tell_skipped(manifest)
    end(manifest["failed"], manifest["rows"])
    if manifest.get("failed_shards"):
        raise typer.Exit(SOME_UNREADABLE)


def merge(given: MergeCommand) -> None:
    """Write the rows of all shards to one file, in the order of the images."""
    manifest = read_manifest(given.folder)
    columns, marked = manifest["columns"], dict[str, Discoveries]()
    if given.fdr is not None:
        marked = find_discoveries(all_rows(given.folder, manifest), columns, given.fdr)
        if not marked:
            raise InputError("--fdr needs the p-values, which --decide did not compute; leave it out, or score again.")
    with claimed(given.output):
        rows = discovered(all_rows(given.folder, manifest), marked)
        write_rows(given.output, rows, with_discovery(columns, marked))
    tell_scored(given.output, manifest, given.as_json, marked)
    _tell_skipped(manifest)
    if images := manifest.get("calibration_images"):  # a job of the library may not say
        note_limits(marked, images, given.fdr)


def _tell_skipped(manifest: Mapping[str, Any]) -> None:
    for shard in manifest.get("failed_shards", ()):
        say(f"without {shard['source']}: {shard['reason']}")
