"""Comparison of a materialized view with its query, at every timestamp that the view shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from lakehold.lake import Lake

Row = tuple[Any, ...]


def shown(lake: Lake, query: str, at_ms: int) -> Counter[Row]:
    """Return the rows of a query at a time."""
    return Counter(lake.sql(f"{query} AS OF {at_ms}").rows)


def assert_equal_at_every_timestamp(lake: Lake, view: str, query: str, tables: Sequence[str] = ("shop.t",)) -> int:
    """Compare a view with its query at each timestamp of the view and of its tables; return how many these are."""
    timelines = lake.timelines.of([view, *tables])
    since_ms, upper_ms = timelines[view].since_ms, timelines[view].upper_ms
    times = {version.mz_timestamp for timeline in timelines.values() for version in timeline.versions}
    compared = [at for at in sorted({*times, since_ms, upper_ms - 1}) if since_ms <= at < upper_ms]
    for at_ms in compared:
        # One statement takes half the time of two.
        both = f"SELECT true AS is_view, * FROM {view} UNION ALL SELECT false, * FROM ({query}) AS OF {at_ms}"
        of_view, of_query = Counter[Row](), Counter[Row]()
        for is_view, *row in lake.sql(both).rows:
            (of_view if is_view else of_query)[tuple(row)] += 1
        assert of_view == of_query, at_ms
    return len(compared)
