"""When an ingest next reconciles a source whose connector fails again and again."""

from __future__ import annotations

import time

import pytest

from lakehold.upstream.sources import _ReconcileSchedule


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a list of one number: the seconds that a process runs."""
    at_s = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: at_s[0])
    return at_s


def pauses(clock: list[float], dies_after_s: float, until_s: float) -> list[float]:
    """Return the pause after each restart of a task that dies so many seconds after its start."""
    schedule, found, started_s, end_s = _ReconcileSchedule(), list[float](), clock[0] - dies_after_s, clock[0] + until_s
    while clock[0] < end_s:
        if clock[0] - started_s >= dies_after_s:
            started_s = clock[0]
            found.append(schedule.failed())
        else:
            schedule.went_well()
        clock[0] = schedule.next_s
    return found


@pytest.mark.parametrize("dies_after_s", [0, 7, 40])
def test_a_task_that_dies_soon_after_each_start_is_restarted_after_growing_pauses(
    clock: list[float], dies_after_s: float
) -> None:
    waited = pauses(clock, dies_after_s, until_s=3_600)
    assert len(waited) < 30
    assert waited == sorted(waited)
    assert waited[-1] >= 2 * dies_after_s / 3


def test_a_task_that_runs_long_between_failures_is_restarted_soon(clock: list[float]) -> None:
    assert set(pauses(clock, 1_000, until_s=10_000)) == {5.0}


def test_a_task_that_ran_long_enough_starts_with_the_first_pause_again(clock: list[float]) -> None:
    schedule = _ReconcileSchedule()
    assert [schedule.failed() for _ in range(3)] == [5.0, 10.0, 20.0]
    clock[0] += 79
    schedule.went_well()
    assert schedule.failures == 3
    clock[0] += 1
    schedule.went_well()
    assert schedule.failed() == 5.0
