"""Tasks over processes: each is done once, whatever happens to the workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from adascale.cluster.executor import Executor, WorkersError
from adascale.cluster.local import LocalCrew
from adascale.core.errors import AdascaleWarning, InputError
from tests.cluster.tasks import Process, Square


@pytest.fixture
def executor() -> Iterator[Executor]:
    with Executor(LocalCrew(2)) as made:
        yield made


def test_every_task_has_its_result_and_workers_keep_what_they_made(executor: Executor) -> None:
    with pytest.warns(AdascaleWarning, match="Seven is odd"):
        found = {outcome.task.name: outcome.value for outcome in executor.run(map(Square, range(20)))}
    assert {name: value for name, (value, _) in found.items()} == {f"square of {i}": i * i for i in range(20)}
    makers = {maker for _, maker in found.values()}
    again = {outcome.value[1] for outcome in executor.run(map(Square, range(6)))}
    assert len(makers) <= 2  # each worker made it once
    assert again <= makers  # and still had it in the next run


def test_tasks_are_taken_only_when_a_worker_is_free(executor: Executor) -> None:
    taken = []

    def tasks() -> Iterator[Square]:
        for i in range(1000):
            taken.append(i)
            yield Square(i)

    run = executor.run(tasks())
    next(run)
    assert len(taken) < 10


def test_a_killed_worker_is_replaced_and_its_task_done_by_another(executor: Executor, tmp_path: Path) -> None:
    tasks = [Square(i, tmp_path, kills=2 if i == 3 else 0) for i in range(6)]
    found = sorted(outcome.value[0] for outcome in executor.run(tasks))
    assert (found, executor.lost) == ([0, 1, 4, 9, 16, 25], 2)


def test_a_task_that_ends_every_worker_is_given_up_and_the_others_are_done(executor: Executor, tmp_path: Path) -> None:
    outcomes = {o.task.name: o for o in executor.run(Square(i, tmp_path, kills=99 if i == 1 else 0) for i in range(4))}
    assert "lost 3 times" in outcomes.pop("square of 1").error
    assert [outcome.error for outcome in outcomes.values()] == ["", "", ""]


def test_errors_that_may_pass_are_tried_again_and_others_are_not(executor: Executor, tmp_path: Path) -> None:
    tasks = [Square(1, tmp_path, fails=2), Square(2, tmp_path, fails=9), Square(3, refuses="The tar is cut off.")]
    errors = {outcome.task.name: outcome.error for outcome in executor.run(tasks)}
    assert errors["square of 1"] == ""
    assert errors["square of 2"] == "ConnectionError: the store does not answer"
    assert errors["square of 3"] == "The tar is cut off."
    assert len(list(tmp_path.glob("2-*"))) == 3


def test_what_no_worker_can_make_stops_the_work(executor: Executor) -> None:
    with pytest.raises(WorkersError, match="There is no weights file w"):
        list(executor.run(Square(i, recipe=Process("There is no weights file w.")) for i in range(50)))


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:x"])
def test_an_address_where_nothing_listens_is_told_at_once(address: str) -> None:
    ray = pytest.importorskip("ray")
    from adascale.cluster.with_ray import RayCrew

    with pytest.raises(InputError, match=f"No Ray cluster can be reached at {address}: .*see ray status"):
        RayCrew(address=address)
    assert not ray.is_initialized()
