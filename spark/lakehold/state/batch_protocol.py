"""The batch protocol on the lake's state: one lease holder per source, intent before effects, history, commit."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pydantic import TypeAdapter

from lakehold.model import offsets
from lakehold.model import readers as reader_state
from lakehold.model.committed_transactions import CommittedTransactions
from lakehold.model.high_water_marks import NO_HIGH_WATER_MARKS, HighWaterMarks
from lakehold.model.offsets import Offsets
from lakehold.model.readers import Intent, ReaderError, Readers, ReaderState, TableProgress
from lakehold.state.lease import LeaseChange, Leases
from lakehold.state.rows import Rows
from lakehold.state.store import State
from lakehold.times import now_ms


@dataclass(frozen=True)
class TableChange:
    """The changes of a batch to one table, in rows; `snapshot_id` is None when it changed nothing."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    errors: int = 0
    snapshot_id: int | None = None


@dataclass(frozen=True)
class Batch:
    """A batch: a row of `mz_catalog.mz_batches`. It read from `start` (inclusive) to `end` (exclusive)."""

    source: str
    reader: str
    mz_timestamp: int
    start: Offsets
    end: Offsets
    tables: Mapping[str, TableChange] = field(default_factory=dict)
    records: int = 0
    bytes: int = 0
    started_at_ms: int = 0
    committed_at_ms: int = 0
    holder: str = ""


@dataclass(frozen=True)
class RecentBatch:
    """The part of a `Batch` that is small: a source that is followed has tens of thousands of batches a day."""

    source: str
    reader: str
    mz_timestamp: int
    records: int = 0
    committed_at_ms: int = 0


AnyBatch = TypeVar("AnyBatch", Batch, RecentBatch)


def _progress_to_json(tables: Mapping[str, TableProgress]) -> str:
    """Write the progress of tables as JSON.

    High-water marks are JSON text within it, in the form that snapshots' summaries have.
    """
    rows = _PROGRESS.dump_python(dict(tables), mode="json", exclude={"__all__": {"high_water_marks"}})
    high_water_marks = {
        name: progress.high_water_marks.to_json() if progress.high_water_marks != NO_HIGH_WATER_MARKS else ""
        for name, progress in tables.items()
    }
    return json.dumps({name: {**row, "marks": high_water_marks[name]} for name, row in rows.items()})


def _progress_from_json(text: str) -> dict[str, TableProgress]:
    rows = json.loads(text)
    high_water_marks = {name: HighWaterMarks.from_json(row.pop("marks", "")) for name, row in rows.items()}
    return {
        name: replace(progress, high_water_marks=high_water_marks[name])
        for name, progress in _PROGRESS.validate_python(rows).items()
    }


def _names_to_json(names: frozenset[str]) -> str:
    return json.dumps(dict.fromkeys(sorted(names)))


def _names_from_json(text: str) -> frozenset[str]:
    return frozenset(json.loads(text))


_PROGRESS = TypeAdapter(dict[str, TableProgress])
_OFFSETS = {Offsets: (offsets.to_json, offsets.from_json)}

READERS = Rows(
    "mz_catalog.mz_readers",
    ReaderState,
    {
        "lease.holder": "owner",
        "lease.since_ms": "lease_since_ms",
        "lease.until_ms": "lease_until_ms",
        "intent.mz_timestamp": "intent_timestamp_ms",
        "intent.end": "intent_offsets",
        "intent.tables": "intent_tables",
        "intent.transactions": "intent_transactions",
    },
    {
        **_OFFSETS,
        CommittedTransactions: (CommittedTransactions.to_json, CommittedTransactions.from_json),
        Mapping[str, TableProgress]: (_progress_to_json, _progress_from_json),
        frozenset[str]: (_names_to_json, _names_from_json),
    },
)
BATCHES = Rows(
    "mz_catalog.mz_batches", Batch, {"start": "start_offsets", "end": "end_offsets", "holder": "owner"}, _OFFSETS
)
_RECENT = Rows("mz_catalog.mz_batches", RecentBatch)


class BatchStore(Leases):
    """A store of readers and batches, with the batch protocol.

    A writer *acquires* a source, *begins* a batch, makes its effects, *commits* it, and renews its lease meanwhile.
    Each step states what it expects and changes `mz_readers` in one compare-and-set, which is the commit point; a row
    of `mz_batches` is written before it and counts only when the reader's `upper_ms` is above its timestamp.

    Args:
        state: The state tables.
        clock: Epoch milliseconds; leases expire by it.
    """

    def __init__(self, state: State, clock: Callable[[], int] = now_ms) -> None:
        super().__init__(clock)
        self._readers = state.store(READERS)
        self._batches = state.log(BATCHES)
        self._recent = state.log(_RECENT)

    def all_readers(self) -> tuple[ReaderState, ...]:
        """Return the readers of all sources."""
        return self._readers.values()

    def readers(self, source: str) -> Readers:
        """Return the readers of `source` by name; none if it was never acquired."""
        return {r.reader: r for r in self.all_readers() if r.source == source}

    def history(self, source: str | None = None) -> tuple[Batch, ...]:
        """Return committed batches of `source`, or of all sources, by timestamp; a batch that was written twice counts once.

        The batches of a reader that has joined `main` were committed before it did.
        """
        wanted = (b for b in self._committed(self._batches.values()) if source in (None, b.source))
        return tuple(sorted(wanted, key=lambda b: (b.mz_timestamp, b.source)))

    def recent(self, from_ms: int) -> tuple[RecentBatch, ...]:
        """Return the batches of all sources that were committed since `from_ms`, by timestamp; reads no older files."""
        found = self._committed(self._recent.recent("committed_at_ms", from_ms))
        return tuple(sorted(found, key=lambda b: (b.mz_timestamp, b.source)))

    def _committed(self, batches: Iterable[AnyBatch]) -> Iterable[AnyBatch]:
        """Return the committed ones of `batches`, each once."""
        states = self.all_readers()
        uppers = {(r.source, r.reader): r.upper_ms or 0 for r in states}
        joined = {s: max(r.upper_ms or 0 for r in states if r.source == s) for s in {r.source for r in states}}
        committed = {
            (b.source, b.mz_timestamp): b
            for b in batches
            if b.mz_timestamp < uppers.get((b.source, b.reader), joined.get(b.source, 0))
        }
        return committed.values()

    def begin(self, intent: Intent, holder: str, seen_upstream_ms: int | None = None) -> None:
        """Record the intent of a batch, before any effect; `seen_upstream_ms` replaces the reader's unless it is None.

        Raises:
            LeaseLost: `holder` has no live lease.
        """
        self._change_source(
            intent.source, lambda r: reader_state.with_intent(r, intent, holder, self._clock(), seen_upstream_ms)
        )

    def commit(  # noqa: PLR0913 - a batch and its outcome
        self,
        intent: Intent,
        holder: str,
        tables: Mapping[str, TableProgress],
        batch: Batch,
        stopped: Mapping[str, ReaderError] | None = None,
        written: Collection[str] = (),
    ) -> Readers:
        """Close the batch after its effects: history first, then the readers; repeating it is harmless.

        Args:
            intent: The open batch.
            holder: The lease holder.
            tables: The progress of all tables of the reader.
            batch: The row for the history.
            stopped: Tables that the batch stopped, each with its error; they continue as readers of their own.
            written: Those of them whose history has the batch's changes: they do not read them again.

        Raises:
            LeaseLost: Another process took the source over; nothing of the batch counts.
        """
        errors = stopped or {}
        before = self.readers(intent.source)

        def committed(readers: Readers) -> Readers:
            return reader_state.committed(readers, intent, holder, tables, errors, written)

        if committed(before) is before:
            return before
        self._batches.append(batch)
        return self._change_source(intent.source, committed)

    def change_readers(self, source: str, holder: str, apply: Callable[[Readers], Readers]) -> Readers:
        """Replace the readers of `source` by `apply(readers)` in one commit: add, join, split off or drop tables.

        Raises:
            LeaseLost: `holder` does not own the source.
        """

        def checked(readers: Readers) -> Readers:
            lease = reader_state.lease_rules(source).held_by(reader_state.lease_of(readers), holder)
            return {name: replace(state, lease=lease) for name, state in apply(readers).items()}

        return self._change_source(source, checked)

    def forget_source(self, source: str) -> None:
        """Remove the readers of a source that is not declared, unless a process holds its lease."""

        def without(rows: tuple[ReaderState, ...]) -> list[ReaderState]:
            now = self._clock()
            is_held = any(r.source == source and r.lease is not None and now < r.lease.until_ms for r in rows)
            return [r for r in rows if is_held or r.source != source]

        if self.readers(source):
            self._readers.change(without)

    def _change_lease(self, name: str, apply: LeaseChange) -> None:
        def changed(readers: Readers) -> Readers:
            return reader_state.leased(
                name, readers, apply(reader_state.lease_of(readers), reader_state.lease_rules(name))
            )

        self._change_source(name, changed)

    def _change_source(self, source: str, apply: Callable[[Readers], Readers]) -> Readers:
        def of_all(rows: tuple[ReaderState, ...]) -> list[ReaderState]:
            before = {r.reader: r for r in rows if r.source == source}
            after = apply(before)
            now = self._clock()
            # A reader that is equal to the one before keeps its object, so that its text is identical: nothing is written.
            changed = [before[n] if s == before.get(n) else replace(s, updated_at_ms=now) for n, s in after.items()]
            return [*(r for r in rows if r.source != source), *changed]

        return {r.reader: r for r in self._readers.change(of_all) if r.source == source}
