"""Where the tables stand that sources feed: how the lake's readers have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from lakehold.definitions import Table
from lakehold.model.backlog import Backlog, backlog
from lakehold.model.definitions import Definitions
from lakehold.model.readers import MAIN_READER, ReaderState, TableProgress, Waiting


class State(StrEnum):
    """How a table is."""

    STOPPED = "stopped"
    CATCHING_UP = "catching-up"
    NEW = "new"
    LOADING = "loading"
    LIVE = "live"
    FOREIGN = "foreign"


@dataclass(frozen=True)
class Standing:
    """A table that the source `source` feeds; `reader` and `progress` are None before it was first ingested.

    `state` is `live` with its source, `catching-up` behind it, `stopped` by an error, `new` before its first batch, or `loading`
    before its first snapshot is complete. `backlog` is how far it has come, if it is behind.
    """

    full_name: str
    source: str
    state: State
    reader: ReaderState | None = None
    progress: TableProgress | None = None
    backlog: Backlog | None = None

    @property
    def waiting(self) -> Waiting | None:
        """The upstream transaction that its next changes wait for."""
        waiting = self.reader.waiting if self.reader is not None else None
        return waiting if waiting is not None and self.full_name in waiting.tables else None


def standings(defined: Definitions, readers: Iterable[ReaderState]) -> tuple[Standing, ...]:
    """The fed tables by name."""
    found = tuple(readers)
    of_tables = {(name, p.object_id): reader for reader in found for name, p in reader.tables.items()}
    mains = {reader.source: reader for reader in found if reader.reader == MAIN_READER}
    return tuple(
        _standing(entry.definition, of_tables.get((name, entry.object_id)), mains)
        for name, entry in sorted(defined.tables.items())
    )


def _standing(table: Table, reader: ReaderState | None, mains: Mapping[str, ReaderState]) -> Standing:
    name, source = table.full_name, table.source
    if reader is None:
        return Standing(name, source, State.NEW)
    if reader.error is not None:
        state = State.STOPPED
    elif reader.reader != MAIN_READER:
        state = State.CATCHING_UP
    elif reader.upper_ms is None:
        state = State.NEW
    else:
        state = State.LOADING if reader.tables[name].since_ms is None else State.LIVE
    return Standing(name, source, state, reader, reader.tables[name], backlog(reader, mains[source], {table.topic}))
