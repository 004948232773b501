"""Options that several commands share, how a class of options becomes a command, and checks before the work.

Nothing here imports PyTorch, so that ``--help`` and a mistyped call answer at once.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

from typer import Argument, Option

from adascale.bench import SUITES
from adascale.cli.console import app
from adascale.core.errors import InputError
from adascale.core.extras import optional
from adascale.network import FORMS

if TYPE_CHECKING:
    from adascale.extraction.batches import Passes

Images = Annotated[str, Argument(help="Folder (recursive), image, image list (.txt), .npz, or - for a list.")]
Texts = list[str] | None
SuiteName = Annotated[
    str | None, Argument(help=f"{', '.join(SUITES)}, or a TOML file; omit it with --id and --near or --far.")
]
Results = Annotated[Path, Option("--out", "-o", help="Folder for the results.")]
Settings = Annotated[Texts, Option("--set", help="A parameter: scale.percentile=80.")]
Workers = Annotated[int | None, Option(min=1, help="Decoding threads [default: one per core, at most 8].")]
Root = Annotated[Path | None, Option(help="Folder where the paths of an image list start [default: its own].")]
Head = Annotated[str | None, Option(help="Name of the last linear layer, if it is not found.")]
Device = Annotated[str, Option(help="cpu, cuda, cuda:1, mps ...; auto takes a GPU where there is one.")]
Compiled = Annotated[bool, Option("--compile", help="torch.compile the network: slow at first, then faster.")]


@dataclass(frozen=True, kw_only=True)
class Command:
    """What every command has. `check` refuses mistakes that can be seen without PyTorch."""

    as_json: Annotated[bool, Option("--json", help="Print JSON on stdout.")] = False

    def check(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class PassOptions:
    """How images go through the network."""

    batch_size: Annotated[int, Option(min=1, help="Images per pass.")] = 32
    workers: Workers = None

    def passes(self) -> Passes:
        from adascale.extraction.batches import Passes

        return Passes(self.batch_size, self.workers)


@dataclass(frozen=True, kw_only=True)
class PreprocessOptions:
    """What replaces parts of the network's own preprocessing."""

    size: Annotated[str | None, Option(help="Resize: shorter side, or HEIGHT,WIDTH.")] = None
    crop: Annotated[str | None, Option(help="Centre crop, the side of the input, or HEIGHT,WIDTH.")] = None
    mean: Annotated[str | None, Option(help="Channel means, e.g. 0.485,0.456,0.406.")] = None
    std: Annotated[str | None, Option(help="Channel standard deviations, e.g. 0.229,0.224,0.225.")] = None


@dataclass(frozen=True, kw_only=True)
class NetworkOptions:
    """One network."""

    model: Annotated[str, Option(help=f"The network: {FORMS}.")]
    head: Head = None
    device: Device = "auto"


@dataclass(frozen=True, kw_only=True)
class NetworksOptions(PreprocessOptions):
    """One network or several."""

    model: Annotated[Texts, Option(help=f"The network: {FORMS}, digits, or a networks.json; repeatable.")] = None
    weights: Annotated[
        list[Path] | None, Option("--weights", help="Weights file; one for each --model, or several for one.")
    ] = None
    head: Head = None
    device: Device = "auto"


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """A suite's files or one's own ID images, and how many of them are used."""

    id_images: Annotated[str | None, Option("--id", help="ID test images, as for score; instead of a suite.")] = None
    train: Annotated[str | None, Option(help="Training images for methods that learn from them.")] = None
    data: Annotated[Path | None, Option(help="Where a suite's files are [default: OPENOOD_DATA, ./data].")] = None
    limit: Annotated[int | None, Option(min=1, help="At most so many images of each set, drawn by --seed.")] = None
    seed: Annotated[int, Option(help="Seed of every random draw.")] = 0
    cache: Annotated[Path | None, Option(help="Folder of the activations [default: ADASCALE_CACHE, ~/.cache].")] = None


@dataclass(frozen=True, kw_only=True)
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


Registered = TypeVar("Registered", bound=type[Command])


def command(module: str) -> Callable[[Registered], Registered]:
    """Register a command: its options are the fields of the class, its help is the docstring."""

    def register(cls: Registered) -> Registered:
        name, hints = cls.__name__.lower(), get_type_hints(cls, include_extras=True)
        own = inspect.get_annotations(cls)
        order = sorted(fields(cls), key=lambda field: (field.default is not MISSING, field.name not in own))

        def call(**given: Any) -> None:
            options = cls(**given)
            options.check()
            getattr(importlib.import_module(f"adascale.cli.{module}"), name)(options)

        call.__annotations__ = hints
        call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [_parameter(field.name, field.default, hints[field.name]) for field in order]
        )
        app.command(name, help=cls.__doc__)(call)
        return cls

    return register


def _parameter(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if default is MISSING else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def method_names(texts: list[str]) -> list[str]:
    """The methods asked for, each once; ``all`` is every method. An unknown one is refused."""
    from adascale.detectors import registry

    names = list(dict.fromkeys(part.strip() for text in texts for part in text.split(",") if part.strip()))
    known = registry.names()
    if "all" in names:
        return known
    for name in names:
        if name not in known:
            registry.get(name)
    return names


def check_exists(path: Path, what: str, advice: str) -> None:
    if not path.exists():
        raise InputError(f"There is no {what} {path}; {advice}.")


def check_images(source: str) -> None:
    if source != "-":
        check_exists(Path(source), "file or folder", "give a folder, an image, an image list or an .npz")


def check_folder(option: str, path: Path | None) -> None:
    if path is not None and path.exists() and not path.is_dir():
        raise InputError(f"{option} {path} is a file; give a folder.")


def check_run(suite: str | None, given: ImageOptions, out: Path | None) -> None:
    """What ``bench``, ``tune`` and ``study`` can refuse before the work."""
    from adascale.bench.suites import load_suite

    if isinstance(given, SuiteOptions) and given.report:
        optional("matplotlib", "report")
    check_folder("--out", out)
    check_folder("--cache", given.cache)
    if suite is not None:
        load_suite(suite, given.data)
