"""The connector snapshot that a Debezium table shows, and when all of it was read.

A connector sends a snapshot before anything that was committed after it, and a partition keeps the order in which it was sent.
So a partition has no more rows of a snapshot after the snapshot's last row, nor after the first change that was committed later.
When either was seen in one partition, all rows have been sent to the others: they lie before the ends that are fetched then.

A re-snapshot has a later position: its rows are applied and replace those of the table, and keys that it does not contain are
deleted when all of it was read. So an abandoned first snapshot leaves nothing in the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lakehold.ingest.deduplicate.statistics import BatchStatistics
from lakehold.model.high_water_marks import HighWaterMarks, Position, SnapshotProgress


@dataclass(frozen=True)
class SnapshotReadEnds:
    """The offsets up to which a batch reads the topic of a table.

    Args:
        offsets: For each partition, also empty ones, the offset below which the batch leaves no row of a snapshot unread.
        resnapshot: The position of a re-snapshot that the batch contains completely, whatever else its messages show; None: there
            is none. A table of a single row may get no last row: Debezium marks that of the first table as the first one.
    """

    offsets: Mapping[int, int] = field(default_factory=dict)
    resnapshot: Position | None = None


def begins_snapshot(
    high_water_marks: HighWaterMarks, statistics: BatchStatistics, *, is_multiset: bool = False
) -> bool:
    """Return whether the batch begins a snapshot that replaces earlier rows, of the table or of the batch itself.

    Rows without a key cannot be replaced one by one: any snapshot that such a table does not show yet replaces them all.
    """
    position = statistics.snapshot_position
    if position is None:
        return False
    if high_water_marks.snapshot is not None:
        return position > high_water_marks.snapshot.position
    return is_multiset or (statistics.lowest_position is not None and statistics.lowest_position < position)


def advanced(
    high_water_marks: HighWaterMarks,
    statistics: BatchStatistics,
    *,
    read_ends: SnapshotReadEnds,
    sequence_number: int | None,
) -> HighWaterMarks:
    """Return the high-water marks after a batch.

    Args:
        high_water_marks: The high-water marks before the batch.
        statistics: The batch's statistics.
        read_ends: The offsets up to which it reads.
        sequence_number: The table's last Iceberg sequence number before the batch, None if it has no rows. If a re-snapshot
            begins in this batch, rows that were not written after this number are older, and are deleted when the snapshot is
            complete.
    """
    positions = {**high_water_marks.positions}
    for partition, position in statistics.highest_positions.items():
        positions[partition] = max(position, positions.get(partition, position))
    snapshot = _snapshot(high_water_marks.snapshot, statistics, read_ends, sequence_number)
    latest_ms = max((ms for ms in (high_water_marks.latest_ms, statistics.latest_ms) if ms is not None), default=None)
    return completed(replace(high_water_marks, positions=positions, snapshot=snapshot, latest_ms=latest_ms), read_ends)


def _snapshot(
    old: SnapshotProgress | None, statistics: BatchStatistics, read_ends: SnapshotReadEnds, sequence_number: int | None
) -> SnapshotProgress | None:
    position = statistics.snapshot_position
    if position is not None and (old is None or position > old.position):
        old = SnapshotProgress(position, replaces_through=sequence_number)
    if old is None:
        return None
    if old.complete:
        # Rows that it did not contain were deleted when it became complete.
        return replace(old, replaces_through=None)
    streamed = statistics.streamed_position is not None and statistics.streamed_position > old.position
    ended = {
        partition: read_ends.offsets.get(partition, 0)
        for partition, at in statistics.snapshot_ends.items()
        if at == old.position
    }
    end_seen = old.end_seen or streamed or bool(ended)
    return replace(old, end_seen=end_seen, until={**old.until, **ended})


def with_end_seen(high_water_marks: HighWaterMarks) -> HighWaterMarks:
    """Return the high-water marks after upstream, rather than a message, has shown that the snapshot was sent completely."""
    snapshot = high_water_marks.snapshot
    return (
        high_water_marks
        if snapshot is None or snapshot.complete
        else replace(high_water_marks, snapshot=replace(snapshot, end_seen=True))
    )


def without_end(high_water_marks: HighWaterMarks, read_ends: SnapshotReadEnds) -> frozenset[int]:
    """Return the partitions that may have more rows of a completely sent snapshot, up to an end that is unknown."""
    snapshot = high_water_marks.snapshot
    if snapshot is None or snapshot.complete or not snapshot.end_seen:
        return frozenset()
    later = {partition for partition, at in high_water_marks.positions.items() if at > snapshot.position}
    return frozenset(read_ends.offsets.keys() - snapshot.until.keys() - later)


def ending_at(high_water_marks: HighWaterMarks, ends: Mapping[int, int]) -> HighWaterMarks:
    """Return the high-water marks with the ends of partitions after their snapshot was sent completely.

    Later records are not of the snapshot. So it becomes complete even if records arrive all the time, and even if a
    partition never gets a later change.

    Args:
        high_water_marks: High-water marks that have seen the end of the snapshot.
        ends: End offsets (exclusive) of the partitions in `without_end`.
    """
    if high_water_marks.snapshot is None or not ends:
        return high_water_marks
    return replace(
        high_water_marks, snapshot=replace(high_water_marks.snapshot, until={**ends, **high_water_marks.snapshot.until})
    )


def completed(high_water_marks: HighWaterMarks, read_ends: SnapshotReadEnds) -> HighWaterMarks:
    """Return the high-water marks with their snapshot complete, if all of it was read."""
    snapshot = high_water_marks.snapshot
    if snapshot is None or snapshot.complete:
        return high_water_marks
    read = [_is_past(high_water_marks, snapshot, partition, at) for partition, at in read_ends.offsets.items()]
    is_whole = _is_in(snapshot, read_ends.resnapshot) or (snapshot.end_seen and bool(read) and all(read))
    return (
        replace(high_water_marks, snapshot=replace(snapshot, complete=True, until={})) if is_whole else high_water_marks
    )


def _is_in(snapshot: SnapshotProgress, resnapshot: Position | None) -> bool:
    """Return whether a batch that contains a re-snapshot completely has all rows of a table's snapshot.

    Positions of rows without a key have the attempt (`lakehold.ingest.deduplicate.change_headers`). The last one may be partial.
    """
    if resnapshot is None or snapshot.position[:2] != resnapshot[:2]:
        return False
    return snapshot.position == resnapshot or snapshot.end_seen


def _is_past(high_water_marks: HighWaterMarks, snapshot: SnapshotProgress, partition: int, reached: int) -> bool:
    """Return whether a partition has no further row of a snapshot."""
    applied = high_water_marks.positions.get(partition)
    if applied is not None and applied > snapshot.position:
        return True
    until = snapshot.until.get(partition)
    return until is not None and reached >= until


def emptied(high_water_marks: HighWaterMarks, position: Position, sequence_number: int | None) -> HighWaterMarks:
    """Return the high-water marks before a batch whose re-snapshot has no row of the table.

    Args:
        high_water_marks: The high-water marks after the batch before.
        position: The position of the re-snapshot.
        sequence_number: See `advanced`.
    """
    return replace(
        high_water_marks, snapshot=SnapshotProgress(position, end_seen=True, replaces_through=sequence_number)
    )
