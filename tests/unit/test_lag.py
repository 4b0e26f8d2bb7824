"""The lag of a table: how old its newest rows became between the commits of batches, over the last day."""

from __future__ import annotations

from lakehold.overview.lag import BINS, DAY_MS, Lag, lag_of
from lakehold.state.batch_protocol import Batch

NOW_MS = 2 * DAY_MS
HOUR_MS = DAY_MS // BINS


def batch(hours_ago: float, *, took_ms: int = 0, records: int = 10) -> Batch:
    at_ms = NOW_MS - round(hours_ago * HOUR_MS)
    return Batch("shop", "main", at_ms - took_ms, {}, {}, records=records, committed_at_ms=at_ms)


def lags(lag: Lag) -> list[int | None]:
    return [each.lag_ms for each in lag.bins]


def test_rows_grow_older_until_the_next_commit() -> None:
    batches = [batch(3), batch(0.5, took_ms=1_000)]
    found = lag_of(batches, batches[-1].mz_timestamp + 1, NOW_MS)
    assert lags(found)[: BINS - 3] == [None] * (BINS - 3)
    assert lags(found)[BINS - 3 :] == [HOUR_MS, 2 * HOUR_MS, 2.5 * HOUR_MS]
    assert (found.most_ms, found.messages) == (2.5 * HOUR_MS, 20)
    assert [each.messages for each in found.bins[-3:]] == [10, 0, 10]
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
