"""A cache that several threads read at once."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from lakehold.subscribe.remembered import Remembered


@pytest.fixture
def interrupted_often() -> Iterator[None]:
    """Make threads give way to each other as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("interrupted_often")
def test_threads_may_read_while_others_evict() -> None:
    squares: Remembered[int, int] = Remembered(20)

    def ask(thread: int) -> bool:
        numbers = random.Random(thread).choices(range(1, 100), k=20_000)
        return all(squares.of(number, lambda number=number: number * number) == number * number for number in numbers)  # type: ignore[misc]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(8)))


def test_the_least_recently_used_value_is_evicted_first() -> None:
    numbers = itertools.count(1)
    remembered: Remembered[str, int] = Remembered(2)
    assert [remembered.of(key, lambda: next(numbers)) for key in "abacab"] == [1, 2, 1, 3, 1, 4]


def test_a_second_thread_waits_for_the_one_that_computes() -> None:
    remembered: Remembered[str, int] = Remembered(2)
    is_called, may_answer = Event(), Event()

    def slowly() -> int:
        is_called.set()
        assert may_answer.wait(30)
        return 1

    def never() -> int:
        raise AssertionError("it is being found out")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(remembered.of, "a", slowly)
        assert is_called.wait(30)
        second = pool.submit(remembered.of, "a", never)
        may_answer.set()
        assert (first.result(), second.result()) == (1, 1)


def test_a_failed_computation_is_tried_again() -> None:
    remembered: Remembered[str, int] = Remembered(2)

    def unreachable() -> int:
        raise OSError("unreachable")

    with pytest.raises(OSError, match="unreachable"):
        remembered.of("a", unreachable)
    assert remembered.of("a", lambda: 2) == 2
