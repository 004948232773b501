"""The options of the commands for research: benchmarks, studies, training; like `commands`, without PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from adascale.bench import SUITES
from adascale.cli import checks, groups
from adascale.cli.checks import SORTS
from adascale.cli.groups import (
    Command,
    PreprocessOptions,
    ReadOptions,
    Texts,
    WorkerOptions,
    argument,
    option,
)


class BenchCommand(groups.NetworksOptions, groups.SuiteOptions, WorkerOptions, Command, module="bench"):
    """Compare methods on a suite: every method from one network pass per image (and one per view), in one table."""

    suite: groups.SuiteName = None
    out: groups.Results = Path("adascale-bench")
    classes: groups.Classes = None
    method: Texts = groups.methods("all")
    setting: groups.Settings = None
    preset: str | None = option(
        None, "Also run the paper's setting, e.g. imagenet/resnet-50.", check=checks.known_preset
    )
    tune: Literal["default", "none", "self", "ood"] = option(
        "default",
        "default: as fit does; none: nothing is tuned; self, ood: also every method tuned, on outliers made from the "
        "ID images or on the suite's OOD-val.",
    )
    untuned: bool = option(False, "Also run the methods that fit tunes without tuning.", "--untuned")
    sort: str = option("", f"Sort by {SORTS}; or method [default: near-auroc].", check=checks.known_sort)
    top: int | None = option(None, "Show only the first lines; results.csv and .json have all.", min=1)
    figures: Texts = option(None, "Also every figure in OUT/figures: svg, pdf, png.", check=checks.figure_formats)
    columns: Texts = option(
        None, "Columns of the terminal, tables.md and tables.tex, named as for --sort.", check=checks.known_columns
    )


class TuneCommand(groups.NetworksOptions, groups.ImageOptions, WorkerOptions, Command, module="tune"):
    """Choose the parameters of methods on ID images alone, or with OOD validation images, as OpenOOD does."""

    suite: groups.SuiteName = None
    method: Texts = groups.methods("adascale_a")
    grid: str | None = option(
        None, "one-knob, paper, pairs, or 'p_min=60,65 p_max=80,85' [default: the method's search space]."
    )
    setting: groups.Settings = None
    by: Literal["self", "ood"] | None = option(
        None, "Judge by outliers made from the ID images, or by OOD-val [default: ood where there is any]."
    )
    ood_val: Texts = option(None, "NAME=PATH of OOD validation images; repeatable.")
    out: Path | None = option(None, "CSV file for every point and its AUROC.", "--out", "-o", check=checks.writable)


class CompareCommand(Command, module="compare"):
    """Two benchmarks side by side: what moved, what was set differently."""

    first: Path = argument(..., "The results folder of a benchmark.", check=checks.results)
    second: Path = argument(..., "Another one.", check=checks.results)
    every_set: bool = option(False, "Every set, not only the means.", "--all")


class StudyCommand(groups.NetworksOptions, groups.SuiteOptions, WorkerOptions, Command, module="study"):
    """Run the paper's tables and figures, with the published values beside ours; NAME is one of `study list`."""

    names: list[str] = argument(
        ..., "Studies, all, or list to see what there is.", check=checks.known_studies, metavar="NAME..."
    )
    suite: str | None = option(
        None,
        f"{', '.join(SUITES)}, or a TOML file [default: digits, without --model and --id].",
        check=checks.known_suite,
    )
    preset: Texts = option(
        None,
        "What the paper calls the network, e.g. imagenet/resnet-50; one, or one for each network.",
        check=checks.known_preset,
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


class TrainCommand(groups.NetworkOptions, PreprocessOptions, RecipeOptions, ReadOptions, Command, module="train"):
    """Train a network: cross-entropy, ISH or adversarial. The same command resumes where an interrupted one stopped.

    Several GPUs: torchrun --nproc-per-node 4 -m adascale train ... (needs the extra train).
    """

    data: str = option(
        ..., "Folder with a subfolder for each class, image list with labels, or .npz with labels.", check=checks.images
    )
    out: Path = option(Path("adascale-train"), "Folder for the weights.", "--out", "-o", check=checks.folder)
    val: str | None = option(None, "Images like --data, for the accuracy.", check=checks.images)
    root: groups.Root = None
    init: str | None = option(
        None, "Weights file to start from, or pretrained for the source's own [default: random].", check=checks.start
    )
    classes: int | None = option(None, "Number of classes [default: as many as labels].", min=1)
    seed: int = option(0, "Seed of weights, order and augmentation.", min=0, max=2**31)
    seeds: int = option(1, "Train this many networks, with seeds from --seed on.", min=1)
    precision: Literal["auto", "fp32", "bf16", "fp16"] = option("auto", "auto: bf16 or fp16 on a GPU, fp32 on a CPU.")
    save_every: float = option(10.0, "Minutes between checkpoints within an epoch.", min=0)
    workers: groups.Workers = None
