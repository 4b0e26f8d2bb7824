"""The table of a subscription with ENVELOPE HISTORY, as a reader sees it, compared with what it is the history of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from lakehold.lake import Lake

Range = tuple[Any, ...]
RANGE = ("valid_from", "valid_to", "is_current")


def ranges(lake: Lake, name: str) -> list[Range]:
    """Return the ranges, each as the row's columns, and the timestamps of its beginning and its end, by key."""
    found = []
    for row in lake.catalog.load_table(name).scan().to_arrow().to_pylist():
        begin, end, is_current = (row.pop(column) for column in RANGE)
        assert is_current == (end is None)
        found.append((*row.values(), _timestamp(begin), _timestamp(end)))
    return sorted(found, key=lambda row: (row[0] is not None, row[0], row[-2]))


def assert_shows(lake: Lake, name: str, query: str, times: Iterable[int]) -> int:
    """Compare what a history shows at its first and last time and at `times` with the rows of `query` then.

    Return how many times were compared.
    """
    found = ranges(lake, name)
    first = min(row[-2] for row in found)
    position = int(lake.catalog.load_table(name).properties["lakehold.position"])
    compared = [at for at in sorted({*times, first, position - 1}) if first <= at < position]
    for at in compared:
        shown = Counter(row[:-2] for row in found if row[-2] <= at and (row[-1] is None or at < row[-1]))
        assert shown == Counter(lake.sql(f"{query} AS OF {at}").rows), at
    return len(compared)


def _timestamp(time: datetime | None) -> int | None:
    return None if time is None else round(time.timestamp() * 1000)
