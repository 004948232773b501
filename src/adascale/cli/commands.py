"""The commands and their options. What a command does is the function of its name in the module that it names.

Nothing here imports PyTorch, so that ``--help`` and a mistyped call answer at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from adascale.bench import SUITES
from adascale.cli import checks, groups
from adascale.cli.groups import Command, PassOptions, PreprocessOptions, Texts, Weights


class Fit(groups.NetworkOptions, PreprocessOptions, PassOptions, Command, module="fit"):
    """Learn from in-distribution images and write a detector file."""

    images: groups.Images
    output: Annotated[Path, Option("--output", "-o", help="Detector file; a folder for several methods.")]
    weights: Weights = None
    method: Annotated[
        Texts, Option(help="See adascale methods, or file.py:Class; repeatable.", callback=checks.methods)
    ] = None
    setting: Annotated[Texts, Option("--set", help="A parameter: p_max=90, scale.percentile=80.")] = None
    preset: Annotated[str | None, Option(help="The paper's setting, e.g. imagenet/resnet-50.")] = None
    train: Annotated[
        str | None, Option(help="Training images, for methods that learn from them.", callback=checks.images)
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
    root: groups.Root = None
    precision: Annotated[str | None, Option(help="bf16 or fp16: faster on some hardware; scores change slightly.")] = (
        None
    )
    compiled: groups.Compiled = False
    draft: Annotated[bool, Option("--draft", help="Decode large JPEGs at a fraction of their size: faster.")] = False


class Score(PassOptions, Command, module="fit"):
    """Score, p-value and decision for each image."""

    images: groups.Images
    detector: Annotated[
        list[Path],
        Option("--detector", "-d", help="Detector file, or a folder of them.", callback=checks.detector_files),
    ]
    output: Annotated[
        Path | None, Option("--output", "-o", help="scores.csv, .jsonl or .parquet [default: stdout].")
    ] = None
    decide: Annotated[bool, Option("--decide", help="Only the decisions, at about the price of a forward pass.")] = (
        False
    )
    model: Annotated[str | None, Option(help="The network, if it moved since fit.")] = None
    weights: Weights = None
    method: Annotated[
        Texts, Option(help="file.py:Class of your own method, if a detector has one.", callback=checks.methods)
    ] = None
    root: groups.Root = None
    device: groups.Device = "auto"
    compiled: groups.Compiled = False


class Bench(groups.NetworksOptions, groups.SuiteOptions, PassOptions, Command, module="bench"):
    """Compare methods on a suite: every method from one network pass per image (and one per view), in one table."""

    suite: groups.SuiteName = None
    out: groups.Results = Path("adascale-bench")
    methods: Annotated[
        Texts, Option(help="Names or file.py:Class, repeatable or with commas [default: all].", callback=checks.methods)
    ] = None
    setting: groups.Settings = None
    preset: Annotated[str | None, Option(help="Also run the paper's setting, e.g. imagenet/resnet-50.")] = None
    tune: Annotated[
        Literal["none", "self", "ood"],
        Option(help="Also run tuned methods: on outliers made from the ID images, or on the suite's OOD-val."),
    ] = "none"


class Tune(groups.NetworksOptions, groups.ImageOptions, PassOptions, Command, module="bench"):
    """Choose a method's parameters on ID images alone, or with OOD validation images, as OpenOOD does."""

    suite: groups.SuiteName = None
    method: Annotated[str, Option(help="See adascale methods, or file.py:Class.", callback=checks.methods)] = (
        "adascale_a"
    )
    grid: Annotated[
        str | None,
        Option(help="one-knob, paper, pairs, or 'p_min=60,65 p_max=80,85' [default: the method's search space]."),
    ] = None
    setting: groups.Settings = None
    by: Annotated[
        Literal["self", "ood"] | None,
        Option(help="Judge by outliers made from the ID images, or by OOD-val [default: ood where there is any]."),
    ] = None
    ood_val: Annotated[Texts, Option(help="NAME=PATH of OOD validation images; repeatable.")] = None
    out: Annotated[Path | None, Option("--out", "-o", help="CSV file for every point and its AUROC.")] = None


class Compare(Command, module="bench"):
    """Two benchmarks side by side: what moved, what was set differently."""

    first: Annotated[Path, Argument(help="The results folder of a benchmark.", callback=checks.results)]
    second: Annotated[Path, Argument(help="Another one.", callback=checks.results)]
    every_set: Annotated[bool, Option("--all", help="Every set, not only the means.")] = False


class Study(groups.NetworksOptions, groups.SuiteOptions, PassOptions, Command, module="study"):
    """Run the paper's tables and figures, with the published values beside ours; NAME is one of `study list`."""

    names: Annotated[list[str], Argument(metavar="NAME...", help="Studies, all, or list to see what there is.")]
    suite: Annotated[
        str | None,
        Option(
            help=f"{', '.join(SUITES)}, or a TOML file [default: digits, without --model and --id].",
            callback=checks.suite,
        ),
    ] = None
    preset: Annotated[
        Texts,
        Option(help="What the paper calls the network, e.g. imagenet/resnet-50; one, or one for each network."),
    ] = None
    out: groups.Results = Path("adascale-study")
    setting: groups.Settings = None


class RecipeOptions(groups.Options):
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


class Train(groups.NetworkOptions, PreprocessOptions, RecipeOptions, Command, module="train"):
    """Train a network: cross-entropy, ISH or adversarial. The same command resumes where an interrupted one stopped.

    Several GPUs: torchrun --nproc-per-node 4 -m adascale train ... (needs the extra train).
    """

    data: Annotated[
        str,
        Option(
            help="Folder with a subfolder for each class, image list with labels, or .npz with labels.",
            callback=checks.images,
        ),
    ]
    out: Annotated[Path, Option("--out", "-o", help="Folder for the weights.", callback=checks.folder)] = Path(
        "adascale-train"
    )
    val: Annotated[str | None, Option(help="Images like --data, for the accuracy.", callback=checks.images)] = None
    root: groups.Root = None
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
    workers: groups.Workers = None


class Methods(Command, module="describe"):
    """List the methods; with a NAME, its definition, parameters and search space."""

    name: Annotated[str | None, Argument(help="One method, in full: its name or file.py:Class.")] = None


class Check(Command, module="describe"):
    """Check that a method of your own keeps the contract of every method; exit code 2 if it does not."""

    method: Annotated[str, Argument(help="path/to/file.py:Class, or a name.")]


class Env(Command, module="describe"):
    """Versions, devices, precisions and the cache of this installation, for bug reports."""


class Inspect(Command, module="describe"):
    """Show what a detector file holds."""

    file: Annotated[Path, Argument(help="A detector file.", callback=checks.detector_file)]


class Demo(Command, module="demo"):
    """The main job, offline, in about a minute: train a small network, fit every method, compare, decide."""

    out: Annotated[Path, Option(help="Folder for everything.", callback=checks.folder)] = Path("adascale-demo")
    method: Annotated[Texts, Option(help="Only these methods [default: all]; repeatable.", callback=checks.methods)] = (
        None
    )
