"""A precision that would kill the process is refused in one line; the answer is found once and can be overridden."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from adascale import Classifier, InputError
from adascale.core import precisions
from adascale.images.preprocess import Preprocess
from adascale.images.sources import ImageSet
from adascale.training.attack import accuracy
from adascale.training.processes import precision
from tests.conftest import Forbidding, images
from tests.shell import inside

KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that tries a precision is killed, as it is on machines that report AMX but do not allow it."""
    monkeypatch.delenv(precisions.VARIABLE, raising=False)
    monkeypatch.setattr(precisions, "PROBE", KILLED)


def counting(folder: Path, code: int) -> str:
    return f"import sys; open({str(folder / 'calls')!r}, 'a').write('x'); sys.exit({code})"


def calls(folder: Path) -> int:
    return len((folder / "calls").read_text())


@pytest.mark.usefixtures("killed")
class TestKilled:
    def test_the_classifier_refuses(self, net: nn.Module) -> None:
        with pytest.raises(InputError, match=r"SIGILL.*full precision.*ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16") as caught:
            Classifier(net, precision="bf16")
        assert "\n" not in str(caught.value)
        with pytest.raises(InputError, match="precision='fp16': fp16 does not run on this processor"):
            Classifier(net, precision="fp16")

    @pytest.mark.parametrize("name", ["bf16", "fp16"])
    def test_a_network_in_half_precision_is_refused(self, net: nn.Module, name: str) -> None:
        classifier = Classifier(net.to(precisions.PRECISIONS[name]), "fc")
        for use in (classifier.locate, classifier.forward, classifier.features, classifier.forward_with_gradients):
            with pytest.raises(InputError, match=f"SmallNet has {name} parameters"):
                use(images())
        assert classifier.fingerprint()  # this computes nothing

    def test_training_refuses(self, net: nn.Module) -> None:
        with pytest.raises(InputError, match="precision='bf16': bf16 does not run"):
            precision("bf16", torch.device("cpu"))
        assert precision("auto", torch.device("cpu")) is None
        two = ImageSet(["a", "b"], array=torch.zeros(2, 8, 8, 3).byte().numpy(), labels=[0, 1])
        with pytest.raises(InputError, match="SmallNet has bf16 parameters"):
            accuracy(net.bfloat16(), two, Preprocess(8, 8, (0.5,), (0.5,)))

    def test_the_command_refuses_in_one_line(
        self, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        model = f"{place / 'nets.py'}:Net"
        out = place / "d.safetensors"
        assert inside(monkeypatch, "fit", place / "id", "--model", model, "-o", out, "--precision", "bf16") == 2
        message = capsys.readouterr().err
        assert "bf16 does not run on this processor" in message
        assert message.count("\n") == 1
        assert not out.exists()

    def test_full_precision_and_gpus_do_not_ask(self, net: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(precisions, "answer", lambda name: pytest.fail(f"{name} was tried"))
        Classifier(net).locate(images()).forward(images())
        precisions.check_runs("bf16", "this", torch.device("cuda"))


@pytest.mark.parametrize(("code", "words"), [(0, "runs"), (3, "does not implement"), (7, "stopped with code 7")])
def test_the_answer_is_kept_for_the_machine_and_torch(
    code: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(precisions.VARIABLE, raising=False)
    monkeypatch.setattr(precisions, "PROBE", counting(tmp_path, code))
    assert words in precisions.answer("bf16")
    text = f"from adascale.core import precisions as p; p.PROBE = {precisions.PROBE!r}; print(p.answer('bf16'))"
    again = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert words in again.stdout
    assert calls(tmp_path) == 1
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    precisions.answer("bf16")
    assert calls(tmp_path) == 2
    monkeypatch.setattr(torch, "__version__", "0.0")
    precisions.answer("bf16")
    assert calls(tmp_path) == 3


def test_a_process_killed_from_outside_is_no_lasting_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(precisions.VARIABLE, raising=False)
    monkeypatch.setattr(precisions, "PROBE", KILLED.replace("SIGILL", "SIGKILL"))
    assert "SIGKILL" in precisions.answer("bf16")
    assert not list(Path(os.environ["ADASCALE_CACHE"]).rglob("*.txt"))


def test_the_probe_itself_works() -> None:
    assert subprocess.run([sys.executable, "-c", precisions.PROBE, "float32"]).returncode == 0


@pytest.mark.parametrize("text", ["", "bf16", "bf16, fp16"])
def test_the_variable_takes_the_place_of_the_trial(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precisions, "PROBE", KILLED)
    monkeypatch.setenv(precisions.VARIABLE, text)
    found = [name for name in precisions.PRECISIONS if precisions.answer(name) == precisions.RUNS]
    assert ", ".join(found) == text


def test_the_variable_names_known_precisions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(precisions.VARIABLE, "bf16,int3")
    with pytest.raises(InputError, match="names 'int3'"):
        precisions.answer("bf16")


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_low_precision_operations_fail_where_they_are_forbidden(name: str, net: nn.Module) -> None:
    """The guard of the test run: it stops such an operation before it is executed."""
    low = torch.ones(2, 2, dtype=precisions.PRECISIONS[name])
    with Forbidding(name):
        net(images())
        for call in (F.linear, torch.matmul):
            with pytest.raises(pytest.fail.Exception, match="does not run on this processor"):
                call(low, low)
        with torch.autocast("cpu", low.dtype), pytest.raises(pytest.fail.Exception):
            net(images())
