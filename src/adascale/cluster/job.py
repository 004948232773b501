"""A folder of scored shards: what it belongs to, what is missing, the manifest that closes it, and one file of it all.

``job.json`` is written first and names the job, so that a folder never mixes two. ``part-000000-DIGEST.parquet`` and so
on have the rows of one shard each; the digest is that of its images. ``manifest.json`` is written last: where it is,
everything is.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from adascale.cluster.executor import Executor, Outcome
from adascale.cluster.scoring import Judges, Rows, ScoreShard, digest
from adascale.cluster.shared import example_of
from adascale.core.environment import versions
from adascale.core.errors import AdascaleError, InputError
from adascale.core.progress import progress
from adascale.extraction.batches import Passes
from adascale.extraction.shard_cache import cache_key
from adascale.images.shards import ImageShards
from adascale.storage.atomic import write_text
from adascale.storage.reading import read_rows
from adascale.storage.remote import Place
from adascale.storage.rows import Row

JOB, MANIFEST = "job.json", "manifest.json"
_FORMAT = {"format": "adascale-shards", "format_version": 1}
_MOST_FAILURES, _MOST_SKIPPED = 10, 0.01


class ShardsError(AdascaleError, RuntimeError):
    """Some shards could not be scored. The others are kept."""


@dataclass(frozen=True, eq=False)
class ScoreJob:
    """Score every shard of a source into ``folder``. skip_failed: close the job without those that cannot be read."""

    shards: ImageShards
    folder: Place
    judges: Judges
    passes: Passes = Passes()
    decide: bool = False
    evidence: bool = False
    about: Mapping[str, Any] = field(default_factory=dict)
    skip_failed: bool = False

    @cached_property
    def key(self) -> str:
        """A hash of all that shapes the rows, except the content of the images: that is in the names of the parts."""
        judges = self.judges
        how = judges.alpha, judges.confidence, judges.no_confidence, judges.engine, self.decide, self.evidence
        contents = [sha256 for _, sha256 in judges.files]
        names = (shard.name for shard in self.shards)
        return cache_key(*contents, *how, judges.classes, self.passes.batch_size, *names)

    def run(self, executor: Executor) -> dict[str, Any]:
        """Score what is missing and write the manifest, which is returned without its list of shards.

        Shards that cannot be read are told at the end, and ten of them (skip_failed: or one of a hundred) stop the job;
        the same job goes on from there.
        """
        most = max(_MOST_FAILURES, int(_MOST_SKIPPED * len(self.shards)) if self.skip_failed else 0)
        self._begin()
        done = _Done()
        with progress("Scoring", len(self.shards), self._found(), unit="shards") as advance:
            for outcome in executor.run(map(self._task, range(len(self.shards)))):
                advance(done.add(outcome), done.note(executor))
                if len(done.failed) >= most:
                    break
        if done.failed and not (self.skip_failed and len(done.failed) < most and done.parts):
            name, reason = next(iter(done.failed.items()))
            raise ShardsError(
                f"{len(done.failed)} of {len(self.shards)} shards failed, such as {name}: {reason.rstrip('.')}. "
                f"{len(done.parts)} are in {self.folder}; the same command tries the others again, "
                "and with --skip-failed it ends without them."
            )
        return self._close(done)

    def _task(self, index: int) -> ScoreShard:
        shard = self.shards[index]
        how = self.judges, self.passes, self.decide, self.evidence, example_of(shard.images)
        return ScoreShard(shard, index, self.folder, *how)

    def _found(self) -> int:
        """How many shards seem to be there already."""
        return min(len(self.shards), len({file.name[:11] for file in self.folder.glob("part-*.parquet")}))

    def _begin(self) -> None:
        known = _read(self.folder / JOB)
        if known and known.get("key") != self.key:
            raise InputError(
                f"{self.folder} holds the results of another job (other images, detectors or options); choose another "
                "folder, or delete it."
            )
        if not known:
            record = {**_FORMAT, "key": self.key, "shards": len(self.shards), **self.about}
            write_text(self.folder / JOB, json.dumps(record, indent=1) + "\n")

    def _close(self, done: _Done) -> dict[str, Any]:
        """Write the manifest: a line for each shard, so that people can still read a hundred thousand of them."""
        detectors = [{"file": file, "sha256": sha256} for file, sha256 in self.judges.files]
        record: dict[str, Any] = {**_FORMAT, "key": self.key, **self.about}
        record |= {"rows": done.rows, "failed": done.unreadable, "ood": dict(done.ood), "columns": done.columns}
        record |= {"detectors": detectors, "model": self.judges.model, "batch_size": self.passes.batch_size}
        record |= {"versions": versions()}
        if done.failed:
            record["failed_shards"] = [{"source": name, "reason": reason} for name, reason in done.failed.items()]
        head, lines = json.dumps(record, indent=1).removesuffix("\n}"), ",\n".join(sorted(done.parts))
        write_text(self.folder / MANIFEST, f'{head},\n "shards": [\n{lines}\n ]\n}}\n')
        return record


class _Done:
    """What is done of a job. parts: the line of each shard in the manifest, which begins with its file."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.failed: dict[str, str] = {}
        self.columns: list[str] = []
        self.rows = self.unreadable = self._made = 0
        self.ood: Counter[str] = Counter()
        self._began = time.monotonic()

    def add(self, outcome: Outcome) -> int:
        """Returns how many shards it is that were not there before."""
        if outcome.error:
            self.failed[outcome.task.name] = outcome.error
            return 1
        part: Rows = outcome.value
        self.columns = self.columns or list(part.columns)
        self.rows, self.unreadable = self.rows + part.rows, self.unreadable + part.failed
        self.ood.update(part.ood)
        line = {"file": part.file, "source": part.source, "rows": part.rows, "failed": part.failed}
        self.parts.append("  " + json.dumps({**line, "sha256": part.sha256}))
        self._made += part.rows * part.made
        return int(part.made)

    def note(self, executor: Executor) -> str:
        rate = self._made / max(time.monotonic() - self._began, 1e-9)
        parts = [f"{self.rows} images", f"{rate:.1f} images/s", f"{executor.workers} workers"]
        parts += [f"{self.unreadable} unreadable"] if self.unreadable else []
        parts += [f"{executor.lost} workers lost"] if executor.lost else []
        parts += [f"{len(self.failed)} shards failed"] if self.failed else []
        return ", ".join(parts)


def _read(path: Place) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        record = json.loads(path.read_bytes())
    except ValueError:
        record = None
    if not isinstance(record, dict) or record.get("format") != _FORMAT["format"]:
        raise InputError(f"{path} is damaged, or was not written by adascale score.")
    return record


def read_manifest(folder: Place) -> dict[str, Any]:
    """The manifest of a finished job."""
    manifest = _read(folder / MANIFEST)
    if not manifest:
        began = (folder / JOB).is_file()
        advice = "give the same adascale score command again, which resumes it" if began else "give that of a score job"
        raise InputError(f"{folder} holds no {'finished job' if began else MANIFEST}; {advice}.")
    return manifest


def all_rows(folder: Place, manifest: Mapping[str, Any]) -> Iterator[Row]:
    """The rows of all shards, in order. A shard that is not the one that was written is refused."""
    for part in manifest["shards"]:
        path = folder / part["file"]
        if not path.is_file() or digest(path) != part["sha256"]:
            raise InputError(
                f"{path} is missing or was changed after the job; delete it, and give the adascale score command again."
            )
        yield from read_rows(str(path))
