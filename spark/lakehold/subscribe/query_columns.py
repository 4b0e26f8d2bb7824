"""The columns that a SUBSCRIBE reads, by Iceberg's field ids: a name may come to belong to another column.

A statement names columns, and diffs find them by their ids. So if a column is dropped and added again, or two are renamed into
each other, no diff says that the statement has other values now. A reader that continues compares the columns first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from pyiceberg.schema import Schema, index_by_name

from lakehold.spark_sql import quoted
from lakehold.subscribe.statement import Query

QUERY_COLUMNS = "lakehold.query-columns"
"""Property of the table of a view or subscription: the field ids of the columns that it has read, by table and name."""

QueryColumns = Mapping[str, Mapping[str, int]]

_ALL_ROWS = re.compile(r"\bcount\s*\(\s*\*\s*\)", re.IGNORECASE)
_ALL_COLUMNS = re.compile(
    r"(?:\b(?:select|distinct|all)\b|[,.(])\s*\*"  # not the sign of a multiplication, which follows a value
    r"|\bnatural\b|--|/\*|\|>"  # a star may follow a comment; a pipe has all columns of what it begins with
    r"|^(?!.*\bselect\b)",
    re.IGNORECASE | re.DOTALL,
)


def query_columns(relation: str | Query, tables: Mapping[str, Schema]) -> QueryColumns:
    """Return the columns of `tables` that a SUBSCRIBE may read, also nested ones.

    A query reads those that it names, or all if it may have a `*` for them; a SUBSCRIBE of a table reads all.
    """
    query = relation.text if isinstance(relation, Query) else ""
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
    return json.dumps(columns, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def from_text(text: str | None) -> QueryColumns:
    """Read what `to_text` wrote; without a text no columns are known."""
    found: QueryColumns = json.loads(text) if text is not None else {}
    return found


def joined(before: QueryColumns, now: QueryColumns) -> QueryColumns:
    """Return the columns of both; a name that both have belongs to the column of `before`."""
    return {table: {**now.get(table, {}), **before.get(table, {})} for table in (*before, *now)}


def moved_names(before: QueryColumns, now: QueryColumns) -> list[str]:
    """Return the names, with their table, that belong to other columns now than `before`."""
    return [
        f"{table}.{name}"
        for table, ids in before.items()
        for name, field_id in ids.items()
        if now.get(table, {}).get(name, field_id) != field_id
    ]


def _is_named(name: str, query: str) -> bool:
    within_quotes = quoted(name)[1:-1]
    return re.search(rf"(?<!\w){re.escape(within_quotes)}(?!\w)", query, re.IGNORECASE) is not None
