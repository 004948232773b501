"""A method whose view is known only after the fit: images that set the threshold are looked at again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from adascale import InputError, OODDetector, Outputs, detectors, extract_batch
from adascale.core.types import Need
from adascale.decision.fitting import Plan
from adascale.maths.split import split
from tests.conftest import SmallNet, images, seeded
from tests.shell import inside, rows

LABELS = torch.arange(120) % 5
pytestmark = pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")


def made() -> OODDetector:
    return OODDetector(seeded(SmallNet), "mds_odin", alpha=0.1, batch_size=25)


def scored(detector: OODDetector, given: Tensor) -> Tensor:
    return detector.method.score(extract_batch(detector.classifier, given, detector.method.wants))


@pytest.mark.parametrize("train", [None, (images(120, seed=1), LABELS)])
def test_the_threshold_comes_from_perturbed_images_that_were_not_learned_from(
    train: tuple[Tensor, Tensor] | None, tmp_path: Path
) -> None:
    detector = made().fit((images(120), LABELS), train)
    assert detector.calibration is not None
    held_out = split(120, 0, detector.plan().share(train is not None)).held_out
    assert len(held_out) == (60 if train is None else 120)
    expected = scored(detector, images(120)[held_out])
    assert torch.allclose(detector.calibration.scores, expected.sort().values, rtol=1e-3)
    assert torch.allclose(detector.score(images(9, seed=2)), scored(detector, images(9, seed=2)))
    detector.save(tmp_path / "d.safetensors")
    loaded = OODDetector.load(tmp_path / "d.safetensors", seeded(SmallNet))
    assert loaded.method.views == detector.method.views
    assert torch.allclose(loaded.score(images(9, seed=2)), detector.score(images(9, seed=2)), rtol=1e-9)
    more = loaded.recalibrate(images(40, seed=3), replace=True).calibration
    assert more is not None
    assert torch.allclose(more.scores, scored(detector, images(40, seed=3)).sort().values, rtol=1e-3)


def test_it_is_fitted_again_from_scratch() -> None:
    detector = made().fit((images(120), LABELS))
    first = detector.method.views
    detector.fit((images(120, seed=4), LABELS))
    assert detector.method.views != first
    detector.method = detector.method  # as if it were another's, fitted elsewhere
    assert detector.fit((images(120), LABELS)).method.views == first


def test_images_that_cannot_be_read_again_are_refused() -> None:
    batches = list(zip(torch.split(images(120), 30), torch.split(LABELS, 30), strict=True))
    with pytest.raises(InputError, match="0 in place of 120, or in another order"):
        made().fit(iter(batches))
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(images(120), LABELS), batch_size=30, shuffle=True)
    with pytest.raises(InputError, match="does not shuffle"):
        made().fit(loader)
    expected = made().fit((images(120), LABELS)).threshold
    assert made().fit(batches).threshold == pytest.approx(expected, rel=1e-3)


def test_extracted_outputs_alone_do_not_suffice() -> None:
    detector = made()
    outputs = extract_batch(detector.classifier, images(120), (), LABELS)
    with pytest.raises(InputError, match=r"^mds_odin perturbs images by what it has learned, .* or pass late=\.$"):
        detector.fit_outputs(outputs)

    def late(rows: Sequence[int], needs: Sequence[Need]) -> Outputs:
        return extract_batch(detector.classifier, images(120)[list(rows)], needs)

    expected = made().fit((images(120), LABELS)).threshold
    assert detector.fit_outputs(outputs, late=late).threshold == pytest.approx(expected, rel=1e-3)


def test_it_cannot_be_tuned() -> None:
    detector = made().fit((images(120), LABELS), tune=True)
    assert detector.setting.endswith("nothing is left to tune")
    plan = Plan(detectors.MDSODIN(), tune=True, points=[{"eta": 0.001}, {"eta": 0.01}])
    with pytest.raises(InputError, match="mds_odin cannot be tuned"):
        plan.chosen(120)


def test_from_the_shell(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """After the clean pass, one with the gradient and one of the perturbed images; the file knows the rest."""
    pixels = np.random.default_rng(0).integers(0, 256, (150, 20, 20, 3), dtype=np.uint8)
    np.savez(place / "train.npz", images=pixels, labels=np.arange(150) % 4)
    model = ["--model", f"{place / 'nets.py'}:Net", "--train", place / "train.npz"]
    monkeypatch.setenv("CALLS", str(place / "calls"))
    assert inside(monkeypatch, "fit", place / "id", *model, "--method", "mds_odin", "-o", place / "d.st") == 0
    calls = (place / "calls").read_text().split()
    assert calls.count("30") == 3
    (place / "calls").unlink()
    assert inside(monkeypatch, "score", place / "id", "-d", place / "d.st", "-o", place / "s.csv") == 0
    assert (place / "calls").read_text().split().count("30") == 2
    detector = OODDetector.load(place / "d.st", trust=True)
    assert detector.method.parameters["std"] == (0.25, 0.25, 0.25)
    assert detector.calibration is not None
    found = torch.tensor([float(row["score"]) for row in rows(place / "s.csv")]).double()
    assert torch.allclose(found.sort().values, detector.calibration.scores.sort().values, rtol=1e-4)
    capsys.readouterr()
    assert inside(monkeypatch, "export", place / "d.st", "-o", place / "m.onnx") == 2
    assert "use mds" in capsys.readouterr().err.strip().splitlines()[-1]
