"""Columns of PostgreSQL's tables, fetched from the catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.rows import dict_row

from lakehold.upstream.found.columns import FoundColumn, FoundType, TypeKind

_KEY_INDEX = """
    SELECT (i.indkey::int2[])[0 : i.indnkeyatts - 1] AS columns, i.indisprimary, i.indimmediate,
           i.indimmediate AND (i.indisprimary OR (
               i.indpred IS NULL AND i.indisvalid AND i.indnkeyatts = i.indnatts AND NOT EXISTS (
                   SELECT FROM pg_attribute n WHERE n.attrelid = {of}.oid AND n.attnum = ANY(i.indkey) AND NOT n.attnotnull)
           )) AS tells_rows_apart
    FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
    WHERE i.indrelid = {of}.oid AND i.indisunique AND i.indexprs IS NULL
    ORDER BY i.indisprimary DESC, i.indisclustered DESC, x.relname LIMIT 1
"""


def key_index_sql(of: str) -> str:
    """Write the query for the index of `pg_class` row `of` whose columns Debezium takes for the message key.

    That is the index of the primary key, else the first unique one. Debezium takes it even if it does not identify all rows: it
    may have nulls, leave rows out, or be DEFERRABLE. Then two rows may have equal values until their transaction commits, and
    the last message of a key may be the delete of the row that left it.
    """
    return _KEY_INDEX.format(of=of)


_COLUMNS = f"""
    WITH RECURSIVE attribute AS (
        SELECT a.attrelid, a.attnum, n.nspname || '.' || c.relname AS "table", a.attname, a.atttypid, a.atttypmod, a.attndims,
               NOT a.attnotnull AS is_nullable, a.attgenerated <> '' AS is_generated,
               a.atthasdef AND a.attgenerated = '' AS has_default, a.attstorage::text AS storage,
               coalesce(k.tells_rows_apart AND a.attnum = ANY(k.columns), false) AS is_key
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        LEFT JOIN LATERAL ({key_index_sql("c")}) k ON true
        WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname || '.' || c.relname = ANY(%s)
    ), below AS (
        SELECT attrelid, attnum, atttypid AS type, atttypmod AS modifier, attndims::int AS dimensions FROM attribute
        UNION ALL
        SELECT attrelid, attnum, t.typbasetype, t.typtypmod, t.typndims::int
        FROM below JOIN pg_type t ON t.oid = below.type AND t.typtype = 'd'
    )
    SELECT "table", coalesce(e.typname, t.typname) AS type_name, format_type(coalesce(e.oid, t.oid), modifier) AS type_text,
           coalesce(e.typtype, t.typtype)::text AS kind,
           attname AS name, format_type(atttypid, atttypmod) AS text, e.oid IS NOT NULL AS is_array, dimensions,
           is_nullable AND NOT d.typnotnull AS is_nullable, is_key, is_generated,
           CASE WHEN d.typtype = 'd' THEN d.typname ELSE '' END AS domain, has_default, storage, attnum AS number
    FROM attribute JOIN below USING (attrelid, attnum)
    JOIN pg_type t ON t.oid = below.type AND t.typtype <> 'd'
    JOIN pg_type d ON d.oid = atttypid
    LEFT JOIN pg_type e ON e.oid = t.typelem AND e.typarray = t.oid
    ORDER BY "table", attnum
"""
"""A domain is resolved to its base type, an array to its elements; `oidvector` and its like have names and count as no arrays."""


def columns_of(
    connection: psycopg.Connection[tuple[Any, ...]], tables: Sequence[str]
) -> dict[str, tuple[FoundColumn, ...]]:
    """Fetch the columns of tables, by `schema.name`; tables that do not exist are skipped."""
    columns: dict[str, list[FoundColumn]] = {}
    rows = connection.cursor(row_factory=dict_row).execute(_COLUMNS, [list(tables)])
    for row in rows:
        type_ = FoundType(row.pop("type_name"), row.pop("type_text"), TypeKind(row.pop("kind")))
        columns.setdefault(row.pop("table"), []).append(FoundColumn(type=type_, **row))
    return {table: tuple(of_table) for table, of_table in columns.items()}
