"""What a bug report needs to know about this machine and installation."""

from __future__ import annotations

import os
import platform
import shutil
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import torch

from adascale.core import precisions
from adascale.core.engines import ENGINES, TORCH
from adascale.core.extras import EXTRAS
from adascale.core.folders import cache_folder
from adascale.core.version import __version__


def versions() -> dict[str, str]:
    """What computes: this library, Python and PyTorch."""
    return {"adascale": __version__, "Python": platform.python_version(), "torch": str(torch.__version__)}


def facts() -> dict[str, dict[str, str]]:
    """Sections of names and texts, in the order in which they are shown."""
    return {
        "versions": versions(),
        "extras": {package: _installed(package, extra) for package, extra in EXTRAS.items()},
        "devices": _devices(),
        "precisions on the processor": {name: precisions.answer(name) for name in precisions.PRECISIONS},
        "engines": {"torch": "runs", "torch.compile": _compiler(), **_engines()},
        "cache": _cache(cache_folder()),
    }


def _installed(package: str, extra: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return f"not installed: pip install 'adascale[{extra}]'"


def _engines() -> dict[str, str]:
    return {name: _installed(name, extra) for name, (extra, _) in ENGINES.items() if name != TORCH}


def _devices() -> dict[str, str]:
    told = (line.partition(":")[2].strip() for line in precisions.processor().splitlines() if "model name" in line)
    model = next(told, platform.processor() or platform.machine())
    found = {"cpu": f"{model}, {torch.get_num_threads()} threads on {os.cpu_count()} cores"}
    for index in range(torch.cuda.device_count()):
        found[f"cuda:{index}"] = torch.cuda.get_device_name(index)
    if torch.backends.mps.is_available():
        found["mps"] = "available"
    return found


def _compiler() -> str:
    """torch.compile turns a network into C++ on a processor, so it needs a compiler there."""
    names = [os.environ.get("CXX") or "", "g++", "clang++", "cl"]
    found = next((name for name in names if name and shutil.which(name)), None)
    return f"available, with the C++ compiler {found}" if found else "on a processor it needs a C++ compiler, e.g. g++"


def _cache(folder: Path) -> dict[str, str]:
    sizes = []
    for path in folder.rglob("*"):
        with suppress(OSError):  # another process may remove it meanwhile
            sizes += [path.stat().st_size] if path.is_file() else []
    return {"folder": str(folder), "size": f"{sum(sizes) / 2**20:.1f} MiB in {len(sizes)} files"}
