"""Any PyTorch classifier, seen as features -> linear head -> logits. The network is left exactly as it was."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from adascale.core.engines import TORCH, check_engine
from adascale.core.errors import AdascaleWarning, HeadNotFoundError, InputError
from adascale.core.types import Goal, Head, Layers, Need, Tap, View
from adascale.network import heads
from adascale.network.behaviour import check_values, same_with_channels_last, unsteady
from adascale.network.engines import Engines
from adascale.network.fingerprints import hash_of_code, hash_of_weights
from adascale.network.head_passes import HeadPasses
from adascale.network.heads import Call, kind
from adascale.network.inner import Inner, check_layers, joined
from adascale.network.running import (
    Backend,
    Compiled,
    at_once,
    autocast,
    borrowed,
    check_precision,
    copied,
    held,
    likes_channels_last,
    model_device,
    model_dtype,
    tidied,
    unwrapped,
)
from adascale.network.twin import Twin


class Classifier:
    """A network and its head.

    The head is *the module whose output is the logits*: one forward pass with temporary hooks finds it, and the
    proof ``W a + b == logits`` is made on that pass. ``head="layer.name"`` overrides the search; then the logits
    are that layer's output, whatever the network does with them afterwards.

    precision: ``bf16`` or ``fp16`` runs the network under autocast. compiled: True, or a backend, runs its
    parts through ``torch.compile`` (slow at first). channels_last: the memory layout of the input; None uses it for
    convolutional networks on a processor that accept it. docs/speed.md says how each changes time and scores.
    engine: ``onnxruntime`` or ``openvino`` makes the passes without gradients, on the processor; it is proved to give
    what torch gives. class_names: what the classes are called, in their order, if that is known. copy: True runs a copy
    of the network with weights of its own, which later changes of the original do not reach.

    Passes run on a private twin that shares the network's weights (see `Twin`), so the network itself can be used in
    other threads meanwhile, and a process may fork meanwhile. A network that cannot be copied (one with hooks, a
    replaced forward or compiled parts) is run itself: while a pass lasts, other threads must not use it, nor fork.

    For example:

        >>> Classifier(model).locate(images).head.weight.shape[0]  # classes
        8
    """

    def __init__(
        self,
        model: nn.Module,
        head: str | None = None,
        *,
        precision: str | None = None,
        compiled: bool | Backend = False,
        channels_last: bool | None = None,
        engine: str = TORCH,
        class_names: Sequence[str] = (),
        copy: bool = False,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise InputError(f"The model is a {type(model).__name__}; give a torch.nn.Module that returns logits.")
        if isinstance(model, torch.jit.ScriptModule):
            raise InputError("A TorchScript module does not let its features be read; give the original network.")
        check_values(model)
        self.model = copied(unwrapped(model)) if copy else unwrapped(model)
        self.head_name = self.asked_for = head
        self.located = False
        self.precision, self.compiled, self.channels_last = precision, compiled, channels_last
        self.engine, self.class_names = check_engine(engine), tuple(class_names)
        self._engines = None if engine == TORCH else Engines(engine)
        if self._engines is not None:
            self._engines.check(self)
        autocast(self.device, precision)  # refuses what does not run here
        self._layout, self._passes, self._inner = torch.contiguous_format, HeadPasses(), Inner()
        self._parts: Compiled | None = None
        self._twin: Twin | None = None
        self._probe: Tensor | None = None  # the images that located the head
        self._inside = False  # a pass is under way, in the thread that holds the network
        self._process = os.getpid()
        self._head: Head | None = None
        self._told = False
        if head is not None and head not in dict(self.model.named_modules()):
            raise HeadNotFoundError(
                f"head={head!r} is no module of {kind(self.model)}. {heads.advice(heads.matrix_modules(self.model))}"
            )

    @property
    def device(self) -> torch.device:
        """Where the network's weights are."""
        return model_device(self.model)

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the network's weights."""
        return model_dtype(self.model)

    @property
    def head(self) -> Head:
        """The last linear layer's values as they were when it was located."""
        if self._head is None:
            self.adopt(self._name)
        assert self._head is not None
        return self._head

    @property
    def _name(self) -> str:
        if self.head_name is None:
            raise HeadNotFoundError("The head is not known yet: call locate(images) with one batch first.")
        return self.head_name

    def locate(self, images: Tensor) -> Classifier:
        """Find the head with two of these images, or prove the named one."""
        usable = images[images.flatten(1).isfinite().all(1)][:2]
        if not len(usable):
            raise InputError("Every image of the first batch holds NaN or infinite values; check the preprocessing.")
        with held(self.model), torch.no_grad(), autocast(self.device, self.precision):
            self._layout, self._twin, self._probe = torch.contiguous_format, None, usable.detach().clone()
            self._passes, self._inner, self.located = HeadPasses(), Inner(), False
            with self._passing():
                call = self._located(usable)
                self._fold()
                remarks = [] if self._told else self._remarks(usable, call)
        self._tell(remarks)
        return self

    def _located(self, usable: Tensor) -> Call:
        """The call of the head; the layout is chosen on the way."""
        calls, output = heads.record(self._network, self.prepare(usable))
        if self.head_name is None:
            call = heads.find_head(calls, output, self.model)
        else:
            call = heads.named_head(self.head_name, calls, self.model)
        # An engine takes images with the channels first, and lays out the rest by itself.
        default = self.engine == TORCH and self.device.type == "cpu" and likes_channels_last(self.model)
        wanted = default if self.channels_last is None else self.channels_last
        if wanted and usable.ndim == 4 and self._same_with_channels_last(usable, call):
            self._layout = torch.channels_last
        self.adopt(call.name).located = True
        return call

    def _tell(self, remarks: Sequence[str]) -> None:
        """Say once what is not as one might assume, such as logits before a softmax."""
        self._told = True
        for text in filter(None, remarks):
            warnings.warn(text, AdascaleWarning, stacklevel=4)

    def _call(self, name: str, inputs: Tensor) -> Call:
        """The last call of this layer in one pass."""
        return heads.named_head(name, heads.record(self._network, inputs)[0], self.model)

    def _remarks(self, usable: Tensor, call: Call) -> list[str]:
        again = unsteady(lambda images: self._call(call.name, self.prepare(images)), usable, call, kind(self.model))
        return [*heads.remarks(call, self.model), again]

    def _same_with_channels_last(self, images: Tensor, call: Call) -> bool:
        """Whether the network gives the same with this layout. Some view their activations in ways that it forbids."""
        try:
            return same_with_channels_last(lambda inputs: self._call(call.name, inputs), self.prepare(images), call)
        except Exception as error:
            if self.channels_last:
                raise InputError(f"{kind(self.model)} does not take channels_last=True: {error}") from error
            return False

    def adopt(self, name: str) -> Classifier:
        """Take this layer as the head without proof; the first batch proves it."""
        with self._passing(), torch.no_grad():  # in evaluation mode, where a parametrised weight stays as it is
            head = heads.head_of(self._network.get_submodule(name))
        if head is None:
            raise HeadNotFoundError(
                f"head={name!r} is a {kind(self.model.get_submodule(name))} without a (classes, features) weight. "
                f"{heads.advice(heads.matrix_modules(self.model))}"
            )
        self.head_name, self._head, self.located = name, heads.copied(head), False
        return self

    def prepare(self, images: Tensor, copy: bool = True) -> Tensor:
        """The images on the network's device and in its precision. copy: as a copy that it may write into."""
        if not images.is_floating_point():
            raise InputError(
                f"The images are {images.dtype}; the network needs the normalised floats it was trained on. "
                "Apply its preprocessing first (adascale.Preprocess does it for files and arrays)."
            )
        layout = self._layout if images.ndim == 4 else torch.preserve_format
        upward = images.device.type == "cpu" and self.device.type == "cuda"
        return images.detach().to(self.device, self.dtype, non_blocking=upward, copy=copy, memory_format=layout)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """``(features, logits)``, without gradients, from the engine."""
        return self.in_torch(images) if self._engines is None else self._engines.forward(self, images)

    def in_torch(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The same from torch, whatever the engine is."""
        with self._borrowed(), torch.inference_mode():
            parts = [self._run(part) for part in self._pieces(images)]
        return joined([features for features, _ in parts]), joined([logits for _, logits in parts])

    def features(self, images: Tensor, *, in_torch: bool = False) -> Tensor:
        """The features alone; the head is not computed. in_torch: whatever the engine is."""
        if self._engines is not None and not in_torch:
            return self._engines.forward(self, images)[0]
        with self._borrowed(), torch.inference_mode():
            return joined([self._run_to_the_head(part) for part in self._pieces(images)])

    def ready(self) -> AbstractContextManager[None]:
        """The network as a pass needs it. Passes within this context find it so already. An engine needs nothing."""
        return self._borrowed() if self._engines is None else nullcontext()

    @contextmanager
    def _borrowed(self) -> Iterator[None]:
        with self._passing(), autocast(self.device, self.precision):
            if self.compiled and self._parts is None:
                backend: Backend = "inductor" if isinstance(self.compiled, bool) else self.compiled
                self._parts = Compiled(self._network, self._name, backend)
            with nullcontext() if self._parts is None else self._parts.active():
                yield

    @property
    def _network(self) -> nn.Module:
        """Where passes run: the twin, or the network itself if it cannot have one."""
        return self.model if self._twin is None or self._twin.module is None else self._twin.module

    @contextmanager
    def _passing(self) -> Iterator[None]:
        """One thread at a time runs passes, and begins with a twin of the network as it is now."""
        with held(self.model):
            inside, self._inside = self._inside, True
            try:
                if self._process != os.getpid():  # a fork in the midst of a pass of another thread
                    self._twin, self._parts, self._process, inside = None, None, os.getpid(), False
                if not inside and (self._twin is None or not self._twin.is_current()):
                    self._renew()
                with self._guarded():
                    yield
            finally:
                self._inside = inside

    def _guarded(self) -> AbstractContextManager[None]:
        twin = self._twin
        return borrowed(self.model) if twin is None or twin.module is None else tidied(twin.modules)

    def _renew(self) -> None:
        """A new twin, observed on the probe."""
        check_precision(self.model)
        with torch.inference_mode(False), torch.no_grad(), autocast(self.device, self.precision):
            self._twin, self._parts, self._inner = Twin(self.model), None, Inner()
            if self._probe is None or self._twin.module is None:
                return
            images = self.prepare(self._probe)
            with tidied(self._twin.modules):
                run = self._run_to_the_head if self.located else self._network
                self._twin.observe(lambda: run(images), images.numel())
                if self.located:
                    self._fold()

    def _fold(self) -> None:
        """Fold the norms of the twin; compiled code and low precision keep the network's own."""
        if self._twin is not None and self._probe is not None and not self.compiled and self.precision is None:
            probe = self._probe
            with torch.inference_mode(False), torch.no_grad():
                self._twin.fold(lambda: self._run_to_the_head(self.prepare(probe)))

    def _pieces(self, images: Tensor) -> Iterator[Tensor]:
        largest = None if self._twin is None else self._twin.largest
        return map(self.prepare, torch.split(images, at_once(images, self.model, largest)))

    def __getstate__(self) -> dict[str, Any]:
        """The state without the twin and its compiled parts, which belong to the modules of the original."""
        return {**vars(self), "_parts": None, "_twin": None, "_inner": Inner(), "_inside": False}

    def forward_with_gradients(
        self, images: Tensor, goals: Sequence[Goal] = (None,)
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """``(features, logits, gradients)`` from torch: one pass, then one input gradient for each goal.

        None stands for ``d z[y_pred] / d x``, a temperature ``T`` for the gradient of the cross-entropy of ``z / T``
        against ``y_pred``, class centres for that of half the squared distance to the nearest; the last two up to a
        positive factor for each image. No parameter gradient is computed.
        """
        with self._borrowed(), torch.inference_mode(False), torch.enable_grad():
            network, head = self._network, self._name
            parts = [self._passes.with_gradients(network, head, part, goals) for part in self._pieces(images)]
        features, logits, *gradients = (joined(column) for column in zip(*parts, strict=True))
        return features, logits, gradients

    def tapped(
        self, images: Tensor, taps: Sequence[Tap], goals: Sequence[Goal] = ()
    ) -> tuple[Tensor, Tensor, list[Tensor], dict[Tap, Layers]]:
        """``(features, logits, gradients, tapped)`` from one pass; gradients: as in `forward_with_gradients`."""
        graph = bool(goals) or any(tap.needs_gradient for tap in taps)
        with self._opened(), torch.inference_mode(not graph), torch.set_grad_enabled(graph):
            where = (self._passes, self._network, self._name, self._pieces(images))
            return self._inner.passed(*where, taps, goals if graph else None)

    def changed(self, images: Tensor, view: View) -> Tensor:
        """The features of these images by the network with the change of this view."""
        with self._opened(), torch.inference_mode(), self._inner.changed(self._network, view):
            return joined([self._run_to_the_head(part) for part in self._pieces(images)])

    def cannot(self, need: Need) -> str:
        """Why this network, once located, cannot give what a method needs; empty if it can."""
        try:
            with self._opened() if isinstance(need, Tap) or need.network is not None else nullcontext():
                return self._inner.cannot(self._network, need)
        except InputError as error:
            return str(error)

    @contextmanager
    def _opened(self) -> Iterator[None]:
        """The network as a pass needs it, with its inner layers known: they are found on the probe, once."""
        check_layers(self.engine, bool(self.compiled))
        with self._borrowed():
            if self._inner.layers is None and self._probe is not None:
                self._inner.look(self._network, self._name, self.prepare(self._probe))
            yield

    def fingerprint(self) -> str:
        """A hash of every parameter and buffer and of the kinds of modules."""
        return hash_of_weights(self.model)

    def code(self) -> str:
        """A hash of how the network computes: its options, its modules' settings, and the user's own source files."""
        options = f"{self.precision} {self.compiled} {self.channels_last} {likes_channels_last(self.model)}"
        options += "" if self.engine == TORCH else f" {self.engine}"
        return hash_of_code(self.model, options)

    def _run(self, images: Tensor) -> tuple[Tensor, Tensor]:
        return self._passes.whole(self._network, self._name, images)

    def _run_to_the_head(self, images: Tensor) -> Tensor:
        return self._passes.to_the_head(self._network, self._name, images)
