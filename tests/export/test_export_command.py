"""``adascale export`` and ``inspect``, and the file in the hands of somebody who has onnxruntime alone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from adascale import InputError, OODDetector, Preprocess, load_exported
from tests.conftest import ROOT, SmallNet, seeded
from tests.export.fitted import varied
from tests.images.pictures import picture
from tests.shell import fit, inside

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
pytestmark = pytest.mark.usefixtures("unguarded")


def test_export_prints_the_proof_and_inspect_reads_the_file(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    detector = fit(place, monkeypatch, "--method", "ebo")
    capsys.readouterr()
    assert inside(monkeypatch, "export", detector, "-o", place / "m.onnx", "--verify", place / "id", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["proof"]["images"] == 39
    assert told["proof"]["worst"] < 1e-5
    assert inside(monkeypatch, "inspect", place / "m.onnx", "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["export"]["outputs"] == ["logits", "prediction", "score", "p_value", "is_ood"]
    model = load_exported(place / "m.onnx")
    fresh = [picture(seed=seed) for seed in range(100, 105)]  # a calibration image would tie with itself
    expected = OODDetector.load(detector, trust=True)(fresh)
    assert model(fresh).is_ood.tolist() == expected.is_ood.tolist()
    assert model(fresh).p_value.tolist() == expected.p_value.tolist()
    assert len(model(place / "id")) == 30
    (place / "id" / "broken.png").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"1 images cannot be read, the first is .*broken.png"):
        model(place / "id")


@pytest.mark.slow
def test_the_promise_that_is_printed_is_that_of_the_file(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    detector = fit(place, monkeypatch, "--method", "ebo")
    (place / "more").mkdir()
    for seed in range(70):
        picture(seed=seed).save(place / "more" / f"{seed}.png")
    capsys.readouterr()
    assert inside(monkeypatch, "export", detector, "-o", place / "m.onnx", "--int8", place / "more") == 0
    assert load_exported(place / "m.onnx").record["calibration"]["guarantee"] in capsys.readouterr().out


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["-o", "m.bin"], "no suffix"),
        (["-o", "m.xml", "--early", "if"], "is for .onnx files"),
        (["-o", "m.onnx", "--format", "pt2"], "no suffix for"),
        (["-o", "m.onnx", "--verify", "nowhere"], "nowhere"),
    ],
)
def test_mistakes_are_one_line(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    extra: list[str],
    message: str,
) -> None:
    (place / "d.safetensors").write_bytes(b"")
    assert inside(monkeypatch, "export", place / "d.safetensors", *extra) == 2
    told = capsys.readouterr().err.strip()
    assert message in told
    assert "\n" not in told


@pytest.mark.slow
def test_six_lines_run_without_adascale_and_without_pytorch(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    pins = ROOT / "constraints.txt"
    install = [str(python), "-m", "pip", "install", "-q", "-c", str(pins), "onnxruntime", "numpy"]
    if subprocess.run(install, capture_output=True).returncode:
        pytest.skip("onnxruntime cannot be installed here")
    shape = Preprocess(size=16, crop=16, mean=(0.5,) * 3, std=(0.25,) * 3)
    detector = OODDetector(seeded(SmallNet), preprocess=shape).fit([picture(seed=i) for i in range(60)])
    detector.export(tmp_path / "model.onnx")
    (lines,) = re.findall(r"```py\n(import json.*?)```", (ROOT / "docs" / "export.md").read_text(), re.DOTALL)
    assert len(lines.splitlines()) == 6
    images = varied(1, 3)
    images.numpy().tofile(tmp_path / "images.bin")
    lines = lines.replace("np.zeros((1, *", "np.fromfile('images.bin', np.float32).reshape((1, *")
    lines = lines.replace("), dtype=np.float32)", "))").replace('["shape"]))', '["shape"]))')
    ends = "\nimport sys; assert 'torch' not in sys.modules\nprint(json.dumps([score[0], p_value[0], bool(is_ood[0])]))"
    done = subprocess.run([python, "-c", lines + ends], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    score, p_value, is_ood = json.loads(done.stdout.strip().splitlines()[-1])
    expected = detector(images)
    assert score == pytest.approx(float(expected.score), rel=1e-4)
    assert p_value == pytest.approx(float(expected.p_value))
    assert is_ood == bool(expected.is_ood)
