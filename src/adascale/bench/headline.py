"""Who leads a benchmark, by how much, and whether by more than chance: one sentence for the top of every table."""

from __future__ import annotations

from collections.abc import Sequence

from adascale.bench.columns import KINDS, MEANS, Kind
from adascale.bench.results import ModelRun, Row, Standing
from adascale.maths.metrics import Difference, auroc, paired_bootstrap

_BY_DEFAULT = "which fit deploys by default"


def by_auroc(model: ModelRun) -> tuple[Kind, list[str], dict[str, float]]:
    """The kind of sets that methods are ranked by, the names of ID and of these sets, and each method's mean AUROC.

    Near-OOD, or far-OOD where no near set was tested. The best method comes first; nothing without an OOD set.
    """
    by_kind = {kind: [name for name, info in model.sets.items() if info.kind == kind] for kind in (*MEANS, "id")}
    kind: Kind = "near" if by_kind["near"] else "far"
    (known, *unknown) = names = [*by_kind["id"], *by_kind[kind]]
    if not unknown:
        return kind, names, {}
    means = {
        method: sum(auroc(scores[known], scores[name]) for name in unknown) / len(unknown)
        for method, scores in model.scores.items()
    }
    return kind, names, {method: means[method] for method in sorted(means, key=lambda one: -means[one])}


def standing(model: ModelRun) -> Standing | None:
    """Who leads on one network. Differences are those of `paired_bootstrap`: the same resampled images for both.

    None if there is no method, or no OOD set.
    """
    kind, names, means = by_auroc(model)
    if not means:
        return None
    parts = {method: [model.scores[method][name] for name in names] for method in means}
    best, *others = means
    second, deployed = next(iter(others), ""), model.deployed
    ahead = paired_bootstrap(parts[best], parts[second]) if second else None
    gap = paired_bootstrap(parts[best], parts[deployed]) if deployed not in ("", best) else None
    return Standing(kind, best, means[best], second, ahead, deployed, gap)


def headline(found: Standing) -> str:
    """The sentence."""
    kind, share = _kind(found.kind), f"{100 * found.auroc:.2f} %"
    role = f", {_BY_DEFAULT}," if found.best == found.deployed else ""
    if found.ahead is None:
        return f"{found.best}{role} has a {kind} AUROC of {share}; no other method was run."
    text = f"{found.best}{role} has the highest {kind} AUROC, {share}: "
    if found.second == found.deployed:
        return f"{text}{_points(found.ahead)} above {found.second}, {_BY_DEFAULT} ({_judged(found.ahead)})."
    text += f"{_points(found.ahead)} above the second, {found.second} ({_judged(found.ahead)})"
    if found.gap is None:
        return f"{text}."
    return f"{text}, and {_points(found.gap)} above {found.deployed}, {_BY_DEFAULT} ({_judged(found.gap)})."


def mean_headline(rows: Sequence[Row]) -> str:
    """The sentence on the mean over several networks, of the methods that were run on all of them; "" if there is none.

    The networks, not the images, are what the mean is over, so it counts on how many of them the best is ahead.
    """
    means_of: dict[str, list[Row]] = {kind: [] for kind in MEANS}
    for row in (row for row in rows if row.is_mean and row.spectrum == "ood"):
        means_of[row.kind].append(row)
    kind = "near" if means_of["near"] else "far"
    by_method: dict[str, dict[str, float]] = {}
    for row in means_of[kind]:
        by_method.setdefault(row.method, {})[row.model] = row.auroc
    networks = {row.model for row in means_of[kind]}
    means = {m: sum(own.values()) / len(own) for m, own in by_method.items() if set(own) == networks}
    best, *others = sorted(means, key=lambda method: -means[method]) or [""]
    if not others:
        return ""
    second, share = others[0], f"{100 * means[best]:.2f} %"
    ahead = sum(by_method[best][network] > by_method[second][network] for network in networks)
    return (
        f"Over the {len(networks)} networks {best} has the highest mean {_kind(kind)} AUROC, {share}: "
        f"{100 * (means[best] - means[second]):.2f} points above the second, {second}, "
        f"and ahead of it on {ahead} of {len(networks)}."
    )


def _kind(kind: str) -> str:
    return in_text(KINDS[kind])


def in_text(heading: str) -> str:
    """A heading as it is written within a sentence: near-OOD, not Near-OOD."""
    return heading[:1].lower() + heading[1:]


def _points(found: Difference) -> str:
    return f"{100 * found.value:.2f} points"


def _judged(found: Difference) -> str:
    """Whether the bootstrap interval of the difference leaves out 0, in the words of a reader."""
    verdict = "more than chance" if found.beyond_chance else "within chance"
    return f"{verdict}: 95 % interval {found.interval}"
