"""The rows of a table of PostgreSQL at one point in time, read while the table changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from select import select
from threading import Event
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.pq import DiagnosticField, ExecStatus
from psycopg.pq.abc import PGconn

from lakehold.definitions import ConnectionType
from lakehold.upstream.found.columns import FoundColumn
from lakehold.upstream.postgres.columns import columns_of
from lakehold.upstream.postgres.connection_faults import unreachable
from lakehold.upstream.wanted.connector_config import Login
from lakehold.verify.csv_rows import text_batches
from lakehold.verify.database_texts import quoted_name, quoted_table
from lakehold.verify.failed_reads import postgres_read_failed
from lakehold.verify.selected_rows import FirstKey

_AS_OF_NOW = (
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY",
    "SET LOCAL timezone = 'UTC'",
    "SET LOCAL datestyle = 'ISO'",
    "SET LOCAL intervalstyle = 'postgres'",
    "SET LOCAL bytea_output = 'hex'",
    "SET LOCAL extra_float_digits = 3",
    "SET LOCAL statement_timeout = 0",
    "SET LOCAL idle_in_transaction_session_timeout = 0",
    # PostgreSQL 17 and later have it.
    "SELECT set_config(name, '0', true) FROM pg_settings WHERE name = 'transaction_timeout'",
    # Otherwise a policy would hide rows, and the lake would seem to have too many. So PostgreSQL refuses the query instead.
    "SET LOCAL row_security = off",
)
_CANCELED_WITHIN_S = 5.0
_LOOKS_EVERY_S = 1.0
_HAVE_VERSIONS = ("r", "p", "m")
"""Kinds of relations whose rows have `xmin`: not views and foreign tables."""
_TABLE = """
    SELECT c.relkind::text, greatest(c.reltuples, 0)::bigint,
           CASE WHEN pg_is_in_recovery() THEN floor(extract(epoch FROM pg_last_xact_replay_timestamp()) * 1000)::bigint END
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname || '.' || c.relname = %s
"""


class PostgresRows:
    """The rows of a table as one transaction sees them.

    Attributes:
        version: An SQL expression whose text changes whenever the row is written, also with the same values; empty: it is a
            view, which has none.
        standby_ms: The time up to which a standby had replayed the log of its primary, epoch milliseconds; None: it is none.

    Args:
        connection: A connection in a transaction that sees one point in time.
        table: The table, `schema.name`.
    """

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]], table: str) -> None:
        self._connection = connection
        self._table = table
        # The first query fixes what the transaction sees.
        found = connection.execute(_TABLE, [table]).fetchone()
        kind, estimate, self.standby_ms = found if found is not None else ("r", 0, None)
        self._is_partitioned = kind == "p"
        self._is_canceled = Event()
        self.version = "xmin::text" if kind in _HAVE_VERSIONS else ""
        self.estimate = int(estimate)

    def columns(self) -> tuple[FoundColumn, ...]:
        """Return the columns; none if there is no such table."""
        return columns_of(self._connection, [self._table]).get(self._table, ())

    def batches(self, texts: Sequence[str], first_key: FirstKey | None = None) -> Iterator[pa.RecordBatch]:
        """Yield batches with a text column for each SQL expression: of all rows, or of those that `first_key` selects."""
        # ONLY omits the rows of tables that inherit from this one: they have topics of their own. A partitioned table has no
        # rows but those of its partitions.
        only = "" if self._is_partitioned else "ONLY "
        table = quoted_table(self._table, ConnectionType.POSTGRES)
        query = f"COPY (SELECT {', '.join(texts)} FROM {only}{table}{self._where(first_key)}) TO STDOUT (FORMAT csv)"
        with self._connection.cursor() as cursor, cursor.copy(query.encode()):
            yield from text_batches(_copied(self._connection.pgconn, self._is_canceled), len(texts))

    def cancel(self) -> None:
        """Make a read of `batches` in another thread fail soon. No other rows can be read afterwards."""
        self._is_canceled.set()
        # A server that cannot be reached either cancels nothing; the reader does not wait for it.
        with suppress(psycopg.Error):
            self._connection.cancel_safe(timeout=_CANCELED_WITHIN_S)

    def _where(self, first_key: FirstKey | None) -> str:
        if first_key is None:
            return ""
        values = sql.Literal(list(first_key.values)).as_string(self._connection)
        return f" WHERE {quoted_name(first_key.column, ConnectionType.POSTGRES)} = ANY({values}::{first_key.type}[])"


def _copied(connection: PGconn, is_canceled: Event) -> Iterator[memoryview]:
    """Yield the lines of a COPY that has begun: the loop of psycopg itself takes longer for a line than PostgreSQL."""
    while True:
        size, line = connection.get_copy_data(1)
        if size > 0:
            yield line
        elif size == 0:
            while not select([connection.socket], (), (), _LOOKS_EVERY_S)[0]:
                if is_canceled.is_set():
                    raise psycopg.errors.QueryCanceled("the server does not answer")
            connection.consume_input()
        else:
            break
    while (result := connection.get_result()) is not None:
        if result.status != ExecStatus.COMMAND_OK:
            state = (result.error_field(DiagnosticField.SQLSTATE) or b"").decode()
            raise psycopg.errors.lookup(state)(result.get_error_message())


@contextmanager
def postgres_rows(login: Login, timeout_s: float, table: str) -> Iterator[PostgresRows]:
    """Open a transaction that sees the rows of a table, `schema.name`, as they are now, while others go on writing.

    Raises:
        UpstreamUnavailable: The server does not answer, or ends the read.
        UpstreamRefused: It refuses a query.
    """
    where = f"PostgreSQL at {login.host}:{login.port}"
    try:
        connection = psycopg.connect(**login.arguments(timeout_s), dbname=login.database, client_encoding="utf8")
    except psycopg.OperationalError as error:
        raise unreachable(login, error) from error
    try:
        with connection:
            for statement in _AS_OF_NOW:
                connection.execute(statement)
            yield PostgresRows(connection, table)
    except psycopg.Error as error:
        raise postgres_read_failed(where, login.user, table, error.sqlstate, str(error)) from error
