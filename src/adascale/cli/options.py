"""Texts of the command line as parameters, grids and preprocessing, or one clear refusal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from adascale import detectors
from adascale.bench.run import Entry
from adascale.cli.checks import method_names, numbers
from adascale.cli.groups import PreprocessOptions
from adascale.core.errors import InputError
from adascale.decision.tuning import GRIDS, Judge, Point, grid
from adascale.detectors import Detector
from adascale.detectors.configure import configured
from adascale.images.preprocess import Preprocess

PRESET_METHODS = {method for method, *_ in detectors.PRESETS}


def settings(methods: Mapping[str, str], given: list[str], preset: str | None) -> dict[str, dict[str, Any]]:
    """The parameters of each method, from the preset and from ``name=value`` or ``method.name=value``.

    methods: name -> how it was given (a name, or file.py:Class).
    """
    chosen: dict[str, dict[str, Any]] = {name: {} for name in methods}
    if preset is not None:
        for name, values in _presets(methods, preset).items():
            chosen[name] |= values
    for setting in given:
        key, _, text = setting.partition("=")
        owner, _, parameter = key.rpartition(".")
        owner = owner or (next(iter(methods)) if len(methods) == 1 else "")
        if owner not in chosen:
            raise InputError(f"--set {setting}: say which method, as in {next(iter(methods))}.{parameter}={text}.")
        chosen[owner][parameter] = _value(detectors.get(methods[owner]), parameter, text)
    return chosen


def _presets(names: Iterable[str], preset: str) -> dict[str, dict[str, float]]:
    data, _, network = preset.partition("/")
    if found := {name: detectors.preset(name, data, network) for name in names if name in PRESET_METHODS}:
        return found
    raise InputError(f"--preset {preset}: there are presets for {', '.join(sorted(PRESET_METHODS))} only.")


def entries(
    texts: list[str], given: list[str], preset: str | None, tune: str, untuned: bool = False
) -> Iterator[Entry]:
    """The lines of a benchmark's table: each method as ``fit`` deploys it, then with the preset and tuned where asked.

    A method that ``fit`` tunes has a line without tuning if that, or tuned lines of every method, were asked for.
    """
    methods = {detectors.get(text).name: text for text in method_names(texts)}
    chosen = settings(methods, given, None)
    presets = _presets(methods, preset) if preset is not None else {}
    for name, text in methods.items():
        method, kept = configured(text, chosen[name]), frozenset(chosen[name])
        deployed = Entry.as_deployed(method, kept) if tune != "none" else None
        first = name if deployed is None else deployed.label
        if deployed is None or untuned or tune in ("self", "ood"):
            yield Entry(name, method, twin=first)
        if name in presets:
            yield Entry(f"{name} (preset)", replace(method, **presets[name]))
        if deployed is not None:
            yield deployed
        judge: Judge = "self" if tune == "self" else "ood"
        label = f"{name} (tuned{' on OOD-val' if judge == 'ood' else ''})"
        tuned = Entry(label, method, judge, kept, twin=first)
        if tune in ("self", "ood") and tuned.space() and label != first:
            yield tuned


def searched(texts: list[str], given: list[str]) -> Iterator[Entry]:
    """The methods whose parameters are searched; what was given is kept."""
    methods = {detectors.get(text).name: text for text in method_names(texts)}
    for name, values in settings(methods, given, None).items():
        yield Entry(name, configured(methods[name], values), given=frozenset(values))


def points(entry: Entry, text: str | None) -> list[Point]:
    """A grid: the method's search space without what was given, a grid of the paper, or ``p_min=60,65 p_max=80``."""
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


def preprocess(known: Preprocess | None, look: PreprocessOptions) -> Preprocess:
    """The network's own preprocessing with what was given on the command line in its place."""
    kinds = {"size": int, "crop": int, "mean": float, "std": float}
    texts = {name: text for name in kinds if (text := getattr(look, name)) is not None}
    given = {name: numbers(name, text, kinds[name]) for name, text in texts.items()}
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


def _value(cls: type[Detector], name: str, text: str) -> Any:
    """The text in the parameter's declared type; an unknown name is refused by the detector itself."""
    declared = {field.name: str(field.type) for field in fields(cls)}.get(name, "str")
    try:
        if "None" in declared and text.lower() == "none":
            return None
        if declared.startswith("bool"):
            return {"true": True, "false": False}[text.lower()]
        if declared.startswith("tuple[str"):
            return tuple(part.strip() for part in text.split(",") if part.strip())
        if declared.startswith("tuple"):
            return tuple(map(float, text.split(",")))
        if declared.startswith(("int", "float")):
            number = float(text)
            return int(number) if number.is_integer() else number
    except (KeyError, ValueError, OverflowError) as error:
        default = next(field.default for field in fields(cls) if field.name == name)
        example = default if default is not None else cls.search_space.get(name, (default,))[0]
        raise InputError(f"--set {name}={text}: {name} is of type {declared}, such as {example}.") from error
    return text
