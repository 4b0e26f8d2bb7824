"""What is remembered of files is asked for by several threads at once."""

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
    """Threads give way to each other wherever they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("interrupted_often")
def test_threads_may_ask_while_others_make_room() -> None:
    squares: Remembered[int, int] = Remembered(20)

    def ask(thread: int) -> bool:
        numbers = random.Random(thread).choices(range(1, 100), k=20_000)
        return all(squares.of(number, lambda number=number: number * number) == number * number for number in numbers)  # type: ignore[misc]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(8)))


def test_what_was_asked_for_least_recently_goes_first() -> None:
    numbers = itertools.count(1)
    remembered: Remembered[str, int] = Remembered(2)
    assert [remembered.of(key, lambda: next(numbers)) for key in "abacab"] == [1, 2, 1, 3, 1, 4]


def test_who_asks_meanwhile_waits_for_who_finds_out() -> None:
    remembered: Remembered[str, int] = Remembered(2)
    is_asked, may_answer = Event(), Event()

    def slowly() -> int:
        is_asked.set()
        assert may_answer.wait(30)
        return 1

    def never() -> int:
        raise AssertionError("it is being found out")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(remembered.of, "a", slowly)
        assert is_asked.wait(30)
        second = pool.submit(remembered.of, "a", never)
        may_answer.set()
        assert (first.result(), second.result()) == (1, 1)


def test_what_could_not_be_found_out_is_asked_for_again() -> None:
    remembered: Remembered[str, int] = Remembered(2)

    def unreachable() -> int:
        raise OSError("unreachable")

    with pytest.raises(OSError, match="unreachable"):
        remembered.of("a", unreachable)
    assert remembered.of("a", lambda: 2) == 2
