"""Checks that a reader which follows tables may read on: each name still stands for the table that was read."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lakehold.errors import NotReadable
from lakehold.state.holds import Holds
from lakehold.timeline.table_timeline import Timeline
from lakehold.timeline.timelines import check_readable


def check_continues(
    read: Mapping[str, Timeline], now: Mapping[str, Timeline], until_ms: int, holds: Callable[[], Holds]
) -> None:
    """Require that the changes from `until_ms` onward continue what was read before.

    Args:
        read: The timelines as they were read below `until_ms`.
        now: The timelines of the same names, readable at `until_ms`.
        until_ms: All below it (exclusive) was read.
        holds: Returns the lake's holds; only called to describe an error.

    Raises:
        NotReadable: A table's history no longer reaches back to `until_ms`, or another table has its name.
    """
    replaced = [name for name, timeline in now.items() if _identity(timeline) != _identity(read[name])]
    # A table that had no snapshot was empty. Its `since` is then that of its first snapshot, if foreign writers made that.
    earlier = [timeline for name, timeline in now.items() if name in replaced or read[name].versions]
    if earlier:
        check_readable(earlier, until_ms - 1, holds)
    if replaced:
        raise NotReadable(
            f'"{replaced[0]}" is another table now',
            code="table-replaced",
            detail=f"The table whose changes were read below {until_ms} was dropped or renamed. What differs between its rows "
            "and those of the other table is unknown.",
            hint="Discard what was read, and begin with a snapshot; a durable client with forget().",
        )


def _identity(timeline: Timeline) -> tuple[object, str | None]:
    """Return what a table keeps as long as it exists: a view that is created again has another object id."""
    return timeline.table.metadata.table_uuid, timeline.source
