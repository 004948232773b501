"""What the command line's options mean: texts into parameters, preprocessing and devices, or one clear refusal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from adascale import detectors
from adascale.bench.run import Entry
from adascale.core.errors import InputError
from adascale.decision.tuning import GRIDS, Judge, Point, grid
from adascale.detectors import Detector
from adascale.detectors.configure import configured
from adascale.images.preprocess import Preprocess

PRESET_METHODS = {method for method, *_ in detectors.PRESETS}


def settings(names: list[str], given: list[str], preset: str | None) -> dict[str, dict[str, Any]]:
    """The parameters of each method, from the preset and from ``name=value`` or ``method.name=value``."""
    chosen: dict[str, dict[str, Any]] = {name: {} for name in names}
    for name in names:
        detectors.get(name)
        if preset is not None and (len(names) == 1 or name in PRESET_METHODS):
            data, _, network = preset.partition("/")
            chosen[name] |= detectors.preset(name, data, network)
    if preset is not None and not PRESET_METHODS & set(names):
        raise InputError(f"--preset {preset}: there are presets for {', '.join(sorted(PRESET_METHODS))} only.")
    for setting in given:
        key, _, text = setting.partition("=")
        owner, _, parameter = key.rpartition(".")
        owner = owner or (names[0] if len(names) == 1 else "")
        if owner not in chosen:
            raise InputError(f"--set {setting}: say which method, as in {names[0]}.{parameter}={text}.")
        chosen[owner][parameter] = _value(detectors.get(owner), parameter, text)
    return chosen


def entries(names: list[str], given: list[str], preset: str | None, tune: str) -> Iterator[Entry]:
    """The lines of a benchmark's table: each method as it is (and with the preset), then tuned where asked."""
    names = [part.strip() for name in names for part in name.split(",") if part.strip()]
    names = [cls.name for cls in detectors.ALL] if "all" in names else list(dict.fromkeys(names))
    chosen = settings(names, given, None)
    if preset is not None and not PRESET_METHODS & set(names):
        raise InputError(f"--preset {preset}: there are presets for {', '.join(sorted(PRESET_METHODS))} only.")
    for name in names:
        method = configured(name, chosen[name])
        yield Entry(name, method)
        if preset is not None and name in PRESET_METHODS:
            values = detectors.preset(name, *preset.split("/", 1)) if "/" in preset else {}
            if not values:
                raise InputError(f"--preset {preset}: give DATA/NETWORK, such as imagenet/resnet-50.")
            yield Entry(f"{name} (preset)", replace(method, **values))
        judge: Judge = "self" if tune == "self" else "ood"
        tuned = Entry(
            f"{name} (tuned{' on OOD-val' if judge == 'ood' else ''})", method, judge, frozenset(chosen[name])
        )
        if tune != "none" and tuned.space():
            yield tuned


def points(entry: Entry, text: str | None) -> list[Point]:
    """A grid: the method's own but for what was given, one of the paper's by name, or ``p_min=60,65 p_max=80,85``."""
    method = entry.method
    if text is None:
        return grid(method, entry.space())
    if text in GRIDS:
        if unknown := set(GRIDS[text][0]) - set(method.parameters):
            raise InputError(f"--grid {text} is a grid for AdaSCALE; {method.name} has no {unknown.pop()}.")
        return list(GRIDS[text])
    space: dict[str, list[Any]] = {}
    for part in text.split() or [text]:
        name, _, values = part.partition("=")
        if name not in method.parameters or name in space or not all(values.split(",")):
            known = ", ".join(method.parameters) or "none"
            names = f"NAME=VALUE,VALUE with each NAME once, of {known}"
            raise InputError(f"--grid {text!r}: give {', '.join(GRIDS)} or {names}.")
        space[name] = [_value(type(method), name, value) for value in values.split(",")]
    usable = grid(method, space)
    for name, tried in space.items():
        if useless := [value for value in tried if not any(point[name] == value for point in usable)]:
            raise InputError(f"--grid {text!r}: {method.name} never accepts {name}={useless[0]} here; leave it out.")
    return usable


def preprocess(
    known: Preprocess | None, size: str | None, crop: str | None, mean: str | None, std: str | None
) -> Preprocess:
    """The network's own preprocessing with what was given on the command line in its place."""
    given: dict[str, Any] = {
        "size": _numbers("size", size, int, scalar=True),
        "crop": _numbers("crop", crop, int, scalar=True),
        "mean": _numbers("mean", mean, float),
        "std": _numbers("std", std, float),
    }
    given = {name: value for name, value in given.items() if value is not None}
    if "size" in given:
        given = {"crop": given["size"], **given}
    if known is not None:
        return replace(known, **given)
    if not given:
        raise InputError(
            "How images become this network's input is not known; pass --size, --crop, --mean and --std "
            "(ImageNet networks mostly: --size 256 --crop 224 --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225)."
        )
    if missing := {"size", "mean", "std"} - set(given):
        raise InputError(f"The network's own preprocessing is not known; also pass --{', --'.join(sorted(missing))}.")
    return Preprocess(**given)


def device(name: str) -> torch.device:
    """``auto`` is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # torch has all three for a missing device
        raise InputError(f"--device {name} cannot be used here: {str(error).splitlines()[0]}") from error


def absolute(spec: str) -> str:
    """A network's text that holds from any folder."""
    if spec.startswith("hf:") and Path(spec[3:]).is_dir():
        return f"hf:{Path(spec[3:]).resolve()}"
    file, _, factory = spec.rpartition(":")
    return f"{Path(file).resolve()}:{factory}" if file.endswith(".py") else spec


def check_output(output: Path, names: list[str]) -> None:
    """Before any work: one method writes a file, several a folder that holds no other detectors."""
    if len(names) == 1:
        if output.is_dir():
            raise InputError(f"The output {output} is a folder; name a file.")
    elif output.is_file():
        raise InputError(f"The output {output} is a file; several methods need a folder.")
    elif others := {file.stem for file in output.glob("*.safetensors")} - set(names):
        raise InputError(
            f"The folder {output} holds other files ({', '.join(sorted(others)[:3])}); choose an empty one."
        )


def _value(cls: type[Detector], name: str, text: str) -> Any:
    """The text in the parameter's declared type; an unknown name is refused by the detector itself."""
    declared = {field.name: str(field.type) for field in fields(cls)}.get(name, "str")
    try:
        if declared == "bool":
            return {"true": True, "false": False}[text.lower()]
        if declared.startswith("tuple"):
            return tuple(map(float, text.split(",")))
        if "None" in declared and text.lower() == "none":
            return None
        if declared.startswith(("int", "float")):
            number = float(text)
            return int(number) if number.is_integer() else number
    except (KeyError, ValueError, OverflowError) as error:
        default = next(field.default for field in fields(cls) if field.name == name)
        raise InputError(f"--set {name}={text}: {name} is of type {declared}, such as {default}.") from error
    return text


def _numbers(option: str, text: str | None, kind: type, scalar: bool = False) -> Any:
    if text is None:
        return None
    try:
        values = tuple(kind(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"--{option} {text}: give numbers separated by commas, such as 0.485,0.456,0.406.") from error
    return values[0] if scalar and len(values) == 1 else values
