"""Lanes: work side by side, each lane with its own session."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lakehold.ingest.side_by_side import Lanes


class Sessions:
    """A factory of sessions, which are texts, and a list of those that ended."""

    def __init__(self) -> None:
        self.made = 0
        self.ended: list[str] = []

    @contextmanager
    def another(self, of: Any) -> Iterator[Any]:
        """Yield one more session."""
        self.made += 1
        name = f"{of}+{self.made}"
        yield name
        self.ended.append(name)


@pytest.fixture
def sessions() -> Sessions:
    return Sessions()


@pytest.fixture
def lanes(sessions: Sessions) -> Iterator[Lanes]:
    """Return three lanes."""
    spark: Any = lambda: "lake"  # noqa: E731
    made = Lanes(spark, sessions.another, 3)
    yield made
    made.close()


def test_the_largest_topics_are_shared_out_first(lanes: Lanes) -> None:
    assert lanes.of({"a": 5, "b": 100, "c": 60, "d": 50, "e": 1}) == {"b": 0, "c": 1, "d": 2, "a": 2, "e": 2}
    assert lanes.of({"only": 7}) == {"only": 0}
    assert lanes.of({}) == {}


def test_each_lane_has_a_session_of_its_own_and_keeps_it(lanes: Lanes, sessions: Sessions) -> None:
    work: list[tuple[int, Any]] = [(lane, lanes.spark) for lane in (0, 1, 2, 1, 0)]
    zero, one, two, one_again, zero_again = lanes.run(work)
    assert {zero, one, two} == {"lake+1", "lake+2", "lake+3"}
    assert (zero_again, one_again) == (zero, one)
    assert lanes.run(work[2:3]) == [two]
    assert sessions.made == 3
    lanes.close()
    assert sorted(sessions.ended) == ["lake+1", "lake+2", "lake+3"]


def test_lanes_work_at_once(lanes: Lanes) -> None:
    together = threading.Barrier(3, timeout=30)
    assert lanes.run([(lane, together.wait) for lane in range(3)]) != []


def test_a_failure_is_raised_when_the_others_have_ended(lanes: Lanes) -> None:
    failed, ended = threading.Event(), []

    def fail() -> None:
        failed.set()
        raise ValueError("first")

    def end(name: str) -> None:
        assert failed.wait(30)
        ended.append(name)

    with pytest.raises(ValueError, match="first"):
        lanes.run([(1, fail), (0, lambda: end("here")), (2, lambda: end("there")), (1, lambda: end("after"))])
    assert sorted(ended) == ["after", "here", "there"]


def test_an_exit_in_another_lane_reaches_the_caller(lanes: Lanes) -> None:
    def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        lanes.run([(0, lambda: None), (1, leave)])


def test_an_interrupt_waits_only_for_work_that_has_begun(lanes: Lanes) -> None:
    has_started, interrupted, ended = threading.Event(), threading.Event(), []

    def slow() -> None:
        has_started.set()
        assert interrupted.wait(30)
        ended.append("begun")

    def interrupt() -> None:
        assert has_started.wait(30)
        interrupted.set()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lanes.run([(1, slow), (0, interrupt)])
    assert ended == ["begun"]


def test_a_session_that_cannot_be_made_is_the_error_of_its_work() -> None:
    @contextmanager
    def none(_: Any) -> Iterator[Any]:
        raise OSError("no more sessions")
        yield

    spark: Any = lambda: "lake"  # noqa: E731
    lanes = Lanes(spark, none, 2)
    work: list[tuple[int, Any]] = [(0, lanes.spark), (1, lanes.spark)]
    with pytest.raises(OSError, match="no more sessions"):
        lanes.run(work)
    lanes.close()
