"""Networks by name, with the preprocessing of their source: equal to what the source itself would do."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from adascale import Classifier, InputError, MissingExtraError, load_network
from adascale.core import extras as compat
from tests.conftest import images, seeded

NETWORK = """
import torch
from torch import nn
PREPROCESS = {"make": {"size": 20, "crop": 16, "mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]}}
def make():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
ready = make()
number = 7
def breaks():
    raise ValueError("no such\\nluck")
def nothing():
    return None
"""

OWN = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.fc = nn.Conv2d(3, 8, 3), nn.Linear(8, 3)
    def forward(self, x):
        return self.fc(torch.{activation}(self.conv(x)).mean((2, 3)))
"""


def photo(width: int, height: int) -> Image.Image:
    values = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(values).resize((width * 2, height * 2), Image.Resampling.BICUBIC)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "nets.py").write_text(NETWORK)
    return tmp_path / "nets.py"


def test_own_files(file: Path) -> None:
    model, preprocess = load_network(f"{file}:make")
    assert isinstance(model, nn.Sequential)
    assert not model.training
    assert preprocess is not None
    assert (preprocess.size, preprocess.mean) == (20, (0.1, 0.2, 0.3))
    assert load_network(f"{file}:ready")[1] is None


def test_files_of_one_name_share_no_cache_key(tmp_path: Path) -> None:
    made = []
    for activation in ("relu", "tanh"):
        (tmp_path / activation).mkdir()
        (tmp_path / activation / "net.py").write_text(OWN.format(activation=activation))
        made.append(Classifier(load_network(f"{tmp_path / activation / 'net.py'}:Net")[0]))
    relu, tanh = (classifier.locate(images(2)) for classifier in made)
    assert relu.fingerprint() == tanh.fingerprint()  # the same weights
    assert not torch.equal(relu.features(images(2)), tanh.features(images(2)))
    assert relu.code() != tanh.code()
    again = Classifier(load_network(f"{tmp_path / 'relu' / 'net.py'}:Net")[0])
    assert again.code() == relu.code()


def test_weights_from_either_format(file: Path, tmp_path: Path) -> None:
    state = load_network(f"{file}:make")[0].state_dict()
    save_file(state, tmp_path / "w.safetensors")
    torch.save({"state_dict": {f"module.{k}": v for k, v in state.items()}}, tmp_path / "w.pth")
    for name in ("w.safetensors", "w.pth"):
        loaded = load_network(f"{file}:make", tmp_path / name)[0].state_dict()
        assert all(torch.equal(loaded[key], state[key]) for key in state)


class Exploit:
    def __reduce__(self) -> Any:
        return (print, ("unpickled!",))


def test_nothing_is_unpickled(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"a": Exploit()}, tmp_path / "evil.pth")
    with pytest.raises(InputError, match="cannot be read as weights"):
        load_network(f"{file}:make", tmp_path / "evil.pth")
    assert "unpickled!" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("resnet50", "none of the forms .* did you mean 'torchvision:resnet50'"),
        ("torchvison:resnet50", "none of the forms .* did you mean 'torchvision:resnet50'"),
        ("keras:x", "none of the forms"),
        ("nets.py:", "no Python file nets.py"),
        ("{file}", "lacks the name of its factory; it has make, breaks, nothing, ready: write .*nets.py:make"),
        ("{file}:", "lacks the name of its factory"),
        ("nowhere.py:make", "no Python file"),
        ("{file}:missing", "no 'missing'.* It has make, breaks, nothing, ready"),
        ("{file}:mak", "no 'mak'.*; did you mean 'make'"),
        ("{file}:number", "'number' of .*nets.py is an object of type int, not a torch.nn.Module. It has make, breaks"),
        ("{file}:nothing", "'nothing' of .*nets.py makes None, not a torch.nn.Module. It has make, breaks, ready"),
        ("{file}:breaks", "ValueError: no such luck"),
        ("torchvision:resnet5", "no classifier 'resnet5'; did you mean 'resnet"),
        ("torchvision:fasterrcnn_resnet50_fpn", "no classifier of images"),
        ("timm:resnet5", "timm has no network 'resnet5'; did you mean 'resnet"),
        ("adascale:resnet18", "no network 'resnet18'; did you mean 'resnet-18'"),
        ("hf:./nothing/here", r"hf:\./nothing/here: there is no folder \./nothing/here; give"),
        ("hf:/nothing/here", "there is no folder /nothing/here; give"),
        ("hf:my/own/network", "there is no folder my/own/network; give"),
    ],
)
def test_bad_specs_are_answered_in_one_line(file: Path, spec: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        load_network(spec.format(file=file))
    assert "\n" not in str(caught.value)


def test_bad_weights_are_named(file: Path, tmp_path: Path) -> None:
    (tmp_path / "text.pth").write_text("hello")
    (tmp_path / "junk.pth").write_bytes(b"PK\x03\x04" + bytes(range(60)))
    Image.new("RGB", (8, 8)).save(tmp_path / "a0.png")
    torch.save([1, 2], tmp_path / "list.pth")
    save_file({"x": torch.zeros(1)}, tmp_path / "other.safetensors")
    for name, words in (
        ("none.pth", "no weights file"),
        ("text.pth", r"text.pth cannot be read as weights: it is damaged, or no weights file\. It must be"),
        ("junk.pth", r"junk.pth cannot be read as weights: it is damaged, or no weights file\. It must be"),
        ("a0.png", r"a0.png cannot be read as weights: it is damaged, or no weights file\. It must be"),
        ("list.pth", "no state dict"),
        ("other.safetensors", "0 of 4 keys match; 4 missing .0.weight, 0.bias, 3.weight .*; 1 unexpected .x."),
    ):
        with pytest.raises(InputError, match=words) as caught:
            load_network(f"{file}:make", tmp_path / name)
        assert "weights_only" not in str(caught.value)


@pytest.mark.parametrize("name", ["resnet18", "swin_t", "efficientnet_b0"])
def test_torchvision_preprocessing_and_class_count(name: str, tmp_path: Path) -> None:
    models = compat.optional("torchvision.models", "torchvision")
    fine_tuned = seeded(lambda: models.get_model(name, weights=None, num_classes=7))
    save_file(fine_tuned.state_dict(), tmp_path / "w.safetensors")
    model, preprocess = load_network(f"torchvision:{name}", tmp_path / "w.safetensors")
    assert preprocess is not None
    own = models.get_model_weights(name).DEFAULT.transforms()
    for image in (photo(200, 150), photo(130, 333)):
        assert torch.allclose(preprocess(image), own(image), atol=1e-5)
        x = preprocess(image)[None]
    with torch.no_grad():
        assert torch.allclose(model(x), fine_tuned(x), atol=1e-5)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ["resnet10t", "vit_tiny_patch16_224", "mobilenetv4_conv_small"])
def test_timm_preprocessing_and_class_count(name: str, tmp_path: Path) -> None:
    timm = compat.optional("timm", "timm")
    fine_tuned = seeded(lambda: timm.create_model(name, num_classes=7))
    save_file(fine_tuned.state_dict(), tmp_path / "w.safetensors")
    model, preprocess = load_network(f"timm:{name}", tmp_path / "w.safetensors")
    assert preprocess is not None
    own = timm.data.create_transform(**timm.data.resolve_model_data_config(model), is_training=False)
    for image in (photo(200, 150), photo(130, 333)):
        assert torch.allclose(preprocess(image), own(image), atol=1e-5)
        x = preprocess(image)[None]
    with torch.no_grad():
        assert torch.allclose(model(x), fine_tuned(x), atol=1e-5)


PROCESSORS: dict[str, dict[str, Any]] = {
    "ViTImageProcessor": {"size": {"height": 32, "width": 32}},
    "ConvNextImageProcessor": {"size": {"shortest_edge": 32}, "crop_pct": 0.875},
    "BitImageProcessor": {"size": {"shortest_edge": 40}, "crop_size": {"height": 32, "width": 32}},
}


@pytest.mark.parametrize("processor", PROCESSORS)
def test_hugging_face_folders(processor: str, tmp_path: Path) -> None:
    compat.optional("torchvision", "torchvision")
    transformers = compat.optional("transformers", "huggingface")
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_labels=4)
    torch.manual_seed(0)
    network = transformers.ResNetForImageClassification(config).eval()
    network.save_pretrained(tmp_path)
    own = getattr(transformers, processor)(**PROCESSORS[processor])
    own.save_pretrained(tmp_path)
    model, preprocess = load_network(f"hf:{tmp_path}")
    assert preprocess is not None
    for image in (photo(64, 48), photo(40, 90)):
        expected = own(image, return_tensors="pt")["pixel_values"][0]
        # Newer processors resize tensors rather than Pillow images; some values round to another grey level.
        levels = (preprocess(image) - expected).abs() * 255 * min(preprocess.std)
        assert levels.max() < 2.5
        assert levels.mean() < 0.25
        x = expected[None]
    with torch.no_grad():
        assert torch.allclose(model(x).logits, network(x).logits, atol=1e-6)


def test_a_missing_package_comes_with_its_install_line() -> None:
    with pytest.raises(MissingExtraError, match=r"pip install 'adascale\[demo\]'"):
        compat.optional("a_package_that_is_not_there", "demo")


def test_the_core_needs_no_optional_package() -> None:
    import subprocess
    import sys

    code = (
        "import sys\n"
        "for name in ('torchvision', 'timm', 'transformers', 'sklearn', 'pyarrow', 'accelerate'):\n"
        "    sys.modules[name] = None\n"
        "import adascale, adascale.cli\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_detectors_work_on_what_specs_load(file: Path) -> None:
    from adascale import OODDetector

    model, _ = load_network(f"{file}:make")
    with torch.no_grad():
        expected = -torch.logsumexp(model(images(3)).double(), 1)
    assert torch.allclose(OODDetector(model, "ebo").fit(images(30)).score(images(3)), expected, rtol=1e-5)


@pytest.mark.skipif(find_spec("torchvision") is None, reason="needs torchvision")
def test_a_file_of_your_own_may_import_torchvision(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "import torchvision\ndef make():\n    return torchvision.models.shufflenet_v2_x0_5(num_classes=7)\n"
    )
    program = "import adascale; print(adascale.load_network('own.py:make')[0].fc.out_features)"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.strip() == "7", done.stderr


def test_a_hub_that_cannot_be_reached_is_told_without_retries(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    compat.optional("huggingface_hub", "huggingface")

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("no network")

    monkeypatch.setattr("socket.create_connection", refuse)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "https://hub.invalid")
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("nodir", "no/dir"):
        with pytest.raises(InputError, match=f"there is no folder {name} here, the Hugging Face hub cannot be reached"):
            load_network(f"hf:{name}")
    assert capfd.readouterr().err == ""
