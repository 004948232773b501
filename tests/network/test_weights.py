"""Weights that do not fit are recognised: what matches, what does not, and what they look like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from adascale import InputError, load_network
from adascale.core.extras import optional
from adascale.network import families
from adascale.network.families import Shapes, looks_like, signature
from tests.conftest import SmallNet

NETWORK = """
from tests.conftest import SmallNet
def net():
    return SmallNet()
"""


@pytest.fixture
def spec(tmp_path: Path) -> str:
    (tmp_path / "nets.py").write_text(NETWORK)
    return f"{tmp_path / 'nets.py'}:net"


def shapes(model: nn.Module) -> Shapes:
    return {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()}


def refusal(spec: str, state: dict[str, Any], tmp_path: Path) -> str:
    save_file(state, tmp_path / "w.safetensors")
    with pytest.raises(InputError) as caught:
        load_network(spec, tmp_path / "w.safetensors")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def made(source: str, name: str, **more: Any) -> Any:
    if source == "timm":
        return optional("timm", "timm").create_model(name, **more)
    return optional("torchvision.models", "torchvision").get_model(name, weights=None, **more)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_weights_of_another_library_are_recognised(tmp_path: Path) -> None:
    state = made("timm", "resnet10t", num_classes=7).state_dict()
    message = refusal("adascale:resnet-18", state, tmp_path)
    assert "these look like timm resnet10t" in message
    message = refusal("torchvision:squeezenet1_1", state, tmp_path)
    assert "do not fit torchvision:squeezenet1_1: 0 of 52 keys match; these look like timm resnet10t" in message


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("source", "name"),
    [("torchvision", "mobilenet_v3_small"), ("torchvision", "regnet_x_400mf"), ("timm", "vit_tiny_patch16_224")],
)
def test_the_table_has_the_networks_as_they_are_made(source: str, name: str) -> None:
    (known,) = [family for family in families.known() if (family.source, family.name) == (source, name)]
    assert signature(shapes(made(source, name))) == known.signature
    fine_tuned = made(source, name, num_classes=3)
    assert f"{source} {name}" in looks_like(shapes(fine_tuned))


def test_another_head_another_width_and_a_wrapper_are_recognised() -> None:
    resnet = made("torchvision", "resnet18")
    resnet.fc = nn.Sequential(nn.Linear(512, 20), nn.ReLU(), nn.Linear(20, 3))
    assert "torchvision resnet18" in looks_like(shapes(resnet))
    wrapped = {f"model.{key}": shape for key, shape in shapes(resnet).items()}
    assert looks_like(wrapped).endswith("under the prefix 'model.'")
    wide = {key: (*shape[:1], *(2 * n for n in shape[1:])) for key, shape in shapes(resnet).items()}
    assert "the layers of torchvision resnet18" in looks_like(wide)
    assert looks_like({"stem.weight": (3, 3), "unheard.of": (1,)}) == ""


def test_partial_matches_are_counted_first(spec: str, tmp_path: Path) -> None:
    state = SmallNet().state_dict()
    state["fc.weight"] = torch.zeros(9, 128)
    state["extra.a"], state["extra.b"] = torch.zeros(1), torch.zeros(1)
    del state["norm.running_mean"], state["fc.bias"]
    words = (
        "6 of 9 keys match; 2 missing (norm.running_mean, fc.bias); 2 unexpected (extra.a, extra.b); "
        "1 of another shape (fc.weight: (9, 128) in place of (5, 128))."
    )
    assert refusal(spec, state, tmp_path).endswith(words)


def test_the_prefix_of_a_wrapper_is_removed(spec: str, tmp_path: Path) -> None:
    state = SmallNet().state_dict()
    torch.save({"state_dict": {f"net.{key}": value for key, value in state.items()}}, tmp_path / "w.ckpt")
    loaded = load_network(spec, tmp_path / "w.ckpt")[0].state_dict()
    assert all(torch.equal(loaded[key], state[key]) for key in state)


def test_every_torchvision_network_can_be_given_weights(tmp_path: Path) -> None:
    """RegNet computes with numbers while it is made, which is not possible without memory."""
    state = made("torchvision", "regnet_x_400mf", num_classes=3).state_dict()
    save_file(state, tmp_path / "w.safetensors")
    loaded: Any = load_network("torchvision:regnet_x_400mf", tmp_path / "w.safetensors")[0]
    assert loaded.fc.out_features == 3


class Trap:
    def __reduce__(self) -> Any:
        return (print, ("unpickled!",))


@pytest.mark.parametrize("old_format", [False, True])
def test_a_whole_pickled_network_is_not_unpickled(
    spec: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], old_format: bool
) -> None:
    model: Any = SmallNet()
    model.trap = Trap()
    torch.save(model, tmp_path / "whole.pth", _use_new_zipfile_serialization=not old_format)
    with pytest.raises(InputError) as caught:
        load_network(spec, tmp_path / "whole.pth")
    assert "holds a whole pickled network (tests.conftest.SmallNet)" in str(caught.value)
    assert "torch.save(model.state_dict(), 'weights.pth')" in str(caught.value)
    torch.save({"state_dict": {}, "settings": Trap()}, tmp_path / "more.pth")
    with pytest.raises(InputError, match=r"holds a pickled \w+\.print, and to load that would run"):
        load_network(spec, tmp_path / "more.pth")
    assert "unpickled!" not in capsys.readouterr().out
