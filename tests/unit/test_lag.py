"""The lag of a table: how old its newest rows became between the commits of batches, over the last day."""

from __future__ import annotations

from lakehold.overview.lag import BINS, DAY_MS, Advance, InputChange, Lag, follower_lag, lag_of
from lakehold.state.batch_protocol import Batch

NOW_MS = 2 * DAY_MS
HOUR_MS = DAY_MS // BINS


def batch(hours_ago: float, *, took_ms: int = 0, records: int = 10) -> Batch:
    at_ms = NOW_MS - round(hours_ago * HOUR_MS)
    return Batch("shop", "main", at_ms - took_ms, {}, {}, records=records, committed_at_ms=at_ms)


def change(hours_ago: float, *, rows: int) -> InputChange:
    at_ms = NOW_MS - round(hours_ago * HOUR_MS)
    return InputChange(at_ms, at_ms, rows)


def advance(hours_ago: float) -> Advance:
    """Return an advance that takes all changes before it."""
    at_ms = NOW_MS - round(hours_ago * HOUR_MS)
    return Advance(at_ms, at_ms)


def lags(lag: Lag) -> list[int | None]:
    return [each.lag_ms for each in lag.bins]


def test_rows_grow_older_until_the_next_commit() -> None:
    batches = [batch(3), batch(0.5, took_ms=1_000)]
    found = lag_of(batches, batches[-1].mz_timestamp + 1, NOW_MS)
    assert lags(found)[: BINS - 3] == [None] * (BINS - 3)
    assert lags(found)[BINS - 3 :] == [HOUR_MS, 2 * HOUR_MS, 2.5 * HOUR_MS]
    assert (found.most_ms, found.taken) == (2.5 * HOUR_MS, 20)
    assert [each.taken for each in found.bins[-3:]] == [10, 0, 10]
    assert found.sparkline.strip() == "▃█"


def test_the_time_that_a_batch_took_counts() -> None:
    batches = [batch(minutes / 60, took_ms=5_000) for minutes in range(50, 0, -1)]
    found = lag_of(batches, batches[-1].mz_timestamp + 1, NOW_MS)
    assert found.most_ms == 65_000


def test_a_source_that_was_not_ingested_for_a_day_lags_all_day() -> None:
    found = lag_of([], NOW_MS - 3 * DAY_MS, NOW_MS)
    assert lags(found)[0] == 2 * DAY_MS + HOUR_MS + 1
    assert found.most_ms == 3 * DAY_MS + 1


def test_nothing_is_known_before_the_first_batch() -> None:
    assert lag_of([], None, NOW_MS) == Lag()
    assert (Lag().most_ms, Lag().sparkline) == (None, "")


def test_a_follower_lags_while_a_change_waits() -> None:
    changes = [change(hours_ago, rows=100) for hours_ago in (4, 3.5, 2)]
    found = follower_lag(changes, [advance(6), advance(3)], None, NOW_MS)
    assert lags(found)[: BINS - 6] == [None] * (BINS - 6)
    assert lags(found)[BINS - 6 :] == [0, 0, HOUR_MS, 0, HOUR_MS, 2 * HOUR_MS]
    assert (found.taken, [each.taken for each in found.bins[-3:]], found.waiting) == (200, [200, 0, 0], 100)


def test_a_follower_that_had_nothing_to_publish_does_not_lag() -> None:
    position_ms = NOW_MS - HOUR_MS
    found = follower_lag([change(2, rows=100), change(0.5, rows=7)], [advance(3)], position_ms, NOW_MS)
    assert (found.most_ms, found.taken, found.waiting) == (0.5 * HOUR_MS, 0, 7)


def test_nothing_is_known_of_a_follower_that_records_nothing() -> None:
    assert follower_lag([change(2, rows=100)], [], NOW_MS, NOW_MS) == Lag()


def test_changes_of_earlier_days_count_while_they_wait() -> None:
    found = follower_lag([change(30, rows=1), change(26, rows=1)], [advance(40), advance(28)], None, NOW_MS)
    assert (lags(found)[0], found.most_ms, found.taken, found.waiting) == (3 * HOUR_MS, 26 * HOUR_MS, 0, 1)
