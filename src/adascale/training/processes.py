"""The processes that train together: one by default, several where torchrun starts them and Accelerate joins them."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import nn

from adascale.core.errors import InputError
from adascale.core.extras import optional
from adascale.core.precisions import PRECISIONS, check_runs


class Engine:
    """The process that trains, which needs no other package, or one of several.

    Each of several processes takes its part of every batch; batch norms see that part alone.
    """

    def __init__(self, device: torch.device | str = "cpu", several: bool = False) -> None:
        self.rank, self.world, self.device = 0, 1, torch.device(device)
        self._accelerator: Any = None
        if several:
            found = optional("accelerate", "train").Accelerator(cpu=self.device.type == "cpu")
            self.rank, self.world, self.device = found.process_index, found.num_processes, found.device
            self._accelerator = found

    def wrap(self, model: nn.Module) -> nn.Module:
        """The module to call in training, which averages gradients over the processes."""
        wrapped: nn.Module = model if self._accelerator is None else self._accelerator.prepare_model(model)
        return wrapped

    def wait(self) -> None:
        """Return when every process has called this."""
        if self._accelerator is not None:
            self._accelerator.wait_for_everyone()


def engine(device: torch.device | str = "cpu") -> Engine:
    """The engine of several processes where a launcher has set WORLD_SIZE above 1, else that of one."""
    return Engine(device, int(os.environ.get("WORLD_SIZE") or 1) > 1)


def precision(name: str, device: torch.device) -> torch.dtype | None:
    """The type of mixed precision, None for float32; ``auto``: bf16 on a GPU that has it, else fp16; none on a CPU."""
    if name not in CHOICES:
        raise InputError(f"precision={name!r}; choose one of {', '.join(CHOICES)}.")
    if name == "auto":
        name = "fp32" if device.type != "cuda" else "bf16" if torch.cuda.is_bf16_supported() else "fp16"
    if name == "fp16" and device.type != "cuda":
        raise InputError(f"precision='fp16' on {device.type}: it needs a CUDA GPU; take 'fp32' or 'auto'.")
    if name == "fp32":
        return None
    check_runs(name, f"precision={name!r}", device)
    return PRECISIONS[name]


CHOICES = ("auto", "fp32", *PRECISIONS)
