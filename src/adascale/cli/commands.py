"""The commands and their options. What a command does is the function of its name in the module that it names.

Nothing here imports PyTorch, so that ``--help`` and a mistyped call answer at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from adascale.bench import SUITES
from adascale.cli.groups import (
    Command,
    Compiled,
    Device,
    ImageOptions,
    Images,
    NetworkOptions,
    NetworksOptions,
    PassOptions,
    PreprocessOptions,
    Results,
    Root,
    Settings,
    SuiteName,
    SuiteOptions,
    Texts,
    Workers,
    check_exists,
    check_folder,
    check_images,
    check_run,
    command,
    method_names,
)
from adascale.core.errors import InputError
from adascale.core.extras import optional


@command("fit")
@dataclass(frozen=True, kw_only=True)
class Fit(NetworkOptions, PreprocessOptions, PassOptions, Command):
    """Learn from in-distribution images and write a detector file."""

    images: Images
    output: Annotated[
        Path, Option("--output", "-o", help="The detector file to write; a folder of them for several methods.")
    ]
    weights: Annotated[Path | None, Option(help="Weights file: .safetensors, or a .pth state dict.")] = None
    method: Annotated[Texts, Option(help="See adascale methods; file.py:Class; repeatable, or all.")] = None
    setting: Annotated[
        Texts, Option("--set", help="A parameter: p_max=90; with several methods: scale.percentile=80.")
    ] = None
    preset: Annotated[str | None, Option(help="The paper's setting, e.g. imagenet/resnet-50.")] = None
    train: Annotated[
        str | None, Option(help="Training images (labels: list or .npz) for methods that learn from them.")
    ] = None
    tune: Annotated[
        bool | None,
        Option(
            "--tune/--no-tune",
            help="Choose parameters on outliers made from the images [default: AdaSCALE, from 64 images on].",
        ),
    ] = None
    alpha: Annotated[float, Option(help="Share of in-distribution images that may be flagged.")] = 0.05
    split_seed: Annotated[int, Option(help="Seed of the split into fitting and calibration images.")] = 0
    root: Root = None
    precision: Annotated[
        str | None, Option(help="bf16 or fp16: faster where the hardware has it, scores change a bit.")
    ] = None
    compiled: Compiled = False
    draft: Annotated[bool, Option("--draft", help="Decode large JPEGs at a fraction of their size: faster.")] = False

    def check(self) -> None:
        method_names(self.method or ["adascale_a"])
        for path in filter(None, (self.images, self.train)):
            check_images(path)


@command("fit")
@dataclass(frozen=True, kw_only=True)
class Score(PassOptions, Command):
    """Score, p-value and decision for each image."""

    images: Images
    detector: Annotated[
        list[Path], Option("--detector", "-d", help="A file written by adascale fit, or a folder of them.")
    ]
    output: Annotated[
        Path | None, Option("--output", "-o", help="scores.csv, .jsonl or .parquet [default: CSV on stdout].")
    ] = None
    decide: Annotated[
        bool, Option("--decide", help="Only the decisions, the same ones, at about the price of a forward pass.")
    ] = False
    model: Annotated[str | None, Option(help="The network, if it moved since fit.")] = None
    weights: Annotated[Path | None, Option(help="Weights file: .safetensors, or a .pth state dict.")] = None
    method: Annotated[
        Texts, Option(help="file.py:Class of a method of your own that a detector was fitted with; repeatable.")
    ] = None
    root: Root = None
    device: Device = "auto"
    compiled: Compiled = False

    def check(self) -> None:
        check_images(self.images)
        for path in self.detector:
            check_exists(path, "detector file", "make one with adascale fit")
        method_names(self.method or [])


@command("bench")
@dataclass(frozen=True, kw_only=True)
class Bench(NetworksOptions, SuiteOptions, PassOptions, Command):
    """Compare methods on a suite: every method from one network pass per image (and one per view), in one table."""

    suite: SuiteName = None
    out: Results = Path("adascale-bench")
    methods: Annotated[Texts, Option(help="Names or file.py:Class, repeatable or with commas [default: all].")] = None
    setting: Settings = None
    preset: Annotated[str | None, Option(help="Also run the paper's setting, e.g. imagenet/resnet-50.")] = None
    tune: Annotated[
        Literal["none", "self", "ood"],
        Option(help="Also run tuned methods: on outliers made from the ID images, or on the suite's OOD-val."),
    ] = "none"

    def check(self) -> None:
        method_names(self.methods or ["all"])
        check_run(self.suite, self, self.out)


@command("bench")
@dataclass(frozen=True, kw_only=True)
class Tune(NetworksOptions, ImageOptions, PassOptions, Command):
    """Choose a method's parameters on ID images alone, or with OOD validation images, as OpenOOD does."""

    suite: SuiteName = None
    method: Annotated[str, Option(help="See adascale methods, or file.py:Class.")] = "adascale_a"
    grid: Annotated[
        str | None,
        Option(help="one-knob, paper, pairs, or 'p_min=60,65 p_max=80,85' [default: the method's search space]."),
    ] = None
    setting: Settings = None
    by: Annotated[
        Literal["self", "ood"] | None,
        Option(help="Judge by outliers made from the ID images, or by OOD-val [default: ood where there is any]."),
    ] = None
    ood_val: Annotated[Texts, Option(help="NAME=PATH of OOD validation images; repeatable.")] = None
    out: Annotated[Path | None, Option("--out", "-o", help="CSV file for every point and its AUROC.")] = None

    def check(self) -> None:
        method_names([self.method])
        check_run(self.suite, self, None)
        if self.out is not None:
            check_exists(self.out.parent, "folder", f"make it first (--out {self.out})")


@command("bench")
@dataclass(frozen=True, kw_only=True)
class Compare(Command):
    """Two benchmarks side by side: what moved, what was set differently."""

    first: Annotated[Path, Argument(help="The results folder of a benchmark.")]
    second: Annotated[Path, Argument(help="Another one.")]
    every_set: Annotated[bool, Option("--all", help="Every set, not only the means.")] = False

    def check(self) -> None:
        for path in (self.first, self.second):
            check_exists(path, "folder", "give the --out folders of two adascale bench runs")


@command("study")
@dataclass(frozen=True, kw_only=True)
class Study(NetworksOptions, SuiteOptions, PassOptions, Command):
    """Run the paper's tables and figures, with the published values beside ours; NAME is one of `study list`."""

    names: Annotated[list[str], Argument(metavar="NAME...", help="Studies, all, or list to see what there is.")]
    suite: Annotated[
        str | None, Option(help=f"{', '.join(SUITES)}, or a TOML file [default: digits, without --model and --id].")
    ] = None
    preset: Annotated[
        Texts, Option(help="What the paper calls the network, e.g. imagenet/resnet-50; one, or one for each network.")
    ] = None
    out: Results = Path("adascale-study")
    setting: Settings = None

    def check(self) -> None:
        if self.suite is None and self.id_images is None and self.model:
            raise InputError("--model without images; give --suite, or --id with --near or --far.")
        if self.names != ["list"]:
            check_run(self.suite, self, self.out)


@dataclass(frozen=True, kw_only=True)
class RecipeOptions:
    """What differs from the recipe of the loss."""

    loss: Annotated[Literal["cross-entropy", "ish", "adversarial"], Option(help="What is minimised.")] = "cross-entropy"
    epochs: Annotated[int | None, Option(min=1, help="Passes over the images [default: 100, for ish 10].")] = None
    lr: Annotated[float | None, Option(help="First learning rate [default: 0.1, for ish 0.003].")] = None
    batch_size: Annotated[int | None, Option(min=1, help="Images per step, over all processes [default: 128].")] = None
    weight_decay: Annotated[
        float | None, Option(help="For every layer [default: 5e-4, for the last layer of ish 5e-5].")
    ] = None
    eps: Annotated[float | None, Option(help="Adversarial: largest change of a pixel in 0..1 [default: 0.01].")] = None
    attack_steps: Annotated[int | None, Option(min=1, help="Adversarial: steps of PGD [default: 7].")] = None
    keep: Annotated[float | None, Option(help="ISH: percent of the features kept [default: 15].")] = None
    augment: Annotated[bool, Option(help="Random crops and mirrors.")] = True
    width: Annotated[float | None, Option(help="Share of an adascale: network's channels [default: 1].")] = None
    budget: Annotated[
        float,
        Option(
            help="Share of the full cost, for a CPU: untrained adascale: networks get epochs x sqrt(SHARE) and width x "
            "SHARE^(1/4), others epochs x SHARE; --epochs and --width take precedence."
        ),
    ] = 1.0


@command("train")
@dataclass(frozen=True, kw_only=True)
class Train(NetworkOptions, PreprocessOptions, RecipeOptions, Command):
    """Train a network: cross-entropy, ISH or adversarial. The same command resumes where an interrupted one stopped.

    Several GPUs: torchrun --nproc-per-node 4 -m adascale train ... (needs the extra train).
    """

    data: Annotated[
        str, Option(help="Folder with a subfolder for each class, image list with labels, or .npz with labels.")
    ]
    out: Annotated[Path, Option("--out", "-o", help="Folder for the weights.")] = Path("adascale-train")
    val: Annotated[str | None, Option(help="Images like --data, for the accuracy after each epoch.")] = None
    root: Root = None
    init: Annotated[
        str | None, Option(help="Weights file to start from, or pretrained for the source's own [default: random].")
    ] = None
    classes: Annotated[int | None, Option(min=1, help="Number of classes [default: as many as labels].")] = None
    seed: Annotated[int, Option(min=0, max=2**31, help="Seed of weights, order and augmentation.")] = 0
    seeds: Annotated[int, Option(min=1, help="Train this many networks, with seeds from --seed on.")] = 1
    precision: Annotated[
        Literal["auto", "fp32", "bf16", "fp16"], Option(help="auto: bf16 or fp16 on a GPU, fp32 on a CPU.")
    ] = "auto"
    save_every: Annotated[float, Option(min=0, help="Minutes between checkpoints within an epoch.")] = 10.0
    workers: Workers = None

    def check(self) -> None:
        check_folder("--out", self.out)
        for path in filter(None, (self.data, self.val)):
            check_images(path)


@command("describe")
@dataclass(frozen=True, kw_only=True)
class Methods(Command):
    """List the methods; with a NAME, its definition, parameters and search space."""

    name: Annotated[str | None, Argument(help="One method, in full: its name or file.py:Class.")] = None


@command("describe")
@dataclass(frozen=True, kw_only=True)
class Check(Command):
    """Check that a method of your own keeps the contract of every method; exit code 2 if it does not."""

    method: Annotated[str, Argument(help="path/to/file.py:Class, or a name.")]


@command("describe")
@dataclass(frozen=True, kw_only=True)
class Env(Command):
    """Versions, devices, precisions and the cache of this installation, for bug reports."""


@command("describe")
@dataclass(frozen=True, kw_only=True)
class Inspect(Command):
    """Show what a detector file holds."""

    file: Annotated[Path, Argument(help="A detector file.")]

    def check(self) -> None:
        check_exists(self.file, "detector file", "make one with adascale fit")


@command("demo")
@dataclass(frozen=True, kw_only=True)
class Demo(Command):
    """The main job, offline, in about a minute: train a small network, fit every method, compare, decide."""

    out: Annotated[Path, Option(help="Folder for the detector, the network and example images.")] = Path(
        "adascale-demo"
    )
    method: Annotated[Texts, Option(help="Only these methods [default: all]; repeatable.")] = None

    def check(self) -> None:
        method_names(self.method or ["all"])
        check_folder("--out", self.out)
        for module in ("sklearn", "matplotlib"):
            optional(module, "demo")
