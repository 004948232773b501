"""Other engines than PyTorch for passes without gradients: onnxruntime and OpenVINO, on the processor.

The network is copied and exported once for each shape of an image. Before it is used, its features and logits are
compared with those of torch.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from adascale.core.engines import ENGINES
from adascale.core.errors import InputError
from adascale.core.extras import optional
from adascale.maths.rounding import alike
from adascale.network.running import shares_statistics
from adascale.network.traceable import Traceable, exported_program, quiet

if TYPE_CHECKING:
    from adascale.network.classifier import Classifier

SLACK = 1e-4  # of the largest magnitude: what engines of float32 differ by is a tenth of this
_MOST_SHAPES = 4
_AT_ONCE = 8  # images: more take longer, since their activations do not fit into the caches
_LARGEST_FILE = 2**30  # bytes of weights; a message of protobuf ends at 2 GB
Array = np.ndarray[Any, np.dtype[np.float32]]
Run = Callable[[Array], tuple[Array, Array]]
# Sessions made before a fork. Their threads are not in this process; to end a session would be to wait for them.
_OF_THE_PARENT: list[Run] = []


class Engines:
    """The passes of one `Classifier` through the engine of this name.

    A session is made at the first pass for each shape of an image, and again if the weights have changed since or the
    process was forked. It has as many threads as torch has at that moment.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._sessions: dict[tuple[int, ...], Run] = {}
        self._weights: _Weights | None = None
        self._together = False  # whether a batch must not be split
        self._process = os.getpid()
        self._lock = threading.RLock()

    def check(self, classifier: Classifier) -> None:
        """Refuse what only torch can do."""
        given = f"engine={self.name!r}"
        if classifier.device.type != "cpu":
            raise InputError(f"{given} runs on the processor, the network on {classifier.device}: use device='cpu'.")
        if classifier.precision is not None or classifier.compiled:
            other = f"precision={classifier.precision!r}" if classifier.precision else "compiled=True"
            raise InputError(f"{given} and {other}: only torch does the latter; leave one of the two out.")

    def forward(self, classifier: Classifier, images: Tensor) -> tuple[Tensor, Tensor]:
        """``(features, logits)``. The rows of images with NaN or infinite values are NaN: engines may lose a NaN."""
        ready = classifier.prepare(images).contiguous()
        run = self._session(classifier, ready)
        at_once = max(1, len(ready)) if self._together else _AT_ONCE
        parts = [run(part.numpy()) for part in torch.split(ready, at_once)]
        features, logits = (torch.from_numpy(np.concatenate(column)) for column in zip(*parts, strict=True))
        if not ready.sum().isfinite():
            broken = ~ready.flatten(1).isfinite().all(1)
            features[broken], logits[broken] = torch.nan, torch.nan
        return features, logits

    def _session(self, classifier: Classifier, images: Tensor) -> Run:
        with self._lock:
            if forked := self._process != os.getpid():
                _OF_THE_PARENT.extend(self._sessions.values())
            if self._weights is None or forked or self._weights.changed(classifier.model):
                self._sessions, self._process = {}, os.getpid()
                self._weights, self._together = _Weights(classifier.model), shares_statistics(classifier.model)
            shape = tuple(images.shape[1:])
            if shape not in self._sessions:
                self.check(classifier)
                made = self._proved(classifier, images)
                while len(self._sessions) >= _MOST_SHAPES:
                    del self._sessions[next(iter(self._sessions))]
                self._sessions[shape] = made
            return self._sessions[shape]

    def _proved(self, classifier: Classifier, images: Tensor) -> Run:
        """A new session, after proof that it gives what torch gives: on noise, and on an image if one is usable."""
        noise = torch.randn(2, *images.shape[1:], generator=torch.Generator().manual_seed(0))
        run = _made(self.name, classifier, noise)
        # The number of images is not that of the example, so that a network which depends on it is found out.
        probe = torch.cat([images[images.flatten(1).isfinite().all(1)][:1], noise, noise[:1]])
        expected = classifier.in_torch(probe)
        # An image may overflow in torch too; noise does not, in a network that is of use.
        finite = torch.cat(expected, 1).isfinite().all(1)
        chosen = finite if finite.any() else ~finite
        for what, found, wanted in zip(("features", "logits"), run(probe.numpy()), expected, strict=True):
            pairs = zip(torch.from_numpy(found)[chosen], wanted[chosen], strict=True)
            if not all(alike(row, right, SLACK) for row, right in pairs):
                raise InputError(
                    f"engine={self.name!r} and torch disagree about the {what} of {_kind(classifier)} by more than "
                    f"{SLACK:g} of the largest; use engine='torch' for this network."
                )
        return run

    def __getstate__(self) -> dict[str, Any]:
        """Only the name: sessions are made anew in another process."""
        return {"name": self.name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["name"])  # type: ignore[misc]


def _kind(classifier: Classifier) -> str:
    return type(classifier.model).__name__


def _made(name: str, classifier: Classifier, example: Tensor) -> Run:
    """A session with the network as it is now. example: two images."""
    # A new Classifier looks at the head again: its weights may have changed since the other one was located.
    now = type(classifier)(classifier.model, classifier.head_name)
    network = Traceable(now)
    extra, packages = ENGINES[name]
    for package in packages:
        optional(package, extra)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "network.onnx"
        try:
            export(network, example, file)
            return _RUNTIMES[name](file, torch.get_num_threads())
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(
                f"{_kind(classifier)} cannot be given to engine={name!r} ({type(error).__name__}: {reason}); "
                "use engine='torch'."
            ) from error


def export(network: nn.Module, example: Tensor, file: Path) -> None:
    """Write ``images -> (features, logits)`` as ONNX, for any number of images of the example's shape."""
    program = exported_program(network, example)
    with quiet():
        made = torch.onnx.export(
            program, input_names=["images"], output_names=["features", "logits"], dynamo=True, verbose=False
        )
    assert made is not None
    size = sum(tensor.nbytes for tensor in chain(network.parameters(), network.buffers()))
    made.save(file, external_data=size > _LARGEST_FILE)


def _onnxruntime(file: Path, threads: int) -> Run:
    package = optional("onnxruntime", ENGINES["onnxruntime"][0])
    options = package.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    session = package.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])

    def run(images: Array) -> tuple[Array, Array]:
        features, logits = session.run(["features", "logits"], {"images": images})
        return features, logits

    return run


def _openvino(file: Path, threads: int) -> Run:
    package = optional("openvino", ENGINES["openvino"][0])
    core = package.Core()
    # Never bf16: it is the default on processors that report it, and kills the process on some of them.
    settings = {
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "ENABLE_MMAP": False,  # the file is removed
    }
    compiled = core.compile_model(core.read_model(str(file)), "CPU", settings)
    request, lock = compiled.create_infer_request(), threading.Lock()

    def run(images: Array) -> tuple[Array, Array]:
        with lock:
            found = request.infer({0: images}, share_inputs=True)
        features, logits = (found[compiled.output(name)] for name in ("features", "logits"))
        return features, logits

    return run


_RUNTIMES: dict[str, Callable[[Path, int], Run]] = {"onnxruntime": _onnxruntime, "openvino": _openvino}


class _Weights:
    """The parameters and buffers of a network at one time: where they lie, how often each was written, one value.

    ``tensor.data`` is written without being counted; a step of an optimiser that does this changes the values.
    """

    def __init__(self, model: nn.Module) -> None:
        self._marks = _marks(model)
        tensors = [t.detach() for t in chain(model.parameters(), model.buffers()) if t.numel()]
        self._firsts = {
            kind: [t.as_strided((1,), (1,)) for t in tensors if t.dtype == kind] for kind in {t.dtype for t in tensors}
        }
        self._values = self._now()

    def changed(self, model: nn.Module) -> bool:
        if self._marks != _marks(model):
            return True
        return not all(torch.equal(new, old) for new, old in zip(self._now(), self._values, strict=True))

    def _now(self) -> list[Tensor]:
        return [torch.cat(firsts).view(torch.uint8) for firsts in self._firsts.values()]


def _marks(model: nn.Module) -> list[tuple[int, int]]:
    groups = (group for module in model.modules() for group in (module._parameters, module._buffers))
    tensors = (tensor for group in groups for tensor in group.values() if tensor is not None)
    return [(tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version) for tensor in tensors]
