"""Finds the table in the database that feeds a table of the lake, and refuses tables that cannot be compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakehold.definitions import ConnectionType, Table
from lakehold.errors import DefinitionError, TableStopped
from lakehold.iceberg.data_tables import DataTables
from lakehold.model.lake_definitions import DefinitionReader
from lakehold.model.readers import MAIN_READER, TableProgress
from lakehold.object_names import object_text
from lakehold.state.batch_protocol import BatchStore
from lakehold.timeline.timelines import Timelines
from lakehold.upstream.wanted.connections import login_of
from lakehold.upstream.wanted.connector_config import Login
from lakehold.upstream.wanted.targets import Targets
from lakehold.upstream.wanted.wanted import Wanted

DATABASES = (ConnectionType.POSTGRES, ConnectionType.MYSQL, ConnectionType.MARIADB)
"""The kinds of databases that can be compared."""


@dataclass(frozen=True)
class Against:
    """The database's table that a caller names for the comparison, as for a table that lakehold does not capture.

    Attributes:
        connection: Name of the connection to the database.
        upstream: The table in the database, `schema.table`.
    """

    connection: str
    upstream: str


def against(connection: str | None, upstream: str | None) -> Against | None:
    """Return the table that a caller names; None: the one that feeds the lake's table.

    Raises:
        DefinitionError: Only one of the two is given.
    """
    if connection and upstream:
        return Against(connection, upstream)
    if connection or upstream:
        raise DefinitionError(
            "expected a connection and a table of its database, or neither",
            code="usage",
            detail=f"Given is {connection or upstream!r} alone.",
            hint="Name both, or neither for a captured table.",
        )
    return None


@dataclass(frozen=True)
class Subject:
    """A table of the lake, with the table in the database with which it is compared.

    Attributes:
        full_name: Full name of the lake's table.
        upstream: The table in the database.
        database: The kind of the database.
        login: The database.
        table: The definition of a captured table; None: something else than a capture fills the table.
        wanted: What the capture of the table wants upstream.
    """

    full_name: str
    upstream: str
    database: ConnectionType
    login: Login
    table: Table | None = None
    wanted: Wanted | None = None

    @property
    def config(self) -> Mapping[str, str]:
        """Return the configuration of the connector, which decides how columns are named; empty without one."""
        return self.wanted.config if self.wanted is not None else {}

    @property
    def included(self) -> list[str]:
        """Return the names of the columns that INCLUDE fills with parts of messages: the database has no such columns."""
        return [included.name for included in self.table.include] if self.table is not None else []


@dataclass(frozen=True, kw_only=True)
class Subjects:
    """The tables of a lake that can be compared.

    Args:
        definitions: Reads the definitions.
        batches: Reads how far the readers of a source are.
        tables: The tables of the catalog.
        timelines: The timelines of tables.
    """

    definitions: DefinitionReader
    batches: BatchStore
    tables: DataTables
    timelines: Timelines

    def of(self, full_name: str, other: Against | None) -> Subject:
        """Return a captured table, or any table with the database's table that it is compared with.

        Raises:
            DefinitionError: The table does not exist, is not captured, or does not have the rows of the database; or the
                connection does not exist or leads to no database.
            NotReadable: Its first snapshot is not complete.
            TableStopped: It is stopped, or catches up.
        """
        if other is not None:
            return self._copy(full_name, other)
        defined = self.definitions.definitions()
        if full_name not in defined.tables and self.tables.table_state(full_name) is not None:
            raise _not_captured(full_name, "No source feeds it.")
        table = defined.table(full_name).definition
        target = Targets(self.definitions.definitions, self.batches.readers).now(table.source)
        if target is None or table.upstream is None:
            raise _not_captured(
                full_name, f'Its source "{table.source}" reads messages; lakehold does not know what wrote them.'
            )
        if not table.envelope.wraps_rows:
            raise DefinitionError(
                f'"{full_name}" does not have the rows of its database',
                code="not-comparable",
                detail=f"ENVELOPE {table.envelope.sql} makes a row of each message.",
            )
        database, login = target.wanted.capture.database, target.connections.login
        subject = Subject(full_name, table.upstream, database, login, table, target.wanted)
        self.progress(table)  # raises unless the table is in sync
        return subject

    def _copy(self, full_name: str, other: Against) -> Subject:
        connection = self.definitions.definitions().connection(other.connection)
        if connection.type not in DATABASES:
            raise DefinitionError(
                f'connection "{connection.name}" does not lead to a database',
                code="connection-type",
                detail=f"It leads to {connection.type.value}; expected is one of {', '.join(DATABASES)}.",
                hint="SHOW CONNECTIONS lists them.",
            )
        self.timelines.of([full_name])  # raises unless it is readable
        return Subject(full_name, other.upstream, connection.type, login_of(connection))

    def progress(self, table: Table) -> TableProgress:
        """Return what ingests have recorded of a captured table, which must be in sync with the others of its source.

        Raises:
            NotReadable: Its first snapshot is not complete.
            TableStopped: It is stopped, or catches up.
        """
        full_name, source = table.full_name, table.source
        readers = self.batches.readers(source)
        main = readers.get(MAIN_READER)
        if main is not None and full_name in main.tables and main.tables[full_name].since_ms is not None:
            return main.tables[full_name]
        self.timelines.of([full_name])  # raises unless it is readable
        state = next(state for state in readers.values() if full_name in state.tables)
        error = state.error
        raise TableStopped(
            f'"{full_name}" is not in sync with its source',
            table=full_name,
            detail=f"It stopped: {error.message}." if error is not None else "It catches up with the other tables.",
            hint=(error.hint if error is not None else "") or f"lakehold ingest {object_text(source)}",
        )


def _not_captured(full_name: str, why: str) -> DefinitionError:
    return DefinitionError(
        f'"{full_name}" is not captured from a database',
        code="not-captured",
        detail=why,
        hint="Tables of a source that was created FROM POSTGRES, MYSQL or MARIADB can be compared. For another table name the "
        f"database: lakehold verify {full_name} --connection CONNECTION --upstream SCHEMA.TABLE",
    )
