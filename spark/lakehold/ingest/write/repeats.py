"""Snapshots of single tables that were asked for again because changes had been missed: what one does not bring is gone.

Rows of such a snapshot have no position, so that nothing of them tells where it begins and ends (others are in
`lakehold.ingest.deduplicate.snapshots`). What asked for it noted the table's sequence number of that moment. Each key that is
still there when it ends comes after that, as a row of it or as a change that came in place of one: when all of it was read, what
has a greater number stays, and the rest is gone upstream.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lakehold.definitions import Table
from lakehold.ingest.write.effects import BatchIdentity, TableReport, counted
from lakehold.ingest.write.writing import Writing
from lakehold.model.definitions import Entry
from lakehold.model.offsets import Offsets
from lakehold.model.passed import Passed
from lakehold.model.places import Place
from lakehold.model.readers import TableProgress

_STEP = 3
"""Of the batch, behind those of its changes."""


@dataclass(frozen=True)
class RepeatedSnapshot:
    """One that the connector says is complete.

    Args:
        signal_id: Of the signal that asked for it.
        replaces_through: The table's Iceberg sequence number when it was asked for.
        ends: Where the partitions of the table's topic ended when it was complete: all of it lies before.
    """

    signal_id: str
    replaces_through: int
    ends: Offsets


@dataclass(frozen=True)
class Snapshots:
    """The state of captured tables' connector snapshots, as upstream says it, by object id.

    Args:
        awaited: Tables of which no snapshot is complete, or of which is not known yet where they fit the others.
        unasked: Those among them for which not everything is made yet.
        repeated: The last snapshot of a table that was taken again, unless the lake has all of it.
        fits_from: Places in the upstream's log: a table that joined fits the others when they have come to it.
        are_told: Of every table it is said when its first snapshot is complete; else only the messages tell.
    """

    awaited: frozenset[str] = frozenset()
    unasked: frozenset[str] = frozenset()
    repeated: Mapping[str, RepeatedSnapshot] = field(default_factory=dict)
    fits_from: Mapping[str, Place] = field(default_factory=dict)
    are_told: bool = False

    def tells_complete(self, object_id: str) -> bool:
        """Return whether upstream says that the first snapshot of a table has been sent whole."""
        return self.are_told and object_id not in self.awaited

    def keeps_back(self, object_id: str, transactions: Passed) -> bool:
        """Return whether a table is not readable yet by what upstream says, whatever its topic holds.

        Args:
            object_id: Of the table.
            transactions: What `main` has taken of upstream's transactions.
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
    """Delete the rows that a repeated snapshot did not bring, in the first batch that has read all of it.

    Args:
        writing: Where to write.
        batch: The batch.
        entry: The table's definition and identity.
        snapshot: The snapshot.
        progress: The table's progress behind the batch's changes.
        reached: The position of the table's reader behind the batch.

    Returns:
        What the batch did to rows of the table, None if nothing was deleted, and its progress.
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
