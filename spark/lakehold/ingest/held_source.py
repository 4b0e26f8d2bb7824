"""One source under a lease: its readers as the lake has them, and what there is upstream of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from lakehold.definitions import Table
from lakehold.errors import LakeholdError
from lakehold.ingest.arriving import Arriving
from lakehold.ingest.batch import BatchReport, Running, run_batch
from lakehold.ingest.dropped import clear
from lakehold.ingest.membership import split, with_tables
from lakehold.ingest.planning import Planned, Planner
from lakehold.ingest.read.reader import Available
from lakehold.model import readers as decide
from lakehold.model.definitions import Entry
from lakehold.model.readers import Readers, ReaderState
from lakehold.times import next_timestamp


@dataclass(frozen=True, kw_only=True)
class HeldSource:
    """A source that this process alone writes.

    Args:
        source: Its name.
        running: What its batches take.
        planner: Says what they read.
        transaction_topic: Says which transactions are whole; None: batches end anywhere.
        object_ids: Gives those of the source's tables as they are defined now.
    """

    source: str
    running: Running
    planner: Planner
    transaction_topic: str | None
    object_ids: Callable[[], Collection[str]]

    def readers(self) -> Readers:
        """Where they stand."""
        return self.running.store.readers(self.source)

    def change(self, apply: Callable[[Readers], Readers]) -> None:
        """Replace the readers by what `apply` makes of them."""
        readers = self.readers()
        if apply(readers) != readers:
            self.running.store.change_readers(self.source, self.running.lease.owner, apply)

    def look(self) -> Available:
        """What there is to read now."""
        topics = {entry.definition.topic for entry in self.running.tables.values()}
        return self.running.reading.reader.look(sorted(self.with_transactions(topics)), self.transaction_topic)

    def faults(self, available: Available, state: ReaderState) -> Mapping[str, LakeholdError]:
        """Return by topic what keeps a reader from going on: see `lakehold.ingest.read.checks.faults`."""
        return self.running.reading.reader.faults(available, state.position, state.topic_ids)

    def topic(self, table: str) -> str:
        """That of one of its tables."""
        return self.running.tables[table].definition.topic

    def topics(self, state: ReaderState) -> set[str]:
        """Those of the tables of a reader."""
        return {self.topic(table) for table in state.tables}

    def with_transactions(self, topics: Collection[str]) -> set[str]:
        """Some topics, and the one that says which transactions are whole."""
        return {*topics, self.transaction_topic} if self.transaction_topic is not None else {*topics}

    def with_tables(self, readers: Readers, tables: Mapping[str, Entry[Table]]) -> Readers:
        """The readers with every one of `tables` in one of them, and no others."""
        return with_tables(readers, self.source, tables, self.transaction_topic)

    def leave_dropped(self) -> Mapping[str, Entry[Table]]:
        """Read no more for tables that are dropped by now: their next batch would make them again. Returns the others."""
        defined = self.object_ids()
        tables = {name: entry for name, entry in self.running.tables.items() if entry.object_id in defined}
        read = [(name, p.object_id) for state in self.readers().values() for name, p in state.tables.items()]
        gone = [(name, object_id) for name, object_id in read if object_id not in defined]
        for name, object_id in gone:
            clear(self.running.writing, self.source, name, object_id)
        if gone:
            self.change(lambda readers: self.with_tables(readers, tables))
        return tables

    def stop(self, reader: str, stopped: Mapping[str, LakeholdError]) -> BatchReport:
        """Let tables leave a reader, each with the error that it stopped by."""
        self.change(lambda readers: split(readers, stopped))
        return self.stop_report(reader, stopped)

    def stop_report(self, reader: str, stopped: Mapping[str, LakeholdError]) -> BatchReport:
        """Tells of tables that stopped without a batch."""
        return BatchReport(self.source, reader, self.last_ms(), 0, stopped=stopped)

    def run(self, state: ReaderState, planned: Planned, arriving: Arriving) -> BatchReport:
        """Run a batch, of which `arriving` has what was read to plan it."""
        timestamp_ms = next_timestamp(decide.last_timestamp(self.readers()))
        return run_batch(self.running, state, planned, arriving, timestamp_ms)

    def last_ms(self) -> int:
        """The source's last timestamp."""
        return decide.last_timestamp(self.readers()) or 0
