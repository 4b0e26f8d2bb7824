"""Reader states of a source, and the changes that are allowed on them: values and rules, without a store.

A *reader* is one position over a source's topics. `main` reads the tables that are in sync, `backfill` new ones that catch
up with them together (`backfill_2` later ones). A reader with a table's full name reads that table while it catches up alone
or is stopped. All readers of a source share one lease. Each function takes the readers of one source and returns the new
ones, or raises; the store makes the result a compare-and-set.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from lakehold.errors import DefinitionError, LakeholdError, SourceBusy
from lakehold.model.committed_transactions import NOTHING_COMMITTED, CommittedTransactions
from lakehold.model.high_water_marks import NO_HIGH_WATER_MARKS, HighWaterMarks
from lakehold.model.leases import Lease, LeaseRules
from lakehold.model.offsets import Offsets
from lakehold.times import iso

MAIN_READER = "main"
BACKFILL_READER = "backfill"


@dataclass(frozen=True)
class Stop:
    """A time range in which a readable table was not in sync with its source: it had stopped, and then caught up.

    From `from_ms` (inclusive) to `until_ms` (exclusive), epoch milliseconds.
    """

    from_ms: int
    until_ms: int


@dataclass(frozen=True)
class TableProgress:
    """The progress of one table.

    Attributes:
        since_ms: Its read frontier, epoch milliseconds; None until its first snapshot is complete.
        open_errors: Messages in error that no later one has healed.
        high_water_marks: The high-water marks of a table whose changes have positions.
        object_id: Distinguishes the table from an earlier one of its name.
        stopped_ms: The first time from which the others are ahead of it, because it stopped; None while it is in sync with
            them, or not readable yet.
        stops: Earlier time ranges in which it was stopped, oldest first.
        left_out: Parts of the last messages that no table can hold, in sentences.
    """

    since_ms: int | None = None
    open_errors: int = 0
    high_water_marks: HighWaterMarks = NO_HIGH_WATER_MARKS
    object_id: str = ""
    stopped_ms: int | None = None
    stops: tuple[Stop, ...] = ()
    left_out: tuple[str, ...] = ()

    def stopped(self, at_ms: int | None) -> TableProgress:
        """Return the progress of a table that stops at `at_ms`, unless it is stopped already or was never in sync."""
        return self if self.since_ms is None or self.stopped_ms is not None else replace(self, stopped_ms=at_ms)

    def in_sync_from(self, at_ms: int | None) -> TableProgress:
        """Return the progress of a table that is in sync again from `at_ms` on."""
        if self.stopped_ms is None or at_ms is None:
            return self
        missed = (Stop(self.stopped_ms, at_ms),) if self.stopped_ms < at_ms else ()
        return replace(self, stopped_ms=None, stops=(*self.stops, *missed))


@dataclass(frozen=True)
class ReaderError:
    """The error that stopped a reader, as a person sees it."""

    code: str
    message: str
    detail: str = ""
    hint: str = ""

    @classmethod
    def of(cls, error: LakeholdError) -> ReaderError:
        """Return what is kept of an error."""
        return cls(error.code, error.message, error.detail, error.hint)


@dataclass(frozen=True)
class Waiting:
    """An incomplete upstream transaction, or re-snapshot, for which all later changes wait.

    Args:
        transaction: Its id, as upstream's messages give it; empty for a re-snapshot.
        arrived: How many of its events or rows have arrived.
        since_ms: When an ingest last saw more of it arrive, epoch milliseconds.
        tables: Full names of tables with changes that wait.
        detail: What it lacks, in a sentence.
        came: A number that grows while more of it arrives.
    """

    transaction: str
    arrived: int
    since_ms: int
    tables: tuple[str, ...]
    detail: str
    came: int = 0

    @property
    def what(self) -> str:
        """Describe what the source waits for."""
        return f"transaction {self.transaction}" if self.transaction else "the connector's re-snapshot"


@dataclass(frozen=True)
class Intent:
    """A batch that was begun and is not committed: everything that is needed to run it again.

    It reads from the reader's position to `end` (exclusive) under `mz_timestamp`. It feeds `tables`, which maintenance leaves
    alone while it is open. `transactions` becomes that of the reader.
    """

    source: str
    reader: str
    mz_timestamp: int
    end: Offsets
    tables: frozenset[str]
    transactions: CommittedTransactions = NOTHING_COMMITTED


@dataclass(frozen=True)
class ReaderState:
    """The state of one reader: a row of `mz_catalog.mz_readers`.

    Attributes:
        source: Its source.
        reader: Its name.
        tables: The progress of each of its tables, by full name.
        position: The next offset to read of each partition.
        topic_ids: The identity that the broker gave each topic.
        upper_ms: The last committed `mz_timestamp` + 1; None before the first.
        lease: The lease of the source.
        intent: The batch that was begun and is not committed.
        error: The error that stopped it.
        transactions: The upstream transactions it has committed; empty for a source without a transaction topic.
        waiting: The transaction it waits for.
        seen_upstream_ms: For `main` of a source that captures a database: when the database was last inspected, epoch
            milliseconds, as the database keeps it, too. None for others.
        catch_up_from: The offsets at which a reader that catches up began.
        catch_up_to: The end offsets for it when an ingest last fetched them; `main`'s own position shows how far `main` is.
        updated_at_ms: When the row was written, epoch milliseconds.
    """

    source: str
    reader: str
    tables: Mapping[str, TableProgress] = field(default_factory=dict)
    position: Offsets = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    upper_ms: int | None = None
    lease: Lease | None = None
    intent: Intent | None = None
    error: ReaderError | None = None
    transactions: CommittedTransactions = NOTHING_COMMITTED
    waiting: Waiting | None = None
    seen_upstream_ms: int | None = None
    catch_up_from: Offsets = field(default_factory=dict)
    catch_up_to: Offsets = field(default_factory=dict)
    updated_at_ms: int = 0

    def upper_of(self, table: str) -> int | None:
        """Return the write frontier of a table; for a stopped one, where it stopped."""
        stopped_ms = self.tables[table].stopped_ms
        return self.upper_ms if stopped_ms is None else stopped_ms


Readers = Mapping[str, ReaderState]
"""All readers of one source by name."""


def last_timestamp(readers: Readers) -> int | None:
    """Return the greatest timestamp that any reader of the source committed or began; the next must be later."""
    committed = [r.upper_ms - 1 for r in readers.values() if r.upper_ms is not None]
    open_ = [r.intent.mz_timestamp for r in readers.values() if r.intent]
    return max(committed + open_, default=None)


def lease_of(readers: Readers) -> Lease | None:
    """Return the lease of the source, which all its readers share."""
    return next((state.lease for state in readers.values()), None)


def leased(source: str, readers: Readers, lease: Lease | None) -> Readers:
    """Return the readers with `lease`; a source that is leased for the first time gets `main`."""
    known = readers or ({MAIN_READER: ReaderState(source, MAIN_READER)} if lease else {})
    return {name: replace(state, lease=lease) for name, state in known.items()}


def lease_rules(source: str) -> LeaseRules:
    """Return the lease rules for writing a source."""
    return LeaseRules(
        what=f'source "{source}"',
        used="ingested",
        busy=SourceBusy,
        when_busy="Wait until that process has finished; if it died, the source is free when the lease runs out.",
        when_lost="Nothing was committed twice. Run it again.",
    )


def with_intent(
    readers: Readers, intent: Intent, holder: str, now_ms: int, seen_upstream_ms: int | None = None
) -> Readers:
    """Make `intent` the open batch of its reader, and keep `seen_upstream_ms`; repeating it changes nothing.

    Raises:
        LeaseLost: `holder` has no live lease.
        ValueError: The reader has another open batch, or the timestamp is not later than every earlier one.
    """
    rules = lease_rules(intent.source)
    lease = rules.held_by(lease_of(readers), holder)
    if now_ms >= lease.until_ms:
        raise rules.lost(f"The lease ran out at {iso(lease.until_ms)} UTC and was not renewed.")
    state = _found(readers, intent.source, intent.reader)
    if state.intent == intent:
        return readers
    if state.intent:
        raise ValueError(f"batch {state.intent.mz_timestamp} of {intent.source}/{intent.reader} is not committed yet")
    last = last_timestamp(readers)
    if last is not None and intent.mz_timestamp <= last:
        raise ValueError(f"timestamp {intent.mz_timestamp} is not later than {last}")
    known = state.seen_upstream_ms if seen_upstream_ms is None else seen_upstream_ms
    return {**readers, intent.reader: replace(state, intent=intent, seen_upstream_ms=known)}


def is_committed(state: ReaderState, intent: Intent) -> bool:
    """Return whether `intent` is committed.

    Only a commit ends an open intent, so that a later `upper_ms` proves it.
    """
    return state.intent != intent and state.upper_ms is not None and state.upper_ms > intent.mz_timestamp


def committed(  # noqa: PLR0913 - a batch and its outcome
    readers: Readers,
    intent: Intent,
    holder: str,
    tables: Mapping[str, TableProgress],
    stopped: Mapping[str, ReaderError],
    written: Collection[str] = (),
) -> Readers:
    """Close the batch of `intent`: the position moves to its end, and `upper_ms` to the first time after its timestamp.

    `tables` is the progress of the reader's tables. A table in `stopped` moves to a reader of its own, and was in sync with the
    others until the batch. It reads the batch again, unless it is in `written` too: its history has the batch's changes then. A
    batch that is committed already changes nothing.

    Raises:
        LeaseLost: Another process owns the source, or another batch is open.
    """
    state = _found(readers, intent.source, intent.reader)
    if is_committed(state, intent):
        return readers
    rules = lease_rules(intent.source)
    rules.held_by(lease_of(readers), holder)
    if state.intent != intent:
        found = state.intent.mz_timestamp if state.intent else "none"
        raise rules.lost(f"Expected batch {intent.mz_timestamp} to be open, found {found}.")
    # A table that must read the batch again has the timestamp, too: no batch gets it again.
    before = replace(state, tables={**state.tables, **tables}, intent=None, upper_ms=intent.mz_timestamp + 1)
    after = replace(_after(before, intent), error=None)
    left = {
        name: _alone(after if name in written else before, name, error, intent.mz_timestamp)
        for name, error in stopped.items()
    }
    moved = replace(after, tables={name: progress for name, progress in tables.items() if name not in stopped})
    if intent.reader in left:
        return {**readers, **left}
    if not moved.tables and intent.reader != MAIN_READER:
        return {**without(readers, intent.reader), **left}
    return {**readers, intent.reader: moved, **left}


def joined(readers: Readers, reader: str) -> Readers:
    """Move the tables of `reader` to `main`, which has the same position: from the last batch of either on they are in sync.

    Raises:
        ValueError: The positions differ, or either has an open batch.
    """
    main, joining = readers[MAIN_READER], readers[reader]
    if main.intent or joining.intent or dict(main.position) != dict(joining.position):
        raise ValueError(f"{joining.source}/{reader} is not at the position of main")
    uppers = [r.upper_ms for r in (main, joining) if r.upper_ms is not None]
    upper_ms = max(uppers, default=None)
    in_sync = {name: p.in_sync_from(None if upper_ms is None else upper_ms - 1) for name, p in joining.tables.items()}
    together = replace(main, tables={**main.tables, **in_sync}, upper_ms=upper_ms)
    return {**without(readers, reader), MAIN_READER: together}


def split_off(readers: Readers, table: str, error: ReaderError | None, written: TableProgress | None = None) -> Readers:
    """Move `table` to a reader of its own at the same position, stopped by `error`.

    The table takes no part in an open batch of its reader, and no batch gets the timestamp of that batch again. If the table's
    history has the batch's changes already, `written` is its progress with them: it continues after the batch.
    """
    state = _reader_of(readers, table)
    without_batch = state
    if state.intent is not None:
        upper_ms = max(state.intent.mz_timestamp + 1, state.upper_ms or 0)
        without_batch = replace(state, intent=None, upper_ms=upper_ms)
        if written is not None:
            without_batch = _after(replace(without_batch, tables={**state.tables, table: written}), state.intent)
    if state.reader == table:
        return {**readers, table: replace(without_batch, error=error)}
    return {**dropped(readers, table), table: _alone(without_batch, table, error, state.upper_ms)}


def dropped(readers: Readers, table: str) -> Readers:
    """Return the readers without `table`; a reader that had only this table goes with it, unless it is `main`."""
    state = _reader_of(readers, table)
    rest = {name: progress for name, progress in state.tables.items() if name != table}
    if not rest and state.reader != MAIN_READER:
        return without(readers, state.reader)
    return {**readers, state.reader: replace(state, tables=rest)}


def without(readers: Readers, reader: str) -> Readers:
    """Return the readers less `reader`."""
    return {name: state for name, state in readers.items() if name != reader}


def _after(state: ReaderState, intent: Intent) -> ReaderState:
    """Return a reader at the end of a batch."""
    position = {**state.position, **intent.end}
    return replace(state, position=position, transactions=intent.transactions, intent=None)


def _alone(state: ReaderState, table: str, error: ReaderError | None, stopped_ms: int | None) -> ReaderState:
    """Return a reader for one table of another reader, at the same position; the table is stopped from `stopped_ms` on."""
    progress = state.tables[table].stopped(stopped_ms)
    return replace(state, reader=table, tables={table: progress}, error=error, waiting=None)


def _reader_of(readers: Readers, table: str) -> ReaderState:
    return next(state for state in readers.values() if table in state.tables)


def _found(readers: Readers, source: str, reader: str) -> ReaderState:
    if reader in readers:
        return readers[reader]
    raise DefinitionError(
        f'source "{source}" has no reader "{reader}"',
        code="reader-missing",
        detail=f"Its readers are: {', '.join(sorted(readers)) or 'none'}.",
        hint="The table may have been dropped meanwhile. Run it again.",
    )
