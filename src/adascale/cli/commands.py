"""The commands and their options. What a command does is the function of its name in the module that it names.

Nothing here imports PyTorch, so that ``--help`` and a mistyped call answer at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from adascale.bench import SUITES
from adascale.cli import checks, groups
from adascale.cli.groups import Command, PassOptions, PreprocessOptions, Texts, Weights, argument, option
from adascale.core.errors import InputError


class FitCommand(groups.NetworkOptions, PreprocessOptions, PassOptions, Command, module="fit"):
    """Learn from in-distribution images and write a detector file."""

    images: groups.Images
    output: Path = option(..., "Detector file; a folder for several methods.", "--output", "-o")
    weights: Weights = None
    method: Texts = option(
        None, "See adascale methods, or file.py:Class; repeatable [default: combined].", check=checks.known_methods
    )
    setting: Texts = option(None, "A parameter: p_max=90, scale.percentile=80.", "--set")
    preset: str | None = option(None, "The paper's setting, e.g. imagenet/resnet-50.")
    train: str | None = option(None, "Training images, for methods that learn from them.", check=checks.images)
    tune: bool | None = option(
        None,
        "Choose parameters on outliers made from the images [default: AdaSCALE, from 64 images on].",
        "--tune/--no-tune",
    )
    alpha: float = option(0.05, "Share of in-distribution images that may be flagged.")
    split_seed: int = option(0, "Seed of the split into fitting and calibration images.")
    root: groups.Root = None
    precision: str | None = option(None, "bf16 or fp16: faster on some hardware; scores change slightly.")
    compiled: groups.Compiled = False
    draft: bool = option(False, "Decode large JPEGs at a fraction of their size: faster.", "--draft")


class ScoreCommand(PassOptions, Command, module="fit"):
    """Score, p-value and decision for each image."""

    images: groups.Images
    detector: list[Path] = option(
        ..., "Detector file, or a folder of them.", "--detector", "-d", check=checks.detector_files
    )
    output: Path | None = option(None, "scores.csv, .jsonl or .parquet [default: stdout].", "--output", "-o")
    decide: bool = option(False, "Only the decisions, at about the price of a forward pass.", "--decide")
    evidence: bool = option(False, "Also what each member of a combined method adds to the score.", "--evidence")
    model: str | None = option(None, "The network, if it moved since fit.")
    weights: Weights = None
    method: Texts = option(None, "file.py:Class of your own method, if a detector has one.", check=checks.known_methods)
    root: groups.Root = None
    device: groups.Device = "auto"
    compiled: groups.Compiled = False

    def __post_init__(self) -> None:
        if self.decide and self.evidence:
            raise InputError("--decide gives no scores, so there is no --evidence for them; leave one of the two out.")


class BenchCommand(groups.NetworksOptions, groups.SuiteOptions, PassOptions, Command, module="bench"):
    """Compare methods on a suite: every method from one network pass per image (and one per view), in one table."""

    suite: groups.SuiteName = None
    out: groups.Results = Path("adascale-bench")
    methods: Texts = option(
        None, "Names or file.py:Class, repeatable or with commas [default: all].", check=checks.known_methods
    )
    setting: groups.Settings = None
    preset: str | None = option(None, "Also run the paper's setting, e.g. imagenet/resnet-50.")
    tune: Literal["none", "self", "ood"] = option(
        "none", "Also run tuned methods: on outliers made from the ID images, or on the suite's OOD-val."
    )


class TuneCommand(groups.NetworksOptions, groups.ImageOptions, PassOptions, Command, module="bench"):
    """Choose a method's parameters on ID images alone, or with OOD validation images, as OpenOOD does."""

    suite: groups.SuiteName = None
    method: str = option("adascale_a", "See adascale methods, or file.py:Class.", check=checks.known_methods)
    grid: str | None = option(
        None, "one-knob, paper, pairs, or 'p_min=60,65 p_max=80,85' [default: the method's search space]."
    )
    setting: groups.Settings = None
    by: Literal["self", "ood"] | None = option(
        None, "Judge by outliers made from the ID images, or by OOD-val [default: ood where there is any]."
    )
    ood_val: Texts = option(None, "NAME=PATH of OOD validation images; repeatable.")
    out: Path | None = option(None, "CSV file for every point and its AUROC.", "--out", "-o")


class CompareCommand(Command, module="bench"):
    """Two benchmarks side by side: what moved, what was set differently."""

    first: Path = argument(..., "The results folder of a benchmark.", check=checks.results)
    second: Path = argument(..., "Another one.", check=checks.results)
    every_set: bool = option(False, "Every set, not only the means.", "--all")


class StudyCommand(groups.NetworksOptions, groups.SuiteOptions, PassOptions, Command, module="study"):
    """Run the paper's tables and figures, with the published values beside ours; NAME is one of `study list`."""

    names: list[str] = argument(..., "Studies, all, or list to see what there is.", metavar="NAME...")
    suite: str | None = option(
        None,
        f"{', '.join(SUITES)}, or a TOML file [default: digits, without --model and --id].",
        check=checks.known_suite,
    )
    preset: Texts = option(
        None, "What the paper calls the network, e.g. imagenet/resnet-50; one, or one for each network."
    )
    out: groups.Results = Path("adascale-study")
    setting: groups.Settings = None


class RecipeOptions(groups.Options):
    """What differs from the recipe of the loss."""

    loss: Literal["cross-entropy", "ish", "adversarial"] = option("cross-entropy", "What is minimised.")
    epochs: int | None = option(None, "Passes over the images [default: 100, for ish 10].", min=1)
    lr: float | None = option(None, "First learning rate [default: 0.1, for ish 0.003].")
    batch_size: int | None = option(None, "Images per step, over all processes [default: 128].", min=1)
    weight_decay: float | None = option(None, "For every layer [default: 5e-4, for the last layer of ish 5e-5].")
    eps: float | None = option(None, "Adversarial: largest change of a pixel in 0..1 [default: 0.01].")
    attack_steps: int | None = option(None, "Adversarial: steps of PGD [default: 7].", min=1)
    keep: float | None = option(None, "ISH: percent of the features kept [default: 15].")
    augment: bool = option(True, "Random crops and mirrors.")
    width: float | None = option(None, "Share of an adascale: network's channels [default: 1].")
    budget: float = option(
        1.0,
        "Share of the full cost, for a CPU: untrained adascale: networks get epochs x sqrt(SHARE) and width x "
        "SHARE^(1/4), others epochs x SHARE; --epochs and --width take precedence.",
    )


class TrainCommand(groups.NetworkOptions, PreprocessOptions, RecipeOptions, Command, module="train"):
    """Train a network: cross-entropy, ISH or adversarial. The same command resumes where an interrupted one stopped.

    Several GPUs: torchrun --nproc-per-node 4 -m adascale train ... (needs the extra train).
    """

    data: str = option(
        ..., "Folder with a subfolder for each class, image list with labels, or .npz with labels.", check=checks.images
    )
    out: Path = option(Path("adascale-train"), "Folder for the weights.", "--out", "-o", check=checks.folder)
    val: str | None = option(None, "Images like --data, for the accuracy.", check=checks.images)
    root: groups.Root = None
    init: str | None = option(None, "Weights file to start from, or pretrained for the source's own [default: random].")
    classes: int | None = option(None, "Number of classes [default: as many as labels].", min=1)
    seed: int = option(0, "Seed of weights, order and augmentation.", min=0, max=2**31)
    seeds: int = option(1, "Train this many networks, with seeds from --seed on.", min=1)
    precision: Literal["auto", "fp32", "bf16", "fp16"] = option("auto", "auto: bf16 or fp16 on a GPU, fp32 on a CPU.")
    save_every: float = option(10.0, "Minutes between checkpoints within an epoch.", min=0)
    workers: groups.Workers = None


class MethodsCommand(Command, module="describe"):
    """List the methods; with a NAME, its definition, parameters and search space."""

    name: str | None = argument(None, "One method, in full: its name or file.py:Class.")


class CheckCommand(Command, module="describe"):
    """Check that a method of your own keeps the contract of every method; exit code 2 if it does not."""

    method: str = argument(..., "path/to/file.py:Class, or a name.")


class EnvCommand(Command, module="describe"):
    """Versions, devices, precisions and the cache of this installation, for bug reports."""


class InspectCommand(Command, module="describe"):
    """Show what a detector file holds."""

    file: Path = argument(..., "A detector file.", check=checks.detector_files)


class DemoCommand(Command, module="demo"):
    """The main job, offline, in about a minute: train a small network, fit every method, compare, decide."""

    out: Path = option(Path("adascale-demo"), "Folder for everything.", check=checks.folder)
    method: Texts = option(None, "Only these methods [default: all]; repeatable.", check=checks.known_methods)
