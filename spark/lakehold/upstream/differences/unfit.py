"""Find tables of MySQL and MariaDB at which their connector would fail, for all of its tables. Pure.

A statement that declares such a table is refused. A captured table may become one by an ALTER TABLE: then the connector leaves
it out, so that the other tables continue, and the table stops. `capture_plan.py` has all tables snapshotted again once the
table is no longer one of these: the connector may still have to read the rows that it would fail at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lakehold.definitions import ConnectionType
from lakehold.errors import TableLeftOut
from lakehold.object_names import full_name_text
from lakehold.upstream.found.columns import FoundColumn
from lakehold.upstream.found.found import HASHED, PLAIN, VERSIONED, WITHOUT_OVERLAPS, Found
from lakehold.upstream.types.captured_columns import sent_type
from lakehold.upstream.types.identifier_quoting import identifier_text, table_text
from lakehold.upstream.wanted.connector_config import without_tables
from lakehold.upstream.wanted.wanted import CapturedTable, Wanted

LEFT_OUT = "lakehold.left.out"
"""The connector option that lists the tables which the connector leaves out. Connect keeps options that nothing reads."""

_MORE_COLUMNS = (
    "MariaDB logs more columns of it than it shows: at the next change the connector would fail for all of its tables"
)
_NOT_READ = "Debezium cannot read the definition of such a table: the connector would fail for all of its tables"
_KINDS = {
    VERSIONED: (_MORE_COLUMNS, "ALTER TABLE {} DROP SYSTEM VERSIONING"),
    HASHED: (_MORE_COLUMNS, "Index the beginning of a text, as in ALTER TABLE {} ADD UNIQUE (column(200))"),
    WITHOUT_OVERLAPS: (_NOT_READ, "Give {} another key"),
}
TABLE_KINDS = frozenset(_KINDS) | {PLAIN}
"""Kinds of tables of MySQL and MariaDB; at all others than plain ones a connector would fail."""


@dataclass(frozen=True)
class Unfit:
    """The reason why a connector would fail at a table.

    Attributes:
        what: What the table is, after its name.
        why: Why the connector would fail, without a full stop.
        way_out: What to do in the database, without a full stop.
    """

    what: str
    why: str
    way_out: str


def unfit(table: str, found: Found, database: ConnectionType) -> Unfit | None:
    """Return why the connector would fail at a table of MySQL or MariaDB; None: it would not, as far as is known."""
    if database is ConnectionType.POSTGRES:
        return None
    quoted = table_text(table, database)
    kind = found.relations[table].kind if table in found.relations else ""
    if kind in _KINDS:
        why, way_out = _KINDS[kind]
        return Unfit(f"is a {kind}", why, way_out.format(quoted))
    return _by_columns(quoted, found.columns.get(table, ()), database) or _undefined(table, found, quoted)


def _by_columns(quoted: str, columns: Sequence[FoundColumn], database: ConnectionType) -> Unfit | None:
    column = next((column for column in columns if sent_type(column, database).stops), None)
    if column is None:
        return None
    why = f"{sent_type(column, database).lost}: the connector would fail for all of its tables"
    name = identifier_text(column.name, database)
    return Unfit(
        f"has a column {column.name} of type {column.text}", why, f"ALTER TABLE {quoted} … {name} to another type"
    )


def _undefined(table: str, found: Found, quoted: str) -> Unfit | None:
    if table.lower() not in found.undefined:
        return None
    way_out = f"Find out with SHOW CREATE TABLE {quoted} what is unusual, and alter it"
    return Unfit("has a definition that Debezium cannot read", _NOT_READ, way_out)


def unfit_tables(wanted: Wanted, found: Found) -> Mapping[str, Unfit]:
    """Return the captured tables, as the database names them, at which the connector would fail."""
    each = {name: unfit(name, found, wanted.capture.database) for name in wanted.upstream_tables}
    return {name: reason for name, reason in each.items() if reason is not None}


def without_unfit(wanted: Wanted, found: Found) -> Wanted:
    """Return what is wanted, with a connector that leaves out the tables at which it would fail."""
    out = sorted(unfit_tables(wanted, found))
    if not out:
        return wanted
    return replace(wanted, config={**without_tables(wanted.config, out), LEFT_OUT: json.dumps(out)})


def returning_tables(wanted: Wanted, found: Found) -> Sequence[str]:
    """Return the tables that the connector leaves out and that it need not leave out any more."""
    config = found.connector.config if found.connector is not None else {}
    out = json.loads(config.get(LEFT_OUT, "[]"))
    return [name for name in out if name in wanted.upstream_tables and name not in unfit_tables(wanted, found)]


def stops_of_left_out(wanted: Wanted, found: Found) -> Mapping[str, TableLeftOut]:
    """Return the stops of the tables that the connector leaves out, also while it need not do so any more, by object id."""
    out, returning = unfit_tables(wanted, found), {*returning_tables(wanted, found)}
    of_unfit = {
        table.object_id: _stop(table, wanted, out[table.upstream]) for table in wanted.tables if table.upstream in out
    }
    of_returning = {
        table.object_id: TableLeftOut(
            f'table "{table.full_name}" waits for a snapshot',
            table=table.full_name,
            detail=f"Connector {wanted.connector} left {table.upstream} out, and takes its first snapshot again.",
            hint="Ingest: the table continues once the snapshot is complete.",
        )
        for table in wanted.tables
        if table.upstream in returning
    }
    return of_unfit | of_returning


def _stop(table: CapturedTable, wanted: Wanted, reason: Unfit) -> TableLeftOut:
    return TableLeftOut(
        f'table "{table.full_name}" gets no more changes: {table.upstream} {reason.what}',
        table=table.full_name,
        detail=f"{reason.why}. So connector {wanted.connector} leaves it out.",
        hint=f"{way_out(table, reason)}.",
    )


def way_out(table: CapturedTable, reason: Unfit) -> str:
    """Return what to do about a table that the connector leaves out, without a full stop."""
    return f"{reason.way_out}; the connector then takes its first snapshot again. Or DROP TABLE {full_name_text(table.full_name)}"
