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
from lakehold.errors import TableLeftOut
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
        left_out: The stop of each table that the connector leaves out, or captures again and has not snapshotted since; None:
            the connector was not inspected.
    """

    awaited: frozenset[str] = frozenset()
    unrequested: frozenset[str] = frozenset()
    repeated: Mapping[str, RepeatedSnapshot] = field(default_factory=dict)
    sync_points: Mapping[str, LogPosition] = field(default_factory=dict)
    are_reported: bool = False
    left_out: Mapping[str, TableLeftOut] | None = None

    def reports_complete(self, object_id: str) -> bool:
        """Return whether the connector has reported that the first snapshot of a table was sent completely."""
        return self.are_reported and object_id not in self.awaited

    def may_be_left_out(self, object_id: str) -> bool:
        """Return whether a table that was left out may be so still, or lacks the snapshot that the connector takes afterwards."""
        return self.left_out is None or object_id in self.left_out or object_id in self.awaited

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
    high_water_marks = progress.high_water_marks
    is_read = all(reached.get(tp, 0) >= end for tp, end in snapshot.ends.items())
    table = entry.definition
    if not table.envelope.has_positions or high_water_marks.repeated == snapshot.signal_id or not is_read:
        return None, progress
    high_water_marks = replace(high_water_marks, repeated=snapshot.signal_id)
    written = writing.remove_stale(batch, table.full_name, snapshot.replaces_through, high_water_marks, _STEP)
    report = counted(TableReport(table.full_name), written, batch) if written is not None else None
    return report, replace(progress, high_water_marks=high_water_marks)
