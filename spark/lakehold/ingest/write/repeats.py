"""Repeated snapshots: lakehold requests the snapshot of a table again after changes were missed, and deletes the rows it lacks.

Rows of such a snapshot have no position in the log. (A re-snapshot of all tables has one:
`lakehold.ingest.deduplicate.snapshots`.) Instead the request recorded the sequence number that the Iceberg table had then. Each
row that still exists upstream is written with a greater number, from the snapshot or from a change in place of it. When the
snapshot was read completely, rows with a lower number no longer exist upstream.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lakehold.definitions import Table
from lakehold.errors import TableStopped
from lakehold.ingest.write.batch_effects import BatchIdentity, TableReport, counted
from lakehold.ingest.write.writing import Writing
from lakehold.model.committed_transactions import CommittedTransactions
from lakehold.model.lake_definitions import Entry
from lakehold.model.log_positions import LogPosition
from lakehold.model.offsets import Offsets
from lakehold.model.readers import TableProgress

_STEP = 3
"""The step of the batch, after those of its changes."""


@dataclass(frozen=True)
class RepeatedSnapshot:
    """A repeated snapshot that the connector reports as complete.

    Args:
        signal_id: Id of the signal that requested it.
        replaces_through: The table's Iceberg sequence number when it was requested.
        ends: The ends of the topic's partitions when it was complete: all of its rows lie before.
    """

    signal_id: str
    replaces_through: int
    ends: Offsets

    def is_newly_read(self, progress: TableProgress, reached: Offsets) -> bool:
        """Return whether a reader at the position `reached` has all of the snapshot, and its table the effect not yet."""
        is_read = all(reached.get(tp, 0) >= end for tp, end in self.ends.items())
        return is_read and progress.high_water_marks.repeated != self.signal_id


@dataclass(frozen=True)
class Snapshots:
    """The connector snapshots of a source's tables as the connector reports them, by object id; empty without capturing.

    Args:
        awaited: Tables without a complete snapshot, or whose sync point is not known yet.
        unrequested: The awaited tables whose upstream objects are not all created yet, so that no snapshot was requested.
        repeated: The last repeated snapshot of a table, unless the lake has all of it.
        sync_points: Log positions of tables that joined later: such a table is readable when the others have reached its
            position.
        are_reported: Whether the connector reports when a table's first snapshot is complete; otherwise only messages show it.
        stops: The stop of each table of which the connector sends no changes, or sends them again without a snapshot since;
            None: upstream was not inspected.
        returned: Why each table that lacks a snapshot does not continue, if the database did not have it for a while.
        repairs: Tables that missed changes, each with the repeated snapshot after which it lacks none; None: one that is still
            to be requested.
    """

    awaited: frozenset[str] = frozenset()
    unrequested: frozenset[str] = frozenset()
    repeated: Mapping[str, RepeatedSnapshot] = field(default_factory=dict)
    sync_points: Mapping[str, LogPosition] = field(default_factory=dict)
    are_reported: bool = False
    stops: Mapping[str, TableStopped] | None = None
    returned: Mapping[str, TableStopped] = field(default_factory=dict)
    repairs: Mapping[str, str | None] = field(default_factory=dict)

    def reports_complete(self, object_id: str) -> bool:
        """Return whether the connector has reported that the first snapshot of a table was sent completely."""
        return self.are_reported and object_id not in self.awaited

    def must_stay_stopped(self, object_id: str) -> bool:
        """Return whether a table that was not captured may be so still, or lacks the snapshot that the connector takes then."""
        return self.stops is None or object_id in self.stops or object_id in self.awaited

    def is_repaired(self, progress: TableProgress) -> bool:
        """Return whether a table lacks no changes, as far as is known."""
        had = progress.high_water_marks.repeated
        return progress.object_id not in self.repairs or (had is not None and had == self.repairs[progress.object_id])

    def must_stay_unreadable(self, object_id: str, transactions: CommittedTransactions) -> bool:
        """Return whether a table must stay unreadable: its snapshot is incomplete, or its sync point is not reached.

        Args:
            object_id: Id of the table.
            transactions: The upstream transactions that `main` has committed.
        """
        sync_point = self.sync_points.get(object_id)
        return object_id in self.awaited or (sync_point is not None and not transactions.has(sync_point))


def remove_gone(  # noqa: PLR0913 - a batch, a table, what it did to it, and where to write
    writing: Writing,
    batch: BatchIdentity,
    entry: Entry[Table],
    snapshot: RepeatedSnapshot,
    progress: TableProgress,
    reached: Offsets,
) -> tuple[TableReport | None, TableProgress]:
    """Delete the rows that a repeated snapshot did not contain, in the first batch that has read all of it.

    Args:
        writing: Writes to the table.
        batch: The batch.
        entry: The table's definition and identity.
        snapshot: The snapshot.
        progress: The table's progress after the batch's changes.
        reached: The position of the table's reader after the batch.

    Returns:
        The effects on rows of the table, None if nothing was deleted, and the table's progress.
    """
    table = entry.definition
    if not table.envelope.has_positions or not snapshot.is_newly_read(progress, reached):
        return None, progress
    high_water_marks = replace(progress.high_water_marks, repeated=snapshot.signal_id)
    written = writing.remove_stale(batch, table.full_name, snapshot.replaces_through, high_water_marks, _STEP)
    report = counted(TableReport(table.full_name), written, batch) if written is not None else None
    return report, replace(progress, high_water_marks=high_water_marks)
