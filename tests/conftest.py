"""Shared cases: small networks of many shapes, and the optional folder of real data and oracles."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from adascale import Head, Outputs, View
from adascale.core import precisions
from tests.devtools import Page, fetched_axe, page

ROOT = Path(__file__).parents[1]

# A job in the background of a shell ignores Ctrl-C, and so would the commands that tests start and interrupt.
with suppress(ValueError):  # outside of the main thread
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)

if workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 0)):  # together they have the processor once
    threads = max(1, (os.cpu_count() or 1) // workers)
    torch.set_num_threads(threads)
    os.environ["OMP_NUM_THREADS"] = str(threads)  # of the processes that tests start
DATA = Path(os.environ.get("ADASCALE_DATA", ROOT.parent / "shared" / "data"))
ORACLES = DATA.parent / "oracles"

needs_data = pytest.mark.skipif(
    not (DATA / "networks.py").is_file(), reason=f"real data and networks are not at {DATA} (ADASCALE_DATA)"
)
needs_oracles = pytest.mark.skipif(
    not (ORACLES / "manifest.json").is_file(), reason=f"reference scores are not at {ORACLES}"
)


def needs_precision(*names: str) -> None:
    """Skip the test where one of these precisions does not run on this processor."""
    for name in names:
        if (reason := precisions.answer(name)) != precisions.RUNS:
            pytest.skip(f"{name} does not run on this processor: {reason}")


class Forbidding(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Fails the test, before it is executed, at a matrix product or convolution in one of these precisions."""

    def __init__(self, *names: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.types = {precisions.PRECISIONS[name] for name in names}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {leaf.dtype for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        if given & self.types and any(word in func.__name__ for word in ("mm", "conv", "linear", "attention")):
            pytest.fail(f"{func} was called in {given & self.types}, which does not run on this processor")
        return func(*args, **(kwargs or {}))


@pytest.fixture
def unguarded() -> None:
    """For tests in full precision of compiled or traced code, which `Forbidding` would disturb."""


@pytest.fixture(autouse=True)
def allowed_precisions(request: pytest.FixtureRequest) -> Iterator[None]:
    """Where ADASCALE_PRECISIONS rules a precision out, no test may compute in it."""
    listed = os.environ.get(precisions.VARIABLE)
    missing = [] if listed is None else [name for name in precisions.PRECISIONS if name not in listed]
    if not missing or "unguarded" in request.fixturenames:
        yield
        return
    with Forbidding(*missing):
        yield


class SmallNet(nn.Module):
    """A convolution, 128 features after a ReLU, a linear head."""

    def __init__(self, classes: int = 5, bias: bool = True) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 128, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(128)
        self.fc = nn.Linear(128, classes, bias=bias)

    def features(self, x: Tensor) -> Tensor:
        return torch.relu(self.norm(self.conv(x))).mean((2, 3))

    def forward(self, x: Tensor) -> Any:
        return self.fc(self.features(x))


class StagedNet(nn.Module):
    """A stem, three stages with activations that write in place, dropout, 12 features, a linear head."""

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        self.stem, self.pool = nn.Conv2d(3, 4, 3, 2, 1), nn.MaxPool2d(2)
        self.layer1, self.layer2, self.layer3 = _Stage(4, 6, 1), _Stage(6, 8, 2), _Stage(8, 12, 2)
        self.drop, self.fc = nn.Dropout(0.5), nn.Linear(12, classes)

    def forward(self, x: Tensor) -> Any:
        x = self.layer3(self.layer2(self.layer1(self.pool(self.stem(x)))))
        return self.fc(self.drop(x.mean((2, 3))))


class _Stage(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.again, self.relu = nn.Conv2d(outputs, outputs, 3, 1, 1), nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Any:
        return self.relu(self.again(self.relu(self.norm(self.conv(x)))))


def seeded(make: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    """The network with random but settled weights; batch norm statistics are not the trivial ones."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = make()
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.normal_(module.running_mean, std=0.1)  # type: ignore[arg-type]
        return model.eval()


def images(n: int = 6, channels: int = 3, size: int = 16, seed: int = 0) -> Tensor:
    return torch.randn(n, channels, size, size, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADASCALE_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A tab for all tests of a file; those files say `needs_browser`."""
    with page(tmp_path_factory.mktemp("browser")) as tab:
        yield tab


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of axe-core, for `devtools.barriers`."""
    return fetched_axe(tmp_path_factory.mktemp("axe"))


@pytest.fixture
def net() -> nn.Module:
    return seeded(SmallNet)


class Case:
    """One oracle file: its arrays, head and outputs (scores there are higher = more ID)."""

    def __init__(self, name: str) -> None:
        self.name = name
        with np.load(ORACLES / f"{name}.npz", allow_pickle=False) as file:
            self.arrays = {key: file[key] for key in file.files}
        self.head = Head(self["W"], self["b"])

    def __getitem__(self, key: str) -> Tensor:
        return torch.from_numpy(self.arrays[key])

    def scores(self) -> list[str]:
        return [key.removeprefix("score__") for key in self.arrays if key.startswith("score__")]

    def outputs(self, split: str) -> Outputs:
        """Float32 features as stored; for the convnet case those of the float64 run."""
        prefix = "net_" if f"net_feat_{split}" in self.arrays else ""
        features = self[f"{prefix}feat_{split}"]
        perturbed = f"{prefix}featp_{split}"
        views = {View(): self[perturbed]} if perturbed in self.arrays else {}
        labels = self[f"y_{split}"] if f"y_{split}" in self.arrays else None
        return Outputs(self.head(features), features, views, labels)


def worst_relative(actual: Tensor, expected: Tensor) -> float:
    return float(((actual.double() - expected.double()).abs() / expected.double().abs().clamp_min(1e-12)).max())


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a network file and 30 images."""
    from tests.images.pictures import picture
    from tests.shell import NETWORK

    (tmp_path / "nets.py").write_text(NETWORK)
    (tmp_path / "id").mkdir()
    for i in range(30):
        picture(seed=i).save(tmp_path / "id" / f"{i:02d}.png")
    return tmp_path
