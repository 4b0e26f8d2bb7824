"""A source that waits long for a transaction is polled for a part of the time only."""

from __future__ import annotations

from lakehold.cli.poll_backoff import PollBackoff


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
