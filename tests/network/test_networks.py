"""The CIFAR networks: sizes of their papers, specs, and weights of other names."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from adascale import InputError, load_network
from adascale.images.sources import find_images
from adascale.network import cifar as networks
from adascale.network.loading import new_network
from adascale.training.attack import accuracy
from tests.conftest import DATA, images, needs_data

WEIGHTS = DATA / "weights" / "cifar10_densenet101.safetensors"


@pytest.mark.parametrize(
    ("name", "parameters", "features"),
    [("wrn-28-10", 36_479_194, 640), ("densenet-100-12", 769_162, 342), ("resnet-18", 11_173_962, 512)],
)
def test_parameter_counts_of_the_papers(name: str, parameters: int, features: int) -> None:
    with torch.device("meta"):
        network = networks.make(name)
    assert sum(p.numel() for p in network.parameters()) == parameters
    assert network.head.in_features == features


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_weights_tell_classes_and_width(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    made = networks.make(name, classes=7, width=0.1).eval()
    save_file(made.state_dict(), tmp_path / "w.safetensors")
    loaded, preprocess = load_network(f"adascale:{name}", tmp_path / "w.safetensors")
    x = images(2, size=32)
    with torch.no_grad():
        assert torch.equal(loaded(x), made(x))
    assert loaded(x).shape == (2, 7)
    assert preprocess == networks.CIFAR


def test_the_tenth_of_wrn_28_10_is_wrn_28_1() -> None:
    network = networks.make("wrn-28-10", width=0.1)
    assert network.head.in_features == 64
    assert sum(p.numel() for p in network.parameters()) == 369_498


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("adascale:vgg", "adascale has no network 'vgg'"),
        ("adascale:resnet-18", "comes without weights; pass weights="),
    ],
)
def test_bad_specs_are_answered_in_one_line(spec: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        load_network(spec)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("spec", ["adascale:resnet-18", "torchvision:resnet18", "timm:resnet10t"])
def test_new_networks_have_the_classes_asked_for(spec: str) -> None:
    with torch.no_grad():
        assert new_network(spec, 7)[0].eval()(images(1, size=32)).shape == (1, 7)


def test_foreign_weights_are_refused(tmp_path: Path) -> None:
    save_file({"x": torch.zeros(1)}, tmp_path / "x.safetensors")
    with pytest.raises(InputError, match="not those of wrn-28-10"):
        load_network("adascale:wrn-28-10", tmp_path / "x.safetensors")
    with pytest.raises(InputError, match="width=0"):
        networks.make("resnet-18", width=0)
    with pytest.raises(InputError, match="only adascale: networks come in several widths"):
        new_network("torchvision:resnet18", 7, width=0.5)


@needs_data
def test_densenet_weights_of_other_names_give_the_same_logits() -> None:
    theirs, _ = load_network(f"{DATA / 'networks.py'}:cifar10_densenet101")
    ours, _ = load_network("adascale:densenet-100-12", WEIGHTS)
    state = load_file(WEIGHTS)
    assert set(networks.from_blocks(state)) == set(ours.state_dict())
    assert networks.from_blocks(ours.state_dict()).keys() == ours.state_dict().keys()
    x = images(8, size=32)
    with torch.no_grad():
        assert torch.allclose(ours(x), theirs(x), atol=1e-5)


@needs_data
@pytest.mark.slow
def test_densenet_accuracy_on_cifar10() -> None:
    ours, preprocess = load_network("adascale:densenet-100-12", WEIGHTS)
    assert preprocess is not None
    test = find_images(DATA / "cifar" / "cifar10_test.npz").subset(range(300))
    assert accuracy(ours, test, preprocess) >= 0.92
