"""Finds the table in the database that feeds a table of the lake, and refuses tables that cannot be compared."""

from __future__ import annotations

from dataclasses import dataclass

from lakehold.definitions import ConnectionType, Table, object_text
from lakehold.errors import DefinitionError, TableStopped
from lakehold.iceberg.data_tables import DataTables
from lakehold.model.lake_definitions import DefinitionReader
from lakehold.model.readers import MAIN_READER, TableProgress
from lakehold.state.batch_protocol import BatchStore
from lakehold.timeline.timelines import Timelines
from lakehold.upstream.capturing import Target
from lakehold.upstream.targets import Targets


@dataclass(frozen=True)
class Subject:
    """A captured table of the lake, with the table in the database that feeds it.

    Attributes:
        table: The definition.
        target: The source's connections and configuration.
        upstream: The table in the database.
    """

    table: Table
    target: Target
    upstream: str

    @property
    def full_name(self) -> str:
        """Return the full name of the lake's table."""
        return self.table.full_name

    @property
    def database(self) -> ConnectionType:
        """Return the kind of the database."""
        return self.target.wanted.capture.database


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

    def of(self, full_name: str) -> Subject:
        """Return a captured table.

        Raises:
            DefinitionError: The table does not exist, is not captured, or does not have the rows of the database.
        """
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
        return Subject(table, target, table.upstream)

    def progress(self, subject: Subject) -> TableProgress:
        """Return the progress of a table that is in sync.

        Raises:
            NotReadable: Its first snapshot is not complete.
            TableStopped: It is stopped, or catches up.
        """
        full_name, source = subject.full_name, subject.table.source
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
        hint="Tables of a source that was created FROM POSTGRES, MYSQL or MARIADB can be compared.",
    )
