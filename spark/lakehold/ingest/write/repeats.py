"""Repeated snapshots of single tables, which were requested because changes had been missed: rows they lack are deleted.

Rows of such a snapshot have no position, so that they do not show where it begins and ends (others are in
`lakehold.ingest.deduplicate.snapshots`). The request recorded the table's sequence number of its time. Each key that still exists
upstream is written after that, by a row of the snapshot or by a change in place of one. When all of the snapshot was read, rows
with a greater number stay, and the others no longer exist upstream.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lakehold.definitions import Table
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
    """The state of captured tables' connector snapshots as upstream reports it, by object id.

    Args:
        awaited: Tables without a complete snapshot, or whose sync point with the others is not known yet.
        unasked: Those among them whose upstream objects are not all created yet.
        repeated: The last repeated snapshot of a table, unless the lake has all of it.
        fits_from: Sync points: a table that joined is consistent with the others once they have reached its place in the log.
        are_told: Whether upstream reports for every table when its first snapshot is complete; otherwise only messages show it.
    """

    awaited: frozenset[str] = frozenset()
    unasked: frozenset[str] = frozenset()
    repeated: Mapping[str, RepeatedSnapshot] = field(default_factory=dict)
    fits_from: Mapping[str, LogPosition] = field(default_factory=dict)
    are_told: bool = False

    def tells_complete(self, object_id: str) -> bool:
        """Return whether upstream reports that the first snapshot of a table has been sent completely."""
        return self.are_told and object_id not in self.awaited

    def keeps_back(self, object_id: str, transactions: CommittedTransactions) -> bool:
        """Return whether a table must stay unreadable by upstream's report, whatever its topic contains.

        Args:
            object_id: Id of the table.
            transactions: The upstream transactions that `main` has committed.
        """
        fits_from = self.fits_from.get(object_id)
        return object_id in self.awaited or (fits_from is not None and not transactions.has(fits_from))


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
    marks = progress.marks
    is_read = all(reached.get(tp, 0) >= end for tp, end in snapshot.ends.items())
    table = entry.definition
    if not table.envelope.has_positions or marks.repeated == snapshot.signal_id or not is_read:
        return None, progress
    marks = replace(marks, repeated=snapshot.signal_id)
    written = writing.remove_stale(batch, table.full_name, snapshot.replaces_through, marks, _STEP)
    report = counted(TableReport(table.full_name), written, batch) if written is not None else None
    return report, replace(progress, marks=marks)
