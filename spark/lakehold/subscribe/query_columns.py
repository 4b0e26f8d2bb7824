"""The columns that a SUBSCRIBE reads, by Iceberg's field ids: a name may come to belong to another column.

A statement names columns, and diffs find them by their ids. So if a column is dropped and added again, or two are renamed into
each other, no diff says that the statement has other values now. Nor does one if a query computes from a column that became
wider. A reader that continues compares the columns first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from pyiceberg.schema import Schema, index_by_name
from pyiceberg.table import Table
from pyiceberg.types import DecimalType, FloatType, IntegerType

from lakehold.spark_sql import quoted
from lakehold.subscribe.column_uses import ColumnUses
from lakehold.subscribe.statement import Query

QUERY_COLUMNS = "lakehold.query-columns"
"""Property of the table of a view or subscription: the field ids of the columns that it has read, by table and name."""

_WIDENING = (IntegerType, FloatType, DecimalType)
"""The types that can become wider."""

_TYPED = ": "

QueryColumns = Mapping[str, Mapping[str, int | str]]
"""Field ids by table, and by the column's name in lowercase. If values that the query computes depend on the type of
a column that can become wider, its id stands by `name: type`, too. The UUID of the table stands by `TABLE_UUID`."""

TABLE_UUID = ""
"""The key of a table's UUID beside its columns, as no column is called. Columns that earlier versions stored lack it."""

_ALL_ROWS = re.compile(r"\bcount\s*\(\s*\*\s*\)", re.IGNORECASE)
_ALL_COLUMNS = re.compile(
    r"(?:\b(?:select|distinct|all)\b|[,.(])\s*\*"  # not the sign of a multiplication, which follows a value
    r"|\bnatural\b|--|/\*|\|>"  # a star may follow a comment; a pipe has all columns of what it begins with
    r"|^(?!.*\bselect\b)",
    re.IGNORECASE | re.DOTALL,
)


def tables_and_columns(relation: str | Query, tables: Mapping[str, Table]) -> QueryColumns:
    """Return the columns of `tables` that a SUBSCRIBE may read, and which tables these are."""
    found = query_columns(relation, {name: table.schema() for name, table in tables.items()})
    return {name: {**ids, TABLE_UUID: str(tables[name].metadata.table_uuid)} for name, ids in found.items()}


def without_tables(columns: QueryColumns) -> QueryColumns:
    """Return the columns alone."""
    return {table: {name: of for name, of in ids.items() if name != TABLE_UUID} for table, ids in columns.items()}


def query_columns(relation: str | Query, tables: Mapping[str, Schema]) -> Mapping[str, Mapping[str, int]]:
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
                is_computed = isinstance(relation, Query) and relation.uses.computes_from(field.name, field.field_type)
                ids |= _ids(Schema(field), is_computed=is_computed)
        found[table] = ids
    return found


def _ids(schema: Schema, *, is_computed: bool) -> Iterator[tuple[str, int]]:
    for name, field_id in index_by_name(schema).items():
        yield name.lower(), field_id
        of = schema.find_type(field_id)
        if is_computed and isinstance(of, _WIDENING):
            yield f"{name.lower()}{_TYPED}{of}", field_id


def to_text(columns: QueryColumns) -> str:
    """Return the text of `QUERY_COLUMNS`."""
    return json.dumps(columns, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def from_text(text: str | None) -> QueryColumns:
    """Read what `to_text` wrote; without a text no columns are known."""
    found: QueryColumns = json.loads(text) if text is not None else {}
    return found


def joined(before: QueryColumns, now: QueryColumns) -> QueryColumns:
    """Return the columns of both, between which there are no `differences`."""
    return {table: {**before.get(table, {}), **now.get(table, {})} for table in (*before, *now)}


def replaced_tables(before: QueryColumns, now: QueryColumns) -> list[str]:
    """Return the names that stand for other tables than before. One of which the table is not known may be any."""
    return [
        name
        for name, ids in now.items()
        if (known := before.get(name, {}).get(TABLE_UUID)) is not None and known != ids.get(TABLE_UUID)
    ]


def differences(relation: str | Query, before: QueryColumns, now: QueryColumns) -> str:
    """Describe why rows that a subscriber has may have other values now, though no diff shows it; empty if they have not.

    Args:
        relation: What the SUBSCRIBE reads.
        before: The columns that the subscriber knows.
        now: The columns that the tables have.
    """
    uses = relation.uses if isinstance(relation, Query) else ColumnUses()
    before, now = without_tables(before), without_tables(now)
    moved, taken, other, wider = [], [], [], []
    for table, known in before.items():
        ids = now.get(table, {})
        moved += [f"{table}.{name}" for name in known.keys() & ids.keys() if known[name] != ids[name]]
        taken += [f"{table}.{name}" for name in ids.keys() - known.keys() if (table, name) in uses.unqualified]
        wider += [f"{table}.{name}" for name in map(_typed_name, known.keys() - ids.keys()) if name in ids]
        if uses.needs_all:
            other += [f"{table}.{name}" for name in known.keys() ^ ids.keys() if not _typed_name(name)]
    for names, reason in (
        (moved, "Other columns have these names now: {}. Those that were read were dropped or renamed"),
        (taken, "New columns have names that the query uses for something else: {}"),
        (
            other,
            "Columns came or went: {}. The query has a * inside an expression, a NATURAL JOIN or DISTINCT over a *",
        ),
        (wider, "Columns from which the query computes values became wider: {}"),
    ):
        if names:
            return (
                f"{reason.format(', '.join(sorted(names)))}. No change shows that older rows have other values since."
            )
    return ""


def _typed_name(name: str) -> str:
    """Return the column of `name: type`; empty for the name of a column."""
    return name.rpartition(_TYPED)[0]


def _is_named(name: str, query: str) -> bool:
    within_quotes = quoted(name)[1:-1]
    return re.search(rf"(?<!\w){re.escape(within_quotes)}(?!\w)", query, re.IGNORECASE) is not None
