"""What `examples/browser/build.py` refuses, each in one sentence."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from adascale.core.errors import InputError
from tests.conftest import ROOT

RECORD: dict[str, Any] = {"export": {"pixels": False}, "input": {"preprocess": {"size": 16}}}


@pytest.fixture(scope="module")
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("browser_build", ROOT / "examples" / "browser" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"input": {"preprocess": None}}, "does not say how pictures become inputs"),
        ({"export": {"pixels": True}}, "prepares pictures itself"),
        ({"export": {"pixels": False, "early": "if"}}, "holds early decisions, without the scores"),
        ({"weights": {"file": "mine.onnx.data"}}, "more than 2 GB"),
    ],
)
def test_a_detector_that_the_page_cannot_feed(build: ModuleType, change: dict[str, Any], words: str) -> None:
    build.usable(RECORD, Path("mine.onnx"))
    with pytest.raises(InputError, match=words):
        build.usable({**RECORD, **change}, Path("mine.onnx"))


def test_another_package_than_the_published_one(build: ModuleType, monkeypatch: Any, tmp_path: Path) -> None:
    package = tmp_path / "vendor" / f"onnxruntime-web-{build.VERSION}.tgz"
    package.parent.mkdir()
    package.write_bytes(b"something else")
    monkeypatch.setattr(build, "HERE", tmp_path)
    with pytest.raises(InputError, match="is not the published package"):
        build.runtime(tmp_path / "dist")
    assert not (tmp_path / "dist").exists()


def test_no_npm_and_no_registry(build: ModuleType, monkeypatch: Any, tmp_path: Path) -> None:
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\necho 'npm error the registry is silent' >&2\nexit 1\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(InputError, match="cannot be fetched: npm error the registry is silent"):
        build.fetch(tmp_path / "vendor")
    monkeypatch.setenv("PATH", str(tmp_path / "vendor"))
    with pytest.raises(InputError, match="cannot be fetched: there is no npm here"):
        build.fetch(tmp_path / "vendor")


def test_files_that_are_not_there(build: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"build.py: There is no file .*mine.onnx"):
        build.main(["--detector", str(tmp_path / "mine.onnx"), "--out", str(tmp_path / "dist")])
    assert not (tmp_path / "dist").exists()
