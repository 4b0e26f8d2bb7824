"""Fetches and changes a publication of PostgreSQL: its tables, what it publishes of them, and which source made it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, assert_never

import psycopg
from psycopg import errors, sql

from lakehold.upstream.found.found import FoundPublication
from lakehold.upstream.plan.capture_steps import (
    ChangePublication,
    CompletePublication,
    CreatePublication,
    DropPublication,
)

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


def change(
    connection: psycopg.Connection[tuple[Any, ...]],
    step: CreatePublication | ChangePublication | CompletePublication | DropPublication,
) -> None:
    """Apply a step on a publication, by a connection that commits each statement by itself."""
    match step:
        case CreatePublication():
            _create(connection, step)
        case ChangePublication():
            _change_tables(connection, step)
        case CompletePublication():
            _complete(connection, step)
        case DropPublication(name):
            connection.execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(name)))
        case other:
            assert_never(other)


def _create(connection: psycopg.Connection[tuple[Any, ...]], step: CreatePublication) -> None:
    """Create a publication of exactly some tables, with a comment that marks it as the source's own.

    If a publication of this name exists meanwhile, it stays as it is, and the next inspection finds whose it is.
    """
    # ONLY, as in `_change_tables`.
    tables = sql.SQL(", ").join(sql.SQL("ONLY {}").format(_table(table)) for table in step.tables)
    name = sql.Identifier(step.name)
    with suppress(errors.DuplicateObject), connection.transaction():
        # Publish changes of a partition under the name of its table.
        create = "CREATE PUBLICATION {} FOR TABLE {} WITH (publish_via_partition_root = true)"
        connection.execute(sql.SQL(create).format(name, tables))
        mark = sql.Literal(own_mark(step.source_id))
        connection.execute(sql.SQL("COMMENT ON PUBLICATION {} IS {}").format(name, mark))


def _change_tables(connection: psycopg.Connection[tuple[Any, ...]], step: ChangePublication) -> None:
    """Add tables that are not in a publication, and remove tables that are."""
    name = sql.Identifier(step.name)
    # ONLY, because tables that inherit would come and go with their parent.
    for table in step.added:
        add = sql.SQL("ALTER PUBLICATION {} ADD TABLE ONLY {}").format(name, _table(table))
        with suppress(errors.DuplicateObject):
            connection.execute(add)
    for table in step.removed:
        drop = sql.SQL("ALTER PUBLICATION {} DROP TABLE ONLY {}").format(name, _table(table))
        with suppress(errors.UndefinedObject, errors.UndefinedTable):
            connection.execute(drop)


def _complete(connection: psycopg.Connection[tuple[Any, ...]], step: CompletePublication) -> None:
    """Let a publication send all operations, and all rows and columns of some tables that it lists.

    Dropping and adding a table removes its column list and row filter.
    """
    name = sql.Identifier(step.name)
    publish = (
        "ALTER PUBLICATION {} SET (publish = 'insert, update, delete, truncate', publish_via_partition_root = true)"
    )
    with connection.transaction():
        connection.execute(sql.SQL(publish).format(name))
        for table in step.tables:
            for verb in ("DROP", "ADD"):
                change = sql.SQL("ALTER PUBLICATION {} {} TABLE ONLY {}").format(name, sql.SQL(verb), _table(table))
                connection.execute(change)


def _table(name: str) -> sql.Identifier:
    return sql.Identifier(*name.split(".", 1))
