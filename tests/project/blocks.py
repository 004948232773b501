"""The code blocks of README and docs: where they are, whether they are run, and the folder in which they are."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from adascale import OODDetector, Preprocess
from adascale.core.types import View
from adascale.network import digits
from adascale.testing import example_outputs
from tests.conftest import ROOT
from tests.made_up_run import made_up_run

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "examples/browser/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
CODE = {"python", "py", "sh"}
SHOWN = {"text", "json", "toml", ""}  # what is shown and cannot be run; other tests load the TOML files
_BLOCK = re.compile(
    r"(?:<!-- not run: (?P<reason>[^\n]+) -->\n\n?)?^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.DOTALL | re.M
)
# What a reader has and this folder has not. Everything else in a block is run as it stands.
STAND_INS = {"torchvision:resnet50": "net.py:network"}


@dataclass(frozen=True)
class Block:
    """A fenced block. reason: why it is not run; empty if it is."""

    page: Path
    line: int
    language: str
    code: str
    reason: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    text = page.read_text("utf8")
    return [
        Block(page, text[: found.start("code")].count("\n"), found["language"], found["code"], found["reason"] or "")
        for found in _BLOCK.finditer(text)
    ]


def commands(code: str) -> list[list[str]]:
    """The commands of a shell block, each as its words. Comments are left out, and installing, which .ci/run does."""
    lines = code.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True)) and words[:2] != ["pip", "install"]]


NETWORK = """
from pathlib import Path
from safetensors.torch import load_file
from adascale.network.digits import PREPROCESS, DigitsCNN
def network():
    model = DigitsCNN()
    model.load_state_dict(load_file(Path(__file__).parent / "weights.safetensors"))
    return model
"""


def prepare(folder: Path) -> dict[str, Any]:
    """Fill the folder with a network, images and a detector; return the names that blocks may use."""
    data = digits.load_digits()
    model: nn.Module = digits.train_network(data["train"], epochs=2)
    save_file(model.state_dict(), folder / "weights.safetensors")
    (folder / "net.py").write_text(NETWORK)
    parts = {"id_images": ("fit", 100), "new_images": ("near", 6), "test": ("test", 40), "val": ("fit", 70)}
    parts |= {"near": ("near", 20), "far": ("far", 20)}
    for name, (part, count) in parts.items():
        (folder / "my" / name).mkdir(parents=True)
        for i in range(count):
            data[part].open(i).save(folder / "my" / name / f"{i}.png")
    Image.effect_noise((90, 60), 80).save(folder / "photo.jpg")
    preprocess = Preprocess(**digits.PREPROCESS)
    id_images, images = digits.inputs(data["fit"])[:100], digits.inputs(data["near"])[:3]
    detector = OODDetector(model, preprocess=preprocess, alpha=0.1).fit(id_images)
    detector.save(folder / "detector.safetensors", model=str(folder / "net.py") + ":network")
    outputs, head = example_outputs(20, (View(),))
    names = {"model": model, "preprocess": preprocess, "id_images": id_images, "images": images, "detector": detector}
    names |= {"weight": head.weight, "bias": head.bias, "logits": outputs.logits, "features": outputs.features}
    names |= {"train_loader": [(id_images, torch.zeros(len(id_images), dtype=torch.long))], "stream": ["photo.jpg"]}
    names |= {"run": made_up_run(images=60), "Path": Path}
    return {**names, "perturbed": outputs.views[View()], "OODDetector": OODDetector, "torch": torch}
