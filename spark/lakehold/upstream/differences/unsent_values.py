"""Large values that an update does not touch, of types for which Debezium has no placeholder: they arrive as null. Pure.

With the whole row before a change, `REPLICA IDENTITY FULL`, Debezium has the values. Without it, an envelope that needs no
`before` would store the null.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lakehold.definitions import ConnectionType
from lakehold.errors import UpstreamError
from lakehold.object_names import object_text
from lakehold.upstream.differences.partitions import NOT_FULL, full_identity, weak_leaves
from lakehold.upstream.found.columns import FoundColumn
from lakehold.upstream.found.found import FULL, Found
from lakehold.upstream.types.identifier_quoting import identifier_text, table_text
from lakehold.upstream.types.postgres_types import lacks_placeholder
from lakehold.upstream.wanted.wanted import CapturedTable, Wanted


def refuse_unsent(wanted: Wanted, found: Found) -> None:
    """Refuse a declared table that would lose large values which an update leaves as they are."""
    for table in wanted.tables:
        columns = _unsent(table, found)
        if table.object_id in (wanted.declared or ()) and columns:
            plain = ", ".join(
                f"ALTER {identifier_text(column.name, ConnectionType.POSTGRES)} SET STORAGE PLAIN" for column in columns
            )
            raise UpstreamError(
                f'table "{table.upstream}" would lose large values of {_named(columns)}',
                code="replica-identity",
                detail="PostgreSQL does not log a large value that an update leaves as it is, unless it logs the whole row "
                "before. Debezium sends null for such a value of this type, and the lake would store the null.",
                hint=f"{_full_identity(table, found)}; then create the table again. Where all values are small, this does as "
                f"well: ALTER TABLE {table_text(table.upstream, ConnectionType.POSTGRES)} {plain}.",
            )


def unsent_hints(wanted: Wanted, found: Found) -> Iterator[str]:
    """Yield a sentence for each captured table that loses large values which an update leaves as they are."""
    for table in wanted.tables:
        if columns := _unsent(table, found):
            yield (
                f"large values of {_named(columns)} in table {table.upstream} become null when an update leaves them as they "
                f"are: {_full_identity(table, found)}; then ALTER SOURCE {object_text(wanted.source)} RESNAPSHOT"
            )


def _unsent(table: CapturedTable, found: Found) -> Sequence[FoundColumn]:
    database = found.database
    if database is None or table.upstream not in database.tables or table.needs_before:
        return ()
    if database.tables[table.upstream].replica_identity == FULL:
        return ()
    taken = [c for c in found.columns.get(table.upstream, ()) if not table.columns or c.name in table.columns]
    return [column for column in taken if lacks_placeholder(column)]


def _named(columns: Sequence[FoundColumn]) -> str:
    return ", ".join(f"{column.name} ({column.text})" for column in columns)


def _full_identity(table: CapturedTable, found: Found) -> str:
    return full_identity(table.upstream, weak_leaves(found.database, table.upstream, NOT_FULL))
