"""The columns that a view's query reads, by Iceberg's field ids: a name may come to belong to another column.

A query names columns, and diffs find them by their ids. So if a column is dropped and added again, or two are renamed into each
other, no diff says that the query has other values now.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from pyiceberg.schema import Schema, index_by_name

from lakehold.spark_sql import quoted

QUERY_COLUMNS = "lakehold.query-columns"
"""Table property of a view: the field ids of the columns that its query reads, by table and name."""

QueryColumns = Mapping[str, Mapping[str, int]]

_ALL_ROWS = re.compile(r"\bcount\s*\(\s*\*\s*\)", re.IGNORECASE)
_ALL_COLUMNS = re.compile(r"\*|\bnatural\b", re.IGNORECASE)


def query_columns(query: str, tables: Mapping[str, Schema]) -> QueryColumns:
    """Return the columns of `tables` that a query may read, also nested ones: those that it names, or all if it has a `*`."""
    reads_all = _ALL_COLUMNS.search(_ALL_ROWS.sub("", query)) is not None
    found = {}
    for table, schema in tables.items():
        ids: dict[str, int] = {}
        for field in schema.fields:
            if reads_all or _is_named(field.name, query):
                ids |= {name.lower(): field_id for name, field_id in index_by_name(Schema(field)).items()}
        found[table] = ids
    return found


def to_text(columns: QueryColumns) -> str:
    """Return the text of `QUERY_COLUMNS`."""
    return json.dumps(columns, ensure_ascii=False, separators=(",", ":"))


def moved_names(text: str | None, now: QueryColumns) -> list[str]:
    """Return the names, with their table, that belong to other columns now than in `text`, which `to_text` wrote."""
    before: QueryColumns = json.loads(text) if text is not None else {}
    return [
        f"{table}.{name}"
        for table, ids in before.items()
        for name, field_id in ids.items()
        if now.get(table, {}).get(name, field_id) != field_id
    ]


def _is_named(name: str, query: str) -> bool:
    within_quotes = quoted(name)[1:-1]
    return re.search(rf"(?<!\w){re.escape(within_quotes)}(?!\w)", query, re.IGNORECASE) is not None
