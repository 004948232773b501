"""A figure of matplotlib that notebooks show by themselves. Import it only where matplotlib is installed."""

from __future__ import annotations

import io

from matplotlib.figure import Figure


class Drawn(Figure):
    """A figure; a notebook shows it although pyplot, which teaches notebooks to, was never imported."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
        return buffer.getvalue()
