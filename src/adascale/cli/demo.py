"""The main job on real images, offline: handwritten digits and photographs that come with scikit-learn.

A small network learns the digits 0 to 7. The digits 8 and 9, which it never saw, are near-OOD; patches of two
photographs are far-OOD. A detector is fitted, tuned without OOD data, saved and used; every method is compared from
one extraction, with a report. The network's shape was picked from about eight with these figures in view: the demo
shows how things work; it is no evidence for a method.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from rich.console import Console
from rich.table import Table
from safetensors.torch import save_file
from torch import nn

from adascale import detectors
from adascale.bench import tables
from adascale.bench.figures import run_jobs
from adascale.bench.page import write_report
from adascale.bench.results import Run
from adascale.bench.run import Entry, Job, Network
from adascale.bench.suites import load_suite, open_suite
from adascale.core.extras import optional
from adascale.decision.ood_detector import OODDetector
from adascale.images.preprocess import Preprocess
from adascale.network import digits
from adascale.network.classifier import Classifier
from adascale.network.digits import PREPROCESS, Digits, load_digits, train_network
from adascale.report.terminal import compact


def run(out: Path, as_json: bool = False, names: list[str] | None = None) -> None:
    """Train, fit, decide, compare; the verdicts and the table on stdout, the report in ``out``."""
    began = time.monotonic()
    entries = [entry for cls in map(detectors.get, names or [c.name for c in detectors.ALL]) for entry in _entries(cls)]
    optional("matplotlib", "demo")
    data, preprocess = load_digits(), Preprocess(**PREPROCESS)
    images, labels = data.train
    _say(f"Training a small network on {len(images)} images of the digits 0 to 7 ...")
    network = train_network(torch.stack(list(map(preprocess, images))), labels)
    _say(f"Fitting a detector on {len(data.fit[0])} more images of them ...")
    detector = OODDetector(network, preprocess=preprocess).fit(torch.stack(list(map(preprocess, data.fit[0]))))
    verdicts = _judge(out, network, _save(out, detector, network, data), preprocess)
    _say(f"Comparing {len(entries)} methods and settings from one extraction ...")
    result = _compared(Network("digits network", Classifier(network), preprocess), entries)
    tables.write_results(result, out)
    write_report(result, out / "report.html")
    if as_json:
        rows = [row for row in tables.as_json(result)["rows"] if row["dataset"] in ("nearood", "farood")]
        about = {"setting": detector.setting, "guarantee": detector.guarantee, "accuracy": result.models[0].accuracy}
        print(json.dumps({**about, "verdicts": verdicts, "methods": rows}))
        return
    _print(result, detector, verdicts, out)
    _say(f"\nDone in {time.monotonic() - began:.0f} s.")


def _entries(cls: type[detectors.Detector]) -> Iterator[Entry]:
    """As fit would use it, and at the defaults where that differs."""
    if cls.tuned_by_default:
        yield Entry(f"{cls.name} (tuned)", cls(), "self")
    yield Entry(cls.name, cls())


def _compared(network: Network, entries: list[Entry]) -> Run:
    suite = load_suite("digits")
    images = open_suite(suite)
    with tempfile.TemporaryDirectory() as cache:
        return run_jobs(suite, images, [Job(network, images, entries, Path(cache), options={"batch_size": 64})])


def _save(out: Path, detector: OODDetector, network: nn.Module, data: Digits) -> list[str]:
    """The network, the detector and five images, laid out for ``adascale score``."""
    (out / "images").mkdir(parents=True, exist_ok=True)
    weights = out / "network.safetensors"
    save_file(network.state_dict(), weights)
    spec = f"{Path(digits.__file__).resolve()}:digits_cnn"
    detector.save(out / "detector.safetensors", model=spec, weights=str(weights.resolve()))
    chosen = {
        f"known_digit_{int(data.test[1][0])}.png": data.test[0][0],
        f"known_digit_{int(data.test[1][1])}_too.png": data.test[0][1],
        "unknown_digit_1.png": data.near[0],
        "unknown_digit_2.png": data.near[1],
        "photograph.png": data.far[100],
    }
    for name, image in chosen.items():
        image.save(out / "images" / name)
    return list(chosen)


def _judge(out: Path, network: nn.Module, names: list[str], preprocess: Preprocess) -> list[dict[str, Any]]:
    detector = OODDetector.load(out / "detector.safetensors", network)
    verdict = detector(torch.stack([preprocess(Image.open(out / "images" / name)) for name in names]))
    return [
        {
            "image": name,
            "is_ood": bool(verdict.is_ood[i]),
            "score": float(verdict.score[i]),
            "p_value": float(verdict.p_value[i]),
            "prediction": int(verdict.prediction[i]),
        }
        for i, name in enumerate(names)
    ]


def _print(result: Run, detector: OODDetector, verdicts: list[dict[str, Any]], out: Path) -> None:
    console = Console(highlight=False)
    console.print(compact(tables.for_terminal(result, result.models[0])))
    console.print(f"\nSaved {out / 'detector.safetensors'}: {detector.method.name}", soft_wrap=True)
    console.print(detector.setting, soft_wrap=True)
    console.print(detector.guarantee + "\n", soft_wrap=True)
    answers = Table("image", "verdict", "p-value", "network says", box=None, pad_edge=False)
    for row in verdicts:
        verdict = "out-of-distribution" if row["is_ood"] else "in-distribution"
        answers.add_row(row["image"], verdict, f"{row['p_value']:.3f}", str(row["prediction"]))
    console.print(answers)
    console.print(f"\nNext: adascale score {out / 'images'} --detector {out / 'detector.safetensors'}", soft_wrap=True)
    console.print(f"The report, with figures: {out / 'report.html'}", soft_wrap=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr)
