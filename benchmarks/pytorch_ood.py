"""The detectors of the package pytorch-ood, given what our methods have fitted, to compare times with.

`SCORES` is empty where the package is not installed (``pip install --no-deps pytorch-ood``). What a detector of theirs
learns is put in place directly, in float32: only scoring is timed, and both sides then compute the same function.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from adascale.core.errors import AdascaleError
from adascale.core.extras import optional
from adascale.core.types import Head
from benchmarks.openood import Score


def _imported() -> Any:
    """The package's detectors; None, with the reason on stderr, where it cannot be imported."""
    try:
        optional("torchvision", "torchvision")  # which may need our help to import
        return importlib.import_module("pytorch_ood.detector")
    except (AdascaleError, ImportError, RuntimeError) as error:
        print(f"pytorch-ood is left out: {error}", file=sys.stderr)
        return None


_package = _imported()


def _linear(head: Head) -> nn.Linear:
    layer = nn.Linear(head.weight.shape[1], head.weight.shape[0])
    layer.weight.data, layer.bias.data = head.weight, head.offset.float()
    return layer.requires_grad_(False)


def _of_logits(detector: Any) -> Score:
    return lambda logits, features, moved: _tensor(detector.predict_logits(logits))


def _of_features(detector: Any) -> Score:
    return lambda logits, features, moved: _tensor(detector.predict_features(features))


def _of_maps(detector: Any) -> Score:
    """For detectors of feature maps: ours are maps of one pixel."""
    return lambda logits, features, moved: _tensor(detector.predict_feature_maps(features[:, :, None, None]))


def _tensor(found: Any) -> Tensor:
    assert isinstance(found, Tensor)
    return found.detach()


def _on_maps(head: Head) -> nn.Module:
    return nn.Sequential(nn.Flatten(), _linear(head))


def _ash(variant: str) -> Callable[[Any, Head], Score]:
    return lambda method, head: _of_maps(_package.ASH(None, _on_maps(head), variant, method.percentile / 100))


def _gradnorm(method: Any, head: Head) -> Score:
    detector = _package.GradNorm(_linear(head).requires_grad_(True), lambda name: name == "weight")
    return lambda logits, features, moved: _tensor(detector.predict(features))


def _set(detector: Any, **learned: Any) -> Any:
    for name, value in learned.items():
        setattr(detector, name, value.float() if isinstance(value, Tensor) else value)
    return detector


def _nnguide(method: Any, head: Head) -> Score:
    return _of_features(_set(_package.NNGuide(None, _linear(head), method.k), _scaled_features=method.bank_))


def _vim(method: Any, head: Head) -> Score:
    basis = torch.linalg.qr(method.principal_, mode="complete")[0]
    dim = method.principal_.shape[1]
    detector = _package.ViM(None, dim, head.weight, head.offset)
    rest = basis[:, dim:].contiguous()
    return _of_features(_set(detector, principal_subspace=rest, alpha=float(method.alpha_), u=head.origin))


def _klm(method: Any, head: Head) -> Score:
    dists = nn.ParameterDict(
        {str(c): nn.Parameter(row.exp().float(), requires_grad=False) for c, row in enumerate(method.log_means_)}
    )
    return _of_logits(_set(_package.KLMatching(None), dists=dists))


def _she(method: Any, head: Head) -> Score:
    return _of_features(_set(_package.SHE(None, _linear(head)), patterns=method.means_))


def _fdbd(method: Any, head: Head) -> Score:
    between = head.distances.clone().fill_diagonal_(1)
    return _of_features(_set(_package.fDBD(None, _linear(head)), train_mean=method.mean_, _denom_matrix=between))


def _nci(method: Any, head: Head) -> Score:
    return _of_features(_set(_package.NCI(None, _linear(head), method.norm_weight), global_mean=method.mean_))


def _dice(method: Any, head: Head) -> Score:
    detector = _package.DICE(None, head.weight, head.offset.float(), method.percentile / 100)
    return _of_features(_set(detector, masked_w=head.weight * method.weight_mask_))


SCORES: Mapping[str, Callable[[Any, Head], Score]] = (
    {
        "msp": lambda method, head: _of_logits(_package.MaxSoftmax(None)),
        "mls": lambda method, head: _of_logits(_package.MaxLogit(None)),
        "ebo": lambda method, head: _of_logits(_package.EnergyBased(None, method.temperature)),
        "gen": lambda method, head: _of_logits(_package.GEN(None, method.gamma, method.top)),
        "gradnorm": _gradnorm,
        "react": lambda method, head: _of_maps(_package.ReAct(None, _on_maps(head), float(method.threshold_))),
        "ash_p": _ash("ash-p"),
        "ash_b": _ash("ash-b"),
        "ash_s": _ash("ash-s"),
        "scale": lambda method, head: _of_maps(_package.SCALE(None, _on_maps(head), method.percentile / 100)),
        "lts": lambda method, head: _of_features(_package.LTS(None, _linear(head), 1 - method.percentile / 100)),
        "dice": _dice,
        "nnguide": _nnguide,
        "vim": _vim,
        "klm": _klm,
        "she": _she,
        "fdbd": _fdbd,
        "nci": _nci,
    }
    if _package is not None
    else {}
)
