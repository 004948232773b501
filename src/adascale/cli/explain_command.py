"""The options of ``adascale explain``; like those of `commands`, without an import of PyTorch."""

from __future__ import annotations

from pathlib import Path

from adascale.cli import checks, groups
from adascale.cli.groups import Command, ReadOptions, Texts, TrustOptions, option


class ExplainCommand(TrustOptions, ReadOptions, Command, module="explain"):
    """Where the verdict on an image comes from: every number of it, from the pixels to the threshold."""

    images: groups.Images
    detector: Path = option(..., "Detector file.", "--detector", "-d", check=checks.detector_files)
    output: Path | None = option(
        None, "Write an HTML page with pictures and charts.", "--out", "-o", check=checks.writable
    )
    alpha: float | None = option(
        None, "Share of in-distribution images that may be flagged [default: as fitted].", check=checks.alpha
    )
    confidence: groups.Confidence = None
    classes: groups.Classes = None
    method: Texts = option(
        None, "file.py:Class of your own method, if the detector has one.", check=checks.known_methods
    )
    root: groups.Root = None
    device: groups.Device = "auto"
    engine: groups.Engine = "torch"
