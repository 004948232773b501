"""Networks that a study makes itself where it can afford to: on the digits."""

from __future__ import annotations

import copy
import hashlib
import json
from dataclasses import replace
from typing import Any, NamedTuple

from adascale.bench.run import Network
from adascale.network.classifier import Classifier
from adascale.paper.studies.setting import Setting, Subject
from adascale.training.recipes import Recipe
from adascale.training.train import Training


class Made(NamedTuple):
    """A network trained further, and what training says about it."""

    subject: Subject
    record: dict[str, Any]

    @property
    def text(self) -> str:
        """What adversarial training did to the accuracy under its own attack."""
        accuracies = [self.record.get(f"{when}_robust_accuracy") for when in ("start", "end")]
        if None in accuracies:
            return ""
        before, after = (f"{100 * float(value or 0):.2f} %" for value in accuracies)
        return f"; on validation images under PGD {after} (before training {before})"


def made_here(setting: Setting) -> bool:
    """Whether the study trains networks: the digits are small enough, and bring their training images."""
    return setting.suite.shipped and setting.suite.name == "digits" and setting.images.train is not None


def tuned(setting: Setting, subject: Subject, recipe: Recipe) -> Made:
    """The network trained further by the recipe on the suite's training images; kept beside the activations."""
    images = setting.images
    assert images.train is not None
    model = copy.deepcopy(subject.network.classifier.model)
    preprocess, asked_for = subject.network.preprocess, subject.network.classifier.asked_for
    job = Training(model, images.train, preprocess, recipe, setting.seed, images.val, asked_for)
    key = hashlib.sha256(json.dumps(job.settings, sort_keys=True).encode()).hexdigest()[:16]
    record = job.run(setting.cache / "trained" / f"{key}.safetensors")
    network = Network(f"{subject.network.name} {recipe.loss}", Classifier(model, asked_for), preprocess, job.settings)
    return Made(replace(subject, network=network), record)
