"""Rewrites the query of an expectation, so that it reads other tables of the lake at snapshots, too."""

from __future__ import annotations

from collections.abc import Callable

from lakehold.errors import StatementError
from lakehold.spark_sql import quoted_table
from lakehold.sql.query.queries import parse_query
from lakehold.sql.text.dialect import split

_BATCH = "{batch}"
_STANDS_FOR_BATCH = "mz_batch.mz_batch"
"""Stands for `{batch}` where the query is parsed."""
_OF_COLUMNS = "mz_batch."
"""Stands for `{batch}.` before columns where the query is parsed: it has no namespaces there."""


def query_of_snapshots(query: str, catalog: str, snapshot_of: Callable[[str], int | None]) -> str:
    """Rewrite `query`, in which `{batch}` stands for a table and other braces are doubled, to read tables at snapshots.

    A query stays as it is if it reads no other table, or cannot be read at a time: it gives a table its own time, or reads a
    temporary view, for example.

    Args:
        query: The query.
        catalog: The name of the lake's catalog.
        snapshot_of: Returns the snapshot of a table by its full name; None for one that had no rows.
    """
    text = query.replace(_BATCH, _STANDS_FOR_BATCH).replace("{{", "{").replace("}}", "}")
    try:
        (written,) = split(text, catalog)
        parsed = parse_query(written, repeatable=False)
    except (StatementError, ValueError):
        return query
    others = {table.full_name for table in parsed.tables} - {_STANDS_FOR_BATCH}
    if not others:
        return query
    tables, views = {_STANDS_FOR_BATCH: _STANDS_FOR_BATCH}, {}
    for name in sorted(others):
        snapshot_id = snapshot_of(name)
        if snapshot_id is None:
            views[name] = f"(SELECT * FROM {quoted_table(catalog, name)} LIMIT 0)"
        else:
            tables[name] = f"{quoted_table(catalog, name)} VERSION AS OF {snapshot_id}"
    rewritten = parsed.over(tables, views)
    escaped = rewritten.replace("{", "{{").replace("}", "}}")
    return escaped.replace(_STANDS_FOR_BATCH, _BATCH).replace(_OF_COLUMNS, f"{_BATCH}.")
