"""Fetches the shapes of PostgreSQL's tables from its catalogue.

A *shape* is what the catalogue says of a table: its columns, files and partitions, and the labels of its enums. `ALTER TABLE`
and the like can change rows without sending an event for them, but leave another shape. `silent_changes.py` compares the
shapes of two inspections to find such tables, so that lakehold snapshots them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from lakehold.upstream.found.shapes import Shape

_SHAPES = """
    WITH wanted AS (
        SELECT c.oid, n.oid AS schema, n.nspname || '.' || c.relname AS "table",
               c.relowner, c.reltype, c.relkind, c.xmin AS written
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p') AND n.nspname || '.' || c.relname = ANY(%s)
    ), part AS (
        SELECT w.oid AS root, p.relid::oid AS oid, p.isleaf AND p.level > 0 OR w.relkind = 'r' AS is_stored
        FROM wanted w, LATERAL (
            SELECT relid, isleaf, level FROM pg_partition_tree(w.oid) UNION SELECT w.oid, true, 0 WHERE w.relkind = 'r') p
    )
    SELECT w."table", jsonb_build_object(
        'table', w.oid::text,
        'name', (SELECT jsonb_build_array(w.relowner::text, t.xmin::text) FROM pg_type t WHERE t.oid = w.reltype),
        'columns', (
            SELECT jsonb_object_agg(a.attnum, jsonb_build_array(
                       a.attname, a.xmin::text, a.atthasdef OR a.atthasmissing OR a.attidentity <> '' OR a.attnotnull
                                                OR t.typnotnull OR t.typdefault IS NOT NULL, a.xmin = w.written))
            FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
            WHERE a.attrelid = w.oid AND a.attnum > 0 AND NOT a.attisdropped),
        'records', (
            SELECT jsonb_object_agg(kind, records) FROM (
                SELECT kind, jsonb_object_agg(id, jsonb_build_array(written::text, hashtext(content))) AS records FROM (
                    SELECT 'columns' AS kind, a.attnum::text AS id, a.xmin AS written, concat(a, d.oid) AS content
                    FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
                    WHERE a.attrelid = w.oid AND a.attnum > 0 AND NOT a.attisdropped
                    UNION ALL SELECT 'labels', e.oid::text, e.xmin, e::text
                    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
                    JOIN pg_enum e ON e.enumtypid IN (t.oid, t.typelem, t.typbasetype)
                    WHERE a.attrelid = w.oid AND a.attnum > 0 AND NOT a.attisdropped
                    UNION ALL SELECT 'partitions', p.oid::text, i.xmin, i::text
                    FROM part p JOIN pg_inherits i ON i.inhrelid = p.oid WHERE p.root = w.oid AND p.oid <> w.oid
                    UNION ALL SELECT 'schemas', n.oid::text, n.xmin, n::text FROM pg_namespace n WHERE n.oid = w.schema
                ) each GROUP BY kind) of_kind),
        'files', (
            SELECT jsonb_object_agg(c.oid, jsonb_build_array(c.relfilenode::text, nullif(c.reltoastrelid, 0)::text))
            FROM part p JOIN pg_class c ON c.oid = p.oid WHERE p.root = w.oid AND p.is_stored),
        'partitions', (
            SELECT jsonb_object_agg(p.oid, EXISTS (
                SELECT FROM pg_attribute a JOIN pg_attribute s ON s.attrelid = a.attrelid AND s.attname = 'tableoid'
                WHERE a.attrelid = p.oid AND a.attnum > 0 AND a.xmin = s.xmin AND a.cmin = s.cmin AND NOT a.attislocal))
            FROM part p WHERE p.root = w.oid AND p.oid <> w.oid),
        'labels', (
            SELECT jsonb_object_agg(e.oid, e.enumlabel)
            FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
            JOIN pg_enum e ON e.enumtypid IN (t.oid, t.typelem, t.typbasetype)
            WHERE a.attrelid = w.oid AND a.attnum > 0 AND NOT a.attisdropped))
    FROM wanted w
"""
"""The query for one row a table: its name, and its shape as JSON with the keys that `Shape` lists.

A partition that was created as one has columns that are as old as its system columns: ATTACH would have written them again.
A column that is as old as the table's own record has the name with which it was added: only ADD COLUMN writes both.
"""


def shapes_of(connection: psycopg.Connection[tuple[Any, ...]], tables: Sequence[str]) -> dict[str, Shape]:
    """Fetch the shapes of tables, by `schema.name`; tables that do not exist are skipped."""
    return {
        name: {key: {} if value is None else value for key, value in shape.items()}
        for name, shape in connection.execute(_SHAPES, [list(tables)])
    }
