"""PostgreSQL as an upstream: inspect the database, and change its publication, replication slot and signal table.

`Capturing` calls `inspect` before each plan, and `apply` with the steps of a plan.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, LiteralString, assert_never

import psycopg
from psycopg import errors, sql
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from lakehold.errors import UpstreamRefused, UpstreamUnavailable
from lakehold.ingest.envelope.upstream_columns import InitialValues
from lakehold.model.log_positions import WAL, LogPosition
from lakehold.upstream.database import DatabaseStep, Names
from lakehold.upstream.found.columns import FoundColumn
from lakehold.upstream.found.found import (
    OF_DOTTED_SCHEMA,
    PLAIN,
    TEMPORARY,
    UNLOGGED,
    FoundDatabase,
    FoundRelation,
    FoundSignals,
    FoundTable,
)
from lakehold.upstream.found.values import LossyColumn, LostValues
from lakehold.upstream.plan.capture_steps import (
    ChangePublication,
    CheckLog,
    CompletePublication,
    CreatePublication,
    CreateSignalTable,
    DropPublication,
    DropSignalTable,
    DropSlot,
)
from lakehold.upstream.plan.failover_steps import CopySlot
from lakehold.upstream.postgres import publication, signals
from lakehold.upstream.postgres.columns import columns_of, key_index_sql
from lakehold.upstream.postgres.connection_faults import unreachable
from lakehold.upstream.postgres.failover import copying, found_failover, refuse_standby
from lakehold.upstream.postgres.initial_values import initial_values
from lakehold.upstream.postgres.partitions import identity_sql, leaves_of, weakest_identity
from lakehold.upstream.postgres.shapes import shapes_of
from lakehold.upstream.postgres.values import lost_values
from lakehold.upstream.report.refusals import publication_lost
from lakehold.upstream.wanted.account import Account, postgres_lacks, rights_hint
from lakehold.upstream.wanted.connector_config import LOG_PREFIX, SIGNAL_SCHEMA, Login

log = logging.getLogger(__name__)

UNTIL_RELEASED = Retrying(
    retry=retry_if_exception_type(errors.ObjectInUse), stop=stop_after_delay(30), wait=wait_fixed(0.1), reraise=True
)
"""Repeats a statement on a slot that a reader still uses: a task releases its slot a moment after its connector has ended."""
_SEARCHED_WITHIN_S = 10.0
"""Time for searching the rows of all tables of a statement."""

# The text of an amount of money, and `bytea_output`, show whether the connector can read such values as its user gets them.
_DATABASE = """
    SELECT current_setting('wal_level'), (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint,
           has_database_privilege(current_database(), 'CREATE'), 1234.5::numeric::money::text,
           current_setting('bytea_output')
"""
_MESSAGE = "SELECT (pg_logical_emit_message(true, %s, '') - '0/0'::pg_lsn)::bigint"
_SLOT = (
    "SELECT wal_status, (confirmed_flush_lsn - '0/0'::pg_lsn)::bigint FROM pg_replication_slots WHERE slot_name = %s"
)
_TABLES = f"""
    SELECT c.oid::text, n.nspname || '.' || c.relname,
           {identity_sql("c")},
           coalesce(k.tells_rows_apart, false),
           CASE WHEN NOT k.indimmediate THEN ARRAY(
                SELECT attname::text FROM pg_attribute WHERE attrelid = c.oid AND attnum = ANY(k.columns) ORDER BY attnum
           ) ELSE '{{}}' END, pg_has_role(c.relowner, 'USAGE'),
           CASE WHEN c.relispartition THEN ARRAY(
                SELECT an.nspname || '.' || a.relname FROM pg_partition_ancestors(c.oid) p
                JOIN pg_class a ON a.oid = p.relid AND a.oid <> c.oid JOIN pg_namespace an ON an.oid = a.relnamespace
           ) ELSE '{{}}' END,
           CASE WHEN c.relkind = 'r' AND c.relhassubclass THEN ARRAY(
                SELECT hn.nspname || '.' || h.relname FROM pg_inherits i
                JOIN pg_class h ON h.oid = i.inhrelid JOIN pg_namespace hn ON hn.oid = h.relnamespace
                WHERE i.inhparent = c.oid ORDER BY 1
           ) ELSE '{{}}' END
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN LATERAL ({key_index_sql("c")}) k ON true
    WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema', %s)
    ORDER BY 2
"""
_RELATIONS = """
    SELECT n.nspname || '.' || c.relname,
           CASE WHEN position('.' IN n.nspname) > 0 THEN '.' WHEN c.relpersistence = 'p' THEN c.relkind::text
                ELSE c.relpersistence::text END,
           has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname || '.' || c.relname = ANY(%s)
"""
_KINDS = {
    **{"r": PLAIN, "p": PLAIN, "v": "view", "m": "materialized view", "f": "foreign table"},
    **{"u": UNLOGGED, "t": TEMPORARY, ".": OF_DOTTED_SCHEMA},
}


_ACCOUNT = """
    SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, current_setting('wal_level'),
           has_database_privilege(current_database(), 'CREATE')
"""
_READABLE = """
    SELECT nspname || '.' || relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE nspname || '.' || relname = ANY(%s::text[]) AND has_schema_privilege(n.oid, 'USAGE')
          AND has_table_privilege(c.oid, 'SELECT')
"""


class PostgresUpstream:
    """A database of PostgreSQL that a source captures.

    Every method raises `UpstreamUnavailable` when the server does not answer, and `UpstreamRefused` when it refuses.

    Args:
        login: The database, and a user that owns the captured tables or is a superuser.
        timeout_s: How long the server may take to accept a connection.
    """

    def __init__(self, login: Login, timeout_s: float) -> None:
        self._login = login
        self._where = f"PostgreSQL at {login.host}:{login.port}"
        self._timeout_s = timeout_s

    def inspect(self, names: Names, source_id: str, tables: Sequence[str]) -> tuple[FoundDatabase, FoundSignals]:
        """Fetch the current state of a source's publication, slot, tables and signal table.

        Args:
            names: The names of the source's objects.
            source_id: Object id of the source, with which its own publication is marked.
            tables: The tables that the source wants, `schema.table`. The result has their shapes: what the catalogue says of
                their columns, files and partitions, which reveals changes of rows without messages (`silent_changes.py`).
        """
        with self._connected() as connection:
            refuse_standby(connection, self._where)
            wal_level, position, may_create, money, bytea_output = _row(connection.execute(_DATABASE))
            published = publication.found_publication(connection, names.publication, source_id)
            slot = connection.execute(_SLOT, [names.slot]).fetchone()
            failover = found_failover(connection, lambda: self._connected(replicates=True), names.slot)
            found_tables = connection.execute(_TABLES, [SIGNAL_SCHEMA]).fetchall()
            leaves = leaves_of(connection, tables)
            all_tables = {
                name: FoundTable(
                    replica_identity=weakest_identity(identity, leaves.get(name, ())),
                    has_key=has_key,
                    deferrable_key=tuple(deferrable_key),
                    is_owned=is_owned,
                    ancestors=tuple(ancestors),
                    heirs=tuple(heirs),
                    leaves=tuple(leaves.get(name, ())),
                )
                for _, name, identity, has_key, deferrable_key, is_owned, ancestors, heirs in found_tables
            }
            found = signals.found_signals(connection, names.signal_table, published, may_create_publication=may_create)
            shapes = shapes_of(connection, tables)
        database = FoundDatabase(
            wal_level=wal_level,
            position=position,
            publication=published,
            slot=slot[0] if slot is not None else None,
            tables={name: table for name, table in all_tables.items() if name in tables},
            other_tables=tuple(name for name in all_tables if name not in tables),
            may_create=may_create,
            confirmed=slot[1] if slot is not None else None,
            money=money,
            bytea_output=bytea_output,
            failover=failover,
            shapes=shapes,
            names={object_id: name for object_id, name, *_ in found_tables},
        )
        return database, found

    def account(self, tables: Collection[str]) -> Account:
        """Report the server's clock, and what the user lacks to capture `tables`."""
        replicates = True
        try:
            with self._connected(replicates=True):
                pass
        except UpstreamUnavailable:
            replicates = False
        with self._connected() as connection:
            clock_ms, wal_level, may_create = _row(connection.execute(_ACCOUNT))
            readable = {name for (name,) in connection.execute(_READABLE, [list(tables)])}
        lacks = postgres_lacks(
            self._login.user,
            wal_level=wal_level,
            replicates=replicates,
            may_create=may_create,
            unreadable=set(tables) - readable,
        )
        return Account(clock_ms, lacks)

    def relations(self, names: Sequence[str]) -> dict[str, FoundRelation]:
        """Fetch the kinds of objects that the database has under some names, `schema.name`; other names are skipped."""
        if not names:
            return {}
        with self._connected() as connection:
            found = connection.execute(_RELATIONS, [list(names)]).fetchall()
        return {name: FoundRelation(_KINDS[kind], may_read) for name, kind, may_read in found}

    def kinds(self, _names: Sequence[str]) -> dict[str, FoundRelation]:
        """Return nothing: a connector fails at no kind of table that a publication can have."""
        return {}

    def columns(self, names: Sequence[str]) -> dict[str, tuple[FoundColumn, ...]]:
        """Fetch the columns of tables, by `schema.name`; tables that do not exist are skipped."""
        with self._connected() as connection:
            return columns_of(connection, names)

    def initial_values(self, name: str, columns: Sequence[FoundColumn]) -> InitialValues:
        """Fetch the values of columns of a table, `schema.name`, in rows older than the column."""
        with self._connected() as connection:
            return initial_values(connection, name, columns)

    def lost_values(self, lossy: Mapping[str, Sequence[LossyColumn]]) -> dict[str, LostValues]:
        """Search the rows of some tables, `schema.name`, for values that Debezium does not send unchanged."""
        with self._connected() as connection:
            return lost_values(connection, lossy, _SEARCHED_WITHIN_S)

    def acting_keys(self, _names: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Return nothing: PostgreSQL logs what foreign keys do to rows, and Debezium sends it."""
        return {}

    def log_settings(self) -> dict[str, str]:
        """Return nothing: no setting makes a log that PostgreSQL decodes lack changes; `inspect` fetches `wal_level`."""
        return {}

    def members(self, name: str) -> Mapping[str, str]:
        """Fetch a text for each table in a publication, by `schema.table`, that differs once the table leaves and comes back."""
        with self._connected() as connection:
            return publication.members_of(connection, name)

    def write_sync_point(self, _table: str) -> LogPosition:
        """Write a transaction of nothing but a logical message to the log, and return its position. No table changes.

        The position is a sync point: once the lake has reached it, the lake has everything that was committed before.
        MySQL, which has no such messages, writes to the signal table instead.
        """
        with self._connected() as connection:
            refuse_standby(connection, self._where)
            (position,) = _row(connection.execute(_MESSAGE, [LOG_PREFIX]))
        return LogPosition(WAL, (position,))

    def apply(self, step: DatabaseStep) -> None:
        """Apply a step on a publication, a slot or a signal table.

        Raises:
            UpstreamError: The log has changes from before the publication, which PostgreSQL cannot decode.
        """
        match step:
            case CreatePublication() | ChangePublication() | CompletePublication() | DropPublication():
                with self._connected() as connection:
                    publication.change(connection, step)
            case CreateSignalTable(name, published_in):
                with self._connected() as connection:
                    signals.create(connection, name, published_in)
            case DropSignalTable(name):
                with self._connected() as connection:
                    signals.drop(connection, name)
            case DropSlot(name):
                self._drop_slot(name)
            case CopySlot(name):
                try:
                    self._when_released(name, copying(name), None, replicates=True)
                except UpstreamRefused as refusal:
                    # The connector reads the slot as well as before, and a hint says what is missing.
                    log.warning("replication slot %s is not copied to standbys: %s", name, refusal.detail)
            case CheckLog(slot, publication_name, source):
                if not self._can_read(slot, publication_name):
                    raise publication_lost(publication_name, source)
            case other:
                assert_never(other)

    def record_seen(self, table: str, at_ms: int) -> int | None:
        """Keep a time with a signal table: see `signals.record_seen`."""
        with self._connected() as connection:
            return signals.record_seen(connection, table, at_ms)

    def send_signal(self, table: str, signal: str) -> None:
        """Send the connector a signal through its signal table, which keeps no row.

        Args:
            table: The signal table, `schema.name`.
            signal: JSON with `id`, `type` and `data`, such as `requested_snapshot` returns.
        """
        with self._connected() as connection:
            signals.send(connection, table, signal)

    def _drop_slot(self, name: str) -> None:
        """Drop a replication slot, if it exists. Waits for its reader, which releases it a moment after it was stopped."""
        self._when_released(
            name, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", [name]
        )

    def _can_read(self, slot: str, name: str) -> bool:
        """Return whether PostgreSQL can decode all that it logged for a slot.

        It decodes a change with the publication as of that change, and fails where the publication did not exist.
        """
        options = "NULL, NULL, 'proto_version', '1', 'publication_names', %s"
        try:
            self._when_released(
                slot, f"SELECT count(*) FROM pg_logical_slot_peek_binary_changes(%s, {options})", [slot, name]
            )
        except UpstreamRefused as error:
            if isinstance(error.__cause__, errors.UndefinedObject):
                return False
            raise
        return True

    def _when_released(
        self,
        slot: str,
        statement: LiteralString | sql.Composed,
        values: Sequence[str] | None,
        *,
        replicates: bool = False,
    ) -> None:
        """Run a statement on a slot, as soon as no reader uses the slot."""
        with self._connected(replicates=replicates) as connection:
            try:
                UNTIL_RELEASED(connection.execute, statement, values)
            except errors.ObjectInUse:
                raise UpstreamUnavailable(
                    f'replication slot "{slot}" is in use',
                    code="slot-in-use",
                    hint="Stop the process that reads it (pg_replication_slots.active_pid), then run the command again.",
                ) from None

    @contextmanager
    def _connected(self, *, replicates: bool = False) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        login, where = self._login, self._where
        try:
            with psycopg.connect(
                **login.arguments(self._timeout_s),
                dbname=login.database,
                autocommit=True,
                # A connection that takes SQL and replication commands.
                replication="database" if replicates else None,
            ) as connection:
                yield connection
        except psycopg.OperationalError as error:
            raise unreachable(login, error) from error
        except psycopg.Error as error:
            raise UpstreamRefused(
                f"{where} refused a change",
                detail=f"{str(error).strip().splitlines()[0]}.",
                hint=rights_hint(login.user),
            ) from error


def _row(cursor: psycopg.Cursor[tuple[Any, ...]]) -> tuple[Any, ...]:
    row = cursor.fetchone()
    if row is None:
        raise AssertionError("a query without FROM gives one row")
    return row
