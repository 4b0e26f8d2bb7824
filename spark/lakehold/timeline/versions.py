"""Versions of a table: the snapshot that it showed from each timestamp onward.

A snapshot written by lakehold carries its timestamp in its summary. A snapshot of a foreign writer counts from the time at which
it became the table's current one. lakehold makes timestamps strictly increasing. It reads Iceberg's snapshot log, not the
ancestry: after a rollback the log still has what was current before, so a rollback is a change like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotLogEntry

from lakehold.iceberg import metadata_files
from lakehold.iceberg.attempts import MALFORMED
from lakehold.model.summary_keys import SOURCE_PROPERTY, TIMESTAMP_PROPERTY

BATCHES_REMEMBERED = 100_000
"""Snapshots whose batch is cached: a snapshot never changes, and PyIceberg is slow to read its summary."""


@dataclass(frozen=True)
class Version:
    """The snapshot that a table showed from `mz_timestamp` onward.

    Attributes:
        mz_timestamp: Epoch milliseconds.
        snapshot_id: The snapshot that was current.
        remains: Whether the snapshot can still be read; an expired one leaves a gap in the history.
        follows_gap: Whether an expired snapshot may be missing before this version. The version that is listed before it may
            then have ended earlier.
        is_rewrite: Whether the snapshot only rewrote files of the one that was current before, as compaction does.
    """

    mz_timestamp: int
    snapshot_id: int
    remains: bool = True
    follows_gap: bool = False
    is_rewrite: bool = False


def versions(table: Table, source: str | None) -> tuple[Version, ...]:
    """List the versions of `table` that its metadata has, oldest first, with strictly increasing timestamps.

    Args:
        table: The table as loaded from the catalog.
        source: Source whose batches carry timestamps; None for a table that no source of the lake feeds.
    """
    return _dated(_log(table), {s.snapshot_id: s for s in table.metadata.snapshots}, source)


def earlier_versions(table: Table, source: str | None) -> tuple[Version, ...]:
    """List the versions of `table`, also those before a gap.

    Expiring a snapshot makes Iceberg forget which snapshots were current before it. Earlier metadata files, as far as the table
    keeps them, still have these: both snapshots that remain, and expired ones.
    """
    log = _log(table)
    snapshots = {s.snapshot_id: s for s in table.metadata.snapshots}
    for entry in reversed(table.metadata.metadata_log):
        if not _is_cut(log, snapshots):
            break
        try:
            before = metadata_files.read(table.io, entry.metadata_file).metadata
        except (OSError, *MALFORMED):
            # The file is deleted (its writer may do so), denied or damaged: versions before it are unknown.
            break
        log = _with_earlier(before.snapshot_log, log)
        # Snapshots as they were before others were expired: PyIceberg removes an expired parent's id from its children.
        snapshots |= {s.snapshot_id: s for s in before.snapshots}
    remaining = {s.snapshot_id for s in table.metadata.snapshots}
    return tuple(replace(v, remains=v.snapshot_id in remaining) for v in _dated(log, snapshots, source))


def begins_empty(table: Table, first: Version) -> bool:
    """Return whether the table was empty before `first`, its first version: no earlier snapshot has been expired."""
    snapshot = table.snapshot_by_id(first.snapshot_id)
    if snapshot is None or snapshot.parent_snapshot_id is not None or not snapshot.sequence_number:
        return False
    earlier = [s for s in table.metadata.snapshots if (s.sequence_number or 0) < snapshot.sequence_number]
    return len(earlier) == snapshot.sequence_number - 1


def is_rewrite(before: int | None, snapshot: Snapshot | None) -> bool:
    """Return whether `snapshot` only rewrote files of the snapshot `before`: compaction changes no row."""
    return (
        snapshot is not None
        and snapshot.parent_snapshot_id == before
        and snapshot.summary is not None
        and snapshot.summary.operation is Operation.REPLACE
    )


def last_of_each(found: Iterable[Version]) -> tuple[Version, ...]:
    """Keep of consecutive versions with the same timestamp the last, as the one that shows what all of them changed."""
    kept: dict[int, Version] = {}
    for version in found:
        before = kept.get(version.mz_timestamp)
        kept[version.mz_timestamp] = (
            version
            if before is None
            else replace(
                version,
                follows_gap=before.follows_gap or version.follows_gap,
                is_rewrite=before.is_rewrite and version.is_rewrite,
            )
        )
    return tuple(kept.values())


def _log(table: Table) -> list[SnapshotLogEntry]:
    """List the snapshots that were current, with the times from which they were, oldest first.

    For a table without a log these are the known ancestors of its current snapshot. Ancestors do not help before the start of a
    log that was cut: there may have been rollbacks, and snapshots of a branch that main was forwarded to.
    """
    log = list(table.metadata.snapshot_log)
    snapshot = None if log else table.current_snapshot()
    while snapshot is not None:
        log.insert(0, SnapshotLogEntry(snapshot_id=snapshot.snapshot_id, timestamp_ms=snapshot.timestamp_ms))
        parent = snapshot.parent_snapshot_id
        snapshot = table.snapshot_by_id(parent) if parent is not None else None
    return log


def _is_cut(log: Sequence[SnapshotLogEntry], snapshots: Mapping[int, Snapshot]) -> bool:
    """Return whether Iceberg may have removed entries from the log, at its start or within."""
    first = snapshots.get(log[0].snapshot_id) if log else None
    if first is None:
        return False
    return first.parent_snapshot_id is not None or any(_follow_gaps(log, snapshots)) or (first.sequence_number or 0) > 1


def _follow_gaps(log: Sequence[SnapshotLogEntry], snapshots: Mapping[int, Snapshot]) -> list[bool]:
    """Return for each entry whether an entry before it may be missing.

    A new snapshot without a parent was not built on the previous entry. An entry that repeats the previous snapshot means that
    another one was current in between.
    """
    found, seen, last = [], set[int](), None
    for entry in log:
        snapshot = snapshots.get(entry.snapshot_id)
        is_orphan = snapshot is not None and snapshot.parent_snapshot_id is None and entry.snapshot_id not in seen
        found.append(last is not None and (is_orphan or entry.snapshot_id == last))
        seen.add(entry.snapshot_id)
        last = entry.snapshot_id
    return found


def _with_earlier(earlier: Sequence[SnapshotLogEntry], log: Sequence[SnapshotLogEntry]) -> list[SnapshotLogEntry]:
    """Merge an earlier log into `log`; both are in order."""
    found: list[SnapshotLogEntry] = []
    rest = list(earlier)
    common = max((place for place, entry in enumerate(log) if entry in rest), default=-1)
    for entry in log[: common + 1]:
        if entry in rest:
            place = rest.index(entry)
            found += rest[:place]
            del rest[: place + 1]
        found.append(entry)
    return [*found, *rest, *log[common + 1 :]]


def _dated(
    log: Sequence[SnapshotLogEntry], snapshots: Mapping[int, Snapshot], source: str | None
) -> tuple[Version, ...]:
    """Convert the log to versions.

    A snapshot of a foreign writer never gets a later timestamp than the next batch, whose timestamp is fixed.
    """
    own = _own_timestamps(log, snapshots, source)
    follow_gaps = _follow_gaps(log, snapshots)
    latest = _least_from_each(own)
    dated = []
    last = before = None
    for place, entry in enumerate(log):
        if own[place] is not None:
            timestamp = own[place]
        else:
            timestamp = entry.timestamp_ms if last is None else max(entry.timestamp_ms, last + 1)
            timestamp = min(timestamp, latest[place] or timestamp)
        assert timestamp is not None
        last = timestamp if last is None else max(timestamp, last)
        rewrites = before is not None and is_rewrite(before, snapshots.get(entry.snapshot_id))
        dated.append(Version(last, entry.snapshot_id, follows_gap=follow_gaps[place], is_rewrite=rewrites))
        before = entry.snapshot_id
    return last_of_each(dated)


def _least_from_each(own: Sequence[int | None]) -> list[int | None]:
    """Return for each position the least value from there to the end; None where no value follows."""
    minima = accumulate(reversed(own), lambda least, here: here if least is None else min(least, here or least))
    return list(minima)[::-1]


def _own_timestamps(
    log: Sequence[SnapshotLogEntry], snapshots: Mapping[int, Snapshot], source: str | None
) -> list[int | None]:
    """Return the timestamp in the summary of each entry's snapshot; None for snapshots of foreign writers.

    A snapshot's timestamp counts only once: going back to the snapshot is a foreign writer's rollback.
    """
    seen: set[int] = set()
    own: list[int | None] = []
    for entry in log:
        snapshot = snapshots.get(entry.snapshot_id)
        batch = _batch_of(snapshot) if source is not None and snapshot is not None else None
        is_own = batch is not None and batch[0] == source and entry.snapshot_id not in seen
        own.append(batch[1] if batch is not None and is_own else None)
        seen.add(entry.snapshot_id)
    return own


_batches: dict[int, tuple[str, int] | None] = {}
"""Batches by snapshot id. A full cache is cleared as a whole: evicting by order of use is slower than reading again."""

_UNKNOWN = ("", 0)


def _batch_of(snapshot: Snapshot) -> tuple[str, int] | None:
    """Return source and timestamp of the batch that wrote a snapshot; None for a foreign writer's snapshot."""
    found = _batches.get(snapshot.snapshot_id, _UNKNOWN)
    if found is not _UNKNOWN:
        return found
    if len(_batches) >= BATCHES_REMEMBERED:
        _batches.clear()
    summary = snapshot.summary.additional_properties if snapshot.summary is not None else {}
    is_batch = SOURCE_PROPERTY in summary and TIMESTAMP_PROPERTY in summary
    batch = (summary[SOURCE_PROPERTY], int(summary[TIMESTAMP_PROPERTY])) if is_batch else None
    _batches[snapshot.snapshot_id] = batch
    return batch
