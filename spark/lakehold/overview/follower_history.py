"""The history of followers and of the tables that they read, from the summaries of the snapshots that remain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from lakehold.iceberg.data_tables import removed_rows
from lakehold.model.summary_keys import POSITION_PROPERTY, SOURCE_PROPERTY, SUBSCRIPTION_PROPERTY, TIMESTAMP_PROPERTY
from lakehold.overview.lag import Advance, InputChange
from lakehold.timeline.table_timeline import Timeline


def input_changes(timeline: Timeline) -> tuple[InputChange, ...]:
    """Return the changes of a table that remain; one that rewrites whole files counts all of their rows."""
    snapshots = {snapshot.snapshot_id: snapshot for snapshot in timeline.table.metadata.snapshots}
    found = ((version.mz_timestamp, snapshots.get(version.snapshot_id)) for version in timeline.versions)
    changes = (InputChange(s.timestamp_ms, at_ms, _changed_rows(s)) for at_ms, s in found if s is not None)
    return tuple(change for change in changes if change.rows)


def advances(output: Table, follower_id: str) -> Iterator[Advance]:
    """Yield when a subscription or view committed to its table, and up to where; `follower_id` is its object id."""
    for snapshot in output.metadata.snapshots:
        summary = _summary(snapshot)
        if follower_id not in (summary.get(SUBSCRIPTION_PROPERTY), summary.get(SOURCE_PROPERTY)):
            continue
        if POSITION_PROPERTY in summary:
            yield Advance(snapshot.timestamp_ms, int(summary[POSITION_PROPERTY]))
        elif TIMESTAMP_PROPERTY in summary:
            yield Advance(snapshot.timestamp_ms, int(summary[TIMESTAMP_PROPERTY]) + 1)


def _changed_rows(snapshot: Snapshot) -> int:
    if snapshot.summary is not None and snapshot.summary.operation is Operation.REPLACE:
        return 0
    summary = _summary(snapshot)
    return int(summary.get("added-records", 0)) + removed_rows(summary)


def _summary(snapshot: Snapshot) -> Mapping[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary is not None else {}
