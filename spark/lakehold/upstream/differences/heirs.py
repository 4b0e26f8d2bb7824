"""Tables of PostgreSQL from which others inherit. Pure.

The connector's snapshot of such a table brings rows of the others, too; later changes of those rows come by the others' names.
"""

from __future__ import annotations

from collections.abc import Iterator

from lakehold.errors import UpstreamError
from lakehold.upstream.found.found import FoundDatabase
from lakehold.upstream.types.identifier_quoting import table_text
from lakehold.upstream.wanted.wanted import CapturedTable, Wanted


def refuse_parents(wanted: Wanted, database: FoundDatabase) -> None:
    """Refuse a declared table from which another one inherits."""
    for table, heir in _parents(wanted, database):
        if table.object_id in (wanted.declared or ()):
            raise UpstreamError(
                f'table "{heir}" inherits from "{table.upstream}" in the database of source "{wanted.source}"',
                code="upstream-table-unfit",
                detail=f"The connector reads rows of both as rows of {table.upstream}, and sends later changes of each by its "
                "own name.",
                hint=f"{_way_out(table, heir, wanted)} Or capture a partitioned table in place of {table.upstream}.",
            )


def parent_hints(wanted: Wanted, database: FoundDatabase | None) -> Iterator[str]:
    """Yield a sentence for each captured table that got an heir, unless a statement is about other tables."""
    if wanted.declared is None and database is not None:
        for table, heir in _parents(wanted, database):
            yield (
                f"table {heir} inherits from {table.upstream}: a snapshot of {table.upstream} brings its rows, too, and later "
                f"changes of them do not come. {_way_out(table, heir, wanted)}"
            )


def _way_out(table: CapturedTable, heir: str, wanted: Wanted) -> str:
    child, parent = (table_text(name, wanted.capture.database) for name in (heir, table.upstream))
    return f"ALTER TABLE {child} NO INHERIT {parent}."


def _parents(wanted: Wanted, database: FoundDatabase) -> Iterator[tuple[CapturedTable, str]]:
    for table in wanted.tables:
        found = database.tables.get(table.upstream)
        if found is not None and found.heirs:
            yield table, found.heirs[0]
