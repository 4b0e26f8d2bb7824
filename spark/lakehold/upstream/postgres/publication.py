"""Fetches a publication of PostgreSQL: its tables, what it publishes of them, and which source made it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg import sql

from lakehold.upstream.found.found import FoundPublication

_MARK = "lakehold source "

_MEMBERS = """
    SELECT n.nspname || '.' || c.relname, concat_ws('/', p.oid, coalesce(r.oid, s.oid), c.oid, p.xmin, r.xmin)
    FROM pg_publication p JOIN pg_publication_tables t ON t.pubname = p.pubname
    JOIN pg_namespace n ON n.nspname = t.schemaname JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
    LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid
    {}
    WHERE p.pubname = %s
"""
"""The object ids distinguish a membership, and a table, from one that was created in its place. The transaction that wrote the
record (`xmin`) distinguishes a publication, or a table's membership, from what it was before a change.
"""
_BY_SCHEMA = "LEFT JOIN pg_publication_namespace s ON s.pnpubid = p.oid AND s.pnnspid = n.oid"
_BY_NO_SCHEMA = "LEFT JOIN (SELECT NULL::oid AS oid) s ON true"
_KNOWS_SCHEMAS = 150_000
"""The version of PostgreSQL from which publications have schemas."""
_PUBLICATION = """
    SELECT puballtables, coalesce(obj_description(oid, 'pg_publication'), ''), pg_has_role(pubowner, 'USAGE'),
           ARRAY(SELECT schemaname || '.' || tablename FROM pg_publication_tables t WHERE t.pubname = p.pubname),
           ARRAY(SELECT n.nspname || '.' || c.relname
                 FROM pg_publication_rel r JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace
                 WHERE r.prpubid = p.oid),
           array_remove(ARRAY[CASE WHEN pubinsert THEN 'insert' END, CASE WHEN pubupdate THEN 'update' END,
                              CASE WHEN pubdelete THEN 'delete' END, CASE WHEN pubtruncate THEN 'truncate' END], NULL)
    FROM pg_publication p WHERE pubname = %s
"""
_NARROWED = """
    SELECT n.nspname || '.' || c.relname, concat_ws(' and ',
           CASE WHEN to_jsonb(r) ->> 'prqual' IS NOT NULL THEN 'rows' END,
           CASE WHEN to_jsonb(r) ->> 'prattrs' IS NOT NULL THEN 'columns' END,
           CASE WHEN c.relkind = 'p' AND NOT p.pubviaroot THEN 'changes, which go by the names of its partitions' END)
    FROM pg_publication p JOIN pg_class c ON c.relkind IN ('r', 'p') JOIN pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid
    WHERE p.pubname = %s AND (r.oid IS NOT NULL OR c.relkind = 'p')
"""
"""What a publication leaves out of a table. Before version 15 PostgreSQL's record has no row filter and no column list."""


def own_mark(source_id: str) -> str:
    """Return the comment that marks a publication as a source's own."""
    return f"{_MARK}{source_id}"


def found_publication(
    connection: psycopg.Connection[tuple[Any, ...]], name: str, source_id: str
) -> FoundPublication | None:
    """Fetch the current state of a publication; None: it does not exist. `source_id` shows whether it is the source's own."""
    made = connection.execute(_PUBLICATION, [name]).fetchone()
    if made is None:
        return None
    is_for_all, comment, may_change, published, listed, operations = made
    is_own = comment == own_mark(source_id)
    return FoundPublication(
        is_own=is_own,
        is_for_all=is_for_all,
        tables=frozenset(published) | frozenset(listed),
        listed=frozenset(listed),
        may_change=may_change,
        members=members_of(connection, name),
        is_foreign=comment.startswith(_MARK) and not is_own,
        operations=frozenset(operations),
        narrowed={table: what for table, what in connection.execute(_NARROWED, [name]) if what},
    )


def members_of(connection: psycopg.Connection[tuple[Any, ...]], publication: str) -> Mapping[str, str]:
    """Fetch the identity of each table's membership in a publication, by `schema.table`.

    It is a text of object ids and transaction ids. lakehold records it, and a later one that differs shows that the table, or
    part of it, was out of the publication meanwhile.
    """
    by_schema = _BY_SCHEMA if connection.info.server_version >= _KNOWS_SCHEMAS else _BY_NO_SCHEMA
    members = sql.SQL(_MEMBERS).format(sql.SQL(by_schema))
    return {name: membership for name, membership in connection.execute(members, [publication])}
