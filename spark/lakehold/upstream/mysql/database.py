"""MySQL and MariaDB as upstreams: inspect the server, write to the signal table, and write sync points to the log.

`Capturing` calls `inspect` before each plan, and `apply` with the steps of a plan. A server has no publication and no slot, and
the connector's position in its log is kept by Kafka Connect.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pymysql

from lakehold.definitions import ConnectionType
from lakehold.errors import UpstreamRefused
from lakehold.ingest.envelope.upstream_columns import InitialValues
from lakehold.model.log_positions import LogPosition, position_of_end
from lakehold.upstream.database import DatabaseStep, Names
from lakehold.upstream.differences.log_settings import LOSE_CHANGES, ROW_IMAGE
from lakehold.upstream.found.columns import FoundColumn, FoundType
from lakehold.upstream.found.found import (
    ABSENT,
    HASHED,
    PLAIN,
    VERSIONED,
    WITHOUT_OVERLAPS,
    FoundRelation,
    FoundSignals,
    FoundSignalTable,
)
from lakehold.upstream.found.values import LossyColumn, LostValues
from lakehold.upstream.mysql.connection import connect, number_and_text, unreachable
from lakehold.upstream.mysql.grants import WRITE, rights
from lakehold.upstream.mysql.gtids import last_gtid
from lakehold.upstream.plan.capture_steps import CreateSignalTable, DropSignalTable
from lakehold.upstream.types.identifier_quoting import table_text
from lakehold.upstream.wanted.account import Account, mysql_lacks, signal_rights_hint
from lakehold.upstream.wanted.connector_config import SEEN, SIGNAL_SCHEMA, Login, seen_ms
from lakehold.upstream.wanted.logins import LOST_CONNECTION

_COLUMNS = "(id VARCHAR(255) PRIMARY KEY, type VARCHAR(64) NOT NULL, data TEXT)"
"""The columns of a signal table. Debezium writes and reads them by position."""
_HAS_DATABASE = "SELECT count(*) FROM information_schema.schemata WHERE schema_name = %s"
_TABLES = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s"
_RELATION = """
    SELECT %s, table_type, engine = 'InnoDB' AND EXISTS (
        SELECT 1 FROM information_schema.statistics s WHERE s.table_schema = %s AND s.table_name = %s AND index_type = 'HASH')
    FROM information_schema.tables WHERE table_schema = %s AND table_name = %s
"""
"""The last column is a hash index of InnoDB: MariaDB makes one over whole texts, as a hidden column that it also logs."""
_COLUMNS_OF = """
    SELECT %s, ordinal_position, column_name, data_type, column_type, is_nullable = 'YES', column_key = 'PRI',
           extra LIKE '%%GENERATED%%' AND extra NOT LIKE '%%DEFAULT_GENERATED%%', coalesce(column_default, 'NULL') <> 'NULL',
           extra LIKE '%%INVISIBLE%%'
    FROM information_schema.columns WHERE table_schema = %s AND table_name = %s
"""
"""The query for one table. MariaDB opens only the table whose name a query of this schema compares by an equals sign."""
_SYNC_POINT = ("log", json.dumps({"message": "A sync point, after which a table that joined fits the others"}))

_SEEN_ROW = ("seen", "log")
"""Id and type of the row that keeps the time of lakehold's last inspection."""
_OFF = frozenset({"0", "OFF"})
_QUOTED = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|''|\\.)*'", re.DOTALL)
_FOREIGN_KEY = re.compile(r"\s*CONSTRAINT `((?:[^`]|``)+)` FOREIGN KEY")
_ACTION = re.compile(r"ON (?:DELETE|UPDATE) (?:CASCADE|SET NULL|SET DEFAULT)")
_MISSING = frozenset({1146, 1049})
"""Errors about a table or a database that the server does not have, for users who may know."""
_DENIED = frozenset({1142, 1143, 1044})
"""Errors about a table, a column or a database that the user may not read."""


class MysqlUpstream:
    """A server of MySQL or MariaDB that a source captures.

    Every method raises `UpstreamUnavailable` when the server does not answer, and `UpstreamRefused` when it refuses.

    Args:
        login: The server, and a user that may have the signal table.
        timeout_s: How long the server may stay silent.
    """

    def __init__(self, login: Login, timeout_s: float) -> None:
        self._login = login
        self._timeout_s = timeout_s

    def inspect(self, names: Names, _source_id: str, _tables: Sequence[str]) -> tuple[None, FoundSignals]:
        """Fetch the current state of a connector's signal table; the server has no other object of a source."""
        return None, self.signals(names.signal_table)

    def signals(self, signal_table: str) -> FoundSignals:
        """Fetch the current state of a connector's signal table."""
        _, table = signal_table.split(".")
        with self._connected() as connection:
            ((has_database,),) = _rows(connection, _HAS_DATABASE, SIGNAL_SCHEMA)
            tables = _rows(connection, _TABLES, SIGNAL_SCHEMA)
            grants = _grants(connection)
            ((read_only,),) = _rows(connection, "SELECT @@GLOBAL.read_only")
            of_database, of_table = rights(grants, SIGNAL_SCHEMA), rights(grants, SIGNAL_SCHEMA, table)
            seen_ms = _seen_ms(connection, signal_table) if (table,) in tables and "SELECT" in of_table else None
        # Some users may write to a read-only replica, which would then differ from its primary.
        may_write = of_table >= WRITE and str(read_only) in _OFF
        may_create = "CREATE" in (of_table if has_database else of_database)
        found = FoundSignalTable(may_write, "DROP" in of_table, seen_ms) if (table,) in tables else None
        return FoundSignals(found, may_make=may_create and may_write)

    def account(self, _tables: Collection[str]) -> Account:
        """Report the server's clock, and what the user lacks: rights on the whole server, whichever tables are captured."""
        with self._connected() as connection:
            ((clock_s,),) = _rows(connection, "SELECT UNIX_TIMESTAMP(NOW(3))")
            return Account(round(clock_s * 1000), mysql_lacks(self._login.user, _grants(connection)))

    def relations(self, names: Sequence[str]) -> dict[str, FoundRelation]:
        """Fetch the kinds of objects that the server has under some names, `database.name`, of what the user may see."""
        if not names:
            return {}
        with self._connected() as connection:
            kinds = _kinds(connection, names)
            denied = {name for name, kind in kinds.items() if kind == PLAIN and not _may_read(connection, name)}
            plain = [name for name, kind in kinds.items() if kind == PLAIN and name not in denied]
            kinds |= {name: WITHOUT_OVERLAPS for name in plain if _has_period_in_key(connection, name)}
        return {name: FoundRelation(kind, name not in denied) for name, kind in kinds.items()}

    def kinds(self, names: Sequence[str]) -> dict[str, FoundRelation]:
        """Fetch the kinds of captured tables as far as one query shows them; a key WITHOUT OVERLAPS it does not show.

        A table that the user may not see is skipped: unlike one that is `ABSENT`, it may exist.
        """
        if not names:
            return {}
        with self._connected() as connection:
            kinds = _kinds(connection, names)
            unseen = [name for name in names if name not in kinds]
            kinds |= {name: ABSENT for name in unseen if _error_of_reading(connection, name) in _MISSING}
        return {name: FoundRelation(kind) for name, kind in kinds.items()}

    def columns(self, names: Sequence[str]) -> dict[str, tuple[FoundColumn, ...]]:
        """Fetch the columns of tables, by `database.name`; tables that do not exist or cannot be read are skipped."""
        if not names:
            return {}
        query = " UNION ALL ".join([_COLUMNS_OF] * len(names)) + " ORDER BY 1, 2"
        with self._connected() as connection:
            found = _rows(connection, query, *(part for name in names for part in (name, *name.split(".", 1))))
        columns: dict[str, list[FoundColumn]] = {}
        for table, _, name, kind, text, is_nullable, is_key, is_generated, has_default, is_invisible in found:
            column_type = FoundType(kind.lower(), text)
            column = FoundColumn(
                name,
                text,
                column_type,
                is_nullable=bool(is_nullable),
                is_key=bool(is_key),
                is_generated=bool(is_generated),
                has_default=bool(has_default),
                is_invisible=bool(is_invisible),
            )
            columns.setdefault(table, []).append(column)
        return {table: tuple(of_table) for table, of_table in columns.items()}

    def acting_keys(self, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Fetch the foreign keys of tables by which their rows follow those of other tables, in words, by `database.table`."""
        if not names:
            return {}
        with self._connected() as connection:
            return {name: _acting_keys(connection, name) for name in names}

    def log_settings(self) -> dict[str, str]:
        """Fetch what the server logs of changes, unless a session says otherwise: settings by name, if the server has them."""
        names = (ROW_IMAGE, *LOSE_CHANGES)
        with self._connected() as connection:
            found = _rows(connection, "SHOW GLOBAL VARIABLES WHERE variable_name IN %s", names)
        return {name.lower(): str(value) for name, value in found}

    def initial_values(self, _name: str, _columns: Sequence[FoundColumn]) -> InitialValues:
        """Return nothing: a table whose older rows got values by ALTER TABLE is snapshotted again (`SchemaHistory`)."""
        return InitialValues()

    def lost_values(self, _lossy: Mapping[str, Sequence[LossyColumn]]) -> dict[str, LostValues]:
        """Return nothing: no query finds values of MySQL and MariaDB that Debezium does not send unchanged."""
        return {}

    def members(self, _publication: str) -> dict[str, str]:
        """Return nothing: there are no publications, a connector reads the changes of the whole server."""
        return {}

    def apply(self, step: DatabaseStep) -> None:
        """Create or drop a signal table; no plan has another step for MySQL and MariaDB."""
        match step:
            case CreateSignalTable(name):
                self._create_signal_table(name)
            case DropSignalTable(name):
                self._drop_signal_table(name)
            case _:
                raise AssertionError("a step of PostgreSQL")

    def _create_signal_table(self, name: str) -> None:
        """Create a signal table and its database, unless they exist."""
        with self._connected() as connection:
            ((has_database,),) = _rows(connection, _HAS_DATABASE, SIGNAL_SCHEMA)
            if not has_database:
                _rows(connection, f"CREATE DATABASE IF NOT EXISTS {SIGNAL_SCHEMA}")
            if (name.split(".")[1],) not in _rows(connection, _TABLES, SIGNAL_SCHEMA):
                _rows(connection, f"CREATE TABLE IF NOT EXISTS {name} {_COLUMNS}")

    def _drop_signal_table(self, name: str) -> None:
        """Drop a signal table, if it exists, and its database unless that has other tables or the user may not drop it."""
        with self._connected() as connection:
            _rows(connection, f"DROP TABLE IF EXISTS {name}")
            if "DROP" in rights(_grants(connection), SIGNAL_SCHEMA) and not _rows(connection, _TABLES, SIGNAL_SCHEMA):
                _rows(connection, f"DROP DATABASE IF EXISTS {SIGNAL_SCHEMA}")

    def record_seen(self, table: str, at_ms: int) -> int | None:
        """Keep a time, epoch milliseconds, in a row of a signal table, unless that has a later one.

        The connector logs the row once, as a message.

        Returns:
            The time that the table keeps then; None: it keeps none, or does not exist.
        """
        found = self.signals(table).table
        if found is None or not found.may_write:
            return found.seen_ms if found is not None else None
        with self._connected() as connection:
            # A process that was paused may write its earlier time after its successor. A transaction would not order the two: to
            # lock the row needs rights that the user may lack. Closing the connection releases this lock.
            _rows(connection, "SELECT get_lock(%s, %s)", table, self._timeout_s)
            kept_ms = _seen_ms(connection, table)
            if kept_ms is not None and kept_ms >= at_ms:
                return kept_ms
            message = json.dumps({"message": f"{SEEN}{at_ms}"})
            _rows(connection, f"REPLACE INTO {table} VALUES (%s, %s, %s)", *_SEEN_ROW, message)
        return at_ms

    def send_signal(self, table: str, signal: str) -> None:
        """Send the connector a signal, as `requested_snapshot` gives it, through its signal table, which keeps no row."""
        content = json.loads(signal)
        with self._connected() as connection:
            _write(connection, table, content["id"], content["type"], json.dumps(content["data"]))

    def write_sync_point(self, table: str) -> LogPosition:
        """Write a transaction to a signal table, which keeps no row of it, and return its position in the log."""
        with self._connected() as connection:
            if _is_mariadb(connection):
                _write(connection, table, uuid.uuid4().hex, *_SYNC_POINT)
                ((own,),) = _rows(connection, "SELECT @@last_gtid")
            else:
                ((before, server),) = _rows(connection, "SELECT @@GLOBAL.gtid_executed, @@server_uuid")
                _write(connection, table, uuid.uuid4().hex, *_SYNC_POINT)
                ((since,),) = _rows(connection, "SELECT GTID_SUBTRACT(@@GLOBAL.gtid_executed, %s)", before)
                own = last_gtid(since, server)
        place = position_of_end(own)
        if place is None:
            raise UpstreamRefused(
                f"{self._where} does not use global transaction ids",
                detail="lakehold needs them to see when the other tables have reached the sync point of a table that joined.",
                hint="Set gtid_mode to ON; the next ingest continues.",
            )
        return place

    @property
    def _where(self) -> str:
        return f"the database server at {self._login.host}:{self._login.port}"

    @contextmanager
    def _connected(self) -> Iterator[pymysql.Connection[Any]]:
        login, of_reads = self._login, 2 * self._timeout_s
        with connect(
            login, self._timeout_s, read_timeout=of_reads, write_timeout=self._timeout_s, autocommit=True
        ) as connection:
            try:
                yield connection
            except pymysql.Error as error:
                number, text = number_and_text(error)
                if number in LOST_CONNECTION:
                    raise unreachable(login, error) from error
                raise UpstreamRefused(
                    f"{self._where} refused a change", detail=f"{text}.", hint=signal_rights_hint(login.user)
                ) from error


def _grants(connection: pymysql.Connection[Any]) -> list[str]:
    """Fetch the grants: MariaDB lists those of the session's role, MySQL only those of roles that are named."""
    show = "SHOW GRANTS"
    if not _is_mariadb(connection):
        ((roles,),) = _rows(connection, "SELECT CURRENT_ROLE()")
        show += "" if roles in (None, "NONE") else f" FOR CURRENT_USER() USING {roles}"
    return [grant for (grant,) in _rows(connection, show)]


def _is_mariadb(connection: pymysql.Connection[Any]) -> bool:
    ((version,),) = _rows(connection, "SELECT @@version")
    return "MariaDB" in version


def _kinds(connection: pymysql.Connection[Any], names: Sequence[str]) -> dict[str, str]:
    query = " UNION ALL ".join([_RELATION] * len(names))
    found = _rows(connection, query, *(part for name in names for part in (name, *name.split(".", 1) * 2)))
    return {name: _kind(table_type, has_hash_index) for name, table_type, has_hash_index in found}


def _kind(table_type: str, has_hash_index: int) -> str:
    if "VIEW" in table_type:
        return "view"
    if table_type == "SYSTEM VERSIONED":
        return VERSIONED
    return HASHED if has_hash_index else PLAIN


def _has_period_in_key(connection: pymysql.Connection[Any], table: str) -> bool:
    """Return whether a key of a table is WITHOUT OVERLAPS, which only its definition says."""
    return "WITHOUT OVERLAPS" in _QUOTED.sub("", _definition(connection, table))


def _acting_keys(connection: pymysql.Connection[Any], table: str) -> tuple[str, ...]:
    """Read the foreign keys in a table's definition; a user with SELECT alone does not find them in the information schema."""
    try:
        lines = _definition(connection, table).splitlines()
    except pymysql.Error as error:
        if number_and_text(error)[0] in _DENIED | _MISSING:
            return ()
        raise
    found = [(key[1], _ACTION.findall(_QUOTED.sub("", line))) for line in lines if (key := _FOREIGN_KEY.match(line))]
    return tuple(f"{name} ({' '.join(actions)})" for name, actions in found if actions)


def _definition(connection: pymysql.Connection[Any], table: str) -> str:
    ((_, definition),) = _rows(connection, f"SHOW CREATE TABLE {table_text(table, ConnectionType.MYSQL)}")
    return str(definition)


def _may_read(connection: pymysql.Connection[Any], table: str) -> bool:
    """Return whether the user may read all columns. The server resolves roles and patterns that grant it."""
    return _error_of_reading(connection, table) not in _DENIED


def _error_of_reading(connection: pymysql.Connection[Any], table: str) -> int | None:
    """Return the number of the error about a table that is missing, or that the user may not read; None: there is none."""
    try:
        _rows(connection, f"SELECT * FROM {table_text(table, ConnectionType.MYSQL)} LIMIT 0")
    except pymysql.Error as error:
        number, _ = number_and_text(error)
        if number in _MISSING | _DENIED:
            return number
        raise
    return None


def _seen_ms(connection: pymysql.Connection[Any], table: str) -> int | None:
    kept = _rows(connection, f"SELECT data FROM {table} WHERE id = %s", _SEEN_ROW[0])
    try:
        return seen_ms(json.loads(kept[0][0])["message"]) if kept else None
    except (ValueError, KeyError, TypeError, AttributeError):  # somebody overwrote it
        return None


def _write(connection: pymysql.Connection[Any], table: str, row_id: str, kind: str, data: str) -> None:
    connection.begin()
    _rows(connection, f"INSERT INTO {table} VALUES (%s, %s, %s)", row_id, kind, data)
    _rows(connection, f"DELETE FROM {table} WHERE id = %s", row_id)
    connection.commit()


def _rows(connection: pymysql.Connection[Any], statement: str, *values: object) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)
        return list(cursor.fetchall())
