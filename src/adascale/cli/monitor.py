"""``adascale monitor``."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import typer
from rich.console import Console

from adascale.cli.commands import MonitorCommand
from adascale.cli.console import ALARM, STOPS, plain_table, say, stopped_by, undisturbed
from adascale.core.errors import InputError
from adascale.core.extras import optional
from adascale.decision.detector_file import DetectorFile
from adascale.monitoring import Monitor, write_report
from adascale.monitoring.monitor import fingerprint
from adascale.storage.reading import STDIN, read_rows
from adascale.storage.remote import as_place
from adascale.storage.rows import Row

_POLL, _SAVE = 0.5, 10.0  # seconds between looks at a growing file, and between states that are saved


class Image(NamedTuple):
    """What a row says about an image. score: None if the image could not be read."""

    name: str | None
    score: float | None
    prediction: int | None


def monitor(given: MonitorCommand) -> None:
    """Read the rows, print what they say together, and exit with 4 if an alarm is raised."""
    if given.report is not None:
        optional("matplotlib", "report")  # before the work, not after it
    watched = _Watched(given)
    code = 0
    try:
        watched.read()
    except STOPS as error:
        word, code = stopped_by(error)
        say(f"adascale: {word}" + ("." if given.state is None else "; the same command resumes where it stopped."))
    watched.save()
    summary = watched.monitor.summary()
    if given.report is not None:
        write_report(watched.monitor, given.report, given.scores)
        say(f"wrote {given.report}")
    if given.as_json:
        print(json.dumps({**summary, "unreadable": watched.unreadable, "history": watched.monitor.history()}))
    else:
        _print(summary, watched.unreadable)
    if summary["alarm"] or code:
        raise typer.Exit(ALARM if summary["alarm"] else code)


class _Watched:
    """A monitor, the rows it reads, and the file that its state is kept in."""

    def __init__(self, given: MonitorCommand) -> None:
        self.given, self.monitor, self.unreadable = given, _monitor(given), 0
        self.place = STDIN if given.scores == STDIN else str(as_place(given.scores).resolve())
        self._saved = time.monotonic()

    def read(self) -> None:
        """Feed every row that was not read before. Alarms are told as they are raised."""
        rows = read_rows(self.given.scores, self._wait if self.given.follow else None)
        places = self.monitor.about.setdefault("rows", {})
        done = self._skip(rows, places[self.place]) if self.place in places else 0
        for number, row in enumerate(rows, start=done + 1):
            with undisturbed():  # the state that is saved at the end has seen all of a row, or nothing
                self._take(row)
                if self.place != STDIN:
                    places[self.place] = {"rows": number, "last": _key(row)}
        if not self.monitor.images and not self.unreadable:
            raise InputError(f"{self.given.scores} has no rows; give the output of adascale score.")

    def _take(self, row: Row) -> None:
        image = _image(row, self.given)
        if image.score is None:
            self.unreadable += 1
            return
        for alarm in self.monitor.update(image.score, image.prediction, image.name):
            say(f"alarm {alarm.title} at image {alarm.raised_at}" + (f" ({image.name})" if image.name else ""))

    def _skip(self, rows: Iterator[Row], seen: Mapping[str, Any]) -> int:
        """Pass over the rows that the state has seen, after a look at the last of them. Returns their number."""
        number: int = seen["rows"]
        last = next(islice(rows, number - 1, number), None)
        if last is None or _key(last) != seen["last"]:
            raise InputError(
                f"{self.given.scores} is not the file whose first {number} rows the state has seen; "
                "give new rows in a file of another name."
            )
        say(f"resuming after {number} rows")
        return number

    def _wait(self) -> None:
        if time.monotonic() - self._saved > _SAVE:
            self.save()
        time.sleep(_POLL)

    def save(self) -> None:
        if self.given.state is not None:
            self.monitor.save(self.given.state)
        self._saved = time.monotonic()


def _monitor(given: MonitorCommand) -> Monitor:
    """The monitor of the state, if there is one, else a new one from the detector's calibration images."""
    options = {name: getattr(given, name) for name in ("delta", "run_length", "every", "seed")}
    wanted = {name: value for name, value in options.items() if value is not None}
    file = None if given.detector is None else DetectorFile.read(given.detector)
    if given.state is not None and given.state.exists():
        found = Monitor.load(given.state)
        if file is not None and fingerprint(file.calibration.scores) != found.fingerprint:
            raise InputError(f"{given.state} is the state of another detector than {given.detector}; name another.")
        for name, value in wanted.items():
            if value != found.options[name]:
                raise InputError(
                    f"{name}={value}, and {given.state} was begun with {found.options[name]}; "
                    "leave it out, or name another --state."
                )
        return found
    if file is None:
        raise InputError("Which detector made the scores? Give --detector, or a --state that was begun with one.")
    classes = file.calibration_classes
    if isinstance(classes, int):
        say(
            "note: the detector file does not say which classes were predicted for its calibration images; the mix of "
            "classes is compared with that of earlier images alone. Fit again for more."
        )
    return Monitor(file.calibration.scores, classes, **wanted)


def _image(row: Row, given: MonitorCommand) -> Image:
    """An image of a row; texts of CSV are read as numbers. No score but a prediction: the score is infinite."""
    column = "score" if given.method is None else f"{given.method}.score"
    if column not in row:
        others = [name.removesuffix(".score") for name in row if str(name).endswith(".score")]
        advice = f"choose one with --method: {', '.join(others)}" if others else "give the output of adascale score"
        raise InputError(f"{given.scores} has no column {column}; {advice}.")
    score, prediction = _number(row, column), _number(row, "prediction")
    name = row.get("image")
    if score is None and prediction is not None:
        score = math.inf
    return Image(None if name is None else str(name), score, None if prediction is None else int(prediction))


def _number(row: Row, column: str) -> float | None:
    value = row.get(column)
    if value is None or value == "":
        return None
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"The row of {row.get('image')} has {value!r} as its {column}; it must be a number."
        ) from error


def _key(row: Row) -> str:
    return json.dumps([str(value) for value in row.values()])


def _print(summary: Mapping[str, Any], unreadable: int) -> None:
    every = f", one of {summary['every']} used" if summary["every"] > 1 else ""
    print(f"{summary['images']} images{every}; {summary['calibration_images']} calibration images")
    table, raised = plain_table("alarm", "evidence", "limit", "raised at", "rising since", "p-value"), {}
    for one in summary["alarms"]:
        numbers = [f"{one['evidence']:.3g}", f"{one['limit']:.6g}"]
        numbers += ["-" if one[key] is None else str(one[key]) for key in ("raised_at", "since")]
        numbers.append("" if one["p_value"] is None else f"{one['p_value']:.3g}")
        table.add_row(f"{one['name']} ({one['kind']})", *numbers)
        if one["raised"]:
            raised[one["name"]] = one
    Console(highlight=False).print(table)
    for name, one in raised.items():
        images = ", ".join(top["name"] or str(top["image"]) for top in one["top"][:5])
        print(f"{name}: {one['says']}. Most evidence: {images or '-'}.")
    if (share := summary["ood_share"]) is not None:
        low, middle, high = (f"{100 * share[key]:.1f}" for key in ("low", "estimate", "high"))
        images = f"the last {share['images']} images"
        print(f"Out-of-distribution among {images}: about {middle} % ({low} to {high} %).")
    if unreadable:
        say(f"{unreadable} rows have no score, because their images could not be read; they do not count")
    print(summary["promise"])
