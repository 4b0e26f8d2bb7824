"""In-memory twins of the catalog's stores, for tests and trials without a lake. Each change is atomic among threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from lakehold.catalog.batches import Batch, BatchStore
from lakehold.catalog.definitions import Definitions, DefinitionStore
from lakehold.catalog.readers import ReaderState
from lakehold.times import now_ms


class MemoryDefinitions(DefinitionStore):
    """Definitions in this process only."""

    def __init__(self, definitions: Definitions | None = None) -> None:
        self._definitions = definitions or Definitions()
        self._lock = threading.Lock()

    def definitions(self) -> Definitions:
        """All definitions now."""
        return self._definitions

    def change(self, apply: Callable[[Definitions], Definitions]) -> Definitions:
        """Replace the definitions by `apply(current)` and return them."""
        with self._lock:
            self._definitions = apply(self._definitions)
            return self._definitions


class MemoryBatches(BatchStore):
    """The batch protocol in this process only."""

    def __init__(self, clock: Callable[[], int] = now_ms) -> None:
        super().__init__(clock)
        self._rows: tuple[ReaderState, ...] = ()
        self._history: tuple[Batch, ...] = ()
        self._lock = threading.Lock()

    def all_readers(self) -> tuple[ReaderState, ...]:
        """The readers of all sources now."""
        return self._rows

    def _change(self, apply: Callable[[tuple[ReaderState, ...]], Iterable[ReaderState]]) -> tuple[ReaderState, ...]:
        with self._lock:
            self._rows = tuple(apply(self._rows))
            return self._rows

    def _append(self, batch: Batch) -> None:
        with self._lock:
            self._history += (batch,)

    def _appended(self) -> tuple[Batch, ...]:
        return self._history
