"""`benchmarks.agreement` for the methods that look inside the network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from adascale import Classifier, detectors, extract_batch


class Staged(NamedTuple):
    """A network as pytorch-ood takes it: consecutive parts, named as its stages, and what follows them."""

    model: nn.Module
    parts: Sequence[nn.Module]
    rest: nn.Module
    names: tuple[str, ...]

    @property
    def batches(self) -> Callable[[Tensor, Tensor], list[tuple[Tensor, Tensor]]]:
        return lambda images, labels: list(zip(torch.split(images, 100), torch.split(labels, 100), strict=True))


class InsidePair(NamedTuple):
    """Our parameters; their fitted detector; and who deviates from the paper and how, if the two differ on purpose."""

    theirs: str
    make: Callable[[Any, Staged, Tensor, Tensor], Any]
    ours: Mapping[str, Any] = {}
    deviates: str = ""


def _gram(package: Any, net: Staged, images: Tensor, labels: Tensor) -> Any:
    with torch.no_grad():
        predicted, classes = net.model(images).argmax(1), net.model(images).shape[1]
    made = package.Gram(net.rest, list(net.parts), classes, [1, 2, 3, 4, 5])
    made.validation_fraction = 0.0
    return made.fit(net.batches(images, predicted))


def _mds(package: Any, net: Staged, images: Tensor, labels: Tensor) -> Any:
    return package.MultiMahalanobis(list(net.parts)).fit(net.batches(images, labels))


def _rankfeat(package: Any, net: Staged, images: Tensor, labels: Tensor) -> Any:
    return package.RankFeat(nn.Sequential(*net.parts), net.rest)


def _nac(package: Any, net: Staged, images: Tensor, labels: Tensor) -> Any:
    layers = [net.model.get_submodule(name) for name in net.names]
    return package.NACUE(net.model, layers).fit(net.batches(images, labels))


def _mcd(package: Any, net: Staged, images: Tensor, labels: Tensor) -> Any:
    return package.MCD(net.model, samples=30)


INSIDE: Mapping[str, InsidePair] = {
    "gram": InsidePair("Gram", _gram, {"powers": (1, 2, 3, 4, 5), "held_out": 0.0}),
    "mds_ensemble": InsidePair("MultiMahalanobis", _mds),
    "rankfeat": InsidePair("RankFeat", _rankfeat, {"stages": (-1,)}),
    "nac": InsidePair(
        "NACUE",
        _nac,
        deviates="they space the bins by powers of ten and take the mean of the products of a channel's values and "
        "gradients, where the authors' code takes the product of their sums",
    ),
    "mc_dropout": InsidePair(
        "MCD", _mcd, {"samples": 30}, "they draw the masks anew for each image and each call, without a seed"
    ),
}


def scores(name: str, package: Any, net: Staged, train: tuple[Tensor, Tensor], test: Tensor) -> tuple[Tensor, Tensor]:
    """Our scores and theirs, each side fitted by itself. Ours reads the layers that theirs is given."""
    pair, known = INSIDE[name], {"layers": net.names} if name in ("gram", "mds_ensemble", "nac") else {}
    method = detectors.get(name)(**pair.ours, **known)
    classifier = Classifier(net.model).locate(train[0])
    learned = extract_batch(classifier, train[0], method.wants, train[1])
    ours = method.fit(learned, classifier.head).score(extract_batch(classifier, test, method.wants))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        theirs = pair.make(package, net, *train)
        return ours, torch.as_tensor(theirs.predict(test)).detach().double()
