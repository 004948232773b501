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
    """A single process: the default, which needs no other package."""

    rank, world = 0, 1

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)

    def wrap(self, model: nn.Module) -> nn.Module:
        """The module to call in training, which averages gradients over the processes."""
        return model

    def wait(self) -> None:
        """Return when every process has called this."""


class Accelerated(Engine):
    """One of several processes. Each takes its part of every batch; batch norms see that part alone."""

    def __init__(self, device: torch.device | str = "cpu") -> None:
        accelerate = optional("accelerate", "train")
        self._accelerator: Any = accelerate.Accelerator(cpu=torch.device(device).type == "cpu")
        self.rank, self.world = self._accelerator.process_index, self._accelerator.num_processes
        super().__init__(self._accelerator.device)

    def wrap(self, model: nn.Module) -> nn.Module:
        wrapped: nn.Module = self._accelerator.prepare_model(model)
        return wrapped

    def wait(self) -> None:
        self._accelerator.wait_for_everyone()


def engine(device: torch.device | str = "cpu") -> Engine:
    """The engine of several processes where a launcher has set WORLD_SIZE above 1, else that of one."""
    return Accelerated(device) if int(os.environ.get("WORLD_SIZE") or 1) > 1 else Engine(device)


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
