"""Options that several commands share, and how a class of options becomes a command.

Nothing here imports PyTorch, so that ``--help`` and a mistyped call answer at once.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

from typer import Argument, Option

from adascale.bench import SUITES
from adascale.cli import checks
from adascale.cli.console import app
from adascale.core.errors import InputError
from adascale.images.limits import MAX_PIXELS
from adascale.network import FORMS

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform

    from adascale.extraction.batches import Passes
    from adascale.storage.remote import Place as Place
else:  # Python 3.10 does not have it

    def dataclass_transform(**_: Any) -> Any:
        return lambda cls: cls

    class Place:  # typer takes one type only, shows its name, and leaves what our parser makes as it is
        pass


Images = Annotated[
    list[str],
    Argument(
        help="Folders (recursive), images, globs, image lists (.txt), .npz, .tar, .parquet, or URLs of them (s3://); "
        "hf-dataset:NAME#SPLIT; - is an image or a list on stdin.",
        callback=checks.images,
    ),
]
DetectorFile = Annotated[
    Place,
    Argument(help="A detector file.", callback=checks.detector_files, parser=checks.place, metavar="DETECTOR"),
]
Texts = list[str] | None
SuiteName = Annotated[
    str | None,
    Argument(
        help=f"{', '.join(SUITES)}, or a TOML file; omit it with --id and --near or --far.", callback=checks.known_suite
    ),
]
Results = Annotated[Path, Option("--out", "-o", help="Folder for the results.", callback=checks.folder)]
Settings = Annotated[
    Texts,
    Option(
        "--set", help="A parameter: p_max=90; of one of several methods: scale.percentile=80.", callback=checks.settings
    ),
]
Workers = Annotated[int | None, Option(min=1, help="Decoding threads [default: one per core, at most 8; 16 for URLs].")]
Weights = Annotated[
    Path | None, Option(help="Weights file: .safetensors, or a .pth state dict.", callback=checks.weights)
]
Classes = Annotated[
    Path | None,
    Option(
        help="Class names: a file with a line for each, a JSON list, or a JSON object from index to name.",
        callback=checks.class_file,
    ),
]
Root = Annotated[
    Place | None,
    Option(
        help="Folder where the paths of an image list start [default: its own].", parser=checks.place, metavar="DIR"
    ),
]
Confidence = Annotated[
    float | None,
    Option(help="0.95: at most alpha with 95 % confidence, not only on average.", callback=checks.confidence),
]
Head = Annotated[str | None, Option(help="Name of the last linear layer, if it is not found.")]
Device = Annotated[
    str, Option(help="cpu, cuda, cuda:1, mps ...; auto takes a GPU where there is one.", callback=checks.device)
]
Compiled = Annotated[bool, Option("--compile", help="torch.compile the network: slow at first, then faster.")]
Engine = Annotated[
    Literal["torch", "onnxruntime", "openvino"],
    Option(help="What runs the network, on a processor; gradients are torch's.", callback=checks.engine),
]


def option(default: Any, text: str, *names: str, check: Callable[[Any], Any] | None = None, **more: Any) -> Any:
    """An option of one command. default: ``...`` where it must be given. text: its help. check: see `checks`."""
    return _declared(default, Option(*names, help=text, callback=check, **more))


def place(default: Any, text: str, *names: str, check: Callable[[Any], Any] | None = None) -> Any:
    """An option that is a local path or a URL."""
    return option(default, text, *names, check=check, parser=checks.place, metavar="PATH")


def argument(default: Any, text: str, check: Callable[[Any], Any] | None = None, **more: Any) -> Any:
    """The same for an argument, which is given by its position."""
    return _declared(default, Argument(help=text, callback=check, **more))


def methods(default: str) -> Any:
    """The methods that a command works with. default: those that it takes where none is named, in words."""
    text = f"Names (see adascale methods), file.py:Class, or all; repeatable, or with commas [default: {default}]."
    return option(None, text, "--method", check=checks.known_methods)


def _declared(default: Any, typer_info: Any) -> Any:
    return field(default=MISSING if default is ... else default, metadata={"typer": typer_info})


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Options:
    """A group of options: every subclass is a frozen dataclass whose fields are the options."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)


class PassOptions(Options):
    """How images go through the network."""

    batch_size: int = option(32, "Images per pass.", min=1)
    workers: Workers = None

    def passes(self) -> Passes:
        from adascale.extraction.batches import Passes

        return Passes(self.batch_size, self.workers)


class WorkerOptions(PassOptions):
    """Who makes the passes: this process, or workers (docs/cluster.md)."""

    on: Literal["local", "ray"] | None = option(
        None, "Let workers do it: processes of this machine (local) or a Ray cluster (ray).", check=checks.executor
    )
    workers: int | None = option(
        None,
        "Decoding threads [default: one per core, at most 8; 16 for URLs]; with --on, the workers.",
        min=1,
    )
    address: str | None = option(None, "The Ray cluster [default: RAY_ADDRESS, else that of this machine].")
    cpus_per_worker: int = option(1, "CPUs of a worker: its threads, and what it asks Ray for.", min=1)
    gpus_per_worker: float = option(0.0, "GPUs that a worker asks Ray for, e.g. 1 or 0.5.", min=0)

    def __post_init__(self) -> None:
        if self.on is None and (self.cpus_per_worker != 1):
            raise InputError("--cpus-per-worker is for workers; say whose: --on local or --on ray.")
        if self.on != "ray" and (self.address or self.gpus_per_worker):
            given = f"--address {self.address}" if self.address else f"--gpus-per-worker {self.gpus_per_worker:g}"
            raise InputError(f"{given} is for a Ray cluster; add --on ray.")

    def passes(self) -> Passes:
        """Those of one worker, if there are any."""
        from adascale.extraction.batches import Passes

        return Passes(self.batch_size, self.workers if self.on is None else self.cpus_per_worker)


class ReadOptions(Options):
    """What is read of images from files."""

    max_pixels: int = option(MAX_PIXELS, "Pictures with more pixels are not decoded; their rows say so.", min=1)


class PreprocessOptions(Options):
    """What replaces parts of the network's own preprocessing."""

    size: str | None = option(None, "Resize: shorter side, or HEIGHT,WIDTH.", check=checks.side("size"))
    crop: str | None = option(None, "Centre crop, the side of the input, or HEIGHT,WIDTH.", check=checks.side("crop"))
    mean: str | None = option(None, "Channel means, e.g. 0.485,0.456,0.406.", check=checks.channels("mean"))
    std: str | None = option(
        None, "Channel standard deviations, e.g. 0.229,0.224,0.225.", check=checks.channels("std", above=0)
    )


class NetworkOptions(Options):
    """One network."""

    model: str = option(..., f"The network: {FORMS}.", check=checks.networks)
    head: Head = None
    device: Device = "auto"


class TrustOptions(Options):
    """The network of a detector file, which names it."""

    model: str | None = option(None, "The network, if it moved since fit.", check=checks.networks)
    weights: Weights = None
    trust: bool = option(False, "Run the Python file that the detector file names as its network.", "--trust")


class NetworksOptions(PreprocessOptions):
    """One network or several."""

    model: Texts = option(None, f"The network: {FORMS}, digits, or a networks.json; repeatable.", check=checks.networks)
    weights: list[Path] | None = option(
        None, "Weights file; one for each --model, or several for one.", "--weights", check=checks.weights
    )
    head: Head = None
    device: Device = "auto"
    engine: Engine = "torch"


class ImageOptions(ReadOptions):
    """A suite's files or one's own ID images, and how many of them are used."""

    id_images: str | None = option(None, "ID test images, as for score; instead of a suite.", "--id")
    train: str | None = option(None, "Training images for methods that learn from them.")
    data: Path | None = option(None, "Where a suite's files are [default: OPENOOD_DATA, ./data].")
    limit: int | None = option(None, "At most so many images of each tested set, drawn by --seed.", min=1)
    limit_fit: int | None = option(
        None, "At most so many validation and training images [default: all; --limit leaves them alone].", min=1
    )
    seed: int = option(0, "Seed of every random draw.", min=0)
    cache: Place | None = place(
        None, "Folder of the activations [default: ADASCALE_CACHE, ~/.cache].", check=checks.no_file
    )
    cache_limit: str | None = option(
        None,
        "The most that it keeps afterwards, e.g. 20GB, or none [default: ADASCALE_CACHE_LIMIT, 50GB].",
        check=checks.cache_limit,
    )


class SuiteOptions(ImageOptions):
    """The sets that are compared where no suite names them."""

    val: str | None = option(None, "ID images to fit on [default: a fifth of --id].")
    near: Texts = option(None, "NAME=PATH of near-OOD images; repeatable.")
    far: Texts = option(None, "NAME=PATH of far-OOD images; repeatable.")
    shifted: Texts = option(None, "NAME=PATH of shifted ID images, or noise:3, rotate:90, all; repeatable.")
    available: bool = option(False, "Run what is there; say what is missing.", "--available")
    report: bool = option(True, "Write report.html, which needs matplotlib.")


class Command(Options):
    """A command. Its name is the class's in lower case, its help the docstring; ``module`` has what it does."""

    as_json: bool = option(False, "Print one JSON document on stdout.", "--json")

    def __init_subclass__(cls, module: str) -> None:
        super().__init_subclass__()
        name, own = cls.__name__.removesuffix("Command").lower(), inspect.get_annotations(cls)
        hints = get_type_hints(cls, include_extras=True)
        parameters = []
        for one in sorted(fields(cls), key=lambda one: (one.default is not MISSING, one.name not in own)):
            if info := one.metadata.get("typer"):
                hints[one.name] = Annotated[hints[one.name], info]
            default = inspect.Parameter.empty if one.default is MISSING else one.default
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter(one.name, kind, default=default, annotation=hints[one.name]))

        def call(**given: Any) -> None:
            made = cls(**given)  # before the import, because options may contradict each other
            getattr(importlib.import_module(f"adascale.cli.{module}"), name)(made)

        call.__annotations__ = hints
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        app.command(name, help=cls.__doc__)(call)
