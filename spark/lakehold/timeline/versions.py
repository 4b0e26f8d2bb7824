"""Snapshots and the timestamps they stand for: which snapshot a table showed from which time on.

A snapshot of our own carries its timestamp in its summary. One that somebody else wrote counts at the time it became the
table's current one, made strictly increasing (design, "Time and history"). That is Iceberg's snapshot log and not the
ancestry: after a rollback the log knows what was current before it, so a rollback is a change like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry

from lakehold.catalog.data_tables import SOURCE_PROPERTY, TIMESTAMP_PROPERTY


@dataclass(frozen=True)
class Version:
    """What a table showed from `mz_timestamp` on.

    Attributes:
        mz_timestamp: Epoch milliseconds.
        snapshot_id: The snapshot that was current.
        remains: Whether the snapshot can still be read; one that was expired leaves a gap in the history.
    """

    mz_timestamp: int
    snapshot_id: int
    remains: bool = True


def versions(table: Table, source: str | None) -> tuple[Version, ...]:
    """The versions of `table` that its metadata knows, oldest first, timestamps strictly increasing.

    Args:
        table: As loaded from the catalog.
        source: Whose batches' timestamps count; None for a table that no source of the lake feeds.
    """
    return _dated(_log(table), {s.snapshot_id: s for s in table.metadata.snapshots}, source)


def earlier_versions(table: Table, source: str | None) -> tuple[Version, ...]:
    """`versions`, and those before a gap: expiring a snapshot makes Iceberg forget what was current before it.

    Earlier metadata files, as far as the table keeps them, still know: of the snapshots that remain, and that others are gone.
    """
    log = _log(table)
    snapshots = {s.snapshot_id: s for s in table.metadata.snapshots}
    for entry in reversed(table.metadata.metadata_log):
        if not _is_cut(log, snapshots):
            break
        file = table.io.new_input(entry.metadata_file)
        if not file.exists():
            break
        before = FromInputFile.table_metadata(file)
        log = [*_before(before.snapshot_log, log), *log]
        snapshots = {**{s.snapshot_id: s for s in before.snapshots}, **snapshots}
    remaining = {s.snapshot_id for s in table.metadata.snapshots}
    return tuple(
        Version(v.mz_timestamp, v.snapshot_id, v.snapshot_id in remaining) for v in _dated(log, snapshots, source)
    )


def begins_empty(table: Table, first: Version) -> bool:
    """Whether the table had no rows before `first`, its first version: an expired snapshot is not before it."""
    snapshot = table.snapshot_by_id(first.snapshot_id)
    return snapshot is not None and snapshot.parent_snapshot_id is None


def _log(table: Table) -> list[SnapshotLogEntry]:
    """What was current and since when, oldest first; ancestors that the log no longer has stand before it."""
    log = list(table.metadata.snapshot_log)
    current = table.current_snapshot()
    if not log and current is not None:
        log = [SnapshotLogEntry(snapshot_id=current.snapshot_id, timestamp_ms=current.timestamp_ms)]
    snapshots = {s.snapshot_id: s for s in table.metadata.snapshots}
    first = snapshots.get(log[0].snapshot_id) if log else None
    while first is not None and first.parent_snapshot_id is not None:
        first = snapshots.get(first.parent_snapshot_id)
        if first is not None:
            log.insert(0, SnapshotLogEntry(snapshot_id=first.snapshot_id, timestamp_ms=first.timestamp_ms))
    return log


def _is_cut(log: Sequence[SnapshotLogEntry], snapshots: Mapping[int, Snapshot]) -> bool:
    first = snapshots.get(log[0].snapshot_id) if log else None
    return first is not None and first.parent_snapshot_id is not None


def _before(earlier: Iterable[SnapshotLogEntry], log: Sequence[SnapshotLogEntry]) -> Iterator[SnapshotLogEntry]:
    known = {(entry.snapshot_id, entry.timestamp_ms) for entry in log}
    for entry in earlier:
        if (entry.snapshot_id, entry.timestamp_ms) in known:
            return
        yield entry


def _dated(
    log: Sequence[SnapshotLogEntry], snapshots: Mapping[int, Snapshot], source: str | None
) -> tuple[Version, ...]:
    """The log as versions. A snapshot of another writer never counts later than the batch behind it, whose time is given."""
    own = _own_timestamps(log, snapshots, source)
    dated: dict[int, int] = {}
    last = None
    for place, entry in enumerate(log):
        if own[place] is not None:
            timestamp = own[place]
        else:
            timestamp = entry.timestamp_ms if last is None else max(entry.timestamp_ms, last + 1)
            timestamp = min([timestamp, *(o for o in own[place:] if o is not None)])
        assert timestamp is not None
        last = timestamp if last is None else max(timestamp, last)
        dated[last] = entry.snapshot_id
    return tuple(Version(timestamp, snapshot_id) for timestamp, snapshot_id in dated.items())


def _own_timestamps(
    log: Sequence[SnapshotLogEntry], snapshots: Mapping[int, Snapshot], source: str | None
) -> list[int | None]:
    """The timestamp that the summary of each entry's snapshot has; it counts once: a rollback to it is somebody else's."""
    seen: set[int] = set()
    own: list[int | None] = []
    for entry in log:
        snapshot = snapshots.get(entry.snapshot_id)
        summary = snapshot.summary.additional_properties if snapshot is not None and snapshot.summary else {}
        is_own = source is not None and summary.get(SOURCE_PROPERTY) == source and entry.snapshot_id not in seen
        own.append(int(summary[TIMESTAMP_PROPERTY]) if is_own and TIMESTAMP_PROPERTY in summary else None)
        seen.add(entry.snapshot_id)
    return own
