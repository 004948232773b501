"""Which methods there are: ours, those of installed packages, those registered at run time and those in a file.

This module does not import torch; `facts` reads our methods' declarations from their source.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, fields
from functools import cache
from importlib import metadata
from inspect import isabstract
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from adascale.core.errors import AdascaleError, InputError
from adascale.core.modules import load_file
from adascale.core.suggestions import meant
from adascale.core.version import __version__

if TYPE_CHECKING:
    from adascale.detectors.base import Detector

    Method = TypeVar("Method", bound=type[Detector])

ENTRY_POINTS = "adascale.detectors"
PACKAGE = "adascale.detectors"
# Our methods, in the order of every list: name -> module of this package and class.
OURS = {
    "combined": "combined:Combined",
    "adascale_a": "adascale:AdaSCALE_A",
    "adascale_l": "adascale:AdaSCALE_L",
    "scale": "scale:SCALE",
    "lts": "lts:LTS",
    "msp": "msp:MSP",
    "mls": "mls:MLS",
    "ebo": "ebo:EBO",
    "odin": "odin:ODIN",
    "iodin": "iodin:IODIN",
    "temp_scale": "temp_scale:TempScale",
    "entropy": "entropy:Entropy",
    "gen": "gen:GEN",
    "gradnorm": "gradnorm:GradNorm",
    "grad_uncertainty": "grad_uncertainty:GradUncertainty",
    "react": "react:ReAct",
    "ash_p": "ash:ASH_P",
    "ash_b": "ash:ASH_B",
    "ash_s": "ash:ASH_S",
    "bfact": "bfact:BFAct",
    "vra": "vra:VRA",
    "laps": "laps:LAPS",
    "optfs": "optfs:OptFS",
    "dice": "dice:DICE",
    "line": "line:LINe",
    "nnguide": "nnguide:NNGuide",
    "knn": "knn:KNN",
    "cfood": "cfood:CFOOD",
    "mds": "mds:MDS",
    "mds_odin": "mds_odin:MDSODIN",
    "rmds": "rmds:RMDS",
    "mahalanobis_pp": "mahalanobis_pp:MahalanobisPP",
    "mds_ensemble": "mds_ensemble:MDSEnsemble",
    "gmm": "gmm:GMM",
    "class_gmm": "class_gmm:ClassGMM",
    "vim": "vim:ViM",
    "residual": "vim:Residual",
    "neco": "neco:NECO",
    "sirc": "sirc:SIRC",
    "pnml": "pnml:PNML",
    "klm": "klm:KLM",
    "she": "she:SHE",
    "fdbd": "fdbd:FDBD",
    "nci": "nci:NCI",
    "relation": "relation:Relation",
    "caref": "cadref:CARef",
    "cadref": "cadref:CADRef",
    "openmax": "openmax:OpenMax",
    "weiper": "weiper:WeiPer",
    "gram": "gram:Gram",
    "combood": "combood:CombOOD",
    "nac": "nac:NAC",
    "gaia_z": "gaia:GAIA_Z",
    "gaia_a": "gaia:GAIA_A",
    "rankfeat": "rankfeat:RankFeat",
    "mc_dropout": "mc_dropout:MCDropout",
    "activation_shift": "adascale:ActivationShift",
}
FITTED_ON = {
    "nothing": "nothing",
    "val": "a few ID images",
    "val+labels": "a few ID images, labels",
    "train": "training images",
    "train+labels": "training images, labels",
    "val+train": "ID images, and training images for members that need labels",
}

_SHOWN = ("summary", "fits_on", "passes", "cost")
REGISTERED: dict[str, type[Detector]] = {}
_files: dict[Path, tuple[int, ModuleType]] = {}  # loaded files, with the time of their last change


def get(name: str) -> type[Detector]:
    """The class of a method, e.g. ``get("scale")(percentile=85)``.

    ``name``: one of `names`, or ``path/to/file.py:ClassName`` for a class in a file, which is run.
    """
    if name in REGISTERED:
        return REGISTERED[name]
    if name in OURS:
        return ours(name)
    file, _, class_name = name.rpartition(":")
    if file:
        return _in_file(Path(file), class_name)
    if name in (installed := _installed()):
        return _loaded(installed[name])
    known = names()
    rest = f"Choose one of {', '.join(known)}, or give path/to/file.py:ClassName."
    raise InputError(f"There is no method {name!r}{meant(name, known)} {rest}")


def check_loaded(text: str) -> None:
    """Refuse a method in a file that this process has not loaded: a saved detector must not run what it names."""
    file, _, class_name = text.rpartition(":")
    if file and text not in names() and Path(file).resolve() not in _files:
        raise InputError(f"It uses {class_name} of {file}, which is not loaded; call detectors.get({text!r}) first.")


def register(cls: Method) -> Method:
    """Make a class of your own available under its name in this process. Can be used as a decorator."""
    checked(cls)
    before = REGISTERED.get(cls.name)
    same = before is None or (before.__module__, before.__qualname__) == (cls.__module__, cls.__qualname__)
    if cls.name in OURS or not same:
        raise InputError(f"{cls.__name__} has the name {cls.name!r}, which is taken by another method; choose another.")
    REGISTERED[cls.name] = cls
    return cls


def names() -> list[str]:
    """The names of all methods: ours, then those registered in this process, then those of installed packages."""
    return list(dict.fromkeys([*OURS, *REGISTERED, *_installed()]))


@cache
def ours(name: str) -> type[Detector]:
    """One of our own methods, imported when it is first asked for."""
    module, _, class_name = OURS[name].partition(":")
    found: type[Detector] = getattr(importlib.import_module(f"{PACKAGE}.{module}"), class_name)
    return found


def checked(cls: Any) -> type[Detector]:
    """The class, or one sentence about what it lacks to be a method."""
    from adascale.detectors.base import Detector

    if not (isinstance(cls, type) and issubclass(cls, Detector)):
        raise InputError(f"{getattr(cls, '__name__', cls)} is not a method; a method is a subclass of Detector.")
    for attribute in ("name", "summary"):
        value = getattr(cls, attribute, None)
        if not (isinstance(value, str) and value):
            raise InputError(f'{cls.__name__} has no {attribute}; write {attribute} = "..." in the body of the class.')
    if isabstract(cls):
        raise InputError(f"{cls.__name__} does not define {', '.join(sorted(cls.__abstractmethods__))}.")
    if "__dataclass_fields__" not in vars(cls):
        raise InputError(f"{cls.__name__} is not a dataclass; write @dataclass above the class.")
    for field in fields(cls):
        if field.init and field.default is MISSING and field.default_factory is MISSING:
            raise InputError(f"{cls.__name__} has no default for {field.name}; every parameter needs one.")
    return cls


def origin(cls: type[Detector]) -> dict[str, str | None]:
    """Where a method comes from: module (or path of the file), class, and the package that holds it, with version."""
    module = cls.__module__
    file = next((str(path) for path, (_, loaded) in _files.items() if loaded.__name__ == module), None)
    package = None if file else _package(module)
    version = __version__ if package == "adascale" else metadata.version(package) if package else None
    return {"module": file or module, "class": cls.__qualname__, "package": package, "version": version}


def from_origin(record: Mapping[str, Any], *, run: bool = False) -> type[Detector]:
    """The class that `origin` described, or one sentence about what to install or pass.

    Found are our methods, those of installed packages in the entry-point group, registered classes, and classes of
    files and modules that this process has loaded. ``run=True`` also runs the file, or imports the module, that the
    record names; do so only for records you trust.
    """
    module, class_name = str(record["module"]), str(record["class"])
    place, said = f"{module}:{class_name}", f"The detector was made with {class_name} of {module}"
    for cls in REGISTERED.values():
        if (cls.__module__, cls.__qualname__) == (module, class_name):
            return cls
    for name, ours_at in OURS.items():
        if place == f"{PACKAGE}.{ours_at}":
            return ours(name)
    for entry in _installed().values():
        if place == entry.value:
            return _loaded(entry)
    if module.endswith(".py"):
        if run or Path(module) in _files:
            return _in_file(Path(module), class_name)
        raise InputError(f"{said}; pass method=detectors.get({place!r}).")
    if run:
        with suppress(ImportError):  # the sentence below says what to install
            importlib.import_module(module)
    if module in sys.modules:
        return _member(sys.modules[module], class_name, module)
    package, version = record.get("package"), record.get("version")
    advice = f"install it (pip install {package}=={version}) and import it" if package else "import it"
    raise InputError(f"{said}, which is not loaded; {advice}, or pass method=.")


def facts() -> list[dict[str, str]]:
    """Name, summary, fitted_on, passes and cost of every method, in words. For our methods torch is not imported."""
    return [{"name": name, **_facts(name)} for name in names()]


def _facts(name: str) -> dict[str, str]:
    try:
        found = _declared(*OURS[name].split(":")) if name in OURS else {key: getattr(get(name), key) for key in _SHOWN}
    except AdascaleError as error:  # a broken package must not hide the other methods
        return {"summary": str(error), "fitted_on": "-", "passes": "-", "cost": "-"}
    fitted_on = FITTED_ON.get(found["fits_on"], found["fits_on"])
    return {"summary": found["summary"], "fitted_on": fitted_on, "passes": found["passes"], "cost": found["cost"]}


def _in_file(path: Path, class_name: str) -> type[Detector]:
    """A class of a Python file. The file is run when it is first asked for and after it has changed."""
    if path.suffix != ".py" or not path.is_file():
        raise InputError(f"There is no Python file {path}; give a method's name, or path/to/file.py:ClassName.")
    path = path.resolve()
    changed = path.stat().st_mtime_ns
    if path not in _files or _files[path][0] != changed:
        _files[path] = (changed, _guarded(lambda: load_file(path), str(path)))
    return _member(_files[path][1], class_name, str(path))


def _member(module: ModuleType, class_name: str, place: str) -> type[Detector]:
    if not hasattr(module, class_name):
        classes = [name for name, value in vars(module).items() if isinstance(value, type)]
        raise InputError(f"{place} has no class {class_name!r}{meant(class_name, classes)}")
    return checked(getattr(module, class_name))


def _installed() -> dict[str, metadata.EntryPoint]:
    """The methods of installed packages; ours come first where a name is taken twice."""
    return {entry.name: entry for entry in metadata.entry_points(group=ENTRY_POINTS) if entry.name not in OURS}


def _loaded(entry: metadata.EntryPoint) -> type[Detector]:
    cls = checked(_guarded(entry.load, entry.value))
    if cls.name != entry.name:
        raise InputError(f"{entry.value} is installed as {entry.name!r} but its name is {cls.name!r}; use one of them.")
    return cls


Loaded = TypeVar("Loaded")


def _guarded(load: Callable[[], Loaded], what: str) -> Loaded:
    """Run the code of someone else; what goes wrong in it becomes one sentence."""
    try:
        return load()
    except AdascaleError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise InputError(f"{what} cannot be loaded: {type(error).__name__}: {reason}") from error


def _package(module: str) -> str | None:
    """The installed distribution that provides a module, if there is one."""
    top = module.partition(".")[0]
    if top == "adascale":
        return top
    found = metadata.packages_distributions().get(top, [])
    return found[0] if found else None


def _declared(module: str, class_name: str) -> dict[str, str]:
    """The texts that a class of this package declares, itself or by its base classes, read from the source."""
    known = _classes(module)
    found = known.get(class_name)
    if isinstance(found, str):
        return _declared(found, class_name)
    texts: dict[str, str] = {}
    for base in reversed(found.bases if found else []):
        texts |= _declared(module, base.id) if isinstance(base, ast.Name) else {}
    for line in found.body if found else []:
        if isinstance(line, (ast.Assign, ast.AnnAssign)) and isinstance(line.value, ast.Constant):
            target = line.targets[0] if isinstance(line, ast.Assign) else line.target
            if isinstance(target, ast.Name) and isinstance(line.value.value, str):
                texts[target.id] = line.value.value
    return texts


@cache
def _classes(module: str) -> dict[str, ast.ClassDef | str]:
    """The classes of a module of this package by name; for imported ones the module that they come from."""
    found: dict[str, ast.ClassDef | str] = {}
    for node in ast.parse(Path(__file__).with_name(f"{module}.py").read_text(encoding="utf8")).body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{PACKAGE}."):
            home = str(node.module).removeprefix(f"{PACKAGE}.")
            found |= {alias.name: home for alias in node.names}
    return found
