"""Turns: much work, of which a few threads do some at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Lock

import pytest

from lakehold.cli.turns import take_turns
from tests.waiting import wait_for


class Work:
    """Work for threads, which are called `own` and `another`.

    Attributes:
        turns: The turns that were taken, each as a piece of work and a thread.
    """

    def __init__(self) -> None:
        self.turns: list[tuple[str, str]] = []
        self._lock = Lock()

    @contextmanager
    def another(self) -> Iterator[str]:
        yield "another"

    def take(self, of: str, worker: str) -> None:
        with self._lock:
            self.turns.append((of, worker))


def test_each_piece_of_work_is_done_until_it_has_ended() -> None:
    work, left = Work(), {"a": 3, "b": 1, "c": 2}

    def take(of: str, worker: str) -> float | None:
        work.take(of, worker)
        left[of] -= 1
        return 0 if left[of] else None

    take_turns([*left], take, "own", work.another, 2, Event())
    assert sorted(of for of, _ in work.turns) == ["a", "a", "a", "b", "c", "c"]


def test_short_work_goes_on_while_long_work_is_done() -> None:
    work, stop, short_turns = Work(), Event(), 20

    def take(of: str, worker: str) -> float | None:
        work.take(of, worker)
        if of == "long":
            wait_for(lambda: len(work.turns) > short_turns)
            stop.set()
        return 0

    take_turns(["long", "short", "short too"], take, "own", work.another, 2, stop)
    assert {of for of, _ in work.turns} == {"long", "short", "short too"}
    assert [of for of, _ in work.turns].count("long") == 1


def test_one_thread_takes_turns_in_the_order_in_which_they_are_due() -> None:
    work, stop = Work(), Event()

    def take(of: str, worker: str) -> float | None:
        work.take(of, worker)
        if len(work.turns) == 7:
            stop.set()
        return 0

    take_turns(["a", "b", "c"], take, "own", work.another, 1, stop)
    assert work.turns == [(of, "own") for of in "abcabca"]


def test_work_that_pauses_leaves_its_turns_to_others() -> None:
    work, stop = Work(), Event()

    def take(of: str, worker: str) -> float | None:
        work.take(of, worker)
        if len(work.turns) == 6:
            stop.set()
        return 3_600 if of == "paused" else 0

    take_turns(["paused", "a", "b"], take, "own", work.another, 1, stop)
    assert [of for of, _ in work.turns] == ["paused", "a", "b", "a", "b", "a"]


def test_an_error_ends_all_threads_and_is_raised() -> None:
    work = Work()

    def take(of: str, worker: str) -> float | None:
        if of == "bad" and work.turns:
            raise ValueError(of)
        work.take(of, worker)
        return 0

    with pytest.raises(ValueError, match="bad"):
        take_turns(["bad", "good", "fine"], take, "own", work.another, 2, Event())
