"""Which snapshot of the connector a Debezium table shows, and when it is whole (design, "Snapshot rows").

A snapshot taken anew stands at a later position: its rows win, what the table had from before is replaced, and keys it did not
bring are gone when it is complete. So an abandoned first snapshot leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lakehold.ingest.judge.arrivals import Arrivals
from lakehold.ingest.marks import Marks, Position, SnapshotProgress


def begins_anew(marks: Marks, arrived: Arrivals) -> bool:
    """Whether the batch begins a snapshot that replaces what came before it, in the table or in the batch itself."""
    position = arrived.snapshot_position
    if position is None:
        return False
    if marks.snapshot is not None:
        return position > marks.snapshot.position
    return arrived.lowest_position is not None and arrived.lowest_position < position


def advanced(marks: Marks, arrived: Arrivals, *, settled: bool, sequence_number: int | None) -> Marks:
    """The marks after a batch.

    Args:
        marks: Those before it.
        arrived: What the batch brought.
        settled: All partitions of the topic were read as far as they went when the end of the snapshot was seen, or later, so
            that nothing of it is still to come.
        sequence_number: The table's last Iceberg sequence number before the batch, None when it has no rows.
    """
    passed = {**marks.passed}
    for partition, position in arrived.passed.items():
        passed[partition] = max(position, passed.get(partition, position))
    snapshot = _snapshot(marks.snapshot, arrived, settled=settled, sequence_number=sequence_number)
    latest_ms = max((ms for ms in (marks.latest_ms, arrived.latest_ms) if ms is not None), default=None)
    return replace(marks, passed=passed, snapshot=snapshot, latest_ms=latest_ms)


def _snapshot(
    old: SnapshotProgress | None, arrived: Arrivals, *, settled: bool, sequence_number: int | None
) -> SnapshotProgress | None:
    position = arrived.snapshot_position
    if position is not None and (old is None or position > old.position):
        old = SnapshotProgress(position, replaces_through=sequence_number)
    if old is None:
        return None
    if old.complete:
        # What it did not bring went when it became complete.
        return replace(old, replaces_through=None)
    streamed = arrived.streamed_position is not None and arrived.streamed_position > old.position
    end_seen = old.end_seen or streamed or arrived.snapshot_end_position == old.position
    is_complete = end_seen and settled
    return replace(old, end_seen=end_seen, complete=is_complete, until=None if is_complete else old.until)


def ending_at(marks: Marks, ends: Mapping[int, int]) -> Marks:
    """The marks after a batch that saw the end of a snapshot, with how far the partitions went: `SnapshotProgress.until`.

    What arrives later is none of it, so a table is whole in the end also where it always does, and is never read to its end.

    Args:
        marks: Those after the batch.
        ends: End offsets (exclusive) of all partitions as the batch was planned; empty where there are none.
    """
    snapshot = marks.snapshot
    if snapshot is None or not snapshot.end_seen or snapshot.complete or snapshot.until is not None or not ends:
        return marks
    return replace(marks, snapshot=replace(snapshot, until=ends))


def is_passed(marks: Marks, reached: Mapping[int, int]) -> bool:
    """Whether all of a snapshot lies below the offsets that a batch reads up to, as far as `until` tells."""
    until = marks.snapshot.until if marks.snapshot is not None else None
    return until is not None and all(reached.get(partition, 0) >= at for partition, at in until.items())


def emptied_marks(marks: Marks, position: Position, sequence_number: int | None) -> Marks:
    """The marks before a batch with a snapshot taken anew that has no row of the table.

    Args:
        marks: Those of the batch before.
        position: Of the snapshot.
        sequence_number: See `advanced`.
    """
    return replace(marks, snapshot=SnapshotProgress(position, end_seen=True, replaces_through=sequence_number))


def settled_marks(marks: Marks) -> Marks:
    """The marks after a batch that brought nothing, when nothing more is to come of a snapshot whose end was seen."""
    snapshot = marks.snapshot
    if snapshot is None or not snapshot.end_seen:
        return marks
    return replace(marks, snapshot=replace(snapshot, complete=True, until=None))
