"""What a worker is given, what it keeps between tasks, and what it answers. Nothing here imports PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from typing import Any, NamedTuple, Protocol

from adascale.core.errors import AdascaleError, AdascaleWarning
from adascale.storage.remote import PlaceError


class Recipe(Hashable, Protocol):
    """How to make what many tasks need, such as a network on its device. It travels; what it makes stays."""

    def make(self) -> Any: ...


class CannotMakeError(AdascaleError):
    """A worker cannot make what its tasks need, so that no other task can succeed either."""


class Held:
    """What a worker keeps: the thing that it made last. Another recipe replaces it: memory holds one network."""

    def __init__(self) -> None:
        self._recipe: Recipe | None = None
        self._made: Any = None

    def once(self, recipe: Recipe) -> Any:
        if self._recipe != recipe:
            self._recipe = self._made = None
            try:
                self._made = recipe.make()
            except Exception as error:
                raise CannotMakeError(_in_words(error)) from error
            self._recipe = recipe
        return self._made


class Task(Protocol):
    """A piece of work that can be done twice without harm: its result has a name of its own, put there in one step."""

    @property
    def name(self) -> str: ...

    def run(self, held: Held) -> Any: ...


class Reply(NamedTuple):
    """The answer of a worker. error: why there is no value. fatal: the reason holds for every task; again: another try
    may succeed. notes: warnings, for the user.
    """

    value: Any = None
    error: str = ""
    fatal: bool = False
    again: bool = False
    notes: tuple[str, ...] = ()


def perform(task: Task, held: Held) -> Reply:
    """Do a task; whatever goes wrong is told in the reply."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", AdascaleWarning)
        try:
            reply = Reply(task.run(held))
        except CannotMakeError as error:
            reply = Reply(error=str(error), fatal=True)
        except Exception as error:
            reply = Reply(error=_in_words(error), again=_may_pass(error))
    return reply._replace(notes=tuple(dict.fromkeys(str(one.message) for one in seen)))


def _may_pass(error: Exception) -> bool:
    """Whether another try may succeed: not where we refuse what was given, unless a store or a disk is the reason."""
    return isinstance(error, PlaceError | OSError) or not isinstance(error, AdascaleError)


def _in_words(error: Exception) -> str:
    """The message in one line; with the kind of the error where it is not one of ours."""
    text = " ".join(str(error).split())
    return text if isinstance(error, AdascaleError) else f"{type(error).__name__}: {text}"
