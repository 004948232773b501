"""``adascale serve``."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file

from adascale.cli.checks import named_file
from adascale.cli.console import say
from adascale.cli.demo import save
from adascale.cli.networks import named
from adascale.cli.service_command import ServeCommand
from adascale.core.extras import EXTRAS, check_installed
from adascale.core.folders import cache_folder
from adascale.core.threads import in_passing_thread
from adascale.core.version import __version__
from adascale.decision.detector_file import DetectorFile
from adascale.decision.ood_detector import OODDetector
from adascale.export.exported import Exported, load_exported
from adascale.export.formats import SUFFIXES
from adascale.images.preprocess import Preprocess
from adascale.network import digits
from adascale.network.class_names import check_count, class_names
from adascale.network.classifier import Classifier
from adascale.network.ready import ready_network
from adascale.storage.locks import locked
from adascale.storage.remote import check_local


def serve(given: ServeCommand) -> None:
    """Load the detectors and serve them until the process is told to stop."""
    for package in ("fastapi", "uvicorn", "python_multipart", "prometheus_client"):
        check_installed(package, EXTRAS["fastapi"])
    from adascale.service.app import Service
    from adascale.service.logs import start_logs
    from adascale.service.running import bound, run

    listening = bound(given.host, given.port)  # before the detectors are loaded, which takes longer
    token = None if given.token_file is None else given.token_file.read_text("utf8").strip()

    def made() -> Service:
        detectors = {"digits": demo_detector()} if given.demo else _loaded(given)
        return Service(detectors, given.limits(), token=token, state=given.state, copy=False)

    service = in_passing_thread(made)
    start_logs()
    run(service, listening)


def _loaded(given: ServeCommand) -> dict[str, OODDetector | Exported]:
    """The detectors by name. Those of one network share it."""
    networks: dict[tuple[str, str], Classifier] = {}
    found: dict[str, OODDetector | Exported] = {}
    for name, path in map(named_file, given.detectors or []):
        if path.suffix.lower() in SUFFIXES:
            check_local(path, "an exported file")
            found[name] = load_exported(Path(str(path)))
            continue
        file = DetectorFile.read(path)
        spec, weights = named(file, given)
        key = spec, str(weights)
        if key not in networks:
            networks[key], _ = ready_network(spec, weights, given.device, engine=given.engine)
        found[name] = _named_classes(OODDetector.load(file, networks[key]), given.classes)
    return found


def _named_classes(detector: OODDetector, classes: Path | None) -> OODDetector:
    if classes is not None:
        detector.class_names = check_count(class_names(classes), len(detector.classifier.head.weight))
    return detector


def demo_detector() -> OODDetector:
    """The detector of ``adascale demo``, made once and then kept in the cache."""
    folder = cache_folder() / "serve-demo" / __version__
    with locked(folder / "lock"):
        if not (folder / "detector.safetensors").is_file():
            say("Training a small network on the digits 0 to 7 and fitting a detector; the next start is quicker ...")
            data = digits.load_digits()
            network, names = digits.train_network(data["train"]), [str(digit) for digit in range(digits.KNOWN_DIGITS)]
            detector = OODDetector(network, preprocess=Preprocess(**digits.PREPROCESS), classes=names)
            save(folder, detector.fit(digits.inputs(data["fit"])), network, data)
    network = digits.digits_cnn()
    network.load_state_dict(load_file(folder / "network.safetensors"))
    say(f"Images to try are in {folder / 'images'}.")
    return OODDetector.load(folder / "detector.safetensors", network.eval())
