"""Workers that are actors of Ray, on any number of machines."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from adascale.cluster.executor import Event, WorkersError
from adascale.cluster.tasks import Held, Reply, Task, perform
from adascale.core.errors import AdascaleWarning, InputError
from adascale.core.extras import optional
from adascale.core.version import __version__

_PATIENCE_SECONDS, _ANSWER_SECONDS = 30.0, 10.0


class Actor:
    """A worker of Ray. Its methods run one after the other. folder: where relative paths start, if it is here too."""

    def __init__(self, folder: str) -> None:
        self._held = Held()
        with suppress(OSError):
            os.chdir(folder)

    def version(self) -> str:
        return __version__

    def perform(self, task: Task) -> Reply:
        return perform(task, self._held)


@contextmanager
def _own_sigterm() -> Iterator[None]:
    """Ray would end this process at SIGTERM with a dump of its stack: what was to happen before still happens."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    if before is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, before)


def _check_answers(address: str) -> None:
    """Whether something listens at HOST:PORT; Ray itself would try for minutes."""
    place = urlsplit(address if "://" in address else f"//{address}")
    if place.hostname and place.port:
        socket.create_connection((place.hostname, place.port), timeout=_ANSWER_SECONDS).close()


class RayCrew:
    """Actors of a Ray cluster, each with so many CPUs and GPUs, spread over its machines.

    address: as for ``ray.init``; None takes RAY_ADDRESS, else the cluster that runs on this machine, else starts one.
    size: None is as many as the cluster has room for now. An actor that is lost is not restarted by Ray: the executor
    gives its task to another one and hires a new one, which may be placed on any machine.
    """

    def __init__(self, size: int | None = None, address: str | None = None, cpus: float = 1, gpus: float = 0) -> None:
        self._ray = optional("ray", "cluster")
        self._ours = not self._ray.is_initialized()
        if self._ours:
            self._connect(address)
        needs = {"CPU": float(cpus), "GPU": float(gpus)}
        self._needs = {name: number for name, number in needs.items() if number}
        self.size = size or self._room()
        self._kind = self._ray.remote(Actor).options(
            num_cpus=cpus, num_gpus=gpus, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD"
        )
        self._actors: dict[int, Any] = {}
        self._waiting: dict[Any, int] = {}
        self._hired, self._since, self._ready = 0, time.monotonic(), False

    def _connect(self, address: str | None) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # the new behaviour, else Ray warns of it
        more: dict[str, Any] = {} if address or os.environ.get("RAY_ADDRESS") else {"include_dashboard": False}
        try:
            _check_answers(address or os.environ.get("RAY_ADDRESS") or "")
            with _own_sigterm():
                self._ray.init(address=address, log_to_driver=False, logging_level="error", **more)
        except (OSError, RuntimeError, ValueError, self._ray.exceptions.RayError) as error:
            where = address or os.environ.get("RAY_ADDRESS") or "this machine"
            reason = " ".join(str(error).split())[:200].rstrip(".")
            advice = "see ray status; if the cluster asks for a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"
            raise InputError(f"No Ray cluster can be reached at {where}: {reason}; {advice}.") from error

    def _room(self) -> int:
        """How many workers the cluster has room for; at least one, because it may grow."""
        there = self._ray.cluster_resources()
        return max(1, min((int(there.get(name, 0) / number) for name, number in self._needs.items()), default=1))

    def hire(self) -> int:
        number, self._hired = self._hired, self._hired + 1
        self._actors[number] = self._kind.remote(os.getcwd())
        self._waiting[self._actors[number].version.remote()] = number
        return number

    def give(self, worker: int, task: Task) -> None:
        self._waiting[self._actors[worker].perform.remote(task)] = worker

    def wait(self) -> list[Event]:
        try:
            done, _ = self._ray.wait(list(self._waiting), timeout=_PATIENCE_SECONDS)
        except SystemError as error:  # what a signal's handler raised, in Ray's wrapping
            raise error.__cause__ or error from None
        if not done and not self._ready and time.monotonic() - self._since >= _PATIENCE_SECONDS:
            self._since = float("inf")  # said once
            warnings.warn(f"Ray has not placed a worker yet; {self._shortage()}", AdascaleWarning, stacklevel=2)
        return [self._event(self._waiting.pop(one), one) for one in done]

    def _shortage(self) -> str:
        each = ", ".join(f"{number:g} {name}" for name, number in self._needs.items()) or "nothing"
        free = self._ray.available_resources()
        there = ", ".join(f"{free.get(name, 0):g} {name}" for name in self._needs)
        return f"each needs {each}, and {there} are free. Wait, or ask for less (see ray status)."

    def _event(self, number: int, reference: Any) -> Event:
        errors = self._ray.exceptions
        try:
            reply = self._ray.get(reference)
        except errors.RayTaskError as error:  # the task could not even be unpacked
            raise WorkersError(f"A worker cannot run the work: {str(error.cause)[:300]}") from error
        except errors.RayError as error:
            self._ray.kill(self._actors.pop(number))  # in case it is only out of reach
            return Event(number, "lost", Reply(error=str(error).splitlines()[0][:200]))
        if isinstance(reply, Reply):
            return Event(number, "reply", reply)
        if reply != __version__:
            raise WorkersError(f"A worker has adascale {reply}, and this is {__version__}; install the same on all.")
        self._ready = True
        return Event(number, "ready")

    def close(self) -> None:
        for actor in self._actors.values():
            self._ray.kill(actor)
        self._actors.clear()
        self._waiting.clear()
        if self._ours:
            self._ray.shutdown()
