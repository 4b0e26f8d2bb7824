"""What is remembered of files is asked for by several threads at once."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

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
