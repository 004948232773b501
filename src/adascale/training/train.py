"""Training: cross-entropy, ISH, adversarial. A killed run goes on where it stopped, to the same weights on a CPU."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adascale.core.errors import InputError
from adascale.core.progress import Advance, progress
from adascale.images.loader import load_batches
from adascale.images.preprocess import Preprocess
from adascale.images.sources import ImageSet
from adascale.network.classifier import Classifier
from adascale.network.running import borrowed
from adascale.training import checkpoint
from adascale.training.attack import PGD, accuracy, logits_of
from adascale.training.augment import check_labels, epoch_images
from adascale.training.ish import ish
from adascale.training.processes import Engine, precision
from adascale.training.recipes import Recipe

_UNFIT = (RuntimeError, ValueError, TypeError, IndexError, AssertionError)  # what a network may answer to odd images


@dataclass
class Tally:
    """What an epoch adds up to so far."""

    loss: float = 0.0
    right: int = 0
    seen: int = 0

    def __str__(self) -> str:
        seen = max(self.seen, 1)
        return f"loss {self.loss / seen:.4f}, accuracy {100 * self.right / seen:.2f} %"


@dataclass
class Training:
    """One network, its images and a recipe. ``run`` trains the network in place and writes its weights.

    val: labelled images for the accuracy after each epoch. about: what else tells this run from another, kept with the
    weights. tell: takes a line now and then. save_every: seconds between checkpoints within an epoch; there is one
    after each epoch anyway. classes: how many the network must have [default: as it is]. failures: images that could
    not be read, and why; those of the part of the run before a kill too.
    """

    network: nn.Module
    images: ImageSet
    preprocess: Preprocess
    recipe: Recipe = field(default_factory=Recipe)
    seed: int = 0
    val: ImageSet | None = None
    head: str | None = None
    engine: Engine = field(default_factory=Engine)
    dtype: str = "auto"
    workers: int | None = None
    save_every: float = 600.0
    about: Mapping[str, Any] = field(default_factory=dict)
    classes: int | None = None
    tell: Callable[[str], None] = lambda _: None
    failures: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.batch_size = min(self.recipe.batch_size, len(self.images))
        if self.batch_size % self.engine.world:
            raise InputError(
                f"{self.engine.world} processes share batches of {self.batch_size}; it must be a multiple."
            )
        self.per_epoch = len(self.images) // self.batch_size
        self.steps = self.recipe.epochs * self.per_epoch
        self._start = Classifier(self.network.to(self.engine.device)).fingerprint()[:12]
        sample = self._sample()
        self.classes = self._counted(sample)
        for name, images in (("The training set", self.images), ("The validation set", self.val)):
            if images is not None and images.labels is None:
                raise InputError(f"{name} has no class for every image; training needs them.")
            if images is not None:
                check_labels(images, self.classes, name)
        self.type = precision(self.dtype, self.engine.device)
        self.last = self._last_layer(sample)
        self.optimiser = self._optimiser()
        self.scaler = torch.amp.GradScaler("cuda", enabled=self.type is torch.float16)

    @property
    def settings(self) -> dict[str, Any]:
        """All that shapes the weights; a run is only continued with the same."""
        found = {
            **self.about,
            **asdict(self.recipe),
            "classes": self.classes,
            "seed": self.seed,
            "data": self.images.fingerprint()[:12],
            "starting_weights": self._start,
            "preprocess": asdict(self.preprocess),
            "precision": str(self.type or torch.float32).removeprefix("torch."),
            "processes": self.engine.world,
        }
        plain: dict[str, Any] = json.loads(json.dumps(found))  # as it comes back from a file
        return plain

    def run(self, out: Path) -> dict[str, Any]:
        """Train, write ``out`` (a state dict in safetensors) and give its record: settings, history, accuracies.

        A finished file is taken as it is. Beside it ``NAME.checkpoint.safetensors`` keeps what a killed run needs.
        """
        settings = self.settings
        if (done := checkpoint.load_checkpoint(out)) is not None:
            checkpoint.check_settings(out, done.record["settings"], settings)
            self.network.load_state_dict(done.tensors)
            self.failures |= done.record["failures"]
            self.tell(f"{out} is there already")
            return done.record
        path = out.with_name(f"{out.stem}.checkpoint.safetensors")
        record = self._resumed(path, settings) or self._begun(settings)
        wrapped = self.engine.wrap(self.network)
        devices = [self.engine.device] if self.engine.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices), self._gradients():
            while record["step"] < self.steps:
                self._epoch(wrapped, record, path)
        self.network.eval()
        record |= self._robust("end")
        if self.engine.rank == 0:
            checkpoint.save_checkpoint(out, self.network.state_dict(), record)
            path.unlink(missing_ok=True)
        self.engine.wait()
        return record

    def _begun(self, settings: dict[str, Any]) -> dict[str, Any]:
        found = {"settings": settings, "step": 0, "tally": asdict(Tally()), "history": [], "failures": self.failures}
        return {**found, **self._robust("start")}

    def _epoch(self, wrapped: nn.Module, record: dict[str, Any], path: Path) -> None:
        """The rest of the epoch that the record stands in."""
        epoch, first = divmod(record["step"], self.per_epoch)
        tally, saved = Tally(**record["tally"]), time.monotonic()
        title = f"{path.name.partition('.')[0]} epoch {epoch + 1} of {self.recipe.epochs}"
        with self._display(title, first) as advance:
            for images, labels in self._batches(epoch, first):
                self._step(wrapped, record["step"], images, labels, tally)
                record |= {"step": record["step"] + 1, "tally": asdict(tally)}
                advance(self.batch_size, str(tally))
                if time.monotonic() - saved >= self.save_every and record["step"] % self.per_epoch:
                    self._save(path, record)
                    saved = time.monotonic()
        self._close_epoch(title, record, tally)
        self._save(path, record)

    def _batches(self, epoch: int, first: int) -> Iterator[tuple[Tensor, Tensor]]:
        engine = self.engine
        images, rest = epoch_images(
            self.images,
            self.preprocess,
            self.seed,
            epoch,
            self.batch_size,
            (engine.rank, engine.world),
            self.recipe.augment,
        )
        share = self.batch_size // engine.world
        for batch in load_batches(images, rest, share, first * share, self.workers):
            self.failures |= {images.names[i]: reason for i, reason in batch.failures.items()}
            if batch.labels is None or not len(batch.images):
                name, reason = next(iter(self.failures.items()))
                raise InputError(
                    f"No image of a whole batch could be read ({name}: {reason}); check the training images."
                )
            yield batch.images.to(engine.device), batch.labels.to(engine.device)

    def _step(self, wrapped: nn.Module, step: int, images: Tensor, labels: Tensor, tally: Tally) -> None:
        place = (self.seed * self.steps + step) * self.engine.world + self.engine.rank
        torch.manual_seed(
            place
        )  # dropout and the like depend on the place in the run alone, so it needs no saved state
        for group in self.optimiser.param_groups:
            group["lr"] = self.recipe.rate(step, self.steps)
        with self._autocast():
            if self.recipe.loss == "adversarial":
                attack = PGD(self.recipe.eps, self.recipe.attack_steps, self.seed)
                images = attack(self.network, images, labels, self.preprocess, place)
            self.network.train()
            logits = logits_of(wrapped(images)).float()
            loss = F.cross_entropy(logits, labels)
        if not math.isfinite(value := float(loss.detach())):
            raise InputError(f"The loss is {value} at step {step}; a lower learning rate (--lr) may help.")
        self.optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(self.scaler.scale(loss))
        self.scaler.step(self.optimiser)
        self.scaler.update()
        tally.loss += value * len(labels)
        tally.right += int((logits.detach().argmax(1) == labels).sum())
        tally.seen += len(labels)

    def _close_epoch(self, title: str, record: dict[str, Any], tally: Tally) -> None:
        seen = max(tally.seen, 1)
        entry = {"loss": tally.loss / seen, "accuracy": tally.right / seen}
        text = str(tally)
        if self.val is not None and self.engine.rank == 0:
            entry["val_accuracy"] = accuracy(self.network, self.val, self.preprocess)
            text += f", validation {100 * entry['val_accuracy']:.2f} %"
        self.tell(f"{title}: {text}")
        record |= {"tally": asdict(Tally()), "history": [*record["history"], entry]}

    def _save(self, path: Path, record: dict[str, Any]) -> None:
        if self.engine.rank == 0:
            scaler = {"scaler": self.scaler.state_dict()}
            checkpoint.save_checkpoint(path, checkpoint.state_of(self.network, self.optimiser), {**record, **scaler})
        self.engine.wait()

    def _resumed(self, path: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
        saved = checkpoint.load_checkpoint(path)
        if saved is None:
            return None
        checkpoint.check_settings(path, saved.record["settings"], settings)
        checkpoint.restore(saved.tensors, self.network, self.optimiser)
        self.scaler.load_state_dict(saved.record.pop("scaler"))
        self.failures |= saved.record["failures"]
        saved.record["failures"] = self.failures  # one dict: the record grows with it
        self.tell(f"resuming at step {saved.record['step']} of {self.steps}")
        return saved.record

    def _robust(self, when: str) -> dict[str, float]:
        """Accuracy on the validation images, plain and under the training's own attack, for adversarial training."""
        if self.recipe.loss != "adversarial" or self.val is None:
            return {}
        attack = PGD(self.recipe.eps, self.recipe.attack_steps)
        found = {
            f"{when}_accuracy": accuracy(self.network, self.val, self.preprocess),
            f"{when}_robust_accuracy": accuracy(self.network, self.val, self.preprocess, attack),
        }
        plain, robust = (f"{100 * value:.2f} %" for value in found.values())
        self.tell(f"{when}: validation {plain}, under PGD with eps {self.recipe.eps:g} {robust}")
        return found

    @contextmanager
    def _display(self, title: str, first: int) -> Iterator[Advance]:
        if self.engine.rank:
            yield lambda images, note="": None
            return
        with progress(title, self.per_epoch * self.batch_size, first * self.batch_size) as advance:
            yield advance

    def _autocast(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.type is None else torch.autocast(self.engine.device.type, self.type)

    def _gradients(self) -> AbstractContextManager[Any]:
        if self.recipe.loss != "ish":
            return nullcontext()
        assert self.last is not None
        return ish(self.last, self.recipe.keep)

    def _sample(self) -> Tensor:
        """Two training images as the network will see them, to learn its classes and its last layer from."""
        for batch in load_batches(self.images, self.preprocess, 2):
            if len(batch.images):
                return batch.images.to(self.engine.device)
        raise InputError("No training image could be read.")

    def _counted(self, sample: Tensor) -> int:
        """The network's classes, which must be as many as asked for."""
        self.network.eval()
        with borrowed(self.network), torch.no_grad():
            try:
                classes = logits_of(self.network(sample)).shape[1]
            except _UNFIT as error:
                shape = "x".join(map(str, sample.shape[1:]))
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                raise InputError(
                    f"The network does not take images of {shape} ({reason}); see --size and --crop."
                ) from error
        if self.classes not in (None, classes):
            raise InputError(f"The network has {classes} classes and {self.classes} were asked for; leave that out.")
        return classes

    def _last_layer(self, sample: Tensor) -> nn.Module | None:
        """The head, where the recipe treats it in a way of its own."""
        if self.recipe.loss != "ish" and self.recipe.head_weight_decay == self.recipe.weight_decay:
            return None
        name = Classifier(self.network, self.head).locate(sample).head_name
        return self.network.get_submodule(name or "")

    def _optimiser(self) -> torch.optim.SGD:
        head = [] if self.last is None else list(self.last.parameters())
        rest = [p for p in self.network.parameters() if p.requires_grad and all(p is not q for q in head)]
        groups = [{"params": rest, "weight_decay": self.recipe.weight_decay}]
        if head:
            groups.append({"params": head, "weight_decay": self.recipe.head_weight_decay})
        return torch.optim.SGD(groups, lr=self.recipe.lr, momentum=self.recipe.momentum, nesterov=True)
