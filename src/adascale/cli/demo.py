"""The main job on real images, offline: handwritten digits and photographs that come with scikit-learn.

A small network learns the digits 0 to 7. The digits 8 and 9, which it never saw, are near-OOD; patches of two
photographs are far-OOD. A detector is fitted, tuned without OOD data, saved and used; methods are compared from one
extraction, with a report. The network's shape was chosen out of about eight with these results in view: the demo
shows how things work and is no evidence for a method (docs/benchmarks.md has more about it).
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from rich.console import Console
from safetensors.torch import save_file
from torch import Tensor, nn

from adascale import detectors
from adascale.bench import tables
from adascale.bench.figures import run_jobs
from adascale.bench.headline import by_auroc
from adascale.bench.page import write_report
from adascale.bench.results import Run
from adascale.bench.run import DEFAULT, Job, Network
from adascale.bench.suites import load_suite, open_suite
from adascale.cli import options
from adascale.cli.checks import method_names
from adascale.cli.commands import DemoCommand
from adascale.cli.console import plain_table, say
from adascale.core.extras import optional
from adascale.decision.ood_detector import OODDetector
from adascale.images.preprocess import Preprocess
from adascale.images.sources import ImageSet
from adascale.maths.metrics import auroc
from adascale.network import digits
from adascale.network.classifier import Classifier
from adascale.report.terminal import compact

# The first table has what `fit` deploys and the other methods that it tunes, SCALE, which AdaSCALE adapts, and the most
# used baselines of each idea: shaped activations, distances, subspaces, logits, energy, softmax.
BASELINES = ("scale", "react", "ash_s", "knn", "vim", "mls", "ebo", "msp")
_LEGEND = (
    "near-OOD: the digits 8 and 9; far-OOD: patches of photographs. FPR@95 is the share of known digits that are "
    "flagged where 95 % of the unknown images are caught (0 is perfect); AUROC is the share of pairs of a known digit "
    "and an unknown image in which the unknown one has the higher score (100 is perfect, 50 is guessing)."
)


def demo(given: DemoCommand) -> None:
    """Train, fit, decide, compare. Verdicts and table go to stdout, the report to the folder."""
    for module in ("sklearn", "matplotlib"):
        optional(module, "demo")
    began, out = time.monotonic(), given.out
    data, preprocess = digits.load_digits(), Preprocess(**digits.PREPROCESS)
    methods = ["all"] if given.every_method else given.method or _first_methods()
    entries = list(options.entries(methods, [], None, "default"))

    say(f"Training a small network on {len(data['train'])} images of the digits 0 to 7; it never sees an 8 or a 9 ...")
    network = digits.train_network(data["train"])
    say(f"Fitting a detector on {len(data['fit'])} other images of the digits 0 to 7, without any image to detect ...")
    detector = OODDetector(network, preprocess=preprocess).fit(digits.inputs(data["fit"]))
    examples = save(out, detector, network, data)
    loaded = OODDetector.load(out / "detector.safetensors", network)
    saved = [preprocess(Image.open(out / "images" / name)) for name in examples]
    verdicts = _judged(loaded, examples, torch.stack(saved))
    counts = f"{len(data['near'])} images of 8 and 9 and {len(data['far'])} patches of photographs"
    say(f"Comparing it with other methods, {len(entries)} in all, on {counts} ...")
    suite = load_suite("digits")
    sets, compared = open_suite(suite), Network("digits network", Classifier(network), preprocess)
    with tempfile.TemporaryDirectory() as cache:
        result = run_jobs(suite, sets, [Job(compared, sets, entries, Path(cache))])
    tables.write_results(result, out)
    write_report(result, out / "report.html")
    if given.as_json:
        rows = [row for row in tables.as_json(result)["rows"] if row["dataset"] in ("nearood", "farood")]
        about = {"setting": detector.setting, "guarantee": detector.guarantee, "accuracy": result.models[0].accuracy}
        print(json.dumps({**about, "verdicts": verdicts, "methods": rows}))
        return
    _print(result, detector, verdicts, out)
    every = "" if given.every_method else " Every method: adascale demo --all"
    say(f"\nDone in {time.monotonic() - began:.0f} s.{every}")


def _first_methods() -> list[str]:
    names = method_names(["all"])
    tuned = [name for name in names if detectors.get(name).tuned_by_default]
    return [name for name in names if name in {DEFAULT, *tuned, *BASELINES}]


def save(out: Path, detector: OODDetector, network: nn.Module, data: dict[str, ImageSet]) -> list[str]:
    """Write the network, the detector and five images, ready for ``adascale score``; return the images' names."""
    (out / "images").mkdir(parents=True, exist_ok=True)
    weights = out / "network.safetensors"
    save_file(network.state_dict(), weights)
    spec = f"{Path(digits.__file__).resolve()}:digits_cnn"
    detector.save(out / "detector.safetensors", model=spec, weights=str(weights.resolve()))
    labels = data["test"].labels or ()
    chosen = {
        f"known_digit_{labels[0]}.png": data["test"].open(0),
        f"known_digit_{labels[1]}_too.png": data["test"].open(1),
        "unknown_digit_1.png": data["near"].open(0),
        "unknown_digit_2.png": data["near"].open(1),
        "photograph.png": data["far"].open(100),
    }
    for name, image in chosen.items():
        image.save(out / "images" / name)
    return list(chosen)


def _judged(detector: OODDetector, names: list[str], images: Tensor) -> list[dict[str, Any]]:
    verdict = detector(images)
    columns = {key: getattr(verdict, key).tolist() for key in ("is_ood", "score", "p_value", "prediction")}
    return [{"image": name, **{key: column[i] for key, column in columns.items()}} for i, name in enumerate(names)]


def _print(result: Run, detector: OODDetector, verdicts: list[dict[str, Any]], out: Path) -> None:
    console = Console(highlight=False)
    console.print(compact(tables.for_terminal(result, result.models[0])))
    print(f"{_LEGEND}\n{_lesson(result)}\n")
    print(f"The detector: {detector.method.name}, {detector.setting}\n{detector.guarantee}\nIts answers:\n")
    answers = plain_table("image", "verdict", "p-value", "network says")
    for row in verdicts:
        verdict = "out-of-distribution" if row["is_ood"] else "in-distribution"
        answers.add_row(row["image"], verdict, f"{row['p_value']:.3f}", str(row["prediction"]))
    console.print(answers)
    print(f"\nNext: adascale score {out / 'images'} --detector {out / 'detector.safetensors'}")
    print(f"The report, with figures: {out / 'report.html'}")


def _lesson(result: Run) -> str:
    """What to take from the table, in one sentence."""
    (run,) = result.models
    means = by_auroc(run)[2]
    best = next(iter(means))
    share, alone = (
        f"{100 * means[best]:.1f} %",
        "this is a toy: adascale bench says which method is best for your network",
    )
    if not run.deployed:
        return f"What to take from it: {best} is best here, with a near-OOD AUROC of {share}, but {alone}."
    known, far = run.scores[run.deployed]["id"], run.scores[run.deployed]["photographs"]
    shares = f"{100 * means[run.deployed]:.1f} % of the pairs, a photograph in {100 * auroc(known, far):.1f} %"
    gap = result.standings[run.model].gap
    first = "no method here does better on the digits"
    if gap is not None:
        verdict = "more than" if gap.beyond_chance else "within"
        first = f"{best} does best on the digits ({share}; the difference is {verdict} chance)"
    return (
        f"What to take from it: {run.deployed}, which adascale fit gives you, scores an unseen digit above a known one "
        f"in {shares}; {first}, but {alone}."
    )
