"""The batch protocol on the lake's state: one owner per source, intent before effects, history, commit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from lakehold.errors import DefinitionError
from lakehold.model import readers as decide
from lakehold.model.offsets import Offsets
from lakehold.model.readers import Intent, ReaderError, Readers, ReaderState, TableProgress
from lakehold.times import now_ms


@dataclass(frozen=True)
class TableChange:
    """What a batch did to one table, in rows; `snapshot_id` is None when it changed nothing."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    errors: int = 0
    snapshot_id: int | None = None


@dataclass(frozen=True)
class Batch:
    """One batch: a row of `mz_catalog.mz_batches`. It read from `start` (inclusive) to `end` (exclusive)."""

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
    owner: str = ""


class BatchStore(ABC):
    """Readers and batches, and the protocol over them.

    A writer *acquires* a source, *begins* a batch, makes its effects, *commits* it, and renews its lease meanwhile.
    Each step states what it expects and changes `mz_readers` in one compare-and-set, which is the commit point; a row
    of `mz_batches` is written before it and counts only when the reader's `upper_ms` is above its timestamp.

    Args:
        clock: Epoch milliseconds; leases are judged by it.
    """

    def __init__(self, clock: Callable[[], int] = now_ms) -> None:
        self._clock = clock

    @abstractmethod
    def all_readers(self) -> tuple[ReaderState, ...]:
        """The readers of all sources now."""

    @abstractmethod
    def _change(self, apply: Callable[[tuple[ReaderState, ...]], Iterable[ReaderState]]) -> tuple[ReaderState, ...]:
        """Replace all readers by `apply(readers)` in one compare-and-set and return them."""

    @abstractmethod
    def _append(self, batch: Batch) -> None:
        """Add a row to the history."""

    @abstractmethod
    def forget(self, before_ms: int, *, dry_run: bool = False) -> int:
        """Take the rows of the history away that were committed before a time (exclusive); returns how many.

        Nothing needs them: where a source goes on, and what of a batch is done, the readers know.

        Args:
            before_ms: Epoch milliseconds.
            dry_run: Only count them.
        """

    @abstractmethod
    def _appended(self) -> tuple[Batch, ...]:
        """All rows of the history, in the order in which they were added, committed or not."""

    def readers(self, source: str) -> Readers:
        """The readers of `source` by name; none when it was never acquired."""
        return {r.reader: r for r in self.all_readers() if r.source == source}

    def reader(self, source: str, reader: str) -> ReaderState:
        """One reader, its open intent included.

        Raises:
            DefinitionError: There is none.
        """
        readers = self.readers(source)
        if reader not in readers:
            raise DefinitionError(
                f'source "{source}" has no reader "{reader}"',
                code="reader-missing",
                detail=f"Its readers are: {', '.join(sorted(readers)) or 'none'}.",
            )
        return readers[reader]

    def history(self, source: str | None = None) -> tuple[Batch, ...]:
        """Committed batches of `source`, or of all sources, by timestamp; one that was written twice counts once.

        The batches of a reader that has joined `main` were committed before it did.
        """
        states = self.all_readers()
        uppers = {(r.source, r.reader): r.upper_ms or 0 for r in states}
        joined = {s: max(r.upper_ms or 0 for r in states if r.source == s) for s in {r.source for r in states}}
        committed = {
            (b.source, b.mz_timestamp): b
            for b in self._appended()
            if b.mz_timestamp < uppers.get((b.source, b.reader), joined.get(b.source, 0))
        }
        wanted = (b for b in committed.values() if source in (None, b.source))
        return tuple(sorted(wanted, key=lambda b: (b.mz_timestamp, b.source)))

    def acquire(self, source: str, owner: str, lease_until_ms: int) -> Readers:
        """Take the source for `owner` and return its readers; a lease that ran out is taken over.

        Raises:
            SourceBusy: Another's lease is live.
        """
        return self._change_source(source, lambda r: decide.acquired(source, r, owner, self._clock(), lease_until_ms))

    def renew(self, source: str, owner: str, lease_until_ms: int) -> None:
        """Prolong `owner`'s lease.

        Raises:
            LeaseLost: Another took the source over.
        """
        self._change_source(source, lambda r: decide.renewed(source, r, owner, lease_until_ms))

    def release(self, source: str, owner: str) -> None:
        """Let go of the source; harmless when the lease is lost already."""
        self._change_source(source, lambda r: decide.released(r, owner))

    def begin(self, intent: Intent, owner: str, seen_upstream_ms: int | None = None) -> None:
        """Open a batch, before any effect; `seen_upstream_ms` becomes that of its reader, unless it is None.

        Raises:
            LeaseLost: `owner` has no live lease.
        """
        self._change_source(intent.source, lambda r: decide.begun(r, intent, owner, self._clock(), seen_upstream_ms))

    def commit(
        self,
        intent: Intent,
        owner: str,
        tables: Mapping[str, TableProgress],
        batch: Batch,
        stopped: Mapping[str, ReaderError] | None = None,
    ) -> Readers:
        """Close the batch after its effects: history first, then the readers; repeating it is harmless.

        Args:
            intent: The open batch.
            owner: Who holds the lease.
            tables: The progress of all tables of the reader.
            batch: The row for the history.
            stopped: Tables that did not take the batch and go on as readers of their own, each with its error.

        Raises:
            LeaseLost: Another took the source over; nothing counts.
        """
        errors = stopped or {}
        before = self.readers(intent.source)
        if decide.committed(before, intent, owner, tables, errors) is before:
            return before
        self._append(batch)
        return self._change_source(intent.source, lambda r: decide.committed(r, intent, owner, tables, errors))

    def change_readers(self, source: str, owner: str, apply: Callable[[Readers], Readers]) -> Readers:
        """Replace the readers of `source` by `apply(readers)` in one commit: add, join, split off or drop tables.

        Raises:
            LeaseLost: `owner` does not own the source.
        """

        def checked(readers: Readers) -> Readers:
            lease = decide.require_owner(source, readers, owner)
            return {name: replace(state, lease=lease) for name, state in apply(readers).items()}

        return self._change_source(source, checked)

    def forget_source(self, source: str) -> None:
        """Take the readers of a source away that is not declared, unless a process has it, which is yet to find that out."""

        def without(rows: tuple[ReaderState, ...]) -> list[ReaderState]:
            now = self._clock()
            is_held = any(r.source == source and r.lease is not None and now < r.lease.until_ms for r in rows)
            return [r for r in rows if is_held or r.source != source]

        if self.readers(source):
            self._change(without)

    def _change_source(self, source: str, apply: Callable[[Readers], Readers]) -> Readers:
        def of_all(rows: tuple[ReaderState, ...]) -> list[ReaderState]:
            before = {r.reader: r for r in rows if r.source == source}
            after = apply(before)
            now = self._clock()
            changed = [s if s == before.get(n) else replace(s, updated_at_ms=now) for n, s in after.items()]
            return [*(r for r in rows if r.source != source), *changed]

        return {r.reader: r for r in self._change(of_all) if r.source == source}
