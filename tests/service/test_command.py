"""``adascale serve``: mistakes are told in one line before anything is loaded; exported files are served too."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path
from typing import Any

import pytest

from adascale import load_exported
from adascale.service.app import Service
from adascale.service.running import is_loopback, run
from tests.service.serving import detector, png, running, score
from tests.shell import inside

DATA = [png(seed) for seed in range(200, 204)]  # not those of the calibration, whose scores would be ties


def told(capsys: pytest.CaptureFixture[str]) -> str:
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_a_port_in_use(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert inside(monkeypatch, "serve", "--demo", "--port", other.getsockname()[1]) == 2
    assert "--port" in told(capsys)


def test_a_missing_package(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    known = importlib.util.find_spec

    def without(name: str, *more: Any) -> Any:
        return None if name == "fastapi" else known(name, *more)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    assert inside(monkeypatch, "serve", "--demo") == 2
    assert "pip install 'adascale[serve]'" in told(capsys)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (["a/d.safetensors", "b/d.safetensors"], "NAME=FILE"),
        (["my name=a/d.safetensors"], "other characters"),
        (["x=a/d.safetensors", "x=b/d.safetensors"], "have the name x"),
    ],
)
def test_names(
    files: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "d.safetensors").touch()
    assert inside(monkeypatch, "serve", *files) == 2
    assert words in told(capsys)


def test_a_short_token_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text("short\n")
    assert inside(monkeypatch, "serve", "--demo", "--token-file", tmp_path / "token") == 2
    assert "16 characters" in told(capsys)


@pytest.mark.parametrize(
    ("host", "token", "warns"),
    [("0.0.0.0", None, True), ("0.0.0.0", "a long secret text", False), ("127.0.0.1", None, False)],
)
def test_other_addresses_without_a_token_are_warned_of(
    host: str, token: str | None, warns: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Address(socket.socket):
        """A socket that says where it would be, and is nowhere."""

        def getsockname(self) -> Any:
            return host, 80

    service = Service({"d": detector("mls")}, token=token)
    monkeypatch.setattr("adascale.service.running._Server.run", lambda *_: None)
    monkeypatch.setattr("adascale.service.logs.LOG.propagate", True)
    run(service, Address())
    assert ("everyone" in caplog.text) == warns
    assert is_loopback("::1")


@pytest.mark.slow
def test_an_exported_file(tmp_path: Path) -> None:
    fitted = detector("mls")
    fitted.export(tmp_path / "d.onnx")
    with running({"d": load_exported(tmp_path / "d.onnx")}, tmp_path / "state") as client:
        rows = [score(client, one).json()[0] for one in DATA]
        assert [row["score"] for row in rows] == pytest.approx(fitted(DATA).score.tolist(), rel=1e-4)
        assert [row["p_value"] for row in rows] == pytest.approx(fitted(DATA).p_value.tolist())
        assert client.get("/v1/monitor").json()["monitor"] is False
        (about,) = client.get("/v1/detectors").json()
        assert about["guarantee"] == fitted.guarantee
        explained = score(client, DATA[0], "/v1/score?explain=true")
        assert explained.status_code == 422
        assert "no explanations" in explained.json()["error"]
