"""Fetches from PostgreSQL what decides about a failover: the log's timelines, and which slots standbys copy."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any

import psycopg
from psycopg import errors, sql

from lakehold.errors import UpstreamError, UpstreamUnavailable
from lakehold.upstream.found.server_log import FoundFailover, FoundLog

Connected = Callable[[], AbstractContextManager[psycopg.Connection[tuple[Any, ...]]]]
"""Opens a connection that takes replication commands."""

_HAS_FAILOVER_SLOTS = 170_000
"""The version of PostgreSQL from which standbys copy logical slots."""
_SLOT = """
    SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_type = 'physical'),
           coalesce((to_jsonb(s) ->> 'failover')::boolean, false), coalesce((to_jsonb(s) ->> 'synced')::boolean, false),
           coalesce(current_setting('synchronized_standby_slots', true), '') <> ''
    FROM (SELECT) one LEFT JOIN pg_replication_slots s ON s.slot_name = %s
"""
"""Before version 17 PostgreSQL's record of a slot has neither `failover` nor `synced`."""
_LOG = "SELECT system_identifier::text, pg_walfile_name(pg_current_wal_lsn()) FROM pg_control_system()"
_TIMELINE_DIGITS = 8
"""The hexadecimal digits of the timeline, with which the name of a file of the log begins."""


def refuse_standby(connection: psycopg.Connection[tuple[Any, ...]], where: str) -> None:
    """Refuse a standby: it takes no changes until it is promoted."""
    ((is_standby,),) = connection.execute("SELECT pg_is_in_recovery()").fetchall()
    if is_standby:
        raise UpstreamUnavailable(
            f"{where} is a standby",
            code="database-standby",
            detail="It repeats the log of a primary and takes no changes.",
            hint="Promote it, or have HOST and PORT of the connection lead to the primary.",
        )


def found_failover(connection: psycopg.Connection[tuple[Any, ...]], replicating: Connected, slot: str) -> FoundFailover:
    """Fetch the settings and slots of a server that decide what a failover loses."""
    ((has_standbys, is_copied, was_copied, awaits),) = connection.execute(_SLOT, [slot]).fetchall()
    log, may_ask = None, False
    # A user without REPLICATION may not ask. Then the end of the log and the time of the last inspection show a restore.
    with suppress(errors.InsufficientPrivilege, UpstreamError):
        ((system, name),) = connection.execute(_LOG).fetchall()
        timeline = int(name[:_TIMELINE_DIGITS], 16)
        log = FoundLog(system, timeline, _branches(replicating, timeline), is_awaited=awaits and is_copied)
        # The first timeline has no history, but that of a promoted standby will.
        may_ask = timeline > 1 or not has_standbys or _may_replicate(replicating)
    has_failover_slots = connection.info.server_version >= _HAS_FAILOVER_SLOTS
    return FoundFailover(
        log=log,
        has_failover_slots=has_failover_slots,
        has_standbys=has_standbys,
        is_copied=is_copied,
        was_copied=was_copied,
        may_ask=may_ask,
    )


def copying(slot: str) -> sql.Composed:
    """Return the replication command that makes standbys copy a slot. PostgreSQL refuses it while somebody reads the slot."""
    return sql.SQL("ALTER_REPLICATION_SLOT {} (FAILOVER)").format(sql.Identifier(slot))


def branches_of(history: str) -> tuple[tuple[int, int], ...]:
    """Parse a timeline's history file: each line has an earlier timeline, and the position at which the log left it."""
    fields = [line.split() for line in history.splitlines()]
    return tuple((int(each[0]), _position(each[1])) for each in fields if each and not each[0].startswith("#"))


def _may_replicate(replicating: Connected) -> bool:
    """Return whether the server takes replication commands of the user."""
    try:
        with replicating():
            return True
    except UpstreamError:
        return False


def _branches(replicating: Connected, timeline: int) -> tuple[tuple[int, int], ...]:
    if timeline == 1:
        return ()
    with replicating() as connection:
        ((_, history),) = connection.execute(f"TIMELINE_HISTORY {timeline}".encode()).fetchall()
    return branches_of(history)


def _position(lsn: str) -> int:
    high, low = lsn.split("/")
    return (int(high, 16) << 32) + int(low, 16)
