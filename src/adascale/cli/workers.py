"""The workers that a command asks for with ``--on``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from adascale.cli.commands import FitCommand
from adascale.cli.console import say
from adascale.cli.groups import NetworksOptions, WorkerOptions
from adascale.cluster.activations import NetworkRecipe, SpreadOver
from adascale.cluster.executor import Crew, Executor
from adascale.cluster.local import LocalCrew
from adascale.cluster.with_ray import RayCrew
from adascale.network.specs import absolute


@contextmanager
def executor_of(given: WorkerOptions) -> Iterator[Executor | None]:
    """The workers that were asked for, while the work lasts; None for none."""
    if given.on is None:
        yield None
        return
    crew: Crew
    if given.on == "ray":
        crew = RayCrew(given.workers, given.address, given.cpus_per_worker, given.gpus_per_worker)
    else:
        crew = LocalCrew(given.workers, given.cpus_per_worker, torch.cuda.device_count())
    with Executor(crew) as executor:
        say(f"{executor.workers} workers ({given.on})")
        yield executor


def spread_over(
    executor: Executor | None, given: FitCommand | NetworksOptions, spec: str, weights: Path | None, **running: Any
) -> SpreadOver | None:
    """The passes of a network by these workers; None if there are none."""
    if executor is None:
        return None
    file = None if weights is None else os.path.abspath(weights)
    how = tuple(sorted({"engine": given.engine, **running}.items()))
    return SpreadOver(executor, NetworkRecipe(absolute(spec), file, given.device, given.head, how))
