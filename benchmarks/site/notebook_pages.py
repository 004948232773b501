"""The notebooks of examples/notebooks as pages: their words and their code, without outputs."""

from __future__ import annotations

import json
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
SOURCES = {f"tutorials/{path.stem}.md": f"examples/notebooks/{path.name}" for path in sorted(FOLDER.glob("*.ipynb"))}


def pages() -> dict[str, str]:
    return {address: page(FOLDER.parents[1] / source) for address, source in SOURCES.items()}


def page(path: Path) -> str:
    notebook = json.loads(path.read_text("utf8"))
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    where = f"\n*This page is the notebook `examples/notebooks/{path.name}`; a test runs it.*\n"
    return "\n\n".join([parts[0] + "\n" + where, *parts[1:]]) + "\n"
