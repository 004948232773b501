"""Workers that are processes of this machine. Nothing here imports PyTorch."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from adascale.cluster.executor import Event
from adascale.cluster.tasks import Held, Reply, Task, perform


class LocalCrew:
    """Processes of this machine, each with ``threads`` threads; with several GPUs, worker i has GPU i in turn.

    A process ends when this one does, however that ends: it finishes its task, and then finds nobody to tell.
    """

    def __init__(self, size: int | None = None, threads: int = 1, gpus: int = 0) -> None:
        self.size = size or gpus or max(1, (os.cpu_count() or 1) // threads)
        self._threads, self._gpus, self._hired = threads, gpus, 0
        self._context = multiprocessing.get_context("spawn")  # a fork would copy the threads of PyTorch in any state
        self._workers: dict[int, tuple[BaseProcess, Connection]] = {}

    def hire(self) -> int:
        number, self._hired = self._hired, self._hired + 1
        ours, theirs = self._context.Pipe()
        gpu = str(number % self._gpus) if self._gpus > 1 else ""
        process = self._context.Process(target=_serve, args=(theirs, self._threads, gpu), daemon=True)
        process.start()
        theirs.close()
        self._workers[number] = process, ours
        return number

    def give(self, worker: int, task: Task) -> None:
        with suppress(BrokenPipeError):  # `wait` will find that it is lost
            self._workers[worker][1].send(task)

    def wait(self) -> list[Event]:
        numbers = {pipe: number for number, (_, pipe) in self._workers.items()}
        return [self._event(numbers[pipe], pipe) for pipe in wait(list(numbers)) if isinstance(pipe, Connection)]

    def _event(self, number: int, pipe: Connection) -> Event:
        try:
            kind, reply = pipe.recv()
        except (EOFError, OSError):
            process, _ = self._workers.pop(number)
            process.join()
            pipe.close()
            return Event(number, "lost", Reply(error=f"process {process.pid} ended with code {process.exitcode}"))
        return Event(number, kind, reply)

    def close(self) -> None:
        for process, pipe in self._workers.values():
            process.terminate()
            pipe.close()
        for process, _ in self._workers.values():
            process.join()
        self._workers.clear()


def _serve(pipe: Connection, threads: int, gpu: str) -> None:
    """The life of a worker: tasks from the pipe until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that hands out the tasks
    os.environ["OMP_NUM_THREADS"] = str(threads)
    if gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu  # counts until CUDA is first used
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(threads)
    held = Held()
    with suppress(EOFError, OSError):  # nobody is there any more
        pipe.send(("ready", Reply()))
        while True:
            pipe.send(("reply", perform(pipe.recv(), held)))
