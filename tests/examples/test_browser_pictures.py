"""The page of `examples/browser` prepares pictures as `Preprocess` does, value for value (in Node.js)."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from adascale import Preprocess
from tests.conftest import ROOT

NODE = shutil.which("node")
SCRIPT = ROOT / "examples" / "browser" / "picture.js"
RUNNER = """
const { seen, normalised } = await import("data:text/javascript;base64," + process.argv[1]);
let text = "";
for await (const part of process.stdin) text += part;
const answers = JSON.parse(text).map(({ data, width, height, preprocess }) => {
  const picture = seen({ data: Uint8ClampedArray.from(data), width, height }, preprocess);
  return { width: picture.width, height: picture.height, values: Array.from(normalised(picture, preprocess)) };
});
console.log(JSON.stringify(answers));
"""
RGB: dict[str, Any] = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
GREY: dict[str, Any] = {"mean": (0.3,), "std": (0.35,)}
FILTERS = ("nearest", "bilinear", "bicubic", "lanczos", "box", "hamming")
CASES = [
    *(((61, 47), Preprocess(size=24, crop=20, interpolation=name, **RGB)) for name in FILTERS),  # type: ignore[arg-type]
    *(((8, 9), Preprocess(size=16, crop=16, interpolation=name, **GREY)) for name in FILTERS),  # type: ignore[arg-type]
    ((30, 50), Preprocess(size=(17, 23), crop=None, **RGB)),
    ((30, 50), Preprocess(size=15, crop=(12, 18), **GREY)),  # odd margins
    ((41, 29), Preprocess(size=10, crop=13, **RGB)),  # smaller than the crop: black around it
    ((20, 20), Preprocess(size=20, crop=20, **RGB)),  # nothing to resize
    ((200, 3), Preprocess(size=3, crop=3, **GREY)),
]


@pytest.mark.skipif(NODE is None, reason="no node on PATH")
def test_pictures_become_the_inputs_of_python() -> None:
    generator = np.random.default_rng(0)
    pictures = [generator.integers(0, 256, (*shape, 3), dtype=np.uint8) for shape, _ in CASES]
    found = in_node([(picture, preprocess) for picture, (_, preprocess) in zip(pictures, CASES, strict=True)])
    for picture, (_, preprocess), answer in zip(pictures, CASES, found, strict=True):
        expected = preprocess(picture).numpy()
        assert (answer["height"], answer["width"]) == expected.shape[1:], preprocess
        values = np.array(answer["values"], dtype=np.float32).reshape(expected.shape)
        assert np.array_equal(values, expected), f"{preprocess}: off by {np.abs(values - expected).max()}"


def in_node(cases: list[tuple[np.ndarray[Any, Any], Preprocess]]) -> Any:
    assert NODE is not None
    given = []
    for picture, preprocess in cases:
        opaque = np.full((*picture.shape[:2], 1), 255, dtype=np.uint8)
        data = np.concatenate([picture, opaque], 2).ravel().tolist()
        size = {"width": picture.shape[1], "height": picture.shape[0]}
        given.append({"data": data, **size, "preprocess": asdict(preprocess)})
    script = base64.b64encode(SCRIPT.read_bytes()).decode()
    command = [NODE, "--input-type=module", "-e", RUNNER, script]
    done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
