"""Stops: the time ranges in which a table was stopped by an error, and the readable times around them.

A table that was stopped reads what it missed later, in batches of its own. At the times of the stop it is therefore not
consistent with the other tables of its source, and nobody may read it there. SUBSCRIBE shows the changes of a stop at its end.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

from lakehold.errors import NotReadable
from lakehold.model.readers import Stop
from lakehold.times import iso


def first_in_sync(stops: Iterable[Stop], time_ms: int) -> int:
    """Return the first timestamp from `time_ms` onward that lies in none of `stops`."""
    (found,) = each_in_sync(stops, (time_ms,))
    return found


def each_in_sync(stops: Iterable[Stop], times_ms: Iterable[int]) -> list[int]:
    """Return for each of `times_ms`, which ascend, the first timestamp from it onward that lies in none of `stops`."""
    found, ahead, until_ms = [], sorted(stops, key=lambda stop: stop.from_ms, reverse=True), -sys.maxsize
    for time_ms in times_ms:
        while ahead and ahead[-1].from_ms <= max(time_ms, until_ms):
            until_ms = max(until_ms, ahead.pop().until_ms)
        found.append(max(time_ms, until_ms))
    return found


def last_in_sync(stops: Iterable[Stop], time_ms: int) -> int:
    """Return the last timestamp up to `time_ms` that lies in none of `stops`."""
    for stop in sorted(stops, key=lambda stop: stop.until_ms, reverse=True):
        if stop.from_ms <= time_ms < stop.until_ms:
            time_ms = stop.from_ms - 1
    return time_ms


def check_in_sync(
    stops: Mapping[str, Sequence[Stop]], time_ms: int, since_ms: int = 0, upper_ms: int = sys.maxsize
) -> None:
    """Require that none of the tables was stopped at `time_ms`.

    Args:
        stops: The stops of each table, by full name.
        time_ms: Epoch milliseconds.
        since_ms: First readable timestamp (inclusive), for the hint.
        upper_ms: First timestamp that is not readable yet (exclusive), for the hint.

    Raises:
        NotReadable: A table was stopped; the error names the stop and readable timestamps around it.
    """
    every = [(name, stop) for name, of_table in stops.items() for stop in of_table]
    found = next((at for at in every if at[1].from_ms <= time_ms < at[1].until_ms), None)
    if found is None:
        return
    name, stop = found
    before_ms = last_in_sync((stop for _, stop in every), time_ms)
    after_ms = first_in_sync((stop for _, stop in every), time_ms)
    choices = [f"{before_ms} or earlier"] if before_ms >= since_ms else []
    choices += [f"{after_ms} or later"] if after_ms < upper_ms else []
    raise NotReadable(
        f'"{name}" is not readable at {time_ms}',
        code="table-was-stopped",
        detail=f"It was stopped from {stop.from_ms} ({iso(stop.from_ms)} UTC) on, and in sync with the other tables of its "
        f"source again at {stop.until_ms} ({iso(stop.until_ms)} UTC). In between it lacks changes that it should show.",
        hint=f"Choose {', or '.join(choices)}." if choices else "No time around the stop is readable yet.",
    )
