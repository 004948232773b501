"""Makes the folder of a static page that judges pictures in the browser, with everything that the page needs.

python examples/browser/build.py                        # the digits of the demo: trains, fits and exports a detector
python examples/browser/build.py --detector mine.onnx   # a detector of your own, from OODDetector.export
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from adascale import OODDetector, Preprocess
from adascale.core.errors import AdascaleError, InputError
from adascale.core.extras import optional
from adascale.export.onnx_file import EXTRA, read_onnx, write_onnx
from adascale.maths.promise import least_alphas
from adascale.network import digits

HERE = Path(__file__).resolve().parent
PAGE = ("index.html", "style.css", "app.js", "picture.js")
VERSION = "1.30.0"
INTEGRITY = "q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="
# The build for the processor. The others, for WebGPU and WebNN, are twice as large and compute no float64.
RUNTIME = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
# What the page reads of the record; the rest, such as the path of the weights, stays out of record.json.
FIELDS = ("method", "class_names", "input", "calibration", "export")
NO_NPM = "onnxruntime-web cannot be fetched"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--detector", type=Path, help="an ONNX file that OODDetector.export wrote")
    parser.add_argument("--sample", type=Path, action="append", default=[], help="a picture to offer on the page")
    parser.add_argument("--out", type=Path, default=HERE / "dist", help="the folder to make (dist beside this file)")
    given = parser.parse_args(arguments)
    try:
        build(given.out, given.detector, given.sample)
    except AdascaleError as error:
        sys.exit(f"build.py: {error}")
    print(f"Ready. Serve it:  python -m http.server --bind 127.0.0.1 --directory {given.out} 8000")


def build(out: Path, detector: Path | None, samples: Sequence[Path]) -> None:
    """Fill ``out``: the page, the runtime, the detector with its record, the samples."""
    for path in filter(None, (detector, *samples)):
        if not path.is_file():
            raise InputError(f"There is no file {path}.")
    if detector is not None:
        usable(read_onnx(detector), detector)
    runtime(out)
    for name in PAGE:
        shutil.copyfile(HERE / name, out / name)
    pictures = out / "samples"
    shutil.rmtree(pictures, ignore_errors=True)
    pictures.mkdir()
    offered = demo(out / "detector.onnx", pictures) if detector is None else []
    for sample in samples:
        shutil.copyfile(sample, pictures / sample.name)
        offered.append(sample.name)
    record = with_alpha(detector or out / "detector.onnx", out / "detector.onnx")
    calibration = record["calibration"]
    calibration["least_alpha"] = least_alphas(calibration["images"], calibration["confidence"])[0]
    write_json(out / "record.json", {name: record[name] for name in FIELDS if name in record})
    write_json(out / "samples.json", offered)


def with_alpha(source: Path, target: Path) -> dict[str, Any]:
    """A copy whose input ``alpha`` has no default: onnxruntime-web takes no value for an input that has one."""
    record, model = read_onnx(source), optional("onnx", EXTRA).load(source)
    values = model.graph.initializer
    for value in [value for value in values if value.name == "alpha"]:
        values.remove(value)
    return write_onnx(target, model, record)


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1), "utf8")


def usable(record: dict[str, Any], path: Path) -> None:
    """Refuse a detector that the page cannot feed."""
    if record["export"].get("pixels"):
        raise InputError(f"{path} prepares pictures itself; the page does that too. Export it without that step.")
    if record["export"].get("early") is not None:
        raise InputError(f"{path} holds early decisions, without the scores that the page shows; give the full file.")
    if record["input"]["preprocess"] is None:
        raise InputError(f"{path} does not say how pictures become inputs; fit the detector with preprocess=.")
    if "weights" in record:
        raise InputError(f"{path} has more than 2 GB of weights, which a browser does not load.")


def runtime(out: Path) -> None:
    """The three files of onnxruntime-web. The package is kept in ``vendor``, so that npm is asked only once."""
    package = HERE / "vendor" / f"onnxruntime-web-{VERSION}.tgz"
    if not package.is_file():
        fetch(package.parent)
    found = base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode()
    if found != INTEGRITY:
        raise InputError(f"{package} is not the published package (sha512 {found}); delete it and build again.")
    out.mkdir(parents=True, exist_ok=True)
    with tarfile.open(package) as files:
        for name in RUNTIME:
            member = files.extractfile(f"package/dist/{name}")
            assert member is not None
            (out / name).write_bytes(member.read())


def fetch(folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise InputError(f"{NO_NPM}: there is no npm here; install Node.js.")
    folder.mkdir(exist_ok=True)
    command = [npm, "pack", f"onnxruntime-web@{VERSION}", "--pack-destination", str(folder), "--silent"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip() or "npm pack failed").splitlines()[0]
        raise InputError(f"{NO_NPM}: {reason}")


def demo(path: Path, pictures: Path) -> list[str]:
    """A detector for the digits 0 to 7, as `adascale demo` fits it, and the names of some pictures to try."""
    data = digits.load_digits()
    names = [f"digit {digit}" for digit in range(digits.KNOWN_DIGITS)]
    network = digits.train_network(data["train"])
    detector = OODDetector(network, preprocess=Preprocess(**digits.PREPROCESS), classes=names)
    print(detector.fit(digits.inputs(data["fit"])).export(path, verify=digits.inputs(data["test"])))
    temple, flower = map(Image.fromarray, optional("sklearn.datasets", "demo").load_sample_images().images)
    known, unknown = data["test"], data["near"]
    chosen = {f"known digit {(known.labels or ())[i]}": known.open(i) for i in range(2)}
    chosen |= {"unknown digit 9": unknown.open(0), "unknown digit 8": unknown.open(2)}
    chosen |= {"photograph of a temple": temple, "photograph of a flower": flower}
    for name, image in chosen.items():
        image.save(pictures / f"{name}.png")
    return [f"{name}.png" for name in chosen]


if __name__ == "__main__":
    main()
