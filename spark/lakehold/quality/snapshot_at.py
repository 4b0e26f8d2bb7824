"""Finds the snapshot that a check reads: the newest one, the one at a time, or the one at a hold's time."""

from __future__ import annotations

from dataclasses import dataclass

from lakehold.errors import DefinitionError
from lakehold.state.holds import Hold
from lakehold.timeline.stops import first_in_sync
from lakehold.timeline.timelines import Timelines, check_readable


@dataclass(frozen=True)
class SnapshotAt:
    """The snapshot of a table at `at_ms`, epoch milliseconds; without one, the table has no rows then."""

    snapshot_id: int | None
    at_ms: int


def snapshot_at(timelines: Timelines, full_name: str, at_ms: int | None = None, hold: Hold | None = None) -> SnapshotAt:
    """Find the snapshot of a table at `at_ms`, else at the time of `hold`, else now.

    A hold in the future keeps all history until then: its snapshot is the newest. For a hold at a time at which the table was
    stopped, it is the first snapshot after the stop.

    Raises:
        DefinitionError: The table does not exist, or the hold is not on it.
        NotReadable: The table is not readable at `at_ms`.
    """
    timeline = timelines.after_foreign_lag([full_name], [] if at_ms is None else [at_ms])[full_name]
    newest_ms = timeline.upper_ms - 1
    if at_ms is None and hold is not None:
        if not hold.is_on(full_name):
            raise DefinitionError(
                f'hold "{hold.name}" is not on "{full_name}"',
                code="hold-not-on-table",
                detail=f"It is on {', '.join(table.full_name for table in hold.tables)}.",
            )
        held_ms = timeline.since_ms if hold.at_ms is None else first_in_sync(timeline.stops, hold.at_ms)
        at_ms = min(held_ms, newest_ms)
    if at_ms is None:
        # The first snapshot of a table may have this very millisecond.
        at_ms = max(newest_ms, timeline.since_ms)
    else:
        timeline = timelines.reaching(timeline, at_ms)
        check_readable([timeline], at_ms)
    version = timeline.at(at_ms)
    return SnapshotAt(version.snapshot_id if version is not None else None, at_ms)
