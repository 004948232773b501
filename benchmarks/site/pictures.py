"""The pictures of README and docs, made from real images: the digits and the two photographs of scikit-learn.

    python -m benchmarks.site.pictures

writes docs/pictures/*.png and the numbers that they show, docs/pictures/numbers.json. It takes about half a minute. It
runs on one thread, and the network is the demo's, trained in float64: in float32 rounding, which depends on the number
of threads and the processor, grows in training until another network is judged.
The photographs are china.jpg and flower.jpg by danielbuechele, CC BY 2.0.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from adascale import OODDetector, Preprocess, Verdict
from adascale.extraction.extract import extract_batch
from adascale.images.corruptions import Corruption, corrupted
from adascale.images.sources import ImageSet
from adascale.network import digits
from adascale.report.charts import COLOURS, ID_COLOUR, INK

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
NEAR, FAR, SHIFTED = COLOURS[0], COLOURS[1], COLOURS[4]
NAMES = {"known digits": ID_COLOUR, "unknown digits": NEAR, "photographs": FAR}


@dataclass
class Subject:
    """The demo's network and images, and the default detector fitted on them."""

    network: torch.nn.Module
    data: dict[str, ImageSet]
    photographs: list[Image.Image]
    detector: OODDetector

    def sets(self) -> dict[str, ImageSet]:
        return {"known digits": self.data["test"], "unknown digits": self.data["near"], "photographs": self.data["far"]}

    def judged(self, images: ImageSet) -> Verdict:
        return self.detector(digits.inputs(images))


def subject() -> Subject:
    from sklearn.datasets import load_sample_images

    data = digits.load_digits()
    network = digits.train_network(data["train"], dtype=torch.float64)
    preprocess = Preprocess(**digits.PREPROCESS)
    detector = OODDetector(network, preprocess=preprocess).fit(digits.inputs(data["fit"]))
    return Subject(network, data, [Image.fromarray(photo) for photo in load_sample_images().images], detector)


def verdicts(given: Subject) -> tuple[Figure, dict[str, Any]]:
    """The first images of each set, unselected, each with its verdict; below, all scores."""
    shown = [
        *((given.data["test"].open(i), "known digits") for i in range(4)),
        *((given.data["near"].open(i), "unknown digits") for i in range(4)),
        *((photo, "photographs") for photo in given.photographs),
    ]
    verdict = given.detector([image.convert("L") for image, _ in shown])
    figure = Figure(figsize=(10, 4.1), dpi=130, facecolor="white")
    grid = figure.add_gridspec(2, len(shown), height_ratios=(1, 1.45), hspace=0.4, wspace=0.08)
    for i, (image, kind) in enumerate(shown):
        _tile(figure.add_subplot(grid[0, i]), image, kind, bool(verdict.is_ood[i]), float(verdict.p_value[i]))
    counts = _histogram(figure.add_subplot(grid[1, :]), given)
    figure.subplots_adjust(left=0.058, right=0.985, top=0.985, bottom=0.12)
    tiles = [
        {"kind": kind, "is_ood": bool(ood), "p_value": round(float(p), 4)}
        for (_, kind), ood, p in zip(shown, verdict.is_ood, verdict.p_value, strict=True)
    ]
    return figure, {"tiles": tiles, "flagged": counts, "alpha": given.detector.alpha}


def _square(image: Image.Image) -> Any:
    side = min(image.size)
    left, top = ((length - side) // 2 for length in image.size)
    return np.asarray(image.crop((left, top, left + side, top + side)).resize((160, 160), Image.Resampling.NEAREST))


def _tile(axes: Any, image: Image.Image, kind: str, flagged: bool, p_value: float) -> None:
    axes.imshow(_square(image), cmap="gray_r", aspect="equal")
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(color=NAMES[kind], linewidth=3)
    words = "unknown" if flagged else "known"
    axes.set_xlabel(f"{words}\np = {p_value:.3f}", color=INK, fontsize=9.5, fontweight="bold" if flagged else "normal")


def _histogram(axes: Any, given: Subject) -> dict[str, float]:
    shares, threshold = {}, given.detector.threshold
    scores = {name: given.judged(images).score.numpy() for name, images in given.sets().items()}
    low, high = (float(np.percentile(np.concatenate(list(scores.values())), p)) for p in (0.5, 99.5))
    edges = np.linspace(low, high, 46)
    for name, values in scores.items():
        shares[name] = round(float((values > threshold).mean()), 4)
        label = f"{name}: {len(values)} images, {100 * shares[name]:.1f} % flagged"
        weights = np.full(len(values), 100 / len(values))
        axes.hist(values.clip(low, high), edges, weights=weights, color=NAMES[name], alpha=0.62, label=label)
    axes.axvline(threshold, color=INK, linestyle=(0, (4, 2)))
    words = f"threshold, set by {len(_calibration(given))} other known digits "
    axes.annotate(words, (threshold, axes.get_ylim()[1] * 0.93), ha="right", fontsize=9, color=INK)
    axes.set(xlabel="score: higher = less like what the network was trained on", ylabel="% of images", xlim=(low, high))
    _plain(axes)
    axes.legend(frameon=False, fontsize=9, loc="upper right")
    return shares


def _calibration(given: Subject) -> Tensor:
    assert given.detector.calibration is not None
    return given.detector.calibration.scores


def _plain(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8, colors=INK)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set(fontsize=9, color=INK)


def spectrum(given: Subject) -> tuple[Figure, dict[str, Any]]:
    """Examples and scores of known, shifted, near and far images."""
    shifted = corrupted(given.data["test"], Corruption("noise", 5))
    sets = {
        "in-distribution: known digits": (given.data["test"], ID_COLOUR),
        "shifted: known digits with noise": (shifted, SHIFTED),
        "near-OOD: digits 8 and 9": (given.data["near"], NEAR),
        "far-OOD: patches of photographs": (given.data["far"], FAR),
    }
    figure = Figure(figsize=(10, 4.6), dpi=120, facecolor="white")
    grid = figure.add_gridspec(4, 9, width_ratios=[1.35] * 5 + [0.4, 3.4, 3.4, 3.4], hspace=0.35, wspace=0.08)
    scores = {name: given.judged(images).score.numpy() for name, (images, _) in sets.items()}
    low, high = (float(np.percentile(np.concatenate(list(scores.values())), p)) for p in (0.5, 99.5))
    shares = {}
    for row, (name, (images, colour)) in enumerate(sets.items()):
        for i in range(5):
            axes = figure.add_subplot(grid[row, i])
            axes.imshow(_square(images.open(i * (len(images) // 5))), cmap="gray_r")
            axes.set(xticks=[], yticks=[])
        axes = figure.add_subplot(grid[row, 6:])
        axes.hist(scores[name].clip(low, high), np.linspace(low, high, 46).tolist(), color=colour)
        axes.axvline(given.detector.threshold, color=INK, linestyle=(0, (4, 2)))
        shares[name] = round(float((scores[name] > given.detector.threshold).mean()), 4)
        axes.set_title(f"{name}: {100 * shares[name]:.1f} % flagged", fontsize=9.5, color=INK, loc="left", pad=3)
        axes.set(yticks=[], xlim=(low, high))
        axes.tick_params(labelbottom=row == 3, labelsize=8)
        axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_xlabel("score; the dashed line is the threshold", fontsize=9, color=INK)
    figure.subplots_adjust(left=0.01, right=0.985, top=0.94, bottom=0.1)
    return figure, {"flagged": shares}


def conformal(given: Subject) -> tuple[Figure, dict[str, Any]]:
    """The calibration scores, one new image among them, and its p-value by counting."""
    known, score = _calibration(given).numpy(), float(given.judged(given.data["test"]).score[0])
    new = float(given.judged(given.data["near"]).score[0])
    figure = Figure(figsize=(10, 2.5), dpi=120, facecolor="white")
    axes = figure.add_subplot()
    heights = np.random.default_rng(0).uniform(0.1, 1, len(known))
    axes.scatter(known, heights, s=9, color=ID_COLOUR, alpha=0.6)
    axes.axvline(given.detector.threshold, color=INK, linestyle=(0, (4, 2)))
    found = {}
    for name, value, colour in (("a known digit", score, ID_COLOUR), ("an unknown digit", new, NEAR)):
        above = int((known >= value).sum())
        p_value = (1 + above) / (len(known) + 1)
        found[name] = {"at least as high": above, "n": len(known), "p_value": round(p_value, 4)}
        axes.axvline(value, color=colour, linewidth=2, ymax=0.8)
        counted = f"p = ({above} + 1) / ({len(known)} + 1) = {p_value:.3f}"
        words = f"{name}: {above} of {len(known)} are at least as high,\n{counted}"
        side, shift = ("left", 6) if name == "a known digit" else ("right", -6)
        axes.annotate(words, (value, 1.12), (shift, 0), textcoords="offset points", fontsize=9, color=colour, ha=side)
    words = (
        f"score: the points are the {len(known)} calibration images, the dashed line is the threshold for alpha = 5 %"
    )
    axes.set(yticks=[], ylim=(0, 1.5), xlabel=words)
    _plain(axes)
    axes.spines["left"].set_visible(False)
    figure.subplots_adjust(left=0.01, right=0.985, top=0.98, bottom=0.2)
    return figure, found


STEPS = ("q", "c_o", "q_prime", "share", "percentile", "ratio", "energy", "scaled_energy")


def steps(given: Subject) -> tuple[Figure, dict[str, Any]]:
    """AdaSCALE-A on a known and an unknown image: what is perturbed, what moves, where Q' lies, what is scaled."""
    preprocess = Preprocess(**digits.PREPROCESS)
    detector = OODDetector(given.network, "adascale_a", preprocess=preprocess, p_min=60, p_max=85)
    detector.fit(digits.inputs(given.data["fit"]), tune=False)
    method: Any = detector.method
    chosen = {"known digit": given.data["test"], "photograph": given.data["far"]}
    inputs = torch.cat([digits.inputs(images)[:1] for images in chosen.values()])
    outputs = extract_batch(detector.classifier, inputs, [method.view])
    found = method.diagnostics(outputs)
    figure = Figure(figsize=(10, 5.4), dpi=120, facecolor="white")
    grid = figure.add_gridspec(2, 4, width_ratios=(1, 1, 2.2, 2), hspace=0.5, wspace=0.28)
    numbers = {}
    changed, verdict = _perturbed_pixels(given.network, inputs, method), detector(inputs)
    for row, (name, colour) in enumerate(zip(chosen, (ID_COLOUR, FAR), strict=True)):
        values = {key: float(found[key][row]) for key in STEPS}
        _input(figure.add_subplot(grid[row, 0]), inputs[row, 0], f"1  {name}")
        _input(figure.add_subplot(grid[row, 1]), inputs[row, 0], "2  perturbed pixels", changed[row])
        _moved(figure.add_subplot(grid[row, 2]), outputs.features[row], found["perturbed_by_rank"][row], colour, values)
        _placed(figure.add_subplot(grid[row, 3]), method, values, colour)
        numbers[name] = {key: round(value, 4) for key, value in values.items()} | {
            "score": round(float(verdict.score[row]), 4),
            "threshold": round(detector.threshold, 4),
            "p_value": round(float(verdict.p_value[row]), 4),
        }
    figure.subplots_adjust(left=0.02, right=0.985, top=0.94, bottom=0.1)
    return figure, numbers


def _perturbed_pixels(network: torch.nn.Module, inputs: torch.Tensor, method: Any) -> torch.Tensor:
    """Where the gradient of the predicted logit is smallest: the trivial pixels."""
    images = inputs.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(network(images).amax(1).sum(), images)
    size = gradient.abs().flatten(1)
    places = size.argsort(dim=1, stable=True)[:, : int(size.shape[1] * method.fraction)]
    return torch.zeros_like(size, dtype=torch.bool).scatter(1, places, True).view_as(gradient)[:, 0]


def _input(axes: Any, image: torch.Tensor, title: str, marked: torch.Tensor | None = None) -> None:
    axes.imshow(image.numpy(), cmap="gray_r")
    if marked is not None:
        rows, columns = np.nonzero(marked.numpy())
        axes.scatter(columns, rows, marker="s", s=16, color=NEAR)
    axes.set(xticks=[], yticks=[])
    axes.set_title(title, fontsize=9.5, color=INK)


def _moved(axes: Any, features: torch.Tensor, perturbed: torch.Tensor, colour: str, values: dict[str, float]) -> None:
    """The strongest activations before and after."""
    first, shown = features.sort(descending=True).values[:50], np.arange(1, 51)
    axes.fill_between(shown, first, perturbed[:50], color=NEAR, alpha=0.5, linewidth=0)
    axes.plot(shown, first, color=colour, linewidth=1.6, label="activation")
    axes.plot(shown, perturbed[:50], color=NEAR, linewidth=1, label="after the perturbation")
    axes.set_title(f"3  Q = {values['q']:.2f}, C_o = {values['c_o']:.1f}", fontsize=9.5, color=INK)
    axes.set(xlabel="activations by rank, the 50 strongest", ylim=(0, None))
    _plain(axes)
    axes.legend(frameon=False, fontsize=8)


def _placed(axes: Any, method: Any, values: dict[str, float], colour: str) -> None:
    """Where Q' lies among those of the reference images."""
    reference = method.reference_.numpy()
    axes.step(reference, np.arange(1, len(reference) + 1) / len(reference), color=INK, where="post", linewidth=1)
    axes.axvline(values["q_prime"], color=colour, linewidth=2)
    axes.set_title(f"4  F(Q') = {values['share']:.2f} → p = {values['percentile']:.1f}", fontsize=9.5, color=INK)
    axes.set(xlabel="Q'; the curve: F, from known digits", ylim=(0, 1.02))
    _plain(axes)


PICTURES = {"verdicts": verdicts, "spectrum": spectrum, "conformal": conformal, "adascale": steps}


def drawn() -> Iterator[tuple[str, Figure, dict[str, Any]]]:
    """Every picture: its name, the figure, and the numbers that it shows."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        given = subject()
        for name, make in PICTURES.items():
            yield name, *make(given)
    finally:
        torch.set_num_threads(threads)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    numbers = {}
    for name, figure, numbers[name] in drawn():
        figure.savefig(FOLDER / f"{name}.png", metadata={"Software": None})
        picture = Image.open(FOLDER / f"{name}.png").convert("RGB").quantize(96, dither=Image.Dither.NONE)
        picture.save(FOLDER / f"{name}.png", optimize=True)
    (FOLDER / "numbers.json").write_text(json.dumps(numbers, indent=1) + "\n", "utf8")


if __name__ == "__main__":
    main()
