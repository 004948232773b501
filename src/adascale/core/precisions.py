"""Which low precisions run on this processor.

Some machines report instructions that they do not allow, and torch's own layers then kill the process (SIGILL). So each
precision is tried in a process of its own, once for each machine and version of torch, before anything uses it.
"""

from __future__ import annotations

import hashlib
import os
import platform
import signal
import subprocess
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import torch

from adascale.core.errors import InputError
from adascale.core.folders import cache_folder

PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}
VARIABLE = "ADASCALE_PRECISIONS"
RUNS = "runs"
PROBE = """
import sys, torch
import torch.nn.functional as F
kind = getattr(torch, sys.argv[1])
def made(*shape):
    return torch.ones(shape, dtype=kind, requires_grad=True)
try:
    for rows in (2, 64):
        for layout in (torch.contiguous_format, torch.channels_last):
            images = made(rows, 16, 8, 8).to(memory_format=layout)
            features = F.conv2d(images, made(64, 16, 3, 3), made(64), padding=1).relu().mean((2, 3))
            F.linear(features, made(32, 64), made(32)).float().sum().backward()
except RuntimeError as error:
    sys.exit(3)
"""
_SECONDS = 300
_UNCERTAIN = {1, 2, -signal.SIGINT, -signal.SIGTERM, -9}  # these may have other reasons, so they are not kept
_SWITCHES = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "ONEDNN_DEFAULT_FPMATH_MODE")


def answer(precision: str) -> str:
    """``runs``, or the reason why this precision (``bf16`` or ``fp16``) does not run on this processor.

    ADASCALE_PRECISIONS, the comma-separated list of those that do, takes the place of the trial.
    """
    if (allowed := os.environ.get(VARIABLE)) is None:
        switches = (os.environ.get(name, "") for name in _SWITCHES)
        return _tried(precision, PROBE, "\n".join([processor(), torch.__version__, *switches]))
    names = [name.strip() for name in allowed.split(",") if name.strip()]
    if unknown := [name for name in names if name not in PRECISIONS]:
        raise InputError(f"{VARIABLE}={allowed!r} names {unknown[0]!r}; list some of {', '.join(PRECISIONS)}, or none.")
    return RUNS if precision in names else f"{VARIABLE}={allowed!r} rules it out"


def check_runs(precision: str, subject: str, device: torch.device) -> None:
    """Refuse a precision that does not run on this processor; other devices are not asked. subject: what wants it."""
    if device.type != "cpu" or (found := answer(precision)) == RUNS:
        return
    remedy = "use full precision"
    if precision == "bf16" and VARIABLE not in os.environ:
        remedy += ", or set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 before Python starts"
    raise InputError(f"{subject}: {precision} does not run on this processor ({found}); {remedy}.")


@lru_cache
def _tried(precision: str, probe: str, machine: str) -> str:
    """The answer that is kept for this machine, else that of a new process."""
    key = hashlib.sha256("\0".join([precision, probe, machine]).encode()).hexdigest()[:32]
    path = cache_folder() / "precisions" / f"{key}.txt"
    with suppress(OSError, ValueError):
        if (kept := path.read_text("utf8")).endswith("\n"):  # otherwise its writer was interrupted
            return kept.strip()
    found, certain = _run(precision, probe)
    if certain:
        with suppress(OSError):  # the next process tries again
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{found}\n", "utf8")
    return found


def _run(precision: str, probe: str) -> tuple[str, bool]:
    name = str(PRECISIONS[precision]).removeprefix("torch.")
    try:
        code = subprocess.run([sys.executable, "-c", probe, name], capture_output=True, timeout=_SECONDS).returncode
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the process that tried it failed: {type(error).__name__}", False
    if code == 0:
        return RUNS, True
    if code == 3:
        return "torch does not implement it", True
    ended = f"ended by {signal.Signals(-code).name}" if -code in set(signal.Signals) else f"stopped with code {code}"
    return f"the process that tried it was {ended}", code not in _UNCERTAIN


@lru_cache
def processor() -> str:
    """Model and flags of the processor, as far as the system tells them."""
    lines: list[str] = []
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text("utf8").splitlines()
    told = {line for line in lines if line.startswith(("vendor", "cpu family", "model", "flags", "CPU ", "Features"))}
    return "\n".join([platform.machine(), platform.processor(), *sorted(told)])
