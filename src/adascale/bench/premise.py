"""Whether what AdaSCALE rests on holds on the sets of a benchmark: in words, for the report."""

from __future__ import annotations

from adascale.bench.captions import listed
from adascale.bench.diagnostics import mean_ratio
from adascale.bench.plots import ood_sets, sets_with_profiles
from adascale.bench.results import ModelRun
from adascale.report.charts import finite


def premise(run: ModelRun) -> str:
    """Whether the strongest activations of OOD images move further, and whether the percentile follows them.

    The first, the premise of the paper, holds on a set whose mean ``Q`` is above that of ID by more than two standard
    errors of the difference. But ``Q'`` sets the percentile: sets are named on which it is no larger than on ID images,
    so that these get the larger percentile.
    """
    return " ".join(filter(None, (_moved(run), _turned_round(run))))


def _moved(run: ModelRun) -> str:
    known, *others = sets_with_profiles(run)
    reference = finite(run.profiles[known].q)
    found, held = dict[str, float](), set[str]()
    for name in (name for name in others if name in ood_sets(run)):
        own, ratio = finite(run.profiles[name].q), mean_ratio(run.profiles[name].q, reference)
        if ratio is None or min(len(own), len(reference)) < 2:
            continue
        found[name] = ratio
        error = (own.var() / len(own) + reference.var() / len(reference)).sqrt()
        held |= {name} if own.mean() - reference.mean() > 2 * error else set()
    if not found:
        return ""
    failed = [f"{name} ({ratio:.2f} times)" for name, ratio in found.items() if name not in held]
    if not failed:
        least = min(found, key=lambda name: found[name])
        return f"It holds here: on every set the mean Q is above that of ID, {found[least]:.2f} times on {least}."
    rest = "no set" if not held else f"{len(held)} of {len(found)} sets"
    return f"Here it holds on {rest}: the mean Q is not above that of ID by more than chance on {listed(failed)}."


def _turned_round(run: ModelRun) -> str:
    """The sets whose images get the larger percentile, because their ``Q'`` is no larger than on ID images.

    The percentiles are looked at as well: they are all the same where ``p_min`` and ``p_max`` are.
    """
    known, *others = sets_with_profiles(run)
    reference, found = run.profiles[known], list[str]()
    usual = finite(reference.percentile).mean()
    for name in (name for name in others if name in ood_sets(run)):
        own = run.profiles[name]
        ratio = mean_ratio(own.q_prime, reference.q_prime)
        if ratio is not None and ratio <= 1 and finite(own.percentile).mean() > usual:
            found.append(f"{name} ({ratio:.2f} times)")
    if not found:
        return ""
    return (
        f"Q\N{PRIME}, which sets the percentile, is on average no larger on {listed(found)} than on ID images: "
        "they get the larger percentile and are scaled more than they would be at the percentile of ID images, so the "
        "adaptive percentile works against telling them apart there. The scaling itself, or another method, can still "
        "do so."
    )
