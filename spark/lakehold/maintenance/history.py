"""Snapshots of a table that nothing needs any more. Pure.

The end of the table's history is kept without a gap, from the version that its oldest need reads. When a snapshot is expired,
Iceberg forgets all history before it: a hole in the middle would cost the history before the hole.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from lakehold.model.summary_keys import SUBSCRIPTION_PROPERTY
from lakehold.timeline.reader_lag import reached_ms
from lakehold.timeline.table_timeline import Timeline
from lakehold.timeline.versions import Version


@dataclass(frozen=True)
class Needs:
    """The needs that keep a table's history.

    Attributes:
        kept_from_ms: From when on the table stays readable, inclusive.
        abandoned_before_ms: An unpublished snapshot (staged by a write, and never the table's current one) that was made
            before then (exclusive) belongs to no write in progress.
        staged_before_ms: The same for a snapshot that another writer staged (`spark.wap.id`): an audit may take hours, and the
            writer publishes it then.
        is_written: Whether a batch of the table is begun and not committed: it may stage a snapshot and publish it later.
    """

    kept_from_ms: int
    abandoned_before_ms: int
    staged_before_ms: int
    is_written: bool


def kept_from_ms(upper_ms: int, now_ms: int, retention_ms: int, grace_ms: int, needed_ms: Iterable[int]) -> int:
    """Return from when on a table must stay readable, inclusive.

    Args:
        upper_ms: The table's write frontier: the first time that is not readable yet.
        now_ms: The clock: a table may be ahead of it.
        retention_ms: How much history it promises.
        grace_ms: How much longer a read may take that began with the oldest promised history.
        needed_ms: The times from which its holds and reads need it.
    """
    return min((reached_ms(upper_ms, now_ms) - 1 - retention_ms - grace_ms, *needed_ms))


def kept_versions(timeline: Timeline, from_ms: int) -> tuple[Version, ...]:
    """Return the versions (snapshots with their timestamps) that reads at `from_ms` and later see.

    Those of a subscription's output begin with a snapshot that records how far it is complete, as its publisher's do: if
    somebody sets the output back to a compaction, its publisher looks for one before it. A table that was created and not
    written yet has none.
    """
    if not timeline.versions:
        return timeline.versions
    place = max(0, bisect_right(timeline.versions, from_ms, key=lambda version: version.mz_timestamp) - 1)
    if SUBSCRIPTION_PROPERTY in timeline.table.properties:
        recorded = (
            number
            for number in range(place, -1, -1)
            if SUBSCRIPTION_PROPERTY in _summary(timeline.table, timeline.versions[number].snapshot_id)
        )
        place = next(recorded, place)
    return timeline.versions[place:]


def unneeded_snapshots(timeline: Timeline, needs: Needs, unneeded_tags: Collection[str]) -> tuple[Snapshot, ...]:
    """Return the snapshots that can be expired, oldest first.

    Args:
        timeline: The table, with all versions in its metadata files.
        needs: The needs that keep its history.
        unneeded_tags: Tags that are removed first. Snapshots that any other tag or branch refers to stay.
    """
    table = timeline.table
    kept = {version.snapshot_id for version in kept_versions(timeline, needs.kept_from_ms)}
    shown = {version.snapshot_id for version in timeline.versions}
    referenced = _referenced(table, unneeded_tags) | (_on_branches(table) - shown)

    def is_unneeded(snapshot: Snapshot) -> bool:
        if snapshot.snapshot_id in kept or snapshot.snapshot_id in referenced:
            return False
        if snapshot.snapshot_id in shown:
            return True
        if _is_staged_by_others(_summary(table, snapshot.snapshot_id)):
            return snapshot.timestamp_ms < needs.staged_before_ms
        return not needs.is_written and snapshot.timestamp_ms < needs.abandoned_before_ms

    found = (snapshot for snapshot in table.metadata.snapshots if is_unneeded(snapshot))
    return tuple(sorted(found, key=lambda snapshot: (snapshot.sequence_number or 0, snapshot.timestamp_ms)))


@dataclass(frozen=True)
class Freed:
    """An estimate of what expired snapshots free: data and delete files, as their writers counted them."""

    files: int = 0
    bytes: int = 0


def freed(timeline: Timeline, expired: Collection[Snapshot]) -> Freed:
    """Estimate what expiring snapshots frees.

    It is what their successors removed, and all that an unpublished snapshot added.
    """
    gone = {snapshot.snapshot_id for snapshot in expired}
    shown = [version.snapshot_id for version in timeline.versions]
    successors = {after for before, after in pairwise(shown) if before in gone}
    removed = [_summary(timeline.table, id_) for id_ in successors]
    added = [_summary(timeline.table, id_) for id_ in gone.difference(shown)]
    return Freed(
        files=_total(removed, "deleted-data-files", "removed-delete-files")
        + _total(added, "added-data-files", "added-delete-files"),
        bytes=_total(removed, "removed-files-size") + _total(added, "added-files-size"),
    )


def _referenced(table: Table, unneeded_tags: Collection[str]) -> set[int]:
    return {ref.snapshot_id for name, ref in table.metadata.refs.items() if name not in unneeded_tags}


def _on_branches(table: Table) -> set[int]:
    """Return the snapshots of branches other than main: the history of those is up to their owners."""
    found: set[int] = set()
    for name, ref in table.metadata.refs.items():
        if name == MAIN_BRANCH or ref.snapshot_ref_type is not SnapshotRefType.BRANCH:
            continue
        snapshot = table.snapshot_by_id(ref.snapshot_id)
        while snapshot is not None and snapshot.snapshot_id not in found:
            found.add(snapshot.snapshot_id)
            parent = snapshot.parent_snapshot_id
            snapshot = table.snapshot_by_id(parent) if parent is not None else None
    return found


def _summary(table: Table, snapshot_id: int) -> Mapping[str, str]:
    snapshot = table.snapshot_by_id(snapshot_id)
    return snapshot.summary.additional_properties if snapshot is not None and snapshot.summary else {}


def _is_staged_by_others(summary: Mapping[str, str]) -> bool:
    return "wap.id" in summary and not any(key.startswith("lakehold.") for key in summary)


def _total(summaries: Iterable[Mapping[str, str]], *names: str) -> int:
    return sum(int(summary.get(name, 0)) for summary in summaries for name in names)
