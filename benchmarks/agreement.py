"""Our scores against those of pytorch-ood, each side fitted by itself on the same features: rank correlations.

    python -m benchmarks.agreement DATA [--write]

DATA: a folder with the networks and images of the tests (`weights/cifar10_resnet20.safetensors`, `cifar/*.npz`). The
training images are 1,000 of CIFAR-10's, the scored ones 500 of its test images and 500 textures. ``--write`` puts the
table into docs/methods.md and keeps it (benchmarks/kept_tables.py). pytorch-ood has to be installed (``pip install
--no-deps pytorch-ood``).
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from adascale import AdascaleWarning, Classifier, Head, Outputs, detectors, extract_batch
from adascale.core.extras import optional
from adascale.network.ready import ready_network
from benchmarks import kept_tables
from benchmarks.agreement_inside import INSIDE, Staged
from benchmarks.agreement_inside import scores as inside_scores
from benchmarks.field import PAGE, write_block

AGREED = 0.999
_TRAINING, _SCORED = 1_000, 500
_OF_THE_NETWORK = {"odin": "ODIN", "mds_odin": "MahalanobisODIN"}


class Given(NamedTuple):
    """What both sides get: the package, the last layer, and the outputs to learn from and to score."""

    package: Any
    head: nn.Linear
    train: Outputs
    test: Outputs

    def of_logits(self, theirs: Any) -> Tensor:
        """In float64: in float32 sure images tie at a probability of 1."""
        fitted = theirs.fit_logits(self.train.logits.double(), self.train.labels)
        return torch.as_tensor(fitted.predict_logits(self.test.logits.double()))

    def of_features(self, theirs: Any) -> Tensor:
        fitted = theirs.fit_features(self.train.features, self.train.labels)
        return torch.as_tensor(fitted.predict_features(self.test.features))

    def of_maps(self, theirs: Any) -> Tensor:
        """Feature maps of one pixel."""
        fitted = theirs.fit_feature_maps(self.train.features[:, :, None, None], self.train.labels)
        return torch.as_tensor(fitted.predict_feature_maps(self.test.features[:, :, None, None]))

    @property
    def on_maps(self) -> nn.Module:
        return nn.Sequential(nn.Flatten(), self.head)


class Pair(NamedTuple):
    """Our parameters, their scores, and, where the two differ on purpose, who deviates from the paper and how."""

    theirs: str
    score: Callable[[Given], Tensor]
    ours: Mapping[str, Any] = {}
    deviates: str = ""


def _ash(variant: str) -> Pair:
    return Pair("ASH", lambda g: g.of_maps(g.package.ASH(None, g.on_maps, variant, 0.9)))


def _weight(name: str) -> bool:
    return name == "weight"


PAIRS: Mapping[str, Pair] = {
    "msp": Pair("MaxSoftmax", lambda g: g.of_logits(g.package.MaxSoftmax(None))),
    "mls": Pair("MaxLogit", lambda g: g.of_logits(g.package.MaxLogit(None))),
    "ebo": Pair("EnergyBased", lambda g: g.of_logits(g.package.EnergyBased(None))),
    "entropy": Pair("Entropy", lambda g: g.of_logits(g.package.Entropy(None))),
    "gen": Pair(
        "GEN",
        lambda g: g.of_logits(g.package.GEN(None, 0.1, 100)),
        deviates="they clamp probabilities to 1e-7 and 1 - 1e-7, where the paper does not",
    ),
    "temp_scale": Pair("TemperatureScaling", lambda g: g.of_logits(g.package.TemperatureScaling(None))),
    "klm": Pair("KLMatching", lambda g: g.of_logits(g.package.KLMatching(None))),
    "openmax": Pair(
        "OpenMax",
        lambda g: g.of_logits(g.package.OpenMax(None, tailsize=20, alpha=3)),
        deviates="they measure distances only to classes that an image of the batch is predicted as (0 to the others), "
        "take misclassified training samples into the means, and fit the tails by SciPy's search",
    ),
    "gradnorm": Pair("GradNorm", lambda g: g.package.GradNorm(g.head, _weight).predict(g.test.features)),
    "grad_uncertainty": Pair(
        "GradUncertainty",
        lambda g: g.package.GradUncertainty(g.head).predict(g.test.features),
        deviates="their gradient is that of PyTorch's binary cross-entropy, which is cut off for probabilities below "
        "1e-12, so that the surest images have short ones; ours is the closed form",
    ),
    "react": Pair("ReAct", lambda g: g.of_maps(g.package.ReAct(None, g.on_maps, percentile=0.9))),
    "ash_p": _ash("ash-p"),
    "ash_b": _ash("ash-b"),
    "ash_s": _ash("ash-s"),
    "scale": Pair("SCALE", lambda g: g.of_maps(g.package.SCALE(None, g.on_maps, 0.85))),
    "lts": Pair("LTS", lambda g: g.of_features(g.package.LTS(None, g.head, 0.05))),
    "vra": Pair(
        "VRA",
        lambda g: g.of_maps(g.package.VRA(None, g.on_maps, 0.6, 0.95)),
        deviates="they clip each feature to its own quantiles, which raises low values; the paper sets values below "
        "one quantile of all features to 0",
    ),
    "dice": Pair("DICE", lambda g: g.of_features(g.package.DICE(None, g.head.weight, g.head.bias, 0.9))),
    "knn": Pair("KNN", lambda g: g.of_features(g.package.KNN(None, 50))),
    "mds": Pair("Mahalanobis", lambda g: g.of_features(g.package.Mahalanobis(None))),
    "rmds": Pair("RMD", lambda g: g.of_features(g.package.RMD(None))),
    "class_gmm": Pair("GMM", lambda g: g.of_features(g.package.GMM(None))),
    "vim": Pair("ViM", lambda g: g.of_features(g.package.ViM(None, 32, g.head.weight, g.head.bias)), {"dim": 32}),
    "nnguide": Pair(
        "NNGuide", lambda g: g.of_features(g.package.NNGuide(None, g.head, 10)), {"k": 10, "fraction": 1.0}
    ),
    "she": Pair("SHE", lambda g: g.of_features(g.package.SHE(None, g.head))),
    "fdbd": Pair("fDBD", lambda g: g.of_features(g.package.fDBD(None, g.head))),
    "nci": Pair("NCI", lambda g: g.of_features(g.package.NCI(None, g.head, 1e-4))),
    "pnml": Pair("PNML", lambda g: g.of_features(g.package.PNML(None, g.head))),
}


def package() -> Any:
    """The detectors of pytorch-ood."""
    return optional("pytorch_ood.detector", "pytorch-ood")


def given(train: Outputs, test: Outputs, head: Head) -> Given:
    layer = nn.Linear(head.weight.shape[1], head.weight.shape[0]).requires_grad_(False)
    layer.weight.data, layer.bias.data = head.weight.detach(), head.offset.float()
    return Given(package(), layer, train, test)


def correlation(name: str, both: Given, head: Head) -> float:
    """Spearman's, of our score of this name with theirs."""
    pair = PAIRS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AdascaleWarning)
        ours = detectors.get(name)(**pair.ours).fit(both.train, head).score(both.test)
    return rank_correlation(ours, pair.score(both).detach().double())


def rank_correlation(a: Tensor, b: Tensor) -> float:
    """Spearman's, equal values with their mean rank."""
    return float(np.corrcoef([_ranks(a.numpy()), _ranks(b.numpy())])[0, 1])


def _ranks(values: Any) -> Any:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def odin(model: nn.Module, images: Tensor) -> float:
    """The same for ODIN, which needs the network."""
    method = detectors.ODIN()
    classifier = Classifier(model).locate(images)
    ours = method.fit(None, classifier.head).score(extract_batch(classifier, images, method.views))
    return rank_correlation(ours, package().ODIN(model)(images).detach().double())


def mds_odin(net: Staged, train: tuple[Tensor, Tensor], images: Tensor, std: tuple[float, ...] = ()) -> float:
    """The same for MDS-ODIN, which needs the network after it has learned."""
    method = detectors.MDSODIN(std=std)
    classifier = Classifier(net.model).locate(images)
    learned = extract_batch(classifier, train[0], (), train[1])
    method.fit(learned, classifier.head)
    ours = method.score(extract_batch(classifier, images, method.views))
    encoder = nn.Sequential(*net.parts, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    theirs = package().MahalanobisODIN(encoder, eps=method.eta, norm_std=list(std) or None)
    theirs.fit_features(learned.features, train[1])
    return rank_correlation(ours, theirs.predict(images).detach().double())


def inside(name: str, net: Staged, train: tuple[Tensor, Tensor], test: Tensor) -> float:
    """The same for a method that looks inside the network."""
    return rank_correlation(*inside_scores(name, package(), net, train, test))


def table(found: Mapping[str, float], version: str) -> str:
    """The correlations as Markdown."""
    lines = [f"| ours | pytorch-ood {version} | rank correlation | |", "|---|---|---|---|"]
    for name, value in found.items():
        pair = PAIRS.get(name) or INSIDE.get(name)
        theirs, note = (pair.theirs, pair.deviates) if pair else (_OF_THE_NETWORK[name], "")
        lines.append(f"| `{name}` | {theirs} | {np.floor(value * 1e5) / 1e5:.5f} | {note} |")
    return "\n".join(lines)


def measured(data: Path) -> dict[str, float]:
    """All correlations on CIFAR-10, by our names."""
    classifier, preprocess = ready_network(f"{data / 'networks.py'}:cifar10_resnet20", None, "cpu", "linear")
    assert preprocess is not None

    def images(name: str, count: int) -> tuple[Tensor, Tensor]:
        with np.load(data / "cifar" / f"{name}.npz") as file:
            pixels, labels = file["images"][:count], file["labels"][:count] if "labels" in file else np.zeros(count)
        values = torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255
        mean, std = (torch.tensor(part)[:, None, None] for part in (preprocess.mean, preprocess.std))
        return (values - mean) / std, torch.from_numpy(labels).long()

    scored = torch.cat([images(name, _SCORED)[0] for name in ("cifar10_test", "textures32")])
    learned = images("cifar10_train", _TRAINING)
    train, test = extract_batch(classifier, learned[0], (), learned[1]), extract_batch(classifier, scored)
    both = given(train, test, classifier.head)
    found = {name: correlation(name, both, classifier.head) for name in PAIRS}
    few, net = torch.cat([scored[:100], scored[-100:]]), _staged(classifier.model)
    found["odin"] = odin(classifier.model, few)
    found["mds_odin"] = mds_odin(net, learned, few, preprocess.std)
    names = [name for name in INSIDE if name != "mc_dropout"]  # this network has no dropout
    return {**found, **{name: inside(name, net, learned, scored) for name in names}}


def _staged(model: Any) -> Staged:
    """The network of the tests in the parts that pytorch-ood takes."""
    first = nn.Sequential(model.conv1, model.bn1, nn.ReLU(), model.layer1)
    rest = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), model.linear)
    return Staged(model, [first, model.layer2, model.layer3], rest, ("layer1", "layer2", "layer3"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--write", action="store_true")
    wanted = parser.parse_args()
    text = table(measured(wanted.data), metadata.version("pytorch-ood"))
    print(text)
    if wanted.write:
        write_block("agreement", text)
        kept_tables.keep(PAGE, "agreement")


if __name__ == "__main__":
    main()
