"""Search rows of PostgreSQL for values that Debezium does not send unchanged: one query a table."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg import sql

from lakehold.upstream.found.values import LossyColumn, LostValues


def lost_values(
    connection: psycopg.Connection[tuple[Any, ...]], lossy: Mapping[str, Sequence[LossyColumn]], within_s: float
) -> dict[str, LostValues]:
    """Search the rows of some tables, `schema.name`, for values that some of their columns lose, within a time for all of them.

    Each table gets an even share of the time that is left, so that a large table leaves enough for the small ones.
    """
    deadline_s = time.monotonic() + within_s
    found = {}
    for done, (table, columns) in enumerate(lossy.items()):
        query = _query(table, columns)
        share_ms = round((deadline_s - time.monotonic()) * 1000 / (len(lossy) - done))
        flags = _answer(connection, query, max(1, share_ms))
        if flags is None:
            found[table] = LostValues(tuple(columns), query.as_string(connection))
        else:
            held = tuple(column for column, is_held in zip(columns, flags, strict=True) if is_held)
            found[table] = LostValues(held)
    return found


def _query(table: str, columns: Sequence[LossyColumn]) -> sql.Composed:
    conditions = [sql.SQL(each.loss.where).format(sql.Identifier(each.column.name)) for each in columns]
    return sql.SQL("SELECT {} FROM {}").format(
        sql.SQL(", ").join(sql.SQL("bool_or({})").format(condition) for condition in conditions),
        sql.Identifier(*table.split(".", 1)),
    )


def _answer(
    connection: psycopg.Connection[tuple[Any, ...]], query: sql.Composed, within_ms: int
) -> tuple[bool | None, ...] | None:
    """Run a query for one row; None if it takes too long, or fails: this search keeps no table from being captured."""
    try:
        with connection.transaction():
            connection.execute("SELECT set_config('statement_timeout', %s, true)", [str(within_ms)])
            return connection.execute(query).fetchone()
    except psycopg.Error:
        if connection.broken:
            raise
        return None
