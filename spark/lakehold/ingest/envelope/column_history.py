"""Finds the history of columns that messages do not show: values in rows older than a column, and earlier names.

`ALTER TABLE … ADD COLUMN c int DEFAULT 5` fills all rows without sending any. Messages and files from before lack the column.
lakehold asks the database once, when the column appears, which value older rows have. The Iceberg table keeps the value as the
column's initial default, which messages and files without the column then show.

In messages, `RENAME COLUMN` looks like one column that is dropped and another that is added. PostgreSQL numbers its columns, and
a table of the lake keeps these numbers among its properties. So a new column with the number of one that is gone is the same
column. An earlier name in messages counts as new: they may be older than the rename, or the column has its name back, or another
column has it now.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from lakehold.definitions import Table
from lakehold.errors import LakeholdError, TableStopped, UpstreamError
from lakehold.iceberg.data_tables import TableState
from lakehold.iceberg.new_columns import FORMAT_VERSION
from lakehold.ingest.decode.decoded import Decoded
from lakehold.ingest.envelope.included import included_columns
from lakehold.ingest.envelope.upstream_columns import InitialValues, UpstreamColumns, UpstreamColumnsOf
from lakehold.spark_sql import literal, quoted
from lakehold.tables.column_names import folded
from lakehold.tables.column_types import ColumnType
from lakehold.tables.stored_key import stored_key
from lakehold.tables.unify import same

NUMBERS = "lakehold.column-numbers"
"""Table property: PostgreSQL's numbers of the columns, as JSON by name."""

RENAMED = "lakehold.renamed-columns"
"""Table property: earlier names of columns, which messages may still have. JSON: earlier name to present name."""


@dataclass(frozen=True)
class ColumnHistory:
    """The history of the columns of a batch.

    Args:
        initial: Values of columns in messages and files that lack the column.
        renamed: The present names of columns by their earlier names.
        numbers: The numbers of the columns in the database; empty: lakehold did not ask, or the database has none.
        unfilled: New columns that may have values in older rows, about which no database can be asked.
    """

    initial: InitialValues = field(default_factory=InitialValues)
    renamed: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, int] = field(default_factory=dict)
    unfilled: frozenset[str] = frozenset()


def column_history(
    decoded: Decoded, table: Table, state: TableState | None, columns_of: UpstreamColumnsOf
) -> ColumnHistory:
    """Return the history of the columns of `decoded` messages.

    Args:
        decoded: The messages.
        table: The definition, as CREATE TABLE gave it.
        state: The Iceberg table; None before the first batch.
        columns_of: Returns the columns of a table in the database.

    Raises:
        TableStopped: Older rows or messages need the value of a new column, and the database cannot be asked about it.
    """
    if table.columns:
        # Listed columns are as old as the table.
        return ColumnHistory(renamed=_listed_names(decoded, table))
    if not table.envelope.has_keys:
        # Without keys in its envelope, a table keeps each message as it was.
        return ColumnHistory()
    present = {f.name: f.initial_default for f in state.schema.fields} if state is not None else {}
    kept = {name: value for name, value in present.items() if value is not None}
    renamed = _renamed_before(decoded, state)
    # Columns whose earlier names come count as new.
    new = {c.name for c in decoded.columns} - present.keys()
    # A table without rows needs values only for messages that lack a column, but always the numbers of its columns.
    needed = new if state is not None and state.row_count != 0 else new & decoded.partial
    if not new:
        return ColumnHistory(InitialValues(kept), renamed)
    try:
        upstream = columns_of(table)
    except UpstreamError as error:
        if needed:
            raise values_unknown(table, needed, error) from error
        return ColumnHistory(InitialValues(kept), renamed)
    if not upstream.columns:
        # Messages that are no change events say all that there is to know about a row.
        unfilled = frozenset(needed - renamed.keys()) if table.envelope.wraps_rows else frozenset()
        return ColumnHistory(InitialValues(kept), renamed, unfilled=unfilled)
    if upstream.numbers:
        # If the database has a column of such an earlier name now, that is a column of its own.
        renamed = {old: name for old, name in renamed.items() if old not in upstream.numbers}
        new = {c.name for c in decoded.columns} - present.keys() - renamed.keys()
        needed = new if needed else needed
    now = _renamed_now(decoded, state, renamed, new, upstream)
    values = _initial(decoded, state, needed - {*now.values()}, upstream)
    added = {each.column.name for each in included_columns(table, decoded.key_columns, (), ())}
    unknown = values.unknown | _older_than_known(state, renamed, needed - {*now.values()}, upstream, added)
    unknown |= {n for n, number in _stored_numbers(state, renamed).items() if upstream.numbers.get(n, number) != number}
    between = _names_in_between(decoded, new, upstream)
    if between:
        unknown |= {*now.values()} | between
    known = {name: value for name, value in values.known.items() if name not in unknown}
    renamed = {**{old: now.get(name, name) for old, name in renamed.items()}, **now}
    return ColumnHistory(InitialValues({**kept, **known}, unknown), renamed, upstream.numbers)


def _listed_names(decoded: Decoded, table: Table) -> dict[str, str]:
    """Return the listed names of columns that messages spell in another case; key columns go by their own rules."""
    names = {c.name for c in decoded.columns}
    keys = {*table.key, *(c.name for c in decoded.key_columns)}
    listed = {folded(c.name): c.name for c in table.columns if c.name not in names and c.name not in keys}
    found = [name for name in sorted(names - keys) if folded(name) in listed]
    times = Counter(map(folded, found))
    return {name: listed[folded(name)] for name in found if times[folded(name)] == 1}


def values_unknown(table: Table, columns: Collection[str], error: LakeholdError) -> TableStopped:
    """Return the error that stops a table until the database says which values older rows have in new columns."""
    names = ", ".join(f'"{name}"' for name in sorted(columns))
    return TableStopped(
        f'the values of new columns {names} in older rows of table "{table.full_name}" are not known',
        table=table.full_name,
        code="initial-unknown",
        detail=f"Messages do not have them, and the database cannot be asked: {error.message}.",
        hint="Correct that; the next ingest tries it again. The other tables continue.",
    )


def stored_renames(state: TableState | None) -> dict[str, str]:
    """Return the present names of the table's columns by their earlier names."""
    present = {f.name for f in state.schema.fields} if state is not None else set()
    found: dict[str, str] = json.loads(state.properties.get(RENAMED, "{}")) if state is not None else {}
    return {old: name for old, name in found.items() if name in present and old not in present}


def present_columns(decoded: Decoded, row: str, history: ColumnHistory) -> dict[str, tuple[str, ColumnType]]:
    """Return the columns of rows by their present names, each with its value in SQL.

    Args:
        decoded: The messages.
        row: The row of a message, in SQL.
        history: The history of the columns.

    Returns:
        SQL of the value and the column, by present name.
    """
    earlier, names = {name: old for old, name in history.renamed.items()}, {c.name for c in decoded.columns}
    found = {}
    for column in decoded.columns:
        name = history.renamed.get(column.name, column.name)
        if name != column.name and name in names:
            continue
        value = f"{row}.{quoted(column.name)}"
        wanted = replace(column, name=name, initial=history.initial.known.get(name))
        before = earlier.get(name)
        # A message whose schema lacks the column has its value under the earlier name, or is older than the column.
        instead = f"{row}.{quoted(before)}" if before in names else wanted.initial_sql
        if name in decoded.partial and (before in names or wanted.initial is not None):
            value = f"CASE WHEN array_contains(absent, {literal(name)}) THEN {instead} ELSE {value} END"
        found[name] = (value, wanted)
    return found


def absent_columns(decoded: Decoded, history: ColumnHistory) -> str:
    """Write the array of columns, by their present names, that a message has under no name."""
    names: dict[str, list[str]] = {}
    for column in decoded.columns:
        names.setdefault(history.renamed.get(column.name, column.name), []).append(column.name)
    found = [
        f"CASE WHEN {' AND '.join(f'array_contains(absent, {literal(name)})' for name in of)} THEN {literal(present)} END"
        for present, of in names.items()
        if decoded.partial.issuperset(of)
    ]
    return f"array_compact(array({', '.join(found)}))"


def kept_columns(decoded: Decoded, kept: str, history: ColumnHistory) -> str:
    """Write the array of columns whose stored value stays; a column under its earlier name also gets its present one.

    Args:
        decoded: The messages.
        kept: The names as messages have them, in SQL.
        history: The history of the columns.
    """
    names = {c.name for c in decoded.columns}
    for old, name in history.renamed.items():
        if old in names:
            has_old = f"array_contains({kept}, {literal(old)})"
            kept = f"CASE WHEN {has_old} THEN array_append({kept}, {literal(name)}) ELSE {kept} END"
    return kept


def _renamed_before(decoded: Decoded, state: TableState | None) -> dict[str, str]:
    """Return the stored renames that hold for these messages: if a message has both names, they are two columns."""
    return {old: name for old, name in stored_renames(state).items() if not _have_both(decoded, old, name)}


def _have_both(decoded: Decoded, one: str, other: str) -> bool:
    return any({one, other} <= version for version in decoded.versions)


def _stored_numbers(state: TableState | None, renamed: Mapping[str, str]) -> dict[str, int]:
    found: dict[str, int] = json.loads(state.properties.get(NUMBERS, "{}")) if state is not None else {}
    return {renamed.get(name, name): number for name, number in found.items()}


def _renamed_now(
    decoded: Decoded,
    state: TableState | None,
    renamed: Mapping[str, str],
    new: Collection[str],
    upstream: UpstreamColumns,
) -> dict[str, str]:
    """Return renames that are new, by earlier name: a new column has the number of one that the database no longer has."""
    if state is None:
        return {}
    types, key = {f.name: f.field_type for f in state.schema.fields}, {c.name for c in stored_key(state)}
    before = {number: name for name, number in _stored_numbers(state, renamed).items()}
    incoming = {c.name: c.type for c in decoded.columns}
    pairs = ((before.get(upstream.numbers.get(name, 0)), name) for name in new)
    return {
        old: name
        for old, name in pairs
        if old in types
        and old not in upstream.numbers
        and old not in key
        and not _have_both(decoded, old, name)
        and all(same(kind, incoming[name]) for kind in (types[old], incoming.get(old, types[old])))
    }


def _names_in_between(decoded: Decoded, new: Collection[str], upstream: UpstreamColumns) -> frozenset[str]:
    """Return new columns that the database does not have any more, if messages with them lack another column.

    Such a column may be the other one under a name that it had for a while, with some of its values.
    """
    if not upstream.numbers:
        return frozenset()
    present = {column.name for column in upstream.columns}
    return frozenset(
        name for version in decoded.versions if present - version for name in version & {*new} - upstream.numbers.keys()
    )


def _older_than_known(
    state: TableState | None,
    renamed: Mapping[str, str],
    names: Collection[str],
    upstream: UpstreamColumns,
    added: Collection[str],
) -> frozenset[str]:
    """Return the columns among `names` that may have had another name before, so that older rows may have other values.

    Args:
        state: The Iceberg table.
        renamed: The names of columns by their earlier names.
        names: New names.
        upstream: The columns in the database.
        added: Columns of the table that the database never has.
    """
    numbers = _stored_numbers(state, renamed)
    if numbers:
        last = max(numbers.values())
        return frozenset(name for name in names if upstream.numbers.get(name, last + 1) <= last)
    if state is None or not upstream.numbers:
        # MySQL and MariaDB number no columns: a renamed one is found in their log.
        return frozenset()
    gone = {f.name for f in state.schema.fields} - {c.name for c in upstream.columns} - {*added}
    return frozenset(names) if gone else frozenset()


def _initial(
    decoded: Decoded, state: TableState | None, names: Collection[str], upstream: UpstreamColumns
) -> InitialValues:
    """Return the values of new columns in older rows: known ones in the types that these messages have."""
    values = {name: value for name, value in upstream.initial.known.items() if name in names}
    types, now = ({c.name: c.type for c in columns} for columns in (decoded.columns, upstream.columns))
    is_able = state is None or state.format_version >= FORMAT_VERSION
    # A column may have changed its type since these messages were sent.
    known = {name: value for name, value in values.items() if is_able and name in now and same(now[name], types[name])}
    unknown = {*names} & upstream.initial.unknown | values.keys() - known.keys()
    return InitialValues(known, frozenset(unknown))
