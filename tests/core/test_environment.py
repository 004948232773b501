"""The facts for bug reports."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from adascale.core import extras
from adascale.core.environment import facts
from adascale.core.precisions import VARIABLE
from tests.conftest import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def test_the_facts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ADASCALE_CACHE", str(tmp_path))
    monkeypatch.setenv(VARIABLE, "bf16")
    monkeypatch.setitem(extras.EXTRAS, "no-such-package", "report")
    (tmp_path / "activations").mkdir()
    (tmp_path / "activations" / "shard").write_bytes(bytes(3 * 2**20))
    found = facts()
    assert found["versions"]["torch"] == str(torch.__version__)
    assert found["extras"]["no-such-package"] == "not installed: pip install 'adascale[report]'"
    assert f"{torch.get_num_threads()} threads" in found["devices"]["cpu"]
    precisions = found["precisions on the processor"]
    assert precisions["bf16"] == "runs"
    assert VARIABLE in precisions["fp16"]
    assert found["cache"] == {"folder": str(tmp_path), "size": "3.0 MiB in 1 files"}
    assert {"torch", "torch.compile", "onnxruntime", "openvino"} == {*found["engines"]}


def test_every_extra_is_listed() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    packages = {
        line.partition(">")[0]: extra
        for extra, lines in declared.items()
        for line in lines
        if extra != "test" and not line.startswith("adascale[")
    }
    assert packages == extras.EXTRAS
