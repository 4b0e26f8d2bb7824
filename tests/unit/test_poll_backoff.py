"""Pauses between polls: short after changes, and longer while a source waits for a transaction."""

from __future__ import annotations

import pytest

from lakehold.cli.poll_backoff import PollBackoff, pause_after


@pytest.mark.parametrize(
    ("poll_s", "has_changes", "pause_s"), [(0.25, True, 0.75), (2.0, True, 0.0), (0.25, False, 1.0), (2.0, False, 1.0)]
)
def test_polls_with_changes_begin_a_second_apart_and_a_poll_without_is_followed_by_a_pause(
    poll_s: float, has_changes: bool, pause_s: float
) -> None:
    assert pause_after(poll_s, has_changes=has_changes) == pause_s


def test_a_source_that_waits_long_pauses_four_times_as_long_as_a_poll_takes() -> None:
    now = [100.0]
    backoff = PollBackoff(lambda: now[0])
    backoff.record_wait("shop", waited_ms=10_000, poll_s=3.0)
    assert not backoff.is_due("shop")
    assert backoff.is_due("billing")
    now[0] += 12
    assert backoff.is_due("shop")
    backoff.record_wait("shop", waited_ms=60_000, poll_s=100.0)
    now[0] += 30
    assert backoff.is_due("shop"), "each poll also reconciles its connector"


def test_a_source_that_waits_briefly_is_polled_again_at_once() -> None:
    backoff = PollBackoff(lambda: 100.0)
    backoff.record_wait("shop", waited_ms=9_999, poll_s=3.0)
    assert backoff.is_due("shop")
