"""``adascale methods``, ``check``, ``env`` and ``inspect``. PyTorch is imported only where a class is needed."""

from __future__ import annotations

import json
import warnings
from inspect import getdoc
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from adascale.cli.commands import CheckCommand, EnvCommand, InspectCommand, MethodsCommand
from adascale.cli.console import plain_table
from adascale.core.errors import AdascaleWarning, InputError
from adascale.detectors import registry
from adascale.maths.promise import percent
from adascale.network.specs import runs_code
from adascale.storage.remote import check_local

if TYPE_CHECKING:
    from adascale.detectors.base import Detector


def methods(given: MethodsCommand) -> None:
    """Print the list of methods, or one method in full."""
    if given.name is None and not given.as_json:
        table = plain_table("method", "what it is", "fitted on", "passes", "cost")
        for row in registry.facts():
            table.add_row(*row.values())
        Console().print(table)
        return
    chosen = [registry.get(name) for name in (registry.names() if given.name is None else [given.name])]
    print(json.dumps([_described(cls) for cls in chosen]) if given.as_json else _in_full(chosen[0]))


def check(given: CheckCommand) -> None:
    """Run every check of `adascale.testing` and print how it went."""
    cls = registry.get(given.method)
    from adascale.detectors.checks import CHECKS

    results = {check.__name__.strip("_").replace("_", " "): _failure(check, cls) for check in CHECKS}
    if given.as_json:
        print(json.dumps({"method": cls.name, "checks": results}))
    else:
        for name, reason in results.items():
            print(f"failed  {name}: {reason}" if reason else f"ok      {name}")
    if failed := sum(reason is not None for reason in results.values()):
        raise InputError(f"{cls.__name__} fails {failed} of {len(results)} checks.")


def _failure(check: Any, cls: type[Detector]) -> str | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AdascaleWarning)
        try:
            check(cls)
        except AssertionError as error:
            return f"not true: {error}"
        except Exception as error:
            return f"{type(error).__name__}: {' '.join(str(error).split())}"
    return None


def env(given: EnvCommand) -> None:
    """Print what a bug report should contain."""
    from adascale.core import environment

    found = environment.facts()
    if given.as_json:
        print(json.dumps(found))
        return
    table = plain_table()
    for section, entries in found.items():
        table.add_row(section)
        for name, value in entries.items():
            table.add_row(f"  {name}", value)
    Console(highlight=False).print(table)


def inspect(given: InspectCommand) -> None:
    """Print the record of a detector file or an exported file as lines of ``section.name  value``."""
    from adascale.export.formats import SUFFIXES

    if given.file.suffix.lower() in SUFFIXES:
        from adascale.export.engines import read_record

        check_local(given.file, "an exported file")
        record = read_record(Path(str(given.file)))
    else:
        from adascale.decision.detector_file import DetectorFile

        record = DetectorFile.read(given.file).described()
    if given.as_json:
        print(json.dumps(record))
        return
    table = plain_table()
    for section, value in record.items():
        if section == "audit":
            value = {str(number): _audited(one) for number, one in enumerate(value, start=1)}  # --json has all names
        for name, entry in value.items() if isinstance(value, dict) else [("", value)]:
            table.add_row(f"{section}.{name}".rstrip("."), _shown(name, entry))
    if runs_code(spec := str(record.get("about", {}).get("model") or "")):
        table.add_row(
            "runs code", f"{spec.rpartition(':')[0]}, a Python file: score and export need --trust, or --model"
        )
    Console().print(table)


def _shown(name: str, entry: Any) -> str:
    """A text for one line: of a long list, such as the names of classes, the beginning and the length."""
    if name == "range":
        low, high = map(percent, entry)
        return f"{low} to {high} % of fresh in-distribution images are flagged by 90 % of detectors like this one"
    if isinstance(entry, list) and len(entry) > 8:
        return f"{', '.join(map(str, entry[:5]))}, ... ({len(entry)} in all)"
    return "-" if entry is None else str(entry)


def _audited(one: dict[str, Any]) -> str:
    """An entry of the log in words. The record of an exported file has the number of names, not the names."""
    from adascale.decision.audit import AuditEntry

    return str(AuditEntry(**{**one, "names": () if isinstance(one["names"], int) else one["names"]}))


def _described(cls: type[Detector]) -> dict[str, Any]:
    """A method, what it needs and its parameters, as data."""
    return {
        "name": cls.name,
        "summary": cls.summary,
        "fitted_on": registry.FITTED_ON[cls.fits_on],
        "passes": cls.passes,
        "cost": cls.cost,
        "signed_features": cls.signed_features,
        "parameters": cls().parameters,
        "search_space": cls.search_space,
    }


def _in_full(cls: type[Detector]) -> str:
    """The same for people, with the formula."""
    from adascale.detectors.base import Detector
    from adascale.detectors.traits import COSTS, SIGNED_FEATURES

    texts = [doc for part in (cls, *cls.__bases__) if part is not Detector and (doc := getdoc(part))]
    searched = {name: f" (searched: {', '.join(map(str, values))})" for name, values in cls.search_space.items()}
    lines = [f"{name} = {value}{searched.get(name, '')}" for name, value in cls().parameters.items()]
    needs = [
        f"Fitted on: {registry.FITTED_ON[cls.fits_on]}",
        f"Network passes: {cls.passes}",
        f"Cost after the passes: {cls.cost}, {COSTS[cls.cost]}",
        f"Signed features: {SIGNED_FEATURES[cls.signed_features]}",
        "Parameters: " + ("; ".join(lines) or "none"),
    ]
    return "\n\n".join([cls.name, *texts, "\n".join(needs)])
