"""Optional packages: imported where they are used, with the install line where they are missing."""

from __future__ import annotations

import importlib
from types import ModuleType

from adascale.core.errors import MissingExtraError


def optional(module: str, extra: str) -> ModuleType:
    """Import ``module``, or say how to get it."""
    try:
        if module.split(".")[0] in ("torchvision", "timm"):
            declare_torchvision_operators()
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise MissingExtraError(
            f"This needs {package} ({error}); install it with: pip install 'adascale[{extra}]'"
        ) from error


def declare_torchvision_operators() -> None:
    """Let torchvision's CUDA wheel import beside a CPU build of torch.

    Such a torchvision cannot load its C++ extension and stops with ``operator torchvision::nms does not exist``. Only
    detection networks use that operator; declaring its signature is enough for classifiers. Declared only where the
    import would fail; calling the operator itself still raises.
    """
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        import torch

        for operator in ("nms", "qnms"):
            torch.library.define(
                f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            )
        importlib.import_module("torchvision")
