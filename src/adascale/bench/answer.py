"""What a benchmark says to someone who has to decide: who is best, what to deploy, what it flags, what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from adascale.bench.columns import KINDS, MEANS, Kind
from adascale.bench.headline import in_text
from adascale.bench.results import ModelRun, Row, Run, Standing
from adascale.detectors import registry
from adascale.maths.binomial import share_interval
from adascale.maths.metrics import Difference, paired_bootstrap
from adascale.maths.promise import in_words
from adascale.report.charts import COLOURS, styles
from adascale.report.document import DASH, Cell, Chart, Column, Line, Series, Style, Table

DEPLOYED, OTHERS = "what fit deploys", "other methods"
_STYLES = {DEPLOYED: Style(COLOURS[0]), OTHERS: Style(COLOURS[5])}
_COSTS = {
    "light": "hardly any arithmetic", "product": "arithmetic like that of the last layer",
    "bank": "a search among stored features", "heavy": "more arithmetic than the others",
}  # fmt: skip
_MOST = 20  # lines of a ranking; the deployed one is always among them


@dataclass(frozen=True)
class Card:
    """One answer: the question, the answer in a word or number, and what stands behind it."""

    question: str
    answer: str
    text: str


def answers(run: Run, model: ModelRun) -> list[Card]:
    """The answers for one network; none if no method leads because nothing was compared."""
    found = run.standings.get(model.model)
    if found is None:
        return []
    chosen, why = advice(model, found)
    cards = [_best(run, model, found), Card("What to deploy", chosen, why)]
    if found.ahead is not None:
        chance = "more than chance" if found.ahead.beyond_chance else "within chance"
        text = f"above {found.second}, the second: {chance} (95 % interval {found.ahead.interval})"
        cards.insert(1, Card("By how much", f"{100 * found.ahead.value:+.2f} points", text))
    return [*cards, *_at_work(model), _cost(chosen)]


def _best(run: Run, model: ModelRun, found: Standing) -> Card:
    row = _mean_row(run, model, found.best, found.kind)
    interval = "" if row is None or row.low is None or row.high is None else f" ({_between(row.low, row.high)})"
    return Card("Best here", found.best, f"{in_text(KINDS[found.kind])} AUROC {100 * found.auroc:.2f} %{interval}")


def advice(model: ModelRun, found: Standing) -> tuple[str, str]:
    """The method to deploy, and why: the default, unless another is better by more than chance and nowhere worse so."""
    if not found.deployed:
        return found.best, "the default of adascale fit was not run; this is the best of those that were"
    if found.gap is None:
        return found.deployed, "the default of adascale fit, and the best here"
    if not found.gap.beyond_chance:
        gap = f"{found.best} is {100 * found.gap.value:.2f} points ahead of it, which is within chance"
        return found.deployed, f"the default of adascale fit: {gap} (95 % interval {found.gap.interval})"
    other = "far" if found.kind == "near" else "near"
    there = _lead(model, found.best, found.deployed, other)
    ahead = f"{found.best} is {100 * found.gap.value:.2f} points ahead on {in_text(KINDS[found.kind])}"
    if there is not None and there.beyond_chance and there.value < 0:
        behind = f"{100 * -there.value:.2f} points behind on {in_text(KINDS[other])}"
        return found.deployed, f"the default of adascale fit: {ahead}, but {behind}, both more than chance"
    confirm = "It was chosen on these images: confirm it on others."
    return found.best, f"{ahead} of {found.deployed}, the default, by more than chance. {confirm}"


def _lead(model: ModelRun, first: str, second: str, kind: str) -> Difference | None:
    names = [name for name, info in model.sets.items() if info.kind == "id"]
    names += [name for name, info in model.sets.items() if info.kind == kind]
    if len(names) < 2:
        return None
    mine, theirs = ([model.scores[method][name] for name in names] for method in (first, second))
    return paired_bootstrap(mine, theirs)


def _at_work(model: ModelRun) -> list[Card]:
    """What the deployed line flags at the threshold that ``fit`` sets."""
    if model.calibration is None:
        return []
    flagged, cards = _flagged(model), list[Card]()
    for name, info in model.sets.items():
        if info.kind == "id":
            count, total = flagged[name]
            promised = in_words(model.calibration.alpha, model.calibration.confidence)
            text = (
                f"of the ID test images are flagged by {model.deployed} ({_between(*share_interval(count, total))}); "
            )
            sure = "" if model.calibration.confidence else " on average"
            cards.append(Card("False alarms", f"{100 * count / total:.1f} %", f"{text}{promised} is promised{sure}"))
    caught = []
    for kind in MEANS:
        shares = [flagged[name][0] / flagged[name][1] for name, info in model.sets.items() if info.kind == kind]
        caught += [(kind, sum(shares) / len(shares))] if shares else []
    if caught:
        words = " and ".join(in_text(KINDS[kind]) for kind, _ in caught)
        values = " / ".join(f"{100 * share:.1f} %" for _, share in caught)
        text = f"of the {words} images are flagged at this threshold (means over the sets)"
        cards.append(Card("What it catches", values, text))
    return cards


def _flagged(model: ModelRun) -> dict[str, tuple[int, int]]:
    """How many images of each set the deployed line flags, and of how many."""
    assert model.calibration is not None
    scores = model.scores[model.deployed]
    return {name: (int(model.calibration.is_ood(torch.as_tensor(scores[name])).sum()), len(scores[name]))
            for name in model.sets}  # fmt: skip


def deployed_table(model: ModelRun) -> Table | None:
    """What the deployed line flags of each set, with 95 % intervals; None if ``fit``'s default was not run."""
    if model.calibration is None:
        return None
    columns = [
        Column("flagged", "Flagged", hint="share of the images above the threshold"),
        Column("interval", "95 % interval", hint="exact (Clopper and Pearson)"), Column("images", "Images"),
    ]  # fmt: skip
    lines = []
    for name, (count, total) in _flagged(model).items():
        low, high = share_interval(count, total)
        cells = {
            "flagged": Cell(100 * count / total),
            "interval": Cell(100 * low, text=f"{100 * low:.2f}{DASH}{100 * high:.2f}"),
            "images": Cell(total, text=f"{total:,}"),
        }
        lines.append(Line(name, cells, rivals=None, remark=KINDS[model.sets[name].kind]))
    return Table(f"What {model.deployed} flags", columns, lines, head="data set")


def deployed_chart(model: ModelRun) -> Chart | None:
    """The same as a picture: a row for each set, and the promised rate."""
    if model.calibration is None:
        return None
    found, look = _flagged(model), styles({name: info.kind for name, info in model.sets.items()})
    series = []
    for place, (name, (count, total)) in enumerate(found.items()):
        gaps = [None] * len(found)
        y: list[float | None] = [*gaps[:place], 100 * count / total, *gaps[place + 1 :]]
        low, high = share_interval(count, total)
        ends: list[tuple[float, float] | None] = [*gaps[:place], (100 * low, 100 * high), *gaps[place + 1 :]]
        series.append(Series(name, y, style=look[name], intervals=ends))
    promised = 100 * model.calibration.promised
    return Chart(
        "dots", f"Flagged by {model.deployed}", series, list(found), y="share of the images flagged, in percent",
        x_range=(-3, 103), size=(4.4, 1.1 + 0.28 * len(found)), marks={f"promised for ID: {promised:.3g} %": promised},
    )  # fmt: skip


def ranking(run: Run, model: ModelRun) -> dict[Kind, Chart]:
    """The mean AUROC of every method with its 95 % interval, the best on top: a chart for near-OOD and one for far."""
    charts: dict[Kind, Chart] = {}
    kinds: tuple[Kind, ...] = ("near", "far")
    for kind in kinds:
        mean: str = MEANS[kind]
        rows = [row for row in run.rows if (row.model, row.dataset, row.spectrum) == (model.model, mean, "ood")]
        rows = sorted(rows, key=lambda row: -row.auroc)
        shown = rows[:_MOST]
        shown += [row for row in rows[_MOST:] if row.method == model.kept]
        if len(shown) < 2:
            continue
        note = f"first {_MOST} of {len(rows)}" if len(shown) < len(rows) else ""
        charts[kind] = _ranked(f"{KINDS[kind]} AUROC", shown, model.kept, note)
    return charts


def _ranked(title: str, rows: list[Row], deployed: str, note: str) -> Chart:
    series = []
    for name, style in _STYLES.items():
        own = [(row.method == deployed) == (name == DEPLOYED) for row in rows]
        if any(own):
            y = [100 * row.auroc if mine else None for row, mine in zip(rows, own, strict=True)]
            ends = [_ends(row) if mine else None for row, mine in zip(rows, own, strict=True)]
            series.append(Series(name, y, style=style, intervals=ends if any(ends) else ()))
    return Chart(
        "dots", title, series, [row.method for row in rows], y="mean AUROC in percent, 95 % interval", note=note,
        size=(4.4, 1.2 + 0.21 * len(rows)),
    )  # fmt: skip


def _ends(row: Row) -> tuple[float, float] | None:
    return None if row.low is None or row.high is None else (100 * row.low, 100 * row.high)


def _mean_row(run: Run, model: ModelRun, method: str, kind: str) -> Row | None:
    wanted = (model.model, method, MEANS[kind], "ood")
    return next((row for row in run.rows if (row.model, row.method, row.dataset, row.spectrum) == wanted), None)


def _cost(method: str) -> Card:
    known = summaries().get(base(method))
    if known is None:
        return Card("What it costs", "not known", f"{method} is not in the registry")
    work = _COSTS.get(known["cost"], known["cost"])
    text = f"through the network per image, and {work}; the classifier alone needs 1 forward pass"
    passes = known["passes"]
    return Card("What it costs", f"{passes} {'pass' if passes == '1 forward' else 'passes'}", text)


def base(label: str) -> str:
    """The name of the method in the label of a line, which may say that it was tuned."""
    return label.partition(" (")[0]


def summaries() -> Mapping[str, Mapping[str, str]]:
    """What the registry says about every method, by its name."""
    return {one["name"]: one for one in registry.facts()}


def _between(low: float, high: float) -> str:
    return f"95 % interval {100 * low:.2f} to {100 * high:.2f} %"
