"""Methods by name: ours, registered ones, those of installed packages and those in files."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from adascale import Detector, InputError, OODDetector, Outputs, detectors
from adascale.detectors import registry
from adascale.detectors.base import passes_of
from adascale.detectors.msp import MSP
from adascale.testing import check_detector
from tests.conftest import ROOT, images

PAGE = ROOT / "docs" / "add-a-method.md"


@pytest.fixture
def own_file(tmp_path: Path) -> str:
    """The example of the documentation, as a file."""
    (example, *_) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert example.count("\n") <= 30
    (tmp_path / "my_method.py").write_text(example)
    return f"{tmp_path}/my_method.py:NormedEnergy"


@dataclass
class Mine(MSP):
    name = "mine"
    summary = "a method of this test"


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> type[Detector]:
    monkeypatch.setattr(registry, "REGISTERED", {})
    return detectors.register(Mine)


class Entry:
    """An entry point of an installed package, as far as the registry looks at it."""

    def __init__(self, name: str, value: str, found: Any) -> None:
        self.name, self.value, self.found = name, value, found

    def load(self) -> Any:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


def install(monkeypatch: pytest.MonkeyPatch, *entries: Entry) -> None:
    monkeypatch.setattr(metadata, "entry_points", lambda group: entries if group == "adascale.detectors" else ())


def test_every_name_leads_to_its_class_and_back() -> None:
    assert [cls.name for cls in detectors.ALL] == list(registry.OURS)
    for cls in detectors.ALL:
        assert detectors.get(cls.name) is cls
        assert getattr(detectors, cls.__name__) is cls
        assert cls.__name__ in detectors.__all__
        assert registry.from_origin(registry.origin(cls)) is cls


def test_what_the_list_shows_is_what_the_classes_declare() -> None:
    for row, cls in zip(registry.facts(), detectors.ALL, strict=True):
        assert row == {
            "name": cls.name,
            "summary": cls.summary,
            "fitted_on": registry.FITTED_ON[cls.fits_on],
            "passes": cls.passes if cls.learns_view else passes_of(cls()),  # such views are known after the fit
            "cost": cls.cost,
        }


def test_the_list_is_made_without_torch() -> None:
    code = (
        "import sys; from adascale import detectors; from adascale.detectors.registry import facts; "
        "assert len(facts()) >= 31 and detectors.names(); assert 'torch' not in sys.modules, 'torch'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_typo_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match=r"no method 'adascal_a'; did you mean 'adascale_a'\?"):
        detectors.get("adascal_a")
    with pytest.raises(AttributeError, match="Magic"):
        detectors.Magic  # noqa: B018


def test_the_documented_example_is_a_full_citizen(own_file: str, net: nn.Module, tmp_path: Path) -> None:
    cls = detectors.get(own_file)
    assert detectors.get(own_file) is cls
    check_detector(cls)
    detector = OODDetector(net, own_file, weight=2.0).fit(images(40), tune=True)
    assert detector.tuning is None or set(detector.tuning.chosen) == {"weight"}
    detector.save(tmp_path / "own.safetensors")
    again = OODDetector.load(tmp_path / "own.safetensors", net, method=cls)
    assert torch.equal(again.score(images(8, seed=3)), detector.score(images(8, seed=3)))
    assert again.method.parameters == {"weight": 2.0}


def test_a_changed_file_is_run_again(own_file: str) -> None:
    before, path = detectors.get(own_file), Path(own_file.rpartition(":")[0])
    path.write_text(path.read_text().replace('"normed_energy"', '"changed"'))
    assert (before.name, detectors.get(own_file).name) == ("normed_energy", "changed")


def test_files_of_one_name_stay_apart(own_file: str, tmp_path: Path) -> None:
    path = Path(own_file.rpartition(":")[0])
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / path.name
    other.write_text(path.read_text().replace('"normed_energy"', '"another"'))
    assert detectors.get(own_file).name == "normed_energy"
    assert detectors.get(f"{other}:NormedEnergy").name == "another"
    assert detectors.get(own_file).name == "normed_energy"


def test_a_file_is_run_only_when_asked_for(own_file: str) -> None:
    record = {"module": own_file.rpartition(":")[0], "class": "NormedEnergy", "package": None, "version": None}
    with pytest.raises(InputError, match=r"pass method=detectors.get\('.*my_method.py:NormedEnergy'\)"):
        registry.from_origin(record)
    cls = registry.from_origin(record, run=True)
    assert registry.from_origin(registry.origin(cls)) is cls
    assert registry.origin(cls) == record


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def broken(:", "cannot be loaded: SyntaxError"),
        ("import no_such_module", "cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'"),
        ("class NormEnergy: pass", "has no class 'NormedEnergy'; did you mean 'NormEnergy'"),
        ("NormedEnergy = 3", "is not a method; a method is a subclass of Detector"),
        ("class NormedEnergy: pass", "NormedEnergy is not a method"),
    ],
)
def test_a_file_that_holds_no_method_gets_a_sentence(own_file: str, text: str, words: str) -> None:
    Path(own_file.rpartition(":")[0]).write_text(text)
    with pytest.raises(InputError, match=words):
        detectors.get(own_file)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(InputError, match=r"no Python file nowhere.py; give a method's name, or path/to/file"):
        detectors.get("nowhere.py:Class")


class Plain(Detector):
    name = "plain"
    summary = "not decorated"
    k: int = 3

    def _score(self, outputs: Outputs) -> Tensor:
        return outputs.logits.double().amax(1)


def declared(**attributes: Any) -> type[Detector]:
    return dataclass(type("Made", (Detector,), {"_score": Plain._score, **attributes}))


@dataclass
class Demanding(Detector):
    name = "demanding"
    summary = "a parameter without a default"
    k: int

    def _score(self, outputs: Outputs) -> Tensor:
        return outputs.logits.double().amax(1)


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (declared(summary="words"), 'has no name; write name = "..."'),
        (declared(name="made"), "has no summary"),
        (declared(name="made", summary=3), "has no summary"),
        (Plain, "not a dataclass; write @dataclass"),
        (declared(name="made", summary="words", _score=Detector._score), "does not define _score"),
        (Demanding, "has no default for k"),
        (int, "is not a method"),
    ],
)
def test_what_a_class_lacks_is_said_in_one_sentence(cls: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        detectors.register(cls)
    with pytest.raises(AssertionError, match=f"^{cls.__name__} .*{words}"):
        check_detector(cls)


def test_a_registered_class_is_found_and_listed(registered: type[Detector]) -> None:
    assert detectors.get("mine") is Mine
    assert detectors.names()[-1] == registry.facts()[-1]["name"] == "mine"
    assert registry.from_origin(registry.origin(Mine)) is Mine
    assert detectors.register(Mine) is Mine
    assert Mine not in detectors.ALL


def test_a_name_is_taken_once(registered: type[Detector]) -> None:
    other: Any = dataclass(type("Other", (detectors.MLS,), {"name": "mine"}))
    with pytest.raises(InputError, match="Other has the name 'mine', which is taken"):
        detectors.register(other)
    with pytest.raises(InputError, match="'scale', which is taken"):
        detectors.register(dataclass(type("Other", (detectors.MLS,), {"name": "scale"})))


def test_methods_of_installed_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Entry("broken", "some.where:Broken", ImportError("no libfoo"))
    misnamed = Entry("other", "some.where:Mine", Mine)
    install(monkeypatch, Entry("mine", f"{__name__}:Mine", Mine), broken, misnamed, Entry("scale", "x:Y", Mine))
    assert detectors.names()[-3:] == ["mine", "broken", "other"]
    assert detectors.get("mine") is Mine
    assert detectors.get("scale") is detectors.SCALE
    with pytest.raises(InputError, match=r"some.where:Broken cannot be loaded: ImportError: no libfoo"):
        detectors.get("broken")
    with pytest.raises(InputError, match="installed as 'other' but its name is 'mine'"):
        detectors.get("other")
    rows = {row["name"]: row["summary"] for row in registry.facts()}
    assert rows["mine"] == Mine.summary
    assert "no libfoo" in rows["broken"]


def test_a_class_that_is_gone_says_what_to_install() -> None:
    record = {"module": "their.methods", "class": "Theirs", "package": "their-package", "version": "1.2"}
    with pytest.raises(InputError, match=r"pip install their-package==1.2\) and import it, or pass method="):
        registry.from_origin(record)
    with pytest.raises(InputError, match=r"Theirs of their.methods, which is not loaded; import it, or pass method="):
        registry.from_origin({**record, "package": None, "version": None})


def test_origin_names_package_and_version() -> None:
    from adascale import __version__

    expected = {"module": "adascale.detectors.scale", "class": "SCALE", "package": "adascale", "version": __version__}
    assert registry.origin(detectors.SCALE) == expected
    assert registry.origin(Mine) == {"module": __name__, "class": "Mine", "package": None, "version": None}
