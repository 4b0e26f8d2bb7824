"""The rows of a table of MySQL or MariaDB at one point in time, read while the table changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
import pymysql
from pymysql.cursors import SSCursor

from lakehold.definitions import ConnectionType
from lakehold.errors import LakeholdError, UpstreamRefused
from lakehold.upstream.found.columns import FoundColumn
from lakehold.upstream.mysql.connection import connect, number_and_text
from lakehold.upstream.mysql.database import MysqlUpstream
from lakehold.upstream.wanted.connector_config import Login
from lakehold.verify.csv_rows import text_batches
from lakehold.verify.database_texts import quoted_name, quoted_table
from lakehold.verify.failed_reads import mysql_read_failed
from lakehold.verify.selected_rows import FirstKey

_AS_OF_NOW = (
    "SET SESSION time_zone = '+00:00', sql_mode = '', net_write_timeout = 3600",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
)
_ESTIMATE = "SELECT table_rows FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"


class MysqlRows:
    """The rows of a table as one transaction sees them; see `TableRows`.

    `version` and `standby_ms` are empty: MySQL has no mark of a row's last write, and it is not known whether the server is
    a replica.

    Args:
        connection: A connection in a transaction that sees one point in time.
        login: The server, for connections to fetch the columns, and to cancel a read.
        timeout_s: How long the server may take to accept a connection.
        table: The table, `database.name`.
    """

    version = ""
    standby_ms: int | None = None

    def __init__(self, connection: pymysql.Connection[Any], login: Login, timeout_s: float, table: str) -> None:
        self._connection = connection
        self._login = login
        self._timeout_s = timeout_s
        self._table = table
        with connection.cursor() as cursor:
            cursor.execute(_ESTIMATE, table.split(".", 1))
            found = cursor.fetchone()
            cursor.execute("SELECT connection_id()")
            self._id = int((cursor.fetchone() or (0,))[0])
        self.estimate = int(found[0] or 0) if found is not None else 0

    def columns(self) -> tuple[FoundColumn, ...]:
        """Return the columns; none if there is no such table."""
        return MysqlUpstream(self._login, self._timeout_s).columns([self._table]).get(self._table, ())

    def batches(self, texts: Sequence[str], first_key: FirstKey | None = None) -> Iterator[pa.RecordBatch]:
        """Yield batches with a text column for each SQL expression: of all rows, or of those that `first_key` selects.

        Raises:
            UpstreamRefused: A row is longer than the server's max_allowed_packet.
        """
        # The server joins the columns into one, because the client's time grows with their number.
        line = ", ',', ".join(
            f"""IF({text} IS NULL, '', CONCAT('"', REPLACE({text}, '"', '""'), '"'))""" for text in texts
        )
        query = f"SELECT CONCAT({line}, '\\n') FROM {quoted_table(self._table, ConnectionType.MYSQL)}"
        with self._connection.cursor(SSCursor) as cursor:
            if first_key is None:
                cursor.execute(query)
            else:
                is_whole = first_key.type == "bigint"
                values = [int(text) if is_whole else text for text in first_key.values]
                # The driver formats a query that has values: names and texts keep their percent signs.
                of_keys = f"{query} WHERE {quoted_name(first_key.column, ConnectionType.MYSQL)} IN ".replace("%", "%%")
                cursor.execute(f"{of_keys}%s", [values])
            yield from text_batches((self._line(row) for row in cursor), len(texts))

    def cancel(self) -> None:
        """Make a read of `batches` in another thread fail soon. No other rows can be read afterwards."""
        with suppress(pymysql.Error, LakeholdError), connect(self._login, self._timeout_s) as another:
            another.query(f"KILL QUERY {self._id}")

    def _line(self, row: tuple[Any, ...]) -> bytes:
        if row[0] is None:
            raise UpstreamRefused(
                f'the database did not show a row of table "{self._table}"',
                detail="A result of a function is limited to max_allowed_packet bytes, and the row is longer.",
                hint="SET GLOBAL max_allowed_packet to a greater value.",
            )
        return str(row[0]).encode()


@contextmanager
def mysql_rows(login: Login, timeout_s: float, table: str) -> Iterator[MysqlRows]:
    """Open a transaction that sees the rows of a table, `database.name`, as they are now, while others go on writing.

    Raises:
        UpstreamUnavailable: The server does not answer.
        UpstreamRefused: It refuses a query.
    """
    where = f"the database server at {login.host}:{login.port}"
    connection = connect(login, timeout_s, charset="utf8mb4")
    try:
        with connection:
            with connection.cursor() as cursor:
                for statement in _AS_OF_NOW:
                    cursor.execute(statement)
            yield MysqlRows(connection, login, timeout_s, table)
    except pymysql.Error as error:
        raise mysql_read_failed(where, login.user, table, *number_and_text(error)) from error
