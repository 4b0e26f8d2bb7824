"""A source under a lease: its readers, and the collaborators of its batches.

`source_opening.py` builds it (as `Ingesting`), and all steps of an ingest take it: batches, recovery, and tables that catch up. A
*reader* is a group of the source's tables that share a position: `main` for those in sync, others for tables that catch up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from lakehold.definitions import Table
from lakehold.errors import DefinitionError, LakeholdError, UpstreamError
from lakehold.ingest.arriving_records import ArrivingRecords
from lakehold.ingest.envelope.upstream_columns import UpstreamColumnsOf, no_columns
from lakehold.ingest.membership import split, with_tables
from lakehold.ingest.planning import Planner
from lakehold.ingest.read.reader import FetchedOffsets
from lakehold.ingest.shared_reads import Reading
from lakehold.ingest.side_by_side import Lanes
from lakehold.ingest.write.apply import Applier
from lakehold.ingest.write.batch_effects import progress_after
from lakehold.ingest.write.dropped_table import clear
from lakehold.ingest.write.empty_tables import make_empty
from lakehold.ingest.write.repeats import Snapshots
from lakehold.ingest.write.writing import Writing
from lakehold.model import readers as reader_state
from lakehold.model.committed_transactions import CommittedTransactions
from lakehold.model.high_water_marks import HighWaterMarks
from lakehold.model.lake_definitions import Entry
from lakehold.model.readers import MAIN_READER, Readers, ReaderState, TableProgress
from lakehold.model.summary_keys import TIMESTAMP_PROPERTY
from lakehold.state.batch_protocol import BatchStore
from lakehold.state.lease import HeldLease
from lakehold.times import next_timestamp

log = logging.getLogger(__name__)

_NOT_THE_SAME = frozenset({"offsets-lost", "topic-recreated"})
"""The codes of topics that lack what was to be read of them."""


@dataclass(frozen=True, kw_only=True)
class LeasedSource:
    """A source whose lease this process holds, with every collaborator of its batches.

    Args:
        source: Its name.
        store: The store of its readers, intents and commits.
        lease: The lease of the source.
        tables: Its tables, by full name.
        transaction_topic: The topic that shows which transactions are complete; None: batches may end anywhere.
        planner: Plans its batches.
        reading: Reads records.
        applier: Applies changes to tables.
        writing: Commits to tables.
        lanes: Work on tables in parallel.
        object_ids: Returns the ids of the source's tables as they are defined now.
        snapshots: The state of the tables' connector snapshots as upstream reports it; topics alone need not show it.
        seen_upstream_ms: When the captured database was inspected, epoch milliseconds, to be kept with `main`; None: it was not.
        columns_of: Returns the columns of a table in the database.
        confirm_defined: Raises if the source was dropped, or a statement changes its upstream objects right now.
    """

    source: str
    store: BatchStore
    lease: HeldLease
    tables: Mapping[str, Entry[Table]]
    transaction_topic: str | None
    planner: Planner
    reading: Reading
    applier: Applier
    writing: Writing
    lanes: Lanes
    object_ids: Callable[[], Collection[str]]
    snapshots: Snapshots = field(default_factory=Snapshots)
    seen_upstream_ms: int | None = None
    columns_of: UpstreamColumnsOf = no_columns
    confirm_defined: Callable[[], None]

    def readers(self) -> Readers:
        """Read the states of the source's readers."""
        return self.store.readers(self.source)

    def main(self) -> ReaderState:
        """Read the state of the reader `main`."""
        return self.readers()[MAIN_READER]

    def change(self, apply: Callable[[Readers], Readers]) -> None:
        """Replace the readers by `apply(readers)`; nothing is written if that changes nothing."""
        readers = self.readers()
        if apply(readers) != readers:
            self.store.change_readers(self.source, self.lease.holder, apply)

    def next_timestamp(self) -> int:
        """Return the timestamp of a batch that begins now (epoch milliseconds)."""
        return next_timestamp(reader_state.last_timestamp(self.readers()))

    def last_ms(self) -> int:
        """Return the source's last timestamp (epoch milliseconds)."""
        return reader_state.last_timestamp(self.readers()) or 0

    def fetch_offsets(self) -> FetchedOffsets:
        """Fetch the offsets that can be read now."""
        return self.reading.shared.fetch(self.source)

    def faults(self, fetched: FetchedOffsets, state: ReaderState) -> Mapping[str, LakeholdError]:
        """Return the error that keeps each topic from being read on: see `lakehold.ingest.read.offset_checks.faults`."""
        found = self.reading.reader.faults(fetched, state.position, state.topic_ids)
        return {t: self._of_transactions(e) if t == self.transaction_topic else e for t, e in found.items()}

    def _of_transactions(self, error: LakeholdError) -> LakeholdError:
        """Return the error of the transaction topic with a way out: it is about no table, and so about all of them."""
        if error.code not in _NOT_THE_SAME:
            return error
        return UpstreamError(
            error.message,
            code=error.code,
            detail=f"{error.detail} It is the transaction topic: what it lost says which transactions are complete.",
            hint=f"Let the topic keep its records longer than the longest pause between runs. Then drop all tables of source "
            f'"{self.source}" and create them again. They get the rows that their topics have: if a connector that '
            "lakehold does not manage writes them, first have it snapshot its tables again.",
        )

    def arriving(self, state: ReaderState) -> ArrivingRecords:
        """Return the records that will arrive for the tables of a reader; the caller closes them."""
        entries = {name: self.tables[name] for name in state.tables}
        return ArrivingRecords(self.reading, entries, self.writing.tables, self.lanes, self.columns_of)

    def topic(self, table: str) -> str:
        """Return the topic of a table."""
        return self.tables[table].definition.topic

    def topics(self, state: ReaderState) -> set[str]:
        """Return the topics of a reader's tables."""
        return {self.topic(table) for table in state.tables}

    def with_transactions(self, topics: Collection[str]) -> set[str]:
        """Return `topics` with the transaction topic, if the source has one."""
        return {*topics, self.transaction_topic} if self.transaction_topic is not None else {*topics}

    def with_tables(self, readers: Readers, tables: Mapping[str, Entry[Table]]) -> Readers:
        """Return the readers with each of `tables` in one of them, and no others."""
        return with_tables(readers, self.source, tables, self.transaction_topic)

    def leave_dropped(self) -> Mapping[str, Entry[Table]]:
        """Stop reading for tables that were dropped. Returns the others, of which new ones begin without errors.

        The next batch would create a dropped table again.
        """
        defined = self.object_ids()
        tables = {name: entry for name, entry in self.tables.items() if entry.object_id in defined}
        read = {(name, p.object_id) for state in self.readers().values() for name, p in state.tables.items()}
        gone = [(name, object_id) for name, object_id in read if object_id not in defined]
        for name, object_id in gone:
            clear(self.writing, self.source, name, object_id)
        if gone:
            self.change(lambda readers: self.with_tables(readers, tables))
        new = {name for name, entry in tables.items() if (name, entry.object_id) not in read}
        if new:
            self._forget_errors(new)
        return tables

    def _forget_errors(self, new: Collection[str]) -> None:
        """Remove errors that a dropped source of this name left: of tables with the names of `new` ones, or of no table."""
        main = self.main()
        self.writing.errors.forget(self.source, new, malformed=not main.position and main.intent is None)

    def leave(self, stopped: Mapping[str, LakeholdError]) -> None:
        """Move stopped tables out of their reader, each with its error."""
        open_ = [(state, state.intent) for state in self.readers().values() if state.intent is not None]
        found = {
            name: self.progress_with(intent.mz_timestamp, name, state.tables[name])
            for state, intent in open_
            for name in state.tables.keys() & stopped.keys()
        }
        written = {name: progress for name, progress in found.items() if progress is not None}
        self.change(lambda readers: split(readers, stopped, written))

    def progress_with(self, timestamp_ms: int, table: str, before: TableProgress) -> TableProgress | None:
        """Return a table's progress with a batch whose changes its history has; None if it lacks them.

        A table that stops must not read such a batch again. It may have committed the changes in this run of the batch, or in one
        that a crash ended.

        Args:
            timestamp_ms: The batch's timestamp, epoch milliseconds.
            table: Full name of the table.
            before: Its progress before the batch.
        """
        try:
            state = self.writing.tables.table_state(table)
        except DefinitionError as error:
            log.warning("the history of %s cannot be read: %s", table, error.message)
            return None
        after = progress_after(state, self.source, timestamp_ms, before) if state is not None else None
        if after is None:
            return None
        try:
            return replace(after, open_errors=self.writing.errors.open_of(self.source, table))
        # Of any kind: this runs while an error about the table is handled, which must not end the batch of the others.
        except Exception as error:
            log.warning("the open errors of %s cannot be counted", table, exc_info=error)
            return after

    def must_stay_unreadable(self, table: str, progress: TableProgress, transactions: CommittedTransactions) -> bool:
        """Return whether a table must stay unreadable although no snapshot of it is half read.

        A topic without records may still get the rows of a snapshot. Its first message shows that it will not, or a
        transaction, which connectors send after their snapshots. Keys of `UPSERT` arrive one by one.

        Args:
            table: Its full name.
            progress: Its progress.
            transactions: The upstream transactions that `main` has committed.
        """
        is_silent = (
            not self.snapshots.are_reported
            and self.tables[table].definition.envelope.has_positions
            and progress.high_water_marks == HighWaterMarks()
            and not transactions.commits
        )
        return is_silent or self.snapshots.must_stay_unreadable(progress.object_id, transactions)

    def has_table(self, name: str) -> bool:
        """Return whether a table without rows may become readable: it is created now if its columns are known.

        Raises:
            TableStopped: No table can have its columns, or the name is another table's.
        """
        try:
            make_empty(self.writing, self.tables[name], self.columns_of)
        except UpstreamError as error:
            log.info("table %s is not readable yet: %s. %s", name, error.message, error.detail)
            return False
        return True

    def oldest_ms(self, name: str) -> int:
        """Return the timestamp of a table's oldest snapshot that remains; 0 if there is none."""
        state = self.writing.tables.table_state(name)
        snapshots = state.snapshots if state is not None else ()
        of_batches = (s.summary.get(TIMESTAMP_PROPERTY, s.committed_at_ms) for s in snapshots)
        return min(map(int, of_batches), default=0)

    def begin_holds(self, before: Mapping[str, TableProgress], after: Mapping[str, TableProgress]) -> None:
        """Set the time of holds that waited for tables which have become readable."""
        readable = [
            name
            for name, progress in after.items()
            if progress.since_ms is not None and (name not in before or before[name].since_ms is None)
        ]
        if readable:
            self.writing.held.begin(readable)
