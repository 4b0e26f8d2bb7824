"""Find wanted tables that lack something upstream: a snapshot, missed changes, or the table itself. Pure.

`capture_plan.py` and `hints.py` ask it. When changes of a table were missed, lakehold requests a *repeated snapshot* of it. At
the end of this snapshot lakehold deletes the rows that the lake had at the request and that the snapshot did not bring. Some
changes may not have been read at the request, by the connector or by the lake. They are written after it, as rows of the
snapshot are, and so a row whose deletion was missed can remain. Then lakehold requests a second snapshot once the lake has the
first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from lakehold.upstream.differences.silent_changes import SilentChange, shape_to_record, silent_change
from lakehold.upstream.differences.unfit import TABLE_KINDS, unfit_tables
from lakehold.upstream.found.columns import FoundColumn
from lakehold.upstream.found.found import NOTHING, Found
from lakehold.upstream.found.shapes import Shape
from lakehold.upstream.found.snapshots import NO_SNAPSHOT, FoundAlteration, FoundRepeat, FoundSnapshot
from lakehold.upstream.types import mysql_types, postgres_types
from lakehold.upstream.wanted.connector_config import includes
from lakehold.upstream.wanted.wanted import CapturedTable, Wanted

_NO_KEY = "NO_PRIMARY_KEY"


def missing_tables(wanted: Wanted, found: Found) -> Iterator[CapturedTable]:
    """Yield the tables that the database certainly does not have."""
    if found.database is not None:
        yield from (table for table in wanted.tables if table.upstream not in found.database.tables)
    else:
        others = {name for name, relation in found.relations.items() if relation.kind not in TABLE_KINDS}
        yield from (table for table in wanted.tables if table.upstream in others)


def unpublished_tables(wanted: Wanted, found: Found) -> Iterator[CapturedTable]:
    """Yield the snapshotted tables that the publication does not list, and that the source's user may not put into it.

    Somebody with more rights took such a table out, or dropped it and created it again as another user. A statement that declares
    the table is refused instead.
    """
    database = found.database
    existing = database.publication if database is not None else None
    if database is None or existing is None or existing.is_for_all:
        return
    for table in wanted.tables:
        snapshot = found.snapshots.get(table.object_id, NO_SNAPSHOT)
        is_had = snapshot.is_first or snapshot.succeeded or snapshot.missed
        of_table = database.tables.get(table.upstream)
        if not is_had or of_table is None or table.upstream in existing.tables:
            continue
        may_add = existing.may_change and of_table.is_owned
        if not may_add and table.object_id not in (wanted.declared or ()):
            yield table


def unrecorded_gone(wanted: Wanted, found: Found) -> Iterator[CapturedTable]:
    """Yield the tables without changes that were snapshotted, unless it is recorded that they miss changes.

    The database does not have them, or does not publish them: both may end.
    """
    if found.connector is not None and found.connector.has_position:
        for table in (*missing_tables(wanted, found), *unpublished_tables(wanted, found)):
            snapshot = found.snapshots.get(table.object_id, NO_SNAPSHOT)
            if (snapshot.is_first or snapshot.succeeded) and not snapshot.missed:
                yield table


def returned_tables(wanted: Wanted, found: Found) -> Iterator[CapturedTable]:
    """Yield the existing tables that lack a snapshot which was not requested, or failed."""
    present, joining = existing_tables(wanted, found), {*joining_tables(wanted, found)}
    for table in wanted.tables:
        if table.upstream in present and (table in joining or _lacks_repeat(table.object_id, found)):
            yield table


def existing_tables(wanted: Wanted, found: Found) -> tuple[str, ...]:
    """Return the wanted tables that exist and whose changes the connector can send, as the database names them."""
    without = (*missing_tables(wanted, found), *unpublished_tables(wanted, found))
    names = {table.upstream for table in without} | unfit_tables(wanted, found).keys()
    return tuple(name for name in wanted.upstream_tables if name not in names)


def joining_tables(wanted: Wanted, found: Found) -> Iterator[CapturedTable]:
    """Yield the existing tables of which no connector snapshot was taken or is under way, and one may be requested now."""
    present = existing_tables(wanted, found)
    for table in wanted.tables:
        snapshot = found.snapshots.get(table.object_id, NO_SNAPSHOT)
        is_had = snapshot.is_first or snapshot.succeeded or snapshot.missed
        is_due = not _is_under_way(snapshot, cannot_snapshot_alone(table, found)) and not _waits(
            table.upstream, wanted, found
        )
        if table.upstream in present and not is_had and is_due:
            yield table


def tables_missing_changes(wanted: Wanted, found: Found) -> Iterator[CapturedTable]:
    """Yield the tables whose changes the connector misses, or missed for a while: one of those that share a table upstream.

    Somebody took the tables from the connector's list or from the publication, or made that leave something out. A connector
    without a position snapshots all tables anyway.
    """
    if found.connector is not None and not found.connector.has_position:
        return
    new = {*joining_tables(wanted, found)}
    one_of_each = {table.upstream: table for table in wanted.tables if table not in new}
    for name in existing_tables(wanted, found):
        is_missed = _is_out(name, found) or _was_out(name, found)
        if name in one_of_each and is_missed and not is_unpublishable(name, found):
            yield one_of_each[name]


def silently_changed(wanted: Wanted, found: Found) -> Iterator[tuple[CapturedTable, SilentChange]]:
    """Yield the tables whose rows changed without events since the last inspection: one of those that share a table upstream."""
    joining = {*joining_tables(wanted, found)}
    for table, altered, until in _altered(wanted, found, [each for each in wanted.tables if each not in joining]):
        if altered.changed_at >= until:
            yield table, SilentChange.ROWS if altered.removed_at >= until else SilentChange.VALUES
    if found.database is None or found.connector is None or not found.connector.has_position:
        return
    existing = existing_tables(wanted, found)
    one_of_each = {
        table.upstream: table for table in wanted.tables if table not in joining and table.upstream in existing
    }
    for name, shape in found.database.shapes.items():
        before = found.shapes.get(name)
        change = silent_change(before, shape) if before is not None else None
        if name in one_of_each and change is not None:
            yield one_of_each[name], change


def unrecorded_shapes(wanted: Wanted, found: Found) -> Mapping[str, Shape]:
    """Return the shapes of tables to record, which differ from the recorded ones; a table that was dropped has none."""
    found_shapes = found.database.shapes if found.database is not None else {}
    existing = [name for name in wanted.upstream_tables if name in found_shapes]
    shapes = {name: shape_to_record(found.shapes.get(name), found_shapes[name]) for name in existing}
    return {name: shape for name, shape in shapes.items() if found.shapes.get(name) != shape}


def is_keyless(upstream: str, found: Found) -> bool:
    """Return whether the connector sends messages without keys for a table, as far as is known."""
    columns = found.columns.get(upstream, ())
    return bool(columns) and not any(column.is_key for column in columns)


def unordered_key(upstream: str, found: Found) -> tuple[FoundColumn, ...]:
    """Return the columns in the key of a table by which Debezium cannot read its rows in chunks."""
    types = mysql_types if found.database is None else postgres_types
    return tuple(column for column in found.columns.get(upstream, ()) if column.is_key and not types.is_ordered(column))


def whole_row_tables(wanted: Wanted, found: Found) -> Iterator[CapturedTable]:
    """Yield the tables without a key that only events of whole rows can follow."""
    for table in wanted.tables:
        if table.needs_before and not table.key and is_keyless(table.upstream, found):
            yield table


def is_unpublishable(upstream: str, found: Found) -> bool:
    """Return whether PostgreSQL would refuse UPDATE and DELETE of a table, for everybody, if lakehold published it."""
    database = found.database
    if database is None or upstream not in database.tables:
        return False
    is_published = database.publication is not None and upstream in database.publication.tables
    return database.tables[upstream].replica_identity == NOTHING and not is_published


def unconfirmed_tables(wanted: Wanted, found: Found) -> Iterator[CapturedTable]:
    """Yield the tables whose repeated snapshot is in the lake, but may not show all deleted rows: they need a second one."""
    for table, repeats in _repeated(wanted, found):
        is_had = all(is_in_lake(object_id, repeat, wanted) for object_id, repeat in repeats.items())
        if is_had and not all(repeat.is_certain for repeat in repeats.values()):
            yield table


def tables_to_retry(wanted: Wanted, found: Found) -> Iterator[CapturedTable]:
    """Yield the tables with missed changes that need a snapshot: none was taken since or is under way, and one can be taken."""
    unrepaired = {table.upstream for table in wanted.tables if _lacks_repeat(table.object_id, found)}
    one_of_each = {table.upstream: table for table in wanted.tables}
    for name in existing_tables(wanted, found):
        if (
            name in unrepaired
            and not cannot_snapshot_alone(one_of_each[name], found)
            and not _waits(name, wanted, found)
        ):
            yield one_of_each[name]


def failing_tables(wanted: Wanted, found: Found) -> Iterator[tuple[CapturedTable, str]]:
    """Yield the tables whose last snapshot failed and will be retried, with the reason: one of those that share a table."""
    one_of_each = {table.upstream: table for table in wanted.tables}
    for name in existing_tables(wanted, found):
        failures = [snapshot.failures[-1] for snapshot in _snapshots(name, wanted, found) if snapshot.again_ms]
        if failures and not cannot_snapshot_alone(one_of_each[name], found):
            yield one_of_each[name], failures[-1]


def tables_awaiting_repair(wanted: Wanted, found: Found) -> Iterator[CapturedTable]:
    """Yield the tables with missed changes that the lake does not have yet: one of those that share a table upstream."""
    unsure = {table.upstream for table in unconfirmed_tables(wanted, found)}
    for table, repeats in _repeated(wanted, found):
        is_had = all(is_in_lake(object_id, repeat, wanted) for object_id, repeat in repeats.items())
        if not is_had or table.upstream in unsure:
            yield table


def unread_tables(wanted: Wanted, found: Found) -> Iterator[CapturedTable]:
    """Yield the tables whose rows the connector reads by columns that they no longer have, until it snapshots all tables."""
    for table, altered, until in _altered(wanted, found, wanted.tables):
        if altered.unread_at >= until:
            yield table


def _altered(
    wanted: Wanted, found: Found, among: Collection[CapturedTable]
) -> Iterator[tuple[CapturedTable, FoundAlteration, int]]:
    """Yield altered tables, with the end of the schema history when a snapshot of all that share them was requested last."""
    existing = existing_tables(wanted, found)
    tables = [table for table in among if table.upstream in existing and table.upstream in found.columns]
    for table in {each.upstream: each for each in tables}.values():
        sharing = [each.object_id for each in tables if each.upstream == table.upstream]
        altered = found.altered.get(table.upstream.lower())
        if altered is not None:
            yield table, altered, min(found.snapshots.get(each, NO_SNAPSHOT).altered_until for each in sharing)


def unrepairable_tables(wanted: Wanted, found: Found) -> Iterator[CapturedTable]:
    """Yield the tables with missed changes that cannot be snapshotted alone."""
    present = existing_tables(wanted, found)
    for table in wanted.tables:
        if table.upstream in present and cannot_snapshot_alone(table, found) and _lacks_repeat(table.object_id, found):
            yield table


def unrecorded_members(wanted: Wanted, found: Found) -> tuple[str, ...]:
    """Return the tables in the publication, as the database names them, whose membership is not recorded.

    A membership is a text that differs once the table has left the publication and come back (`FoundPublication.members`).
    """
    members = _members(found)
    return tuple(name for name in existing_tables(wanted, found) if name in members and name not in found.members)


def is_recreated(wanted: Wanted, found: Found) -> bool:
    """Return whether a connector continues with another publication than the one whose memberships were recorded."""
    if found.connector is None or not found.connector.has_position:
        return False
    members = _members(found)
    recorded = {found.members[name] for name in wanted.upstream_tables if name in members and name in found.members}
    now = {_publication_of(member) for member in members.values()}
    return any(_publication_of(member) not in now for member in recorded)


def is_in_lake(object_id: str, repeat: FoundRepeat, wanted: Wanted) -> bool:
    """Return whether the lake has all of a repeated snapshot."""
    return object_id in wanted.lake and wanted.lake[object_id].repeated == repeat.signal_id


def repairs(repeats: Mapping[str, FoundRepeat], wanted: Wanted) -> Mapping[str, str | None]:
    """Return the repeated snapshot after which each table lacks no rows, by object id; None: one that is not requested yet."""
    return {
        object_id: repeat.signal_id if repeat.is_certain else None
        for object_id, repeat in repeats.items()
        if not (repeat.is_certain and is_in_lake(object_id, repeat, wanted))
    }


def tables_to_snapshot(wanted: Wanted, found: Found) -> tuple[str, ...]:
    """Return the tables, as the database names them, that need a snapshot of their own, including those that can have none."""
    needing = (
        *joining_tables(wanted, found),
        *tables_missing_changes(wanted, found),
        *tables_to_retry(wanted, found),
        *unconfirmed_tables(wanted, found),
    )
    return tuple(sorted({table.upstream for table in needing}))


def tables_with_deferrable_key(wanted: Wanted, found: Found) -> frozenset[str]:
    """Return the tables, as the database names them, with a DEFERRABLE key."""
    tables = found.database.tables if found.database is not None else {}
    return frozenset(name for name in wanted.upstream_tables if name in tables and tables[name].deferrable_key)


def cannot_snapshot_alone(table: CapturedTable, found: Found) -> bool:
    """Return whether no snapshot of the table alone can be taken: it lacks a key, as far as is known, or its rows in the lake do.

    Debezium snapshots no table alone that has no key. With an `unordered_key` it loses rows, or fails. In a table of the lake
    that was written without a key, the rows of such a snapshot could not be distinguished from those that it has.
    """
    if table.upstream in found.multisets or unordered_key(table.upstream, found):
        return True
    if found.database is not None and table.upstream in found.database.tables:
        return not found.database.tables[table.upstream].has_key
    if found.database is None and table.upstream in found.columns:
        return is_keyless(table.upstream, found)
    return _NO_KEY in found.snapshots.get(table.object_id, NO_SNAPSHOT).failures


def _repeated(wanted: Wanted, found: Found) -> Iterator[tuple[CapturedTable, Mapping[str, FoundRepeat]]]:
    """Yield one of the tables that share a table upstream, with the last repeated snapshots of all of them."""
    for name in existing_tables(wanted, found):
        tables = [table for table in wanted.tables if table.upstream == name]
        repeats = {
            table.object_id: found.repeats[table.object_id] for table in tables if table.object_id in found.repeats
        }
        if repeats:
            yield tables[-1], repeats


def _lacks_repeat(object_id: str, found: Found) -> bool:
    repeat = found.repeats.get(object_id)
    return found.snapshots.get(object_id, NO_SNAPSHOT).missed or (repeat is not None and repeat.is_failed)


def _is_out(name: str, found: Found) -> bool:
    publication = found.database.publication if found.database is not None else None
    is_published = publication is None or publication.is_for_all or name in publication.tables
    return not is_published or (found.connector is not None and not includes(found.connector.config, name))


def _was_out(name: str, found: Found) -> bool:
    """Return whether a table's membership differs from the recorded one: the table, or part of it, was out of the publication."""
    members = _members(found)
    return name in members and found.members.get(name, members[name]) != members[name]


def _publication_of(member: str) -> str:
    """Return the publication's part of a membership."""
    return member.partition("/")[0]


def _members(found: Found) -> Mapping[str, str]:
    publication = found.database.publication if found.database is not None else None
    return publication.members if publication is not None else {}


def _snapshots(name: str, wanted: Wanted, found: Found) -> list[FoundSnapshot]:
    return [found.snapshots.get(table.object_id, NO_SNAPSHOT) for table in wanted.tables if table.upstream == name]


def _waits(name: str, wanted: Wanted, found: Found) -> bool:
    """Return whether a table's snapshot failed so often that lakehold pauses before it asks again: asking stops the connector."""
    now_ms = found.now_ms
    return now_ms is not None and any(now_ms < snapshot.again_ms for snapshot in _snapshots(name, wanted, found))


def _is_under_way(snapshot: FoundSnapshot, is_alone_refused: bool) -> bool:
    """Return whether a snapshot was requested and not answered. One that needs a key counts as such until the table has one."""
    return snapshot.requested > len(snapshot.failures) or (is_alone_refused and _NO_KEY in snapshot.failures)
