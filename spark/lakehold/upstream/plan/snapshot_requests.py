"""Plans requests for snapshots of single tables: of those that lack changes, or whose rows changed without events. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from lakehold.model.offsets import Offsets
from lakehold.upstream.differences.gaps import (
    cannot_snapshot_alone,
    silently_changed,
    tables_awaiting_repair,
    tables_to_retry,
    unconfirmed_tables,
    unrecorded_gone,
)
from lakehold.upstream.differences.silent_changes import SilentChange
from lakehold.upstream.found.found import Found
from lakehold.upstream.plan.capture_steps import RecordMissed, Repeat, RequestSnapshot, Step
from lakehold.upstream.wanted.signal_table import wants_signal_table
from lakehold.upstream.wanted.wanted import NOT_STARTED, CapturedTable, Wanted


def missed(wanted: Wanted, found: Found, out: tuple[CapturedTable, ...]) -> Iterator[Step]:
    """Plan snapshots of tables that lack changes; `out` are those whose changes were missed since the last inspection.

    The request comes before these tables are back in the publication, and its record after that. So after an interruption in
    between they still count as out of the publication, and the request is made again.
    """
    silent = dict(silently_changed(wanted, found))
    names = {table.upstream for table in (*out, *silent) if cannot_snapshot_alone(table, found)}
    keyless = {table.object_id: table.upstream for table in wanted.tables if table.upstream in names}
    gone = {table.object_id: table.upstream for table in unrecorded_gone(wanted, found)}
    if keyless or gone:
        yield RecordMissed(wanted.capture.topic_prefix, keyless | gone)
    moved = [table for table, change in silent.items() if change is SilentChange.ROWS]
    unrepaired = (*tables_to_retry(wanted, found), *out, *moved)
    requests = {table.upstream: table for table in unrepaired if table.upstream not in names}
    for table in requests.values():
        is_sent = found.database.is_sent if found.database is not None else table in out  # else the connector runs on
        yield again(table, wanted, read=_read(table, wanted) if is_sent else None)
    unconfirmed = {table.upstream: table for table in unconfirmed_tables(wanted, found)}
    awaited = {table.upstream for table in tables_awaiting_repair(wanted, found)} - unconfirmed.keys()
    for table in {**{table.upstream: table for table in silent}, **unconfirmed}.values():
        if table.upstream not in requests.keys() | names:
            yield again(table, wanted, confirms=table.upstream not in awaited)


def requested(table: CapturedTable, wanted: Wanted, found: Found) -> Iterator[Step]:
    """Plan a snapshot of a table that lacks no changes, but whose rows have values that no message shows.

    If the table cannot be snapshotted alone, a record that its changes were missed is planned instead.
    """
    if cannot_snapshot_alone(table, found):
        fed = [each for each in wanted.tables if each.upstream == table.upstream]
        yield RecordMissed(wanted.capture.topic_prefix, {each.object_id: each.upstream for each in fed})
    else:
        # No change was missed, unless another snapshot is still to bring some.
        awaited = {each.upstream for each in tables_awaiting_repair(wanted, found)}
        yield again(table, wanted, confirms=table.upstream not in awaited)


def again(table: CapturedTable, wanted: Wanted, *, read: Offsets | None = None, confirms: bool = False) -> Step:
    """Return the step that requests a repeated snapshot of a table; `read` and `confirms` as in `Repeat`."""
    fed = {each.object_id: each.full_name for each in wanted.tables if each.upstream == table.upstream}
    repeat = Repeat(table.topic, fed, read, confirms)
    return snapshot_request(table, wanted, repeat)


def snapshot_request(table: CapturedTable, wanted: Wanted, repeat: Repeat | None = None) -> Step:
    """Return the step that requests a snapshot of a table; `repeat` is None for its first one."""
    signal_table = wanted.signal_table if wants_signal_table(wanted) else None
    return RequestSnapshot(wanted.capture.topic_prefix, table.upstream, table.object_id, repeat, signal_table)


def _read(table: CapturedTable, wanted: Wanted) -> Offsets:
    """Return how far all tables of the lake have read the topic that they share with this table."""
    of_each = [wanted.lake.get(each.object_id, NOT_STARTED).read for each in wanted.tables if each.topic == table.topic]
    return {tp: min(read.get(tp, 0) for read in of_each) for read in of_each for tp in read}
