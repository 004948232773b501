"""Trivial pixels of real networks inside one ONNX file."""

from __future__ import annotations

import copy

import pytest
from torch import Tensor, nn

from adascale import View, load_network
from adascale.images.loader import load_batches
from adascale.images.sources import find_images
from tests.conftest import DATA, needs_data
from tests.export.engines import check_against_python, in_onnxruntime
from tests.export.nets import Parted, Viewed

pytestmark = [needs_data, pytest.mark.usefixtures("unguarded"), pytest.mark.filterwarnings("ignore")]


def real(name: str) -> tuple[nn.Module, Tensor]:
    """A network of the shared data, and 32 test images as it wants them."""
    network, preprocess = load_network(f"{DATA / 'networks.py'}:{name}")
    assert preprocess is not None
    found = find_images(DATA / ("imagenet/val" if name.startswith("imagenet") else "cifar/cifar10_test.npz"))
    return network, next(iter(load_batches(found, preprocess, 32))).images


def check_real(name: str, head: str, pixels: float, features: float) -> None:
    network, x = real(name)
    run = in_onnxruntime(Viewed(Parted(copy.deepcopy(network), head), x[:2], [View()]), (x[:2],))
    check_against_python(network, x, [View()], run, pixels, features)


def test_resnet20_in_one_file() -> None:
    check_real("cifar10_resnet20", "linear", pixels=0.9999, features=1e-5)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "head", "pixels", "features"),
    [
        # A change of the memory layout alone moves as many pixels: a ReLU at zero opens or closes.
        ("imagenet_resnet50", "fc", 0.98, 0.15),
        ("cifar10_vit", "mlp_head.1", 0.9999, 1e-5),
    ],
)
def test_large_networks_in_one_file(name: str, head: str, pixels: float, features: float) -> None:
    check_real(name, head, pixels, features)
