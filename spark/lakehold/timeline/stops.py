"""Times at which tables were stopped, and what can be read around them.

A table that stopped has nothing for them that fits to the others of its source: what it missed it read later, in batches of its
own. So nobody may read it then, and nothing that changes over time shows them: a change over a stop is seen at its end.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

from lakehold.errors import NotReadable
from lakehold.model.readers import Stop
from lakehold.times import iso


def first_behind(stops: Iterable[Stop], time_ms: int) -> int:
    """The first time from `time_ms` on that lies in none of `stops`."""
    for stop in sorted(stops, key=lambda stop: stop.from_ms):
        if stop.from_ms <= time_ms < stop.until_ms:
            time_ms = stop.until_ms
    return time_ms


def last_before(stops: Iterable[Stop], time_ms: int) -> int:
    """The last time up to `time_ms` that lies in none of `stops`."""
    for stop in sorted(stops, key=lambda stop: stop.until_ms, reverse=True):
        if stop.from_ms <= time_ms < stop.until_ms:
            time_ms = stop.from_ms - 1
    return time_ms


def check_level(
    stops: Mapping[str, Sequence[Stop]], time_ms: int, since_ms: int = 0, upper_ms: int = sys.maxsize
) -> None:
    """None of some tables may have been stopped at a time.

    Args:
        stops: When each of them was, by full name.
        time_ms: Epoch milliseconds.
        since_ms: The first time that can be read (inclusive).
        upper_ms: The first one that cannot be read yet (exclusive).

    Raises:
        NotReadable: One was; it says between which times, and what can be read before and after.
    """
    every = [(name, stop) for name, of_table in stops.items() for stop in of_table]
    found = next((at for at in every if at[1].from_ms <= time_ms < at[1].until_ms), None)
    if found is None:
        return
    name, stop = found
    before_ms = last_before((stop for _, stop in every), time_ms)
    after_ms = first_behind((stop for _, stop in every), time_ms)
    choices = [f"{before_ms} or earlier"] if before_ms >= since_ms else []
    choices += [f"{after_ms} or later"] if after_ms < upper_ms else []
    raise NotReadable(
        f'"{name}" is not readable at {time_ms}',
        code="table-was-stopped",
        detail=f"It was stopped from {stop.from_ms} ({iso(stop.from_ms)} UTC) on, and level with the other tables of its source "
        f"again at {stop.until_ms} ({iso(stop.until_ms)} UTC): in between it shows what it had, and not what it should have.",
        hint=f"Choose {', or '.join(choices)}." if choices else "There is no time around it that can be read yet.",
    )
