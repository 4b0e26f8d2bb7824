"""Values of columns in rows, and in messages, that are older than the column.

`ALTER TABLE … ADD COLUMN c int DEFAULT 5` fills all rows without sending any. Messages and files from before lack the column.
Both read the value that the database shows in such rows. The Iceberg table keeps the value as the column's initial default, so
that lakehold asks the database once, when the column appears.
"""

from __future__ import annotations

from collections.abc import Collection

from lakehold.definitions import Table
from lakehold.errors import LakeholdError, TableStopped, UpstreamError
from lakehold.iceberg.data_tables import TableState
from lakehold.iceberg.new_columns import FORMAT_VERSION
from lakehold.ingest.decode.decoded import Decoded
from lakehold.ingest.decode.unify import same
from lakehold.ingest.envelope.upstream_columns import InitialValues, UpstreamColumnsOf


def initial_values(
    decoded: Decoded, table: Table, state: TableState | None, columns_of: UpstreamColumnsOf
) -> InitialValues:
    """Return the values of the columns of `decoded` messages in older rows and messages.

    Args:
        decoded: The messages.
        table: The definition.
        state: The Iceberg table; None before the first batch.
        columns_of: Returns the columns of a table in the database.

    Raises:
        TableStopped: The database cannot be asked about a new column.
    """
    if table.columns or not table.envelope.has_keys:
        # Listed columns are as old as the table, and a table of all messages has each message as it was.
        return InitialValues()
    present = {field.name: field.initial_default for field in state.schema.fields} if state is not None else {}
    kept = {name: value for name, value in present.items() if value is not None}
    has_rows = state is not None and state.row_count != 0
    new = {c.name for c in decoded.columns if c.name not in present and (has_rows or c.name in decoded.partial)}
    if not new:
        return InitialValues(kept)
    found = _asked(decoded, table, new, columns_of)
    if state is not None and state.format_version < FORMAT_VERSION:
        return InitialValues(kept, found.unknown | found.known.keys())
    return InitialValues({**kept, **found.known}, found.unknown)


def values_unknown(table: Table, columns: Collection[str], error: LakeholdError) -> TableStopped:
    """Return the error that stops a table until the database shows what older rows have in new columns."""
    names = ", ".join(f'"{name}"' for name in sorted(columns))
    return TableStopped(
        f'the values of new columns {names} in older rows of table "{table.full_name}" are not known',
        table=table.full_name,
        code="initial-unknown",
        detail=f"Messages do not have them, and the database cannot be asked: {error.message}.",
        hint="Correct that; the next ingest tries it again. The other tables continue.",
    )


def _asked(decoded: Decoded, table: Table, new: Collection[str], columns_of: UpstreamColumnsOf) -> InitialValues:
    try:
        upstream = columns_of(table)
    except UpstreamError as error:
        raise values_unknown(table, new, error) from error
    types = {column.name: column.type for column in upstream.columns}
    known, unknown = {}, set(new & upstream.initial.unknown)
    for column in decoded.columns:
        value = upstream.initial.known.get(column.name) if column.name in new else None
        if value is not None and same(types[column.name], column.type):
            known[column.name] = value
        elif value is not None:
            # The column has changed its type since these messages were sent.
            unknown.add(column.name)
    return InitialValues(known, frozenset(unknown))
