"""Hashes of a network: of its weights, and of how it computes."""

from __future__ import annotations

import hashlib
import inspect
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import nn


def hash_of_weights(model: nn.Module) -> str:
    """A hash of every parameter and buffer and of the kinds of modules."""
    kinds = [f"{name} {type(module).__name__}" for name, module in model.named_modules() if name]
    digest = hashlib.sha256("\n".join(kinds).encode())
    for name, tensor in sorted(chain(model.named_parameters(), model.named_buffers())):
        raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(raw.numpy().data)
    return digest.hexdigest()


def hash_of_code(model: nn.Module, options: str) -> str:
    """A hash of the options, of every module's settings, and of the source files that the user may edit."""
    texts = [f"{name} {type(module).__name__}({module.extra_repr()})" for name, module in model.named_modules()]
    text = "\n".join([str(torch.__version__), *texts, options])
    digest = hashlib.sha256(text.encode("utf8", "surrogateescape"))
    for file in sorted({file for cls in {type(module) for module in model.modules()} for file in _own_files(cls)}):
        digest.update(Path(file).read_bytes())
    return digest.hexdigest()


def _own_files(cls: type) -> set[str]:
    """The files of a class that its user may edit; none for a class of an installed package.

    The functions of the class are asked as well: its module may have been replaced by another one of the same name.
    """
    functions = [inspect.unwrap(value) for value in vars(cls).values() if inspect.isfunction(value)]
    files = filter(None, map(_source, [cls, *functions]))
    return {file for file in files if Path(file).is_file() and "site-packages" not in Path(file).parts}


def _source(code: Any) -> str | None:
    try:
        return inspect.getsourcefile(code)
    except (TypeError, OSError):  # built in, or typed into a shell
        return None
