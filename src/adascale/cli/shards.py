"""``adascale score --on`` and ``adascale merge``."""

from __future__ import annotations

import json
import os
from typing import Any

from adascale.cli import networks
from adascale.cli.checks import method_names
from adascale.cli.commands import MergeCommand, ScoreCommand
from adascale.cli.console import end, resumable, say
from adascale.cli.workers import executor_of
from adascale.cluster.job import ScoreJob, all_rows, read_manifest
from adascale.cluster.scoring import Judges
from adascale.core.extras import optional
from adascale.decision.detector_file import read_detectors
from adascale.decision.discovered import discovered, find_discoveries, with_discovery
from adascale.images.shards import list_shards
from adascale.network.specs import absolute
from adascale.storage.locks import claimed
from adascale.storage.remote import Place
from adascale.storage.rows import write_rows


def score_shards(given: ScoreCommand) -> None:
    """Write the rows of every shard, then the manifest. Shards that are there are not scored again."""
    assert given.output is not None
    optional("pyarrow.parquet", "parquet")  # a missing package is told now
    files = read_detectors(given.detector)
    if given.decide:
        networks.check_single(files)
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
        None if given.classes is None else os.path.abspath(given.classes),
        tuple(method_names(given.method or [])),
    )
    job = ScoreJob(shards, given.output.resolve(), judges, given.passes(), given.decide, given.evidence)
    with claimed(given.output, folder=True), resumable(), executor_of(given) as executor:
        assert executor is not None
        manifest = job.run(executor)
    _report(manifest, given.output, given.as_json)
    end(manifest["failed"], manifest["rows"])


def merge(given: MergeCommand) -> None:
    """Write the rows of all shards to one file, in the order of the images."""
    manifest = read_manifest(given.folder)
    columns, rows = manifest["columns"], all_rows(given.folder, manifest)
    if given.fdr is not None:
        found = find_discoveries(rows, columns, given.fdr)
        columns, rows = with_discovery(columns, found), discovered(all_rows(given.folder, manifest), found)
    with claimed(given.output):
        write_rows(given.output, rows, columns)
    _report(manifest, given.output, given.as_json)


def _report(manifest: dict[str, Any], output: Place, as_json: bool) -> None:
    rows, failed, ood = manifest["rows"], manifest["failed"], manifest["ood"]
    if as_json:
        counts = {"images": rows, "scored": rows - failed, "failed": failed, "ood": ood}
        print(json.dumps({"file": str(output), **counts}))
    else:
        each = ", ".join(f"{column.removesuffix('is_ood').replace('.', ' ')}{n}" for column, n in ood.items())
        say(f"{output}: {rows - failed} images scored, out-of-distribution: {each}")
