"""The README's Python runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from adascale.core.types import View
from adascale.testing import example_outputs
from tests.conftest import ROOT, SmallNet, images, seeded


def test_python_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outputs, head = example_outputs(20, (View(),))
    names = {
        "model": seeded(SmallNet),
        "id_images": images(40),
        "images": images(3, seed=1),
        "weight": head.weight,
        "bias": head.bias,
        "logits": outputs.logits,
        "features": outputs.features,
        "perturbed": outputs.views[View()],
    }
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(block, names)
    assert isinstance(names["scores"], torch.Tensor)
    assert (tmp_path / "detector.safetensors").exists()
