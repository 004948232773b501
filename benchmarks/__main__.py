"""What everything costs, as ratios measured side by side in one run.

    [ADASCALE_DATA=DIR] python -m benchmarks [--only a,c] [--networks NAME ...] [--repeats N] [--quick] [--compile]
                                            [--json FILE]

(a) the full score against a plain forward pass; (b) against the authors' procedure; (c) decisions on ID traffic and on
a mix; (d) post-processing against SCALE's fixed percentile; (e) a benchmark of all methods against the bare passes;
(f) tuning against one extraction; (g) scoring JPEG files against a bare loop; (h) growth; (i) the options of a pass
(torch.compile, which takes minutes to start, only with --compile); (j) calls that need no network against the
import of torch; (k) post-processing of each method against the fastest peer that has it: pytorch-ood, if it is
installed, scikit-learn, and transcriptions of OpenOOD's arithmetic; (l) the peak memory of an extraction against that
of a plain forward pass; (m) engines: torch, onnxruntime, OpenVINO, and with --compile torch.compile, each with one
thread; (n) decisions of the default, on further networks too; (o), or `serve`: the service against the in-process loop,
for real networks. (e), (f) and (i) use the first network alone, (m) also cifar10_resnet20 if no network is named.
Real networks where ADASCALE_DATA names them, else networks of the same shapes on noise. --quick: few images, to see
that everything runs. Exit code 1 if a measured ratio exceeds what is promised.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import torch

from adascale import Preprocess, load_network
from benchmarks import engines, extraction, passes, postprocessing, start, variants, whole
from benchmarks.measured import Ratio
from benchmarks.subjects import REAL, SMALL, Subject, further_names, jpegs, names, subject

PARTS = "abcdefghijklmno"
WORDS = {"serve": "o"}


def measured(parts: str, chosen: list[str], repeats: int, quick: bool, compiled: bool) -> Iterator[Ratio]:
    if "j" in parts:
        yield from start.start(repeats)
    if "d" in parts:
        yield from postprocessing.against_scale(3 if quick else 7 * repeats)
    if "h" in parts:
        yield from postprocessing.growth(1 if quick else repeats)
    if "k" in parts:
        from benchmarks import peers  # which needs scikit-learn, and looks for pytorch-ood

        yield from peers.against_peers(repeats, peers.SMALL if quick else peers.SIZE)
    if "i" in parts:
        yield from variants.drafts(repeats)
    if "i" in parts and compiled:
        yield from variants.options(
            subject(SMALL if os.environ.get("ADASCALE_DATA") else "resnet18-shaped", 64, 64), repeats, variants.COMPILED
        )
    further = [name for name in chosen if name in further_names()]
    chosen = [name for name in chosen if name not in further]
    for name in (*chosen, *(further if "n" in parts else ())):
        large = name.startswith(("imagenet", "resnet50"))
        count, val = (8, 8) if quick else (64, 64) if large else (256, 300)
        here = subject(name, count, val)
        if "n" in parts:
            yield from passes.default_decisions(here, repeats)
        if name in further:
            continue
        if set(parts) & set("ab"):
            yield from (found for found in passes.scores(here, repeats) if found.part in parts)
        if "l" in parts:
            yield from extraction.memory(name, min(3, repeats))
        if "c" in parts:
            yield from passes.decisions(here, repeats)
        if ("e" in parts or "f" in parts) and name == chosen[0]:
            yield from _whole(here, parts, 8 if quick else 40, repeats)
        if "i" in parts and name == chosen[0]:
            yield from variants.options(here, repeats)
        if "g" in parts and large:
            with tempfile.TemporaryDirectory() as folder:
                preprocess = jpegs(Path(folder), count, name)
                yield from whole.scoring(here, Path(folder), preprocess, repeats)
        if "m" in parts:
            yield from engines.engines(here, repeats, compiled)
        if "o" in parts:
            from benchmarks import serve  # which needs the extra serve

            yield from serve.serve(here, count if quick else max(count, 128), min(5, repeats))
    if "m" in parts and os.environ.get("ADASCALE_DATA") and tuple(chosen) == REAL:
        yield from engines.engines(subject(SMALL, 8 if quick else 64, 8 if quick else 300), repeats, compiled)


def _whole(here: Subject, parts: str, count: int, repeats: int) -> Iterator[Ratio]:
    suite, images = whole.limited(here.name, count)
    preprocess = Preprocess(here.known.shape[-1], here.known.shape[-1], (0.5,) * 3, (0.25,) * 3)
    if here.name in REAL:
        preprocess = load_network(f"{os.environ['ADASCALE_DATA']}/networks.py:{here.name}")[1] or preprocess
    few = min(3, repeats)
    if "e" in parts:
        yield from whole.bench(here, suite, images, preprocess, few)
    if "f" in parts:
        suite, images = whole.limited(here.name, 64)
        yield from whole.tuning(here, images, preprocess, few)


def line(found: Ratio) -> str:
    promise = "" if found.most is None else f"{found.most:.2f}{'' if found.holds else ' NOT MET'}"
    spread = f"{found.least:.2f} to {found.largest:.2f}"
    return f"| {found.part} | {found.what} | {found.case} | {found.median:.2f} | {spread} | {promise} | {found.note} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=PARTS, help="letters of the parts, e.g. a,c; serve is o")
    known = (*names(), *further_names())
    parser.add_argument("--networks", nargs="*", help=f"of {', '.join(known)}")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    parts = "".join(WORDS.get(part, part) for part in given.only.split(","))
    chosen = given.networks or list(known)
    if unknown := (set(parts) - set(PARTS)) | (set(chosen) - set(known)):
        parser.error(f"{', '.join(sorted(unknown))}: parts are {PARTS}, networks {', '.join(known)}")
    if given.repeats < 1:
        parser.error(f"--repeats {given.repeats}: at least 1")
    if given.json is not None and not given.json.parent.is_dir():
        parser.error(f"--json {given.json}: there is no such folder")
    repeats = 1 if given.quick else given.repeats
    print("| part | what | case | median | turns | at most | note |\n|---|---|---|---|---|---|---|", flush=True)
    results = []
    for found in measured(parts, chosen, repeats, given.quick, given.compile):
        results.append(found)
        print(line(found), flush=True)
    if given.json is not None:
        machine = {
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "threads": torch.get_num_threads(),
        }
        given.json.write_text(
            json.dumps({"machine": machine, "ratios": [asdict(found) for found in results]}, indent=1)
        )
    missed = sum(found.holds is False for found in results)
    if missed and not given.quick:
        print(f"{missed} of {len(results)} ratios exceed what is promised", file=sys.stderr)
    return int(bool(missed) and not given.quick)


if __name__ == "__main__":
    sys.exit(main())
