"""The engines that can run a network, by name, and what each needs. Nothing here imports PyTorch."""

from __future__ import annotations

from adascale.core.errors import InputError
from adascale.core.extras import check_installed
from adascale.core.suggestions import meant

TORCH = "torch"
ENGINES: dict[str, tuple[str, tuple[str, ...]]] = {
    TORCH: ("", ()),
    "onnxruntime": ("export", ("onnx", "onnxscript", "onnxruntime")),
    "openvino": ("openvino", ("onnx", "onnxscript", "openvino")),
}  # the extra that installs an engine, and the packages that it needs


def check_engine(name: str) -> str:
    """Return the name; refuse an unknown one, and one whose packages are not installed."""
    if name not in ENGINES:
        raise InputError(f"engine={name!r} is none of {', '.join(ENGINES)}{meant(str(name), ENGINES)}")
    extra, packages = ENGINES[name]
    for package in packages:
        check_installed(package, extra)
    return name
