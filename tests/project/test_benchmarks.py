"""The comparisons compare the same thing, and the table says what was measured."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from adascale import Classifier, Decision, OODDetector, View, detectors
from adascale.core.timing import Timing
from adascale.extraction.extract import extract_batch
from benchmarks import passes, peers
from benchmarks.__main__ import line
from benchmarks.authors import Authors
from benchmarks.measured import ratio
from benchmarks.subjects import Subject
from benchmarks.variants import rank_correlation
from tests.conftest import SmallNet, images, seeded

ROOT = Path(__file__).parents[2]


def test_the_authors_procedure_gives_our_scores() -> None:
    model = seeded(SmallNet)
    classifier = Classifier(model, channels_last=False).locate(images())
    assert classifier.head_name is not None
    known, new = images(24), images(8, seed=1)
    authors = Authors(model, classifier.head_name, classifier.head).fit(known)
    theirs = authors.score(new)
    authors.close()
    method = detectors.AdaSCALE_A(p_min=80, p_max=85)
    ours = method.fit(extract_batch(classifier, known, [View()]), classifier.head)
    assert torch.allclose(theirs.double(), ours.score(extract_batch(classifier, new, [View()])), rtol=1e-4, atol=1e-5)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_ratio_is_taken_turn_by_turn() -> None:
    slow, quick = Timing(torch.tensor([4.0, 6.0, 20.0])), Timing(torch.tensor([2.0, 2.0, 10.0]))
    found = ratio("a", "slow / quick", "here", slow.over(quick), most=2.5)
    assert (found.median, found.least, found.largest, found.turns) == (2, 2, 3, 3)
    assert found.holds
    assert line(found) == "| a | slow / quick | here | 2.00 | 2.00 to 3.00 | 2.50 |  |"
    missed = ratio("a", "slow / quick", "here", slow.over(quick), most=1.5)
    assert "1.50 NOT MET" in line(missed)


def test_rank_correlation() -> None:
    values = torch.tensor([0.1, 5.0, 2.0, 3.0])
    assert rank_correlation(values, values.exp()) == pytest.approx(1)
    assert rank_correlation(values, -values) == pytest.approx(-1)
    assert rank_correlation(values, torch.tensor([0.1, 5.0, 3.0, 2.0])) == pytest.approx(0.8)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_command(tmp_path: Path) -> None:
    done = run("--quick", "--only", "d", "--json", str(tmp_path / "found.json"))
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())["ratios"]
    assert len(found) == len(done.stdout.splitlines()) - 2 == 20
    assert {entry["case"] for entry in found} >= {"D=128, batch 1", "D=3024, batch 256"}
    assert all(entry["median"] > 0 for entry in found)


def test_a_part_that_does_not_exist() -> None:
    done = run("--only", "z")
    assert done.returncode == 2
    assert "z: parts are abcdefghijklmn" in done.stderr


def test_decisions_are_compared_before_they_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject("small", seeded(SmallNet), 8, images(40), images(16, seed=1), 3 * images(16, seed=2))
    found = list(passes.decisions(subject, 1))
    assert len(found) == 4
    found += passes.default_decisions(subject, 1)
    assert [entry.most for entry in found] == [None] * 4 + [1.15, None]
    assert all("decisions identical" in entry.note for entry in found)
    decide = OODDetector.decide

    def other_way_round(detector: OODDetector, given: Any) -> Decision:
        decision = decide(detector, given)
        return replace(decision, is_ood=~decision.is_ood)

    monkeypatch.setattr(OODDetector, "decide", other_way_round)
    assert all("16 DECISIONS DIFFER" in entry.note for entry in passes.decisions(subject, 1))
    assert all("16 DECISIONS DIFFER" in entry.note for entry in passes.default_decisions(subject, 1))


@pytest.mark.parametrize("name", sorted({name for scores in peers.PEERS.values() for name in scores}))
def test_peers_compute_what_we_compute(name: str) -> None:
    """The transcriptions, and pytorch-ood where it is installed; only VRA is another function there."""
    found, *in_double = peers.against_peers(1, (250, 64, 10), [name])
    assert found.what.startswith(f"{name} / ")
    assert all("float64" in more.what and more.most is None for more in in_double)
    assert found.most == 1
    _, value = found.note.removeprefix("scores: ").split(";")[0].rsplit(" ", 1)
    assert ("rank correlation" in found.note and float(value) > 0.9) or float(value) < 1e-3


def test_agreement_in_words() -> None:
    ours = torch.arange(1.0, 5.0).double()
    assert peers.agreement(ours, ours) == "equal to 0e+00"
    assert peers.agreement(ours, ours + 2.5e-5) == "equal to 1e-05"
    assert peers.agreement(ours, 2 * ours) == "rank correlation 1.00000"
