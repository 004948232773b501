"""Optional packages: imported where they are used; an error names the install line where one is missing."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

from adascale.core.errors import MissingExtraError

EXTRAS = {
    "ray": "cluster",
    "datasets": "datasets",
    "scikit-learn": "demo",
    "mkdocs-material": "docs",
    "mkdocstrings-python": "docs",
    "faiss-cpu": "faiss",
    "transformers": "huggingface",
    "onnx": "export",
    "onnxscript": "export",
    "onnxruntime": "export",
    "openvino": "openvino",
    "pyarrow": "parquet",
    "pytorch-ood": "pytorch-ood",
    "matplotlib": "report",
    "s3fs": "s3",
    "fastapi": "serve",
    "uvicorn": "serve",
    "python-multipart": "serve",
    "prometheus-client": "serve",
    "timm": "timm",
    "torchvision": "torchvision",
    "accelerate": "train",
}  # packages, and the extras that install them


def optional(module: str, extra: str) -> ModuleType:
    """Import ``module``, or raise an error with the line that installs it."""
    package = module.partition(".")[0]
    try:
        if package in ("torchvision", "timm", "pytorch_ood"):
            declare_torchvision_operators()
        return importlib.import_module(module)
    except ImportError as error:
        raise _missing(package, extra, str(error)) from error


def check_installed(package: str, extra: str) -> None:
    """The same error where the package cannot be found; it is not imported."""
    if importlib.util.find_spec(package) is None:
        raise _missing(package, extra, "it is not installed")


def _missing(package: str, extra: str, reason: str) -> MissingExtraError:
    return MissingExtraError(f"This needs {package} ({reason}); install it with: pip install 'adascale[{extra}]'")


def declare_torchvision_operators() -> None:
    """Let torchvision's CUDA wheel import beside a CPU build of torch.

    Such a torchvision cannot load its C++ extension and stops with ``operator torchvision::nms does not exist``. Only
    detection networks use that operator, so for classifiers it is enough to declare its signature. This is done only
    where the import would fail; a call of the operator itself still raises.
    """
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        _declare()
        importlib.import_module("torchvision")


def prepare_torchvision() -> None:
    """The same before someone's own code runs, which may import torchvision or not. It costs a millisecond.

    torchvision is not imported: whether that would fail is seen by loading its extension, as torchvision itself does.
    """
    if "torchvision" in sys.modules or os.name == "nt":  # on Windows the extension is found in ways of its own
        return
    found = importlib.util.find_spec("torchvision")
    folders = list(found.submodule_search_locations or []) if found is not None else []
    libraries = [file for folder in folders for file in Path(folder).glob("_C*.so")]
    if not libraries:
        return
    import torch

    try:
        torch.ops.load_library(str(libraries[0]))  # type: ignore[no-untyped-call]
    except OSError:
        if not hasattr(torch.ops.torchvision, "nms"):
            _declare()


def _declare() -> None:
    import torch

    signature = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    for operator in ("nms", "qnms"):
        torch.library.define(f"torchvision::{operator}", signature)
