"""Scoring a shard: the rows of its images, in a file of their own that appears complete or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from adascale.cluster.shared import check_seen
from adascale.cluster.tasks import Held
from adascale.core.errors import DetectorFileError
from adascale.decision import folders
from adascale.decision.detector_file import DetectorFile
from adascale.decision.ood_detector import OODDetector
from adascale.decision.several import load_columns
from adascale.detectors import registry
from adascale.extraction.batches import Passes
from adascale.images.shards import Shard
from adascale.network.ready import ready_network
from adascale.storage.reading import read_rows
from adascale.storage.remote import Place
from adascale.storage.rows import write_rows


@dataclass(frozen=True)
class Judges:
    """How a worker gets the network and the detectors. files: the detector files, each with the hash of its content.

    classes: names of the classes, in place of those that are known. methods: ``file.py:Class`` of methods that are not
    in the registry.
    """

    files: tuple[tuple[str, str], ...]
    model: str
    weights: str | None = None
    device: str = "auto"
    compiled: bool = False
    engine: str = "torch"
    alpha: float | None = None
    confidence: float | None = None
    no_confidence: bool = False
    classes: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()

    def make(self) -> dict[str, OODDetector]:
        for method in self.methods:
            registry.get(method)
        files = [_same(DetectorFile.read(path), sha256) for path, sha256 in self.files]
        compiled, engine = self.compiled, self.engine
        classifier, _ = ready_network(self.model, self.weights, self.device, compiled=compiled, engine=engine)
        return load_columns(files, classifier, self.alpha, self.confidence, self.no_confidence, self.classes or None)


def _same(file: DetectorFile, sha256: str) -> DetectorFile:
    if file.sha256 != sha256:
        raise DetectorFileError(f"{file.path} is another detector here than where the job was started.")
    return file


def digest(path: Place) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Rows(NamedTuple):
    """What is known about the file of a shard. failed: images that could not be read; ood: flagged ones, by column;
    made: now, and not found.
    """

    file: str
    source: str
    rows: int
    failed: int
    ood: Mapping[str, int]
    sha256: str
    columns: Sequence[str]
    made: bool = True


@dataclass(frozen=True)
class ScoreShard:
    """Score the images of one shard into a file of ``folder`` whose name says which shard, and which content of it.

    What is there already is read, and made again if it is damaged. example: a file of the shard's images.
    """

    shard: Shard
    index: int
    folder: Place
    judges: Judges
    passes: Passes
    decide: bool = False
    evidence: bool = False
    example: Path | None = None

    @property
    def name(self) -> str:
        return self.shard.name

    def run(self, held: Held) -> Rows:
        check_seen(self.example)
        output = self.folder / f"part-{self.index:06d}-{self.shard.fingerprint()[:12]}.parquet"
        return self._found(output) or self._made(output, held.once(self.judges))

    def _found(self, output: Place) -> Rows | None:
        if not output.is_file():
            return None
        try:
            rows = list(read_rows(str(output)))
            columns = list(rows[0])
            tally = folders.Tally(columns)
            tally.add(rows)
        except Exception:  # pyarrow has many kinds of errors for a damaged file
            return None
        return self._about(output, tally, columns)._replace(made=False)

    def _made(self, output: Place, detectors: dict[str, OODDetector]) -> Rows:
        columns = folders.columns(detectors, self.decide, self.evidence)
        tally = folders.Tally(columns)
        with self.shard.opened() as images:
            if self.decide:
                batches = folders.decide_images(next(iter(detectors.values())), images, 0, self.passes, quiet=True)
            else:
                batches = folders.score_images(detectors, images, 0, self.passes, self.evidence, quiet=True)
            write_rows(output, tally.counted(row for batch in batches for row in batch), columns)
        return self._about(output, tally, columns)

    def _about(self, output: Place, tally: folders.Tally, columns: Sequence[str]) -> Rows:
        counts = tally.rows, tally.failed, tally.ood
        return Rows(output.name, self.name, *counts, digest(output), columns)
