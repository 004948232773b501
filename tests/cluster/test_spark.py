"""The example for users of Spark in docs/cluster.md runs as it is printed, on a local Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.shell import fit, rows, run

pytestmark = pytest.mark.slow


@pytest.mark.skipif(find_spec("pyspark") is None or shutil.which("java") is None, reason="needs pyspark and Java")
def test_the_example_gives_the_scores_of_one_process(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = re.findall(r"```python\n(from pyspark.*?)```", (ROOT / "docs" / "cluster.md").read_text("utf8"), re.S)
    fit(place, monkeypatch, "--method", "scale").rename(place / "detector.safetensors")
    (place / "id").rename(place / "images")
    (place / "example.py").write_text(example)
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    bundled = next(Path(spec.origin).parent.glob("python/lib/py4j-*.zip"))  # which pip installs beside it, or not
    paths = os.pathsep.join([str(bundled), *filter(None, sys.path)])
    small = "--master local[1] --conf spark.ui.enabled=false pyspark-shell"
    quiet = {"PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable, "PYSPARK_SUBMIT_ARGS": small}
    quiet["SPARK_LOCAL_IP"] = "127.0.0.1"
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=place, env={**os.environ, **quiet}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert run(place, "score", "images", "-d", "detector.safetensors", "-o", "one.csv").returncode == 0
    expected = {Path(row["image"]).name: float(row["score"]) for row in rows(place / "one.csv")}
    pandas = pytest.importorskip("pandas")
    found = pandas.read_parquet(place / "scores.parquet")
    assert {Path(path).name: score for path, score in zip(found.path, found.score, strict=True)} == pytest.approx(
        expected
    )
