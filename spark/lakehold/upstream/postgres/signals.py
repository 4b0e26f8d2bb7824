"""Creates, writes and drops the signal table of a connector in PostgreSQL.

lakehold writes requests to the table, and the connector reads them in the log. Each function takes a connection that commits each
statement by itself.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import errors, sql

from lakehold.upstream.found.found import FoundPublication, FoundSignals, FoundSignalTable
from lakehold.upstream.wanted.connector_config import SEEN, SIGNAL_SCHEMA, seen_ms

_TABLE = """
    SELECT has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
           AND has_table_privilege(c.oid, 'INSERT') AND has_table_privilege(c.oid, 'DELETE'), pg_has_role(c.relowner, 'USAGE'),
           coalesce(obj_description(c.oid, 'pg_class'), '')
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname || '.' || c.relname = %s
"""
_MAY_MAKE = """
    SELECT coalesce((SELECT has_schema_privilege(oid, 'USAGE') AND has_schema_privilege(oid, 'CREATE')
                     FROM pg_namespace WHERE nspname = %s), has_database_privilege(current_database(), 'CREATE'))
"""
_COLUMNS = "(id text PRIMARY KEY, type text NOT NULL, data text)"
"""The columns of a signal table. Debezium writes and reads them by position."""

_Connection = psycopg.Connection[tuple[Any, ...]]


def found_signals(
    connection: _Connection, name: str, publication: FoundPublication | None, *, may_create_publication: bool
) -> FoundSignals:
    """Fetch the current state of a signal table, and whether the connector's publication has it."""
    (may_make,) = connection.execute(_MAY_MAKE, [SIGNAL_SCHEMA]).fetchone() or (False,)
    if publication is None:
        return FoundSignals(_found(connection, name), may_make, is_published=False, may_publish=may_create_publication)
    return FoundSignals(
        table=_found(connection, name),
        may_make=may_make,
        is_published=publication.is_for_all or name in publication.tables,
        may_publish=publication.is_for_all or publication.may_change,
    )


def create(connection: _Connection, name: str, publication: str | None) -> None:
    """Create a signal table and its schema unless they exist, and put the table into a publication unless it is a member."""
    if connection.execute("SELECT FROM pg_namespace WHERE nspname = %s", [SIGNAL_SCHEMA]).fetchone() is None:
        with suppress(errors.DuplicateSchema, errors.UniqueViolation):
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(SIGNAL_SCHEMA)))
    connection.execute(sql.SQL("CREATE TABLE IF NOT EXISTS {} {}").format(_identifier(name), sql.SQL(_COLUMNS)))
    if publication is not None:
        add = sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(sql.Identifier(publication), _identifier(name))
        with suppress(errors.DuplicateObject):
            connection.execute(add)


def record_seen(connection: _Connection, name: str, at_ms: int) -> int | None:
    """Keep a time, epoch milliseconds, as the comment on a signal table, unless another user owns it or it has a later one.

    Returns:
        The time that the table keeps then; None: it keeps none, or does not exist.
    """
    found = _found(connection, name)
    if found is None or not found.is_owned:
        return found.seen_ms if found is not None else None
    with connection.transaction():
        # Two things would make the database pass for one restored from a backup: a process that was paused and then writes its
        # earlier time over the one of its successor, and a crash that loses the comment.
        connection.execute(sql.SQL("LOCK TABLE {} IN SHARE UPDATE EXCLUSIVE MODE").format(_identifier(name)))
        found = _found(connection, name)
        kept_ms = found.seen_ms if found is not None else None
        if kept_ms is not None and kept_ms >= at_ms:
            return kept_ms
        connection.execute("SET LOCAL synchronous_commit = on")
        comment = sql.Literal(f"{SEEN}{at_ms}")
        connection.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(_identifier(name), comment))
    return at_ms


def send(connection: _Connection, name: str, signal: str) -> None:
    """Send the connector a signal, JSON with `id`, `type` and `data`, through its signal table, which keeps no row."""
    content = json.loads(signal)
    row = [content["id"], content["type"], json.dumps(content["data"])]
    with connection.transaction():
        connection.execute(sql.SQL("INSERT INTO {} VALUES (%s, %s, %s)").format(_identifier(name)), row)
        connection.execute(sql.SQL("DELETE FROM {} WHERE id = %s").format(_identifier(name)), row[:1])


def drop(connection: _Connection, name: str) -> None:
    """Drop a signal table, if it exists, and its schema unless that has other tables or another owner."""
    connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(_identifier(name)))
    with suppress(errors.DependentObjectsStillExist, errors.InsufficientPrivilege):
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {}").format(sql.Identifier(SIGNAL_SCHEMA)))


def _found(connection: _Connection, name: str) -> FoundSignalTable | None:
    row = connection.execute(_TABLE, [name]).fetchone()
    if row is None:
        return None
    may_write, is_owned, comment = row
    return FoundSignalTable(may_write=may_write, is_owned=is_owned, seen_ms=seen_ms(comment))


def _identifier(name: str) -> sql.Identifier:
    return sql.Identifier(*name.split(".", 1))
