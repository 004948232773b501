"""Options that several commands share, and how a class of options becomes a command.

Nothing here imports PyTorch, so that ``--help`` and a mistyped call answer at once.
"""

from __future__ import annotations

import importlib
import inspect
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from typer import Argument, Option

from adascale.bench import SUITES
from adascale.cli import checks
from adascale.cli.console import app
from adascale.network import FORMS

if TYPE_CHECKING:
    from adascale.extraction.batches import Passes

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:  # Python 3.10 does not have it

    def dataclass_transform(**_: Any) -> Any:
        return lambda cls: cls


Images = Annotated[
    str, Argument(help="Folder (recursive), image, image list (.txt), .npz, or - for a list.", callback=checks.images)
]
Texts = list[str] | None
SuiteName = Annotated[
    str | None,
    Argument(
        help=f"{', '.join(SUITES)}, or a TOML file; omit it with --id and --near or --far.", callback=checks.suite
    ),
]
Results = Annotated[Path, Option("--out", "-o", help="Folder for the results.", callback=checks.folder)]
Settings = Annotated[Texts, Option("--set", help="A parameter: scale.percentile=80.")]
Workers = Annotated[int | None, Option(min=1, help="Decoding threads [default: one per core, at most 8].")]
Weights = Annotated[Path | None, Option(help="Weights file: .safetensors, or a .pth state dict.")]
Root = Annotated[Path | None, Option(help="Folder where the paths of an image list start [default: its own].")]
Head = Annotated[str | None, Option(help="Name of the last linear layer, if it is not found.")]
Device = Annotated[str, Option(help="cpu, cuda, cuda:1, mps ...; auto takes a GPU where there is one.")]
Compiled = Annotated[bool, Option("--compile", help="torch.compile the network: slow at first, then faster.")]


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Options:
    """A group of options: every subclass is a frozen dataclass whose fields are the options."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)


class PassOptions(Options):
    """How images go through the network."""

    batch_size: Annotated[int, Option(min=1, help="Images per pass.")] = 32
    workers: Workers = None

    def passes(self) -> Passes:
        from adascale.extraction.batches import Passes

        return Passes(self.batch_size, self.workers)


class PreprocessOptions(Options):
    """What replaces parts of the network's own preprocessing."""

    size: Annotated[str | None, Option(help="Resize: shorter side, or HEIGHT,WIDTH.")] = None
    crop: Annotated[str | None, Option(help="Centre crop, the side of the input, or HEIGHT,WIDTH.")] = None
    mean: Annotated[str | None, Option(help="Channel means, e.g. 0.485,0.456,0.406.")] = None
    std: Annotated[str | None, Option(help="Channel standard deviations, e.g. 0.229,0.224,0.225.")] = None


class NetworkOptions(Options):
    """One network."""

    model: Annotated[str, Option(help=f"The network: {FORMS}.")]
    head: Head = None
    device: Device = "auto"


class NetworksOptions(PreprocessOptions):
    """One network or several."""

    model: Annotated[Texts, Option(help=f"The network: {FORMS}, digits, or a networks.json; repeatable.")] = None
    weights: Annotated[
        list[Path] | None, Option("--weights", help="Weights file; one for each --model, or several for one.")
    ] = None
    head: Head = None
    device: Device = "auto"


class ImageOptions(Options):
    """A suite's files or one's own ID images, and how many of them are used."""

    id_images: Annotated[str | None, Option("--id", help="ID test images, as for score; instead of a suite.")] = None
    train: Annotated[str | None, Option(help="Training images for methods that learn from them.")] = None
    data: Annotated[Path | None, Option(help="Where a suite's files are [default: OPENOOD_DATA, ./data].")] = None
    limit: Annotated[int | None, Option(min=1, help="At most so many images of each set, drawn by --seed.")] = None
    seed: Annotated[int, Option(help="Seed of every random draw.")] = 0
    cache: Annotated[
        Path | None,
        Option(help="Folder of the activations [default: ADASCALE_CACHE, ~/.cache].", callback=checks.folder),
    ] = None


class SuiteOptions(ImageOptions):
    """The sets that are compared where no suite names them."""

    val: Annotated[str | None, Option(help="ID images to fit on [default: a fifth of --id].")] = None
    near: Annotated[Texts, Option(help="NAME=PATH of near-OOD images; repeatable.")] = None
    far: Annotated[Texts, Option(help="NAME=PATH of far-OOD images; repeatable.")] = None
    shifted: Annotated[
        Texts, Option(help="NAME=PATH of shifted ID images, or noise:3, rotate:90, all; repeatable.")
    ] = None
    available: Annotated[bool, Option("--available", help="Run what is there; say what is missing.")] = False
    report: Annotated[bool, Option(help="Write report.html, which needs matplotlib.")] = True


class Command(Options):
    """A command. Its name is the class's in lower case, its help the docstring; ``module`` has what it does."""

    as_json: Annotated[bool, Option("--json", help="Print JSON on stdout.")] = False

    def __init_subclass__(cls, module: str) -> None:
        super().__init_subclass__()
        name, hints, own = cls.__name__.lower(), get_type_hints(cls, include_extras=True), inspect.get_annotations(cls)
        order = sorted(fields(cls), key=lambda field: (field.default is not MISSING, field.name not in own))

        def call(**given: Any) -> None:
            getattr(importlib.import_module(f"adascale.cli.{module}"), name)(cls(**given))

        parameters = [_parameter(field.name, field.default, hints[field.name]) for field in order]
        call.__annotations__ = hints
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        app.command(name, help=cls.__doc__)(call)


def _parameter(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if default is MISSING else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
