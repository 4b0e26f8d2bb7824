"""The status of the tables that sources feed, from the state of their readers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from lakehold.definitions import Table
from lakehold.model.backlog import Backlog, backlog
from lakehold.model.lake_definitions import Definitions
from lakehold.model.readers import MAIN_READER, ReaderState, TableProgress, Waiting


class State(StrEnum):
    """The state of a table.

    A table that a source feeds is `live` (in sync with its source), `catching-up` with it, `stopped` by an error, `new` before
    its first batch, or `loading` before its first snapshot is complete. A `view` is a materialized view. A `foreign`
    table is written by another program.
    """

    STOPPED = "stopped"
    CATCHING_UP = "catching-up"
    NEW = "new"
    LOADING = "loading"
    LIVE = "live"
    VIEW = "view"
    FOREIGN = "foreign"


@dataclass(frozen=True)
class TableStatus:
    """The status of one table.

    Attributes:
        full_name: `namespace.table`.
        source: The source that feeds it; empty for a foreign table.
        state: Its state.
        reader: State of the reader that reads the table's topic; None before it was first ingested.
        progress: The table's progress in that state; None before it was first ingested.
        backlog: How much is left to read while it catches up; None for others.
    """

    full_name: str
    source: str
    state: State
    reader: ReaderState | None = None
    progress: TableProgress | None = None
    backlog: Backlog | None = None

    @property
    def waiting(self) -> Waiting | None:
        """Return the upstream transaction that the table's next changes wait for."""
        waiting = self.reader.waiting if self.reader is not None else None
        return waiting if waiting is not None and self.full_name in waiting.tables else None


def table_statuses(defined: Definitions, readers: Iterable[ReaderState]) -> tuple[TableStatus, ...]:
    """Return the status of each table that a source feeds, in order of name."""
    found = tuple(readers)
    of_tables = {(name, p.object_id): reader for reader in found for name, p in reader.tables.items()}
    mains = {reader.source: reader for reader in found if reader.reader == MAIN_READER}
    return tuple(
        _status(entry.definition, of_tables.get((name, entry.object_id)), mains)
        for name, entry in sorted(defined.tables.items())
    )


def _status(table: Table, reader: ReaderState | None, mains: Mapping[str, ReaderState]) -> TableStatus:
    name, source = table.full_name, table.source
    if reader is None:
        return TableStatus(name, source, State.NEW)
    if reader.error is not None:
        state = State.STOPPED
    elif reader.reader != MAIN_READER:
        state = State.CATCHING_UP
    elif reader.upper_ms is None:
        state = State.NEW
    else:
        state = State.LOADING if reader.tables[name].since_ms is None else State.LIVE
    return TableStatus(name, source, state, reader, reader.tables[name], backlog(reader, mains[source], {table.topic}))
