"""The commands and their options. What a command does is the function of its name in the module that it names.

Nothing here imports PyTorch, so that ``--help`` and a mistyped call answer at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from adascale.cli import checks, groups
from adascale.cli.groups import (
    Command,
    PassOptions,
    Place,
    PreprocessOptions,
    ReadOptions,
    Texts,
    TrustOptions,
    Weights,
    WorkerOptions,
    argument,
    option,
    place,
)
from adascale.core.errors import InputError
from adascale.export.formats import format_of
from adascale.storage.rows import SUFFIXES


class FitCommand(groups.NetworkOptions, PreprocessOptions, WorkerOptions, ReadOptions, Command, module="fit"):
    """Learn from in-distribution images and write a detector file."""

    images: groups.Images
    output: Place = place(..., "Detector file; a folder for several methods.", "--out", "-o", check=checks.writable)
    weights: Weights = None
    classes: groups.Classes = None
    method: Texts = groups.methods("combined")
    setting: groups.Settings = None
    preset: str | None = option(None, "The paper's setting, e.g. imagenet/resnet-50.", check=checks.known_preset)
    train: str | None = option(None, "Training images, for methods that learn from them.", check=checks.images)
    tune: bool | None = option(
        None,
        "Choose parameters on outliers made from the images [default: AdaSCALE, from 64 images on].",
        "--tune/--no-tune",
    )
    alpha: float = option(0.05, "Share of in-distribution images that may be flagged.", check=checks.alpha)
    confidence: groups.Confidence = None
    split_seed: int = option(0, "Seed of the split into fitting and calibration images.")
    root: groups.Root = None
    precision: Literal["bf16", "fp16"] | None = option(None, "Faster on some hardware; scores change slightly.")
    compiled: groups.Compiled = False
    engine: groups.Engine = "torch"
    draft: bool = option(False, "Decode large JPEGs at a fraction of their size: faster.", "--draft")


class ScoreCommand(TrustOptions, WorkerOptions, ReadOptions, Command, module="fit"):
    """Score, p-value and decision for each image."""

    images: groups.Images
    detector: list[Place] = place(
        ..., "Detector file, or a folder of them.", "--detector", "-d", check=checks.detector_files
    )
    output: Place | None = place(
        None,
        "scores.csv, .json, .jsonl or .parquet [default: CSV on stdout]; with --on, a folder for a file of each shard.",
        "--out",
        "-o",
        check=checks.rows_place,
    )
    shard_size: int = option(
        1024, "With --on: images of a shard, where the source has none; rounded up to whole batches.", min=1
    )
    skip_failed: bool = option(
        False, "With --on: finish without shards that cannot be read; the manifest names them.", "--skip-failed"
    )
    lines: bool = option(False, "Print the rows as JSON lines on stdout.", "--jsonl")
    decide: bool = option(False, "Only the decisions, at about the price of a forward pass.", "--decide")
    report: Path | None = option(None, "Also write an HTML page of the scored images.", check=checks.writable)
    evidence: bool = option(False, "Also what each member of a combined method adds to the score.", "--evidence")
    alpha: float | None = option(
        None, "Share of in-distribution images that may be flagged [default: as fitted].", check=checks.alpha
    )
    confidence: groups.Confidence = None
    no_confidence: bool = option(False, "Promise alpha on average, though fit had --confidence.", "--no-confidence")
    fdr: float | None = option(
        None, "Mark discoveries in all images together; at most this share of them is false.", check=checks.fdr
    )
    classes: groups.Classes = None
    method: Texts = option(None, "file.py:Class of your own method, if a detector has one.", check=checks.known_methods)
    root: groups.Root = None
    device: groups.Device = "auto"
    compiled: groups.Compiled = False
    engine: groups.Engine = "torch"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.on is not None:
            self._check_shards()
        elif self.skip_failed:
            raise InputError("--skip-failed is for the shards of workers; add --on local or --on ray.")
        elif self.output is not None and self.output.suffix.lower() not in SUFFIXES:
            raise InputError(
                f"The output {self.output} must end in {', '.join(SUFFIXES)}; a folder of shards is made by --on local "
                "or --on ray."
            )
        if self.decide and self.evidence:
            raise InputError("--decide gives no scores, so there is no --evidence for them; leave one of the two out.")
        if self.decide and self.report is not None:
            raise InputError(
                "--report shows scores and p-values, which --decide does not compute; leave one of them out."
            )
        if self.decide and self.fdr is not None:
            raise InputError("--fdr needs the p-values, which --decide does not compute; leave one of them out.")
        if self.no_confidence and self.confidence is not None:
            raise InputError(f"--confidence {self.confidence:g} and --no-confidence; leave one of them out.")
        if self.lines and (self.as_json or self.output):
            other = "--json, one document" if self.as_json else f"-o {self.output}, whose suffix says the format"
            raise InputError(f"--jsonl prints rows on stdout, and there is {other}; give one of them.")

    def _check_shards(self) -> None:
        """Workers write a folder, of which `adascale merge` makes a file."""
        if self.output is None or self.output.suffix.lower() in SUFFIXES:
            given = "nothing" if self.output is None else f"-o {self.output}"
            raise InputError(
                f"--on {self.on} writes a file for each shard, and {given} was given; name a folder, -o scores, and "
                "make one file of it with: adascale merge scores -o scores.csv"
            )
        if self.fdr is not None:
            raise InputError("--fdr looks at all images together; give it to adascale merge, which does.")

    @property
    def promise(self) -> tuple[float | None, float | None, bool]:
        """What is promised in place of what was fitted."""
        return self.alpha, self.confidence, self.no_confidence

    @property
    def form(self) -> Literal["csv", "json", "jsonl"]:
        """How rows are printed on stdout."""
        return "json" if self.as_json else "jsonl" if self.lines else "csv"


class MergeCommand(Command, module="shards"):
    """Make one file of the shards that `adascale score --on` wrote; every shard is checked."""

    folder: Place = argument(
        ..., "The folder of the shards.", check=checks.shards, parser=checks.place, metavar="FOLDER"
    )
    output: Place = place(..., "scores.csv, .json, .jsonl or .parquet.", "--out", "-o", check=checks.rows_file)
    fdr: float | None = option(
        None, "Mark discoveries in all images together; at most this share of them is false.", check=checks.fdr
    )


class ExportCommand(TrustOptions, ReadOptions, Command, module="export"):
    """Write network, method, calibration and threshold to one file that runs without PyTorch."""

    detector: groups.DetectorFile
    output: Path = option(
        ..., "model.onnx, model.xml (OpenVINO) or model.pt2 (AOTInductor).", "--out", "-o", check=checks.export_file
    )
    format: Literal["onnx", "openvino", "pt2"] | None = option(None, "The format [default: what the suffix says].")
    verify: Texts = option(
        None, "Images on which file and detector must agree, besides noise and stress rows.", check=checks.images
    )
    early: Literal["pair", "if"] | None = option(
        None, "pair: a second file decides what the clean pass settles; if: decisions alone, with a branch."
    )
    pixels: bool = option(
        False, "The file takes uint8 images (N, H, W, C) of any size and prepares them itself.", "--preprocess"
    )
    int8: Texts = option(
        None,
        "Quantise the network with these ID images (64 or more); the method is fitted and calibrated on them again.",
        "--int8",
        check=checks.images,
    )
    alpha: float | None = option(
        None, "Share of in-distribution images that may be flagged [default: as fitted].", check=checks.alpha
    )
    confidence: groups.Confidence = None
    root: groups.Root = None

    def __post_init__(self) -> None:
        format_of(self.output, self.format)
        if self.early is not None and self.output.suffix.lower() != ".onnx":
            raise InputError(f"--early {self.early} is for .onnx files; {self.output.name} is none.")


class MonitorCommand(Command, module="monitor"):
    """Tell from the scores of a stream of images whether it has changed; exit code 4 if an alarm is raised."""

    scores: str = argument(
        ...,
        "Output of adascale score: .csv, .jsonl, .json or .parquet; - is CSV or JSON lines on stdin.",
        check=checks.scores,
    )
    detector: Place | None = place(
        None,
        "The detector that made the scores [default: that of --state].",
        "--detector",
        "-d",
        check=checks.detector_files,
    )
    follow: bool = option(False, "Go on reading while the file grows, until Ctrl-C.", "--follow", "-f")
    every: int | None = option(None, "Use one of so many images, because neighbours are alike (video).", min=1)
    delta: float | None = option(None, "Chance that an alarm of the kind ever is false [default: 0.01].")
    run_length: float | None = option(
        None, "Alarms of the kind continuing are false within n images with chance n / this [default: 10000]."
    )
    seed: int | None = option(None, "Seed of the random numbers that break ties [default: 0].", min=0)
    method: str | None = option(None, "Whose columns to read, where the rows have those of several detectors.")
    state: Path | None = option(
        None, "Keep everything in this file; the next call goes on from there.", check=checks.writable
    )
    report: Path | None = option(None, "Write an HTML page with the evidence over time.", check=checks.writable)


class RecalibrateCommand(TrustOptions, PassOptions, ReadOptions, Command, module="recalibrate"):
    """Add confirmed in-distribution images to those that set the threshold of a detector; nothing is fitted."""

    detector: groups.DetectorFile
    images: list[str] = option(
        ...,
        "A random sample of the traffic that a person confirmed as in-distribution: images as for score.",
        "--with",
        check=checks.images,
    )
    output: Place | None = place(
        None, "The new detector file [default: in place of the old one].", "--out", "-o", check=checks.writable
    )
    replace: bool = option(False, "Set the threshold by these images alone.", "--replace")
    root: groups.Root = None
    device: groups.Device = "auto"
    engine: groups.Engine = "torch"


class MethodsCommand(Command, module="describe"):
    """List the methods; with a NAME, its definition, parameters and search space."""

    name: str | None = argument(None, "One method, in full: its name or file.py:Class.")


class CheckCommand(Command, module="describe"):
    """Check that a method of your own keeps the contract of every method; exit code 2 if it does not."""

    method: str = argument(..., "path/to/file.py:Class, or a name.")


class EnvCommand(Command, module="describe"):
    """Versions, devices, precisions and the cache of this installation, for bug reports."""


class CacheCommand(Command, module="cache"):
    """The cache of activations: list what is in it, say its size, or clean it."""

    action: Literal["list", "size", "clean"] = argument("list", "What to do.", metavar="list|size|clean")
    suite: str | None = option(None, "Only what this suite alone has used; unknown for entries without a record.")
    older_than: str | None = option(
        None, "Only what was not used for so long, e.g. 30d, 12h or 2w.", check=checks.duration
    )
    everything: bool = option(False, "clean: remove everything.", "--all")
    cache: Path | None = option(None, "The folder [default: ADASCALE_CACHE, ~/.cache].", check=checks.no_file)

    @property
    def age(self) -> float | None:
        """``older_than`` in seconds."""
        return None if self.older_than is None else checks.seconds(self.older_than)


class InspectCommand(Command, module="describe"):
    """Show what a detector file or an exported file holds."""

    file: Place = argument(
        ..., "A detector file, or an exported one.", check=checks.detector_files, parser=checks.place, metavar="FILE"
    )


class DemoCommand(Command, module="demo"):
    """See it work, offline, in about a minute: train a small network, fit a detector, judge images, compare methods."""

    out: Path = option(Path("adascale-demo"), "Folder for everything.", "--out", "-o", check=checks.folder)
    method: Texts = groups.methods("about ten")
    every_method: bool = option(False, "Compare every method.", "--all")
