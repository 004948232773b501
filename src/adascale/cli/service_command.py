"""The options of ``adascale serve``; like those of `commands`, without an import of PyTorch."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from adascale.cli import checks, groups
from adascale.cli.groups import Command, Options, Texts, TrustOptions, argument, option
from adascale.core.errors import InputError
from adascale.service.limits import Limits


class LimitOptions(Options):
    """What the service takes on; see `adascale.service.limits`."""

    max_batch: int = option(Limits.max_batch, "Images of one pass.")
    max_wait_ms: float = option(Limits.max_wait_ms, "How long a pass waits for images that are being decoded.")
    queue: int = option(Limits.queue, "Images that a detector takes on at a time; more are answered by 503.")
    max_body_mb: float = option(Limits.max_body_mb, "Size of one request.")
    max_memory_mb: float = option(Limits.max_memory_mb, "Size of all requests under way.")
    max_pixels: int = option(Limits.max_pixels, "Pixels of one image.")
    max_images: int = option(Limits.max_images, "Images of one request.")
    deadline_s: float = option(Limits.deadline_s, "Seconds from the first byte of a request to its answer.")
    keep_alive_s: int = option(
        Limits.keep_alive_s, "Seconds that an idle connection stays open; longer than those in front of it keep theirs."
    )
    decoders: int = option(0, "Decoding threads [default: one per core, at most 8].")
    connections: int = option(Limits.connections, "Open connections.")
    drain_s: float = option(Limits.drain_s, "Seconds for which a stopping service still refuses work politely.")

    def limits(self) -> Limits:
        return Limits(**{one.name: getattr(self, one.name) for one in fields(LimitOptions)})


class ServeCommand(TrustOptions, LimitOptions, Command, module="serve"):
    """Put detectors behind an address: images come by HTTP, verdicts go back; with a page, metrics and monitoring."""

    detectors: Texts = argument(
        None, "Detector files, or exported .onnx files; NAME=FILE gives a name.", check=checks.served, metavar="DET..."
    )
    demo: bool = option(False, "Serve the detector of adascale demo.", "--demo")
    classes: groups.Classes = None
    device: groups.Device = "auto"
    engine: groups.Engine = "torch"
    host: str = option("127.0.0.1", "The address to listen at; 0.0.0.0 is every one of this machine.")
    port: int = option(8000, "The port; 0 takes one that is free.", min=0, max=65535)
    token_file: Path | None = option(
        None, "A file with the token that clients must send (Authorization: Bearer TOKEN).", check=checks.token_file
    )
    state: Path = option(
        Path("adascale-serve"), "Folder for the monitor's state and for feedback.", check=checks.folder
    )

    def __post_init__(self) -> None:
        if self.demo == bool(self.detectors):
            raise InputError("Name detector files to serve, or give --demo; one of the two.")
        self.limits()
