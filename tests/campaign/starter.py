"""A process that has everything imported and forks one run of the command line after the other.

So a run begins within milliseconds, and a kill at a random moment meets its work and not the imports. It reads one JSON
line for each run and answers with one: see `Runs`, which speaks with it.
"""

from __future__ import annotations

import atexit
import fcntl
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

F_SETPIPE_SZ = 1031  # of Linux
MODULES = Path(tempfile.gettempdir()) / f"modules-{os.getpid()}"  # what the last run has imported
PATIENCE = 120.0  # seconds for a run to end


class Ended(NamedTuple):
    """How a run ended. code: negative for a signal that killed it. began, peak: seconds it took, bytes at its peak."""

    code: int
    told: str
    seconds: float
    peak: float

    def unclean(self, *codes: int) -> str | None:
        """What is wrong with the end of a run that may have one of these codes."""
        last = (self.told.strip().splitlines() or ["nothing"])[-1]
        if self.code not in codes:
            return f"exit code {self.code}: {last}"
        if "Traceback" in self.told or "Exception ignored" in self.told:
            return f"a traceback: {self.told[-2000:]}"
        return "not told in one line" if self.code == 2 and not last.startswith("adascale: ") else None


class Runs:
    """Runs of the command line in a folder."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder, self.peak = folder, 0.0
        known = {"SOURCE_DATE_EPOCH": "1700000000", "ADASCALE_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.campaign.starter"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **known, **environment},
        )

    def __call__(self, *arguments: Any, number: int = 0, after: float = 0.0, limit: int = 0, **more: str) -> Ended:
        """Run a command to its end. number: a signal that is sent after so many seconds; limit: of a file's size."""
        return self.all([arguments], number=number, after=after, limit=limit, **more)[0]

    def all(
        self, commands: Sequence[Sequence[Any]], number: int = 0, after: float = 0.0, limit: int = 0, **more: str
    ) -> list[Ended]:
        """Run commands at the same time; the signal is for the first of them."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        runs = [list(map(str, arguments)) for arguments in commands]
        asked = {"runs": runs, "folder": str(self.folder), "number": int(number), "after": after}
        self._process.stdin.write(json.dumps({**asked, "limit": limit, "environment": more}) + "\n")
        self._process.stdin.flush()
        ended = [Ended(*one) for one in json.loads(self._process.stdout.readline())]
        self.peak = max(self.peak, *(one.peak for one in ended))
        return ended

    def good(self, *arguments: Any, **more: Any) -> Ended:
        """A run that must succeed."""
        ended = self(*arguments, **more)
        assert ended.code == 0, ended.told
        return ended

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


def _start(given: Mapping[str, Any], arguments: list[str]) -> tuple[int, int]:
    """The number of a new process that runs the command, and a pipe with what it says; files may be limited."""
    said, tell = os.pipe()
    fcntl.fcntl(tell, F_SETPIPE_SZ, 2**20)
    child = os.fork()
    if child:
        os.close(tell)
        return child, said
    from adascale.cli.main import main

    os.chdir(given["folder"])
    os.environ.update(given["environment"])
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.dup2(tell, 2)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 (as long as the process lives)
    if given["limit"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (given["limit"],) * 2)
    else:
        atexit.register(lambda: MODULES.write_text("\n".join(sys.modules)))
    sys.argv = ["adascale", *arguments]
    main()
    os._exit(99)  # it never returns


WARM = ("torch", "adascale", "PIL", "numpy", "onnx", "onnxscript", "onnx_ir", "sympy", "rich", "typer", "safetensors")


def _import(names: list[str]) -> None:
    """Import what a run has imported, so that the next one finds it; not what starts threads, which forks lack."""
    for name in names:
        if name.partition(".")[0] in WARM and name not in sys.modules:
            with suppress(Exception):
                importlib.import_module(name)


def _ended(child: int, began: float) -> tuple[int, float, float]:
    while time.monotonic() < began + PATIENCE:
        done, status, used = os.wait4(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), time.monotonic() - began, 1024 * used.ru_maxrss
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return 98, PATIENCE, 0.0  # it hangs


def serve() -> None:
    """Fork runs until stdin ends. A child leaves through `adascale.cli.main.main`, which exits."""
    import adascale.cli.bench
    import adascale.cli.export
    import adascale.cli.fit
    import adascale.cli.main
    import adascale.cli.monitor
    import adascale.cli.recalibrate
    import adascale.cli.train
    import adascale.cli.tune  # noqa: F401

    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        given = json.loads(line)
        began = time.monotonic()
        started = [_start(given, run) for run in given["runs"]]
        if given["number"]:
            time.sleep(given["after"])
            os.kill(started[0][0], given["number"])
        ended = [(_ended(child, began), said) for child, said in started]
        answer = [(code, _all_of(said), *used) for (code, *used), said in ended]
        print(json.dumps(answer), file=answers, flush=True)
        if MODULES.exists():
            _import(MODULES.read_text().splitlines())
            MODULES.unlink()


def _all_of(said: int) -> str:
    with open(said, encoding="utf8", errors="replace") as file:
        return file.read()


if __name__ == "__main__":
    serve()
