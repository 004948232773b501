"""(e) a benchmark against the bare passes, (f) tuning against extraction, (g) scoring files against a bare loop."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from adascale import Preprocess, detectors
from adascale.bench.figures import run_jobs
from adascale.bench.run import Entry, Job, Network, tested
from adascale.bench.suites import Suite, SuiteImages, load_suite, open_suite
from adascale.cli.options import entries
from adascale.core.taps import Found, Tap
from adascale.decision.folders import decide_images, score_images
from adascale.decision.ood_detector import OODDetector
from adascale.decision.tuning import grid
from adascale.extraction.batches import Passes
from adascale.images.loader import load_batches
from adascale.images.outliers import OUTLIERS
from adascale.images.sources import ImageSet, find_images
from adascale.network.classifier import Classifier
from adascale.network.layers import Layers
from benchmarks.measured import Ratio, of_seconds, ratio, seconds_of
from benchmarks.subjects import Subject

_FURTHER_PASSES = 6


def bench(subject: Subject, suite: Suite, images: SuiteImages, preprocess: Preprocess, repeats: int) -> Iterator[Ratio]:
    """(e): every method on every set, from files to the table, with an empty cache each time."""
    ours, bare = [], []
    scored = [found for _, found in tested(images).values()]
    _bare_passes(subject, preprocess, scored[:1], (), None)  # warm
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as cache:
            job = _job(subject, images, preprocess, list(entries(["all"], [], None, "none")), Path(cache))
            ours.append(seconds_of(lambda job=job: run_jobs(suite, images, [job])))  # type: ignore[misc]
        late, rest = (scored, [images.val]) if "mds_odin" in job.methods else ([], [*scored, images.val])
        passes = partial(_bare_passes, subject, preprocess, late, rest, images.train)
        bare.append(seconds_of(passes))
    note = f"{sum(map(len, rest))} images with four perturbed views and two of the network, "
    note += f"{sum(map(len, late))} with five and two, {len(images.train or ())} clean; "
    note += f"{len(job.methods)} methods"
    note += f" ({len(job.left_out)} left out: too few training images, or no such layers)" if job.left_out else ""
    yield ratio("e", "bench of all methods / the bare passes", subject.name, of_seconds(ours, bare), 1.35, note)


def _bare_passes(
    subject: Subject,
    preprocess: Preprocess,
    late: Sequence[ImageSet],
    rest: Sequence[ImageSet],
    train: ImageSet | None,
) -> None:
    """What the methods need at least: a forward pass, two input gradients (AdaSCALE and GAIA-Z, ODIN), a backward pass
    to the first stage (NAC) and one to the first norm (GAIA-A), a forward pass for each of four perturbed inputs and
    two changed networks (RankFeat). Of the images in ``late`` also a third input gradient and a fifth perturbed input
    (MDS-ODIN, which is fitted before it perturbs; so the images that methods are fitted on are not among them). Of the
    training images: a forward and a backward pass to the first stage (NAC).
    """
    wanted = [parameter for parameter in subject.model.parameters() if parameter.requires_grad]
    for parameter in wanted:
        parameter.requires_grad_(False)
    with _first_layers(subject) as reached:
        for images, more in [*((one, 1) for one in late), *((one, 0) for one in rest)]:
            for batch in load_batches(images, preprocess, subject.batch):
                _backward_passes(subject, batch.images, reached, bool(more))
                with torch.inference_mode():
                    for _ in range(_FURTHER_PASSES + more):
                        subject.model(batch.images)
        for batch in load_batches(train, preprocess, subject.batch) if train is not None else ():
            logits = subject.model(batch.images.clone().requires_grad_())
            torch.autograd.grad(logits.log_softmax(1).mean(1).sum(), reached["stages"])
    for parameter in wanted:
        parameter.requires_grad_(True)


def _backward_passes(subject: Subject, images: Tensor, reached: dict[str, Tensor], of_features: bool) -> None:
    inputs = images.clone().requires_grad_()
    logits = subject.model(inputs)
    stage, norm = reached["stages"], reached["norms"]
    torch.autograd.grad(logits.max(1).values.sum(), inputs, retain_graph=True)
    torch.autograd.grad((logits / 1000).log_softmax(1).max(1).values.sum(), inputs, retain_graph=True)
    if of_features:
        torch.autograd.grad(reached["features"].sum(), inputs, retain_graph=True)
    torch.autograd.grad(logits.log_softmax(1).mean(1).sum(), stage, retain_graph=True)
    torch.autograd.grad(logits.sum(), norm)


@contextmanager
def _first_layers(subject: Subject) -> Iterator[dict[str, Tensor]]:
    """What the first stage and the first norm gave in the last pass, by "stages" and "norms", and what the head was
    given, by "features", while this lasts.
    """
    images = subject.known[:2]
    name = subject.classifier().head_name
    assert name is not None  # located
    layers = Layers(subject.model, name, images, lambda: subject.model(images))
    reached: dict[str, Tensor] = {}

    def keep(kind: str) -> Callable[..., None]:
        return lambda _, __, result: reached.update({kind: result})

    found: list[Found] = ["stages", "norms"]
    first = {kind: subject.model.get_submodule(layers.places(Tap(kind))[0].name) for kind in found}
    handles = [module.register_forward_hook(keep(kind)) for kind, module in first.items()]
    head = subject.model.get_submodule(name)
    handles.append(head.register_forward_pre_hook(lambda _, given: reached.update(features=given[0])))
    try:
        yield reached
    finally:
        for handle in handles:
            handle.remove()


def _bare_loop(subject: Subject, images: ImageSet, preprocess: Preprocess) -> list[Tensor]:
    """Decode and forward, in batches, one after the other."""
    found = []
    for start in range(0, len(images), subject.batch):
        rows = range(start, min(start + subject.batch, len(images)))
        batch = torch.stack([preprocess(images.open(i)) for i in rows])
        with torch.inference_mode():
            found.append(subject.model(batch))
    return found


def tuning(subject: Subject, images: SuiteImages, preprocess: Preprocess, repeats: int) -> Iterator[Ratio]:
    """(f): the 36 pairs with p_min < p_max of the paper, judged by outliers made from the validation images."""
    method = detectors.AdaSCALE_A()
    points = [point for point in grid(method) if point["p_min"] < point["p_max"]]
    whole, extraction, once = [], [], []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as cache:
            job = _job(subject, images, preprocess, [Entry("adascale_a", method)], Path(cache))
            cold = seconds_of(lambda job=job: job.tune(method, points, "self"))  # type: ignore[misc]
            warm = seconds_of(lambda job=job: job.tune(method, points, "self"))  # type: ignore[misc]
            one = seconds_of(lambda job=job: job.tune(method, points[:1], "self"))  # type: ignore[misc]
        whole.append(cold)
        extraction.append(cold - warm)
        once.append(cold - warm + one)
    note = f"{len(points)} pairs, {len(images.val)} ID images and {len(OUTLIERS)} kinds of outliers made from them"
    yield ratio("f", "tuning / its one extraction", subject.name, of_seconds(whole, extraction), 1.05, note)
    note = f"the network run again for each of the {len(points)} pairs: {len(points)} times one, not run"
    repeated = [len(points) * seconds for seconds in once]
    yield ratio("f", "tuning / the network again for each pair", subject.name, of_seconds(whole, repeated), None, note)


def scoring(subject: Subject, folder: Path, preprocess: Preprocess, repeats: int) -> Iterator[Ratio]:
    """(g): a folder of JPEG files, from decoding to rows."""
    images = find_images(folder)
    for name, decide in (("ebo", False), ("adascale_a", True)):
        parameters: dict[str, Any] = {"p_min": 80, "p_max": 85} if name == "adascale_a" else {}
        detector = OODDetector(subject.classifier(), name, preprocess=preprocess, **parameters)
        detector.fit(subject.val, tune=False)
        ours, bare = [], []
        for _ in range(repeats):
            passes = Passes(subject.batch)
            rows = (
                decide_images(detector, images, passes=passes)
                if decide
                else score_images({name: detector}, images, passes=passes)
            )
            ours.append(seconds_of(lambda rows=rows: list(rows)))  # type: ignore[misc]
            bare.append(seconds_of(lambda: _bare_loop(subject, images, preprocess)))
        what = f"score{' --decide' if decide else ''}, {name}"
        most = 1.10 if name == "ebo" else None
        rate = len(images) / sorted(ours)[len(ours) // 2]
        note = f"{len(images)} files, {rate:.1f} images a second here"
        yield ratio("g", f"{what} / decode and forward in turn", subject.name, of_seconds(ours, bare), most, note)


def limited(name: str, count: int) -> tuple[Suite, SuiteImages]:
    """The suite of a real network with this many images in each set, and all training images; else the digits'."""
    from benchmarks.tuning import SUITES

    file = SUITES / f"{name}.toml"
    suite = load_suite(str(file) if file.is_file() else "digits")
    return suite, replace(open_suite(suite, limit=count, limit_fit=count), train=open_suite(suite).train)


def _job(subject: Subject, images: SuiteImages, preprocess: Preprocess, lines: list[Entry], cache: Path) -> Job:
    network = Network(subject.name, Classifier(subject.model), preprocess)
    return Job(network, images, [replace(line) for line in lines], cache, passes=Passes(subject.batch))
