"""(a) the full score over a plain forward, (b) over the authors' procedure, (c) decisions, (k) those by default."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from adascale import OODDetector
from adascale.core.timing import interleaved
from adascale.core.types import Pixels
from benchmarks.authors import Authors
from benchmarks.measured import Ratio, ratio
from benchmarks.subjects import Subject

_SCORES_MOST = {"imagenet_resnet50": 1.85, "cifar10_densenet101": 1.65, "cifar100_densenet101": 1.65}
_SMALL_BATCH = 8
PIXELS: tuple[Pixels, ...] = ("random", "trivial")
_DECISIONS_MOST = {
    ("random", "cifar10_densenet101"): 1.10,
    ("random", "imagenet_resnet50"): 1.20,
    ("random", "cifar100_densenet101"): 1.30,
    ("trivial", "cifar10_densenet101"): 1.25,
    ("trivial", "imagenet_resnet50"): 1.45,
    ("trivial", "cifar100_densenet101"): 1.70,
}
_DEFAULT_MOST = 1.15


def fitted(subject: Subject, pixels: Pixels) -> OODDetector:
    """AdaSCALE-A with p 80/85, the paper's setting for ResNet-50."""
    detector = OODDetector(subject.classifier(), "adascale_a", p_min=80, p_max=85, pixels=pixels)
    detector.batch_size = subject.batch
    return detector.fit(subject.val, tune=False)


def plain(subject: Subject, images: Tensor, batch_size: int | None = None) -> Callable[[], object]:
    """A forward pass as anyone would write it. batch_size: in place of the subject's own."""

    def run() -> list[Tensor]:
        with torch.inference_mode():
            return [subject.model(batch) for batch in images.split(batch_size or subject.batch)]  # type: ignore[no-untyped-call]

    return run


def scores(subject: Subject, repeats: int) -> Iterator[Ratio]:
    """(a) and (b), on one batch; the score with random pixels also on a batch of 8."""
    batch = subject.known[: subject.batch]
    detectors = {pixels: fitted(subject, pixels) for pixels in PIXELS}
    classifier = detectors["random"].classifier
    assert classifier.head_name is not None
    authors = Authors(subject.model, classifier.head_name, classifier.head).fit(batch)
    calls: dict[str, Callable[[], object]] = {"plain": plain(subject, batch), "authors": lambda: authors.score(batch)}
    calls |= {pixels: partial(detector.score, batch) for pixels, detector in detectors.items()}
    times = interleaved(calls, repeats)
    authors.close()
    for pixels in PIXELS:
        most = _SCORES_MOST.get(subject.name, 2.10) if pixels == "random" else None
        yield ratio(
            "a", f"full score, {pixels} pixels / plain forward", subject.name, times[pixels].over(times["plain"]), most
        )
    few = batch[:_SMALL_BATCH]
    times |= interleaved({"plain 8": plain(subject, few), "ours 8": partial(detectors["random"].score, few)}, repeats)
    small = times["ours 8"].over(times["plain 8"])
    what = f"full score, random pixels, batch {len(few)} / plain forward"
    yield ratio("a", what, subject.name, small, _SCORES_MOST.get(subject.name, 2.10))
    yield ratio("a", "the authors' procedure / plain forward", subject.name, times["authors"].over(times["plain"]))
    yield ratio(
        "b",
        "full score, trivial pixels / the authors' procedure",
        subject.name,
        times["trivial"].over(times["authors"]),
        0.80,
    )


def decisions(subject: Subject, repeats: int) -> Iterator[Ratio]:
    """(c): ID traffic, and ID traffic with one image in ten OOD, in a random order."""
    n = len(subject.known)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    mixed = torch.cat([subject.known[: n - n // 10], subject.unknown[: n // 10]])[order]
    for pixels in PIXELS:
        detector = fitted(subject, pixels)
        for traffic, images in (("ID images", subject.known), ("9 ID to 1 OOD", mixed)):
            most = _DECISIONS_MOST.get((pixels, subject.name)) if traffic == "ID images" else None
            yield _decided("c", f"is_ood, {pixels} pixels, {traffic}", subject, detector, images, repeats, most)


def default_decisions(subject: Subject, repeats: int) -> Iterator[Ratio]:
    """(k): the default as a user gets it, tuned; on ID images, and its decisions on OOD images too."""
    detector = OODDetector(subject.classifier())
    detector.batch_size = subject.batch
    detector.fit(subject.val)
    for traffic, images, most in (("ID images", subject.known, _DEFAULT_MOST), ("OOD images", subject.unknown, None)):
        yield _decided("n", f"is_ood, default, {traffic}", subject, detector, images, repeats, most)


def _decided(
    part: str, what: str, subject: Subject, detector: OODDetector, images: Tensor, repeats: int, most: float | None
) -> Ratio:
    """Decisions against a plain forward, after they were compared with the verdicts of the full computation."""
    decided = detector.decide(images)
    flips = int((decided.is_ood != detector(images).is_ood).sum())
    times = interleaved({"plain": plain(subject, images), "ours": partial(detector.is_ood, images)}, repeats)
    agree = "decisions identical" if not flips else f"{flips} DECISIONS DIFFER"
    note = f"{len(images)} images, {int((~decided.early).sum())} needed the perturbed pass; {agree}"
    return ratio(part, f"{what} / plain forward", subject.name, times["ours"].over(times["plain"]), most, note)
