"""Training with cross-entropy, with ISH or against attacks. A killed run resumes, on a CPU to the same weights."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
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
from adascale.storage.locks import claimed
from adascale.training import checkpoint
from adascale.training.attack import PGD, accuracy, logits_of
from adascale.training.augment import epoch_images
from adascale.training.ish import ish
from adascale.training.processes import Engine, precision
from adascale.training.recipes import Recipe

# Exceptions that networks raise for images of a wrong shape
_UNFIT = (RuntimeError, ValueError, TypeError, IndexError, AssertionError)


@dataclass
class Tally:
    """The sums over an epoch so far."""

    loss: float = 0.0
    right: int = 0
    seen: int = 0

    def means(self) -> dict[str, float]:
        return {"loss": self.loss / max(self.seen, 1), "accuracy": self.right / max(self.seen, 1)}

    def __str__(self) -> str:
        return "loss {loss:.4f}, accuracy {accuracy:.2%}".format(**self.means()).replace("%", " %")


@dataclass
class Training:
    """One network, its images and a recipe. ``run`` trains the network in place and writes its weights.

    val: labelled images for the accuracy after each epoch. head: the name of the last linear layer, if it cannot be
    found. save_every: seconds between checkpoints within an epoch; there is one after each epoch in any case. about:
    further settings that tell this run from others, kept with the weights. classes: the number that the network must
    have [default: any]. tell: is called with a line of text now and then. failures: images that could not be read, and
    why, including those of a run that this one resumes.
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
                f"batch_size={self.batch_size} for {self.engine.world} processes; give a multiple of their number."
            )
        self.per_epoch = len(self.images) // self.batch_size
        self.steps = self.recipe.epochs * self.per_epoch
        self._start = Classifier(self.network.to(self.engine.device)).fingerprint()[:12]
        sample = self._sample()
        self.classes = self._count_classes(sample)
        _check_labels("The training set", self.images, self.classes)
        if self.val is not None:
            _check_labels("The validation set", self.val, self.classes)
        self.type = precision(self.dtype, self.engine.device)
        self.last = self._last_layer(sample)
        self.optimiser = self._optimiser()
        self.scaler = torch.amp.GradScaler("cuda", enabled=self.type is torch.float16)

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that shapes the weights; a run resumes only with the same settings."""
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
        plain: dict[str, Any] = json.loads(json.dumps(found))  # as a file gives it back
        return plain

    def run(self, out: Path) -> dict[str, Any]:
        """Train, write ``out`` (a state dict in safetensors) and return its record: settings, history, accuracies.

        A finished file is taken as it is. ``NAME.checkpoint.safetensors`` beside it has all that a killed run needs to
        resume. Two runs never write one file.
        """
        with claimed(out) if self.engine.rank == 0 else nullcontext():
            return self._run(out)

    def _run(self, out: Path) -> dict[str, Any]:
        settings = self.settings
        if (done := checkpoint.load_checkpoint(out)) is not None:
            checkpoint.check_settings(out, done.record["settings"], settings)
            self.network.load_state_dict(done.tensors)
            self.failures |= done.record["failures"]
            self.tell(f"{out} is there already")
            return done.record
        path = out.with_name(f"{out.stem}.checkpoint.safetensors")
        record = self._record(path, settings)
        wrapped = self.engine.wrap(self.network)
        devices = [self.engine.device] if self.engine.device.type == "cuda" else []
        gradients = nullcontext() if self.recipe.loss != "ish" else ish(self.last, self.recipe.keep)
        with torch.random.fork_rng(devices=devices), gradients:
            while record["step"] < self.steps:
                self._epoch(wrapped, record, path)
        self.network.eval()
        record |= self._robust("end")
        if self.engine.rank == 0:
            checkpoint.save_checkpoint(out, self.network.state_dict(), record)
            path.unlink(missing_ok=True)
        self.engine.wait()
        return record

    def _epoch(self, wrapped: nn.Module, record: dict[str, Any], path: Path) -> None:
        """Train for the rest of the current epoch."""
        epoch, first = divmod(record["step"], self.per_epoch)
        tally, saved = Tally(**record["tally"]), time.monotonic()
        title = f"{path.name.partition('.')[0]} epoch {epoch + 1} of {self.recipe.epochs}"
        done, total = (steps * self.batch_size for steps in (first, self.per_epoch))
        silent: AbstractContextManager[Advance] = nullcontext(lambda images, note="": None)
        with silent if self.engine.rank else progress(title, total, done) as advance:
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
        part, share = (engine.rank, engine.world), self.batch_size // engine.world
        images, rest = epoch_images(
            self.images, self.preprocess, self.seed, epoch, self.batch_size, part, self.recipe.augment
        )
        for batch in load_batches(images, rest, share, first * share, self.workers):
            self.failures |= {images.names[i]: reason for i, reason in batch.failures.items()}
            if batch.labels is None or not len(batch.images):
                name, reason = next(iter(self.failures.items()))
                raise InputError(f"No image of a batch could be read ({name}: {reason}); check the training images.")
            yield batch.images.to(engine.device), batch.labels.to(engine.device)

    def _step(self, wrapped: nn.Module, step: int, images: Tensor, labels: Tensor, tally: Tally) -> None:
        place = (self.seed * self.steps + step) * self.engine.world + self.engine.rank
        torch.manual_seed(place)  # dropout depends on the step alone, so a checkpoint needs no random state
        for group in self.optimiser.param_groups:
            group["lr"] = self.recipe.rate(step, self.steps)
        autocast = nullcontext() if self.type is None else torch.autocast(self.engine.device.type, self.type)
        with autocast:
            if self.recipe.loss == "adversarial":
                attack = PGD(self.recipe.eps, self.recipe.attack_steps, self.seed)
                images = attack(self.network, images, labels, self.preprocess, place)
            self.network.train()
            logits = logits_of(wrapped(images)).float()
            loss = F.cross_entropy(logits, labels)
        if not math.isfinite(value := float(loss.detach())):
            raise InputError(f"The loss is {value} at step {step}; a lower learning rate (lr) may help.")
        self.optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(self.scaler.scale(loss))
        self.scaler.step(self.optimiser)
        self.scaler.update()
        tally.loss += value * len(labels)
        tally.right += int((logits.detach().argmax(1) == labels).sum())
        tally.seen += len(labels)

    def _close_epoch(self, title: str, record: dict[str, Any], tally: Tally) -> None:
        entry, text = tally.means(), str(tally)
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

    def _record(self, path: Path, settings: dict[str, Any]) -> dict[str, Any]:
        """The record of a run that begins, or of one that resumes from its checkpoint."""
        saved = checkpoint.load_checkpoint(path)
        if saved is None:
            counts = {"step": 0, "tally": asdict(Tally()), "history": []}
            return {"settings": settings, **counts, "failures": self.failures, **self._robust("start")}
        checkpoint.check_settings(path, saved.record["settings"], settings)
        checkpoint.restore(saved.tensors, self.network, self.optimiser)
        self.scaler.load_state_dict(saved.record.pop("scaler"))
        self.failures |= saved.record["failures"]
        self.tell(f"resuming at step {saved.record['step']} of {self.steps}")
        return {**saved.record, "failures": self.failures}  # the same dict, so that the record grows with it

    def _robust(self, when: str) -> dict[str, float]:
        """For adversarial training: the accuracy on the validation images, plain and under its own attack."""
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

    def _sample(self) -> Tensor:
        """Up to two training images as the network will see them, to find its classes and its last layer."""
        for batch in load_batches(self.images, self.preprocess, 2):
            if len(batch.images):
                return batch.images.to(self.engine.device)
        raise InputError(f"None of the {len(self.images)} training images can be read; check their files.")

    def _count_classes(self, sample: Tensor) -> int:
        """The number of the network's classes, which must be that asked for, if any."""
        self.network.eval()
        with borrowed(self.network), torch.no_grad():
            try:
                classes = logits_of(self.network(sample)).shape[1]
            except _UNFIT as error:
                shape = "x".join(map(str, sample.shape[1:]))
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                raise InputError(
                    f"The network does not take images of {shape} ({reason}); give another size or crop."
                ) from error
        if self.classes not in (None, classes):
            raise InputError(f"The network has {classes} classes and {self.classes} were asked for; leave classes out.")
        return classes

    def _last_layer(self, sample: Tensor) -> nn.Module | None:
        """The head, if the recipe treats it differently from the other layers."""
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


def _check_labels(name: str, images: ImageSet, classes: int) -> None:
    """Refuse images without labels, and labels that are no class of the network."""
    if images.labels is None:
        raise InputError(f"{name} has no class for every image; training needs them.")
    wrong = next((label for label in images.labels if not 0 <= label < classes), None)
    if wrong is not None:
        raise InputError(
            f"{name} has the class {wrong}; the network has {classes} classes, counted from 0 to {classes - 1}."
        )
