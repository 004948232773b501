"""Displays and progress in a real kernel."""

from __future__ import annotations

import pytest

from tests.conftest import ROOT

CELLS = (
    "import sys\n"
    f"sys.path.insert(0, {str(ROOT)!r})\n"
    "from adascale import OODDetector\n"
    "from adascale.core.progress import progress\n"
    "from tests.conftest import SmallNet, images, seeded\n"
    "detector = OODDetector(seeded(SmallNet)).fit(images(60), tune=False)\n"
    "given = images(3, seed=1)\n"
    "detector",
    "detector(given)",
    "detector(given).show(given)",
    "detector.explain(given[:1])",
    "detector.plot(given)",
    "with progress('Reading <images>', 40) as advance:\n    for _ in range(4):\n        advance(10)",
)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of the packages that run notebooks
def test_a_kernel_shows_detectors_verdicts_explanations_plots_and_progress() -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in CELLS])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    shown = ["".join(one["data"].get("text/html", "") for one in cell.outputs if "data" in one)
             for cell in notebook.cells]  # fmt: skip
    for text, wanted in zip(
        shown, ("At most", "out-of-distribution", "<img ", "calibration images score at least as high"), strict=False
    ):
        assert wanted in text
    (plotted,) = notebook.cells[4].outputs  # although nobody imported pyplot
    assert "image/png" in plotted["data"]
    assert '<progress value="40" max="40">' in shown[5]
    assert "Reading &lt;images&gt;" in shown[5]
