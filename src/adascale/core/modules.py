"""Python files of the user, such as network definitions and plug-in methods, loaded by their path."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from adascale.core.errors import InputError
from adascale.core.extras import prepare_torchvision

_beside: dict[str, Path] = {}  # modules that loaded files imported from their own folders


def load_file(path: str | Path) -> ModuleType:
    """Run this Python file and return it as a module. Its folder can be imported from, as it can for a script.

    The module is named after the resolved path, so that files of the same name in different folders stay apart.
    """
    path = Path(path).resolve()
    if not path.is_file():
        raise InputError(f"There is no Python file {path}.")
    name = f"adascale_file_{hashlib.sha256(str(path).encode('utf8', 'surrogateescape')).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is not a Python file: its name must end in .py.")
    prepare_torchvision()
    module, before = importlib.util.module_from_spec(spec), sys.modules.get(name)
    sys.modules[name] = module  # dataclasses and pickled references inside the file look here
    try:
        with importable(path.parent):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before
        raise
    return module


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Files of this folder can be imported meanwhile, even where another folder has one of the same name."""
    for name in [name for name, other in _beside.items() if other != folder and _has(folder, name)]:
        for loaded in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
            del sys.modules[loaded]
        del _beside[name]
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        new = {name.partition(".")[0] for name in set(sys.modules) - before} - before
        _beside.update({name: folder for name in new if _has(folder, name)})


def _has(folder: Path, name: str) -> bool:
    return (folder / f"{name}.py").is_file() or (folder / name / "__init__.py").is_file()
