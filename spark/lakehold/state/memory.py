"""In-memory twins of the catalog's stores, for tests and trials without a lake. Each change is atomic among threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable

from lakehold.model.definitions import Definitions, DefinitionStore
from lakehold.model.readers import ReaderState
from lakehold.state.batches import Batch, BatchStore
from lakehold.state.hold_checks import HoldCheck, HoldCheckStore
from lakehold.state.holds import Hold, Holds, HoldStore
from lakehold.state.roles import Role, Roles, RoleStore
from lakehold.state.subscribers import Subscriber, Subscribers, SubscriberStore
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

    def forget(self, before_ms: int, *, dry_run: bool = False) -> int:
        """Take the rows of the history away that were committed before a time."""
        with self._lock:
            left = tuple(batch for batch in self._history if batch.committed_at_ms >= before_ms)
            gone = len(self._history) - len(left)
            self._history = self._history if dry_run else left
            return gone

    def _appended(self) -> tuple[Batch, ...]:
        return self._history


class MemoryHolds(HoldStore):
    """Holds in this process only."""

    def __init__(self) -> None:
        self._holds: Holds = ()
        self._lock = threading.Lock()

    def holds(self) -> Holds:
        """All holds now, in order of creation."""
        return self._holds

    def change(self, apply: Callable[[Holds], Iterable[Hold]]) -> Holds:
        """Replace the holds by `apply(current)` and return them."""
        with self._lock:
            self._holds = tuple(apply(self._holds))
            return self._holds


class MemoryRoles(RoleStore):
    """Roles in this process only."""

    def __init__(self) -> None:
        self._roles: Roles = ()
        self._lock = threading.Lock()

    def roles(self) -> Roles:
        """All roles now, in order of creation."""
        return self._roles

    def change(self, apply: Callable[[Roles], Iterable[Role]]) -> Roles:
        """Replace the roles by `apply(current)` and return them."""
        with self._lock:
            self._roles = tuple(apply(self._roles))
            return self._roles


class MemorySubscribers(SubscriberStore):
    """Subscribers in this process only."""

    def __init__(self, clock: Callable[[], int] = now_ms) -> None:
        super().__init__(clock)
        self._subscribers: Subscribers = ()
        self._lock = threading.Lock()

    def subscribers(self) -> Subscribers:
        """All subscribers now."""
        return self._subscribers

    def _change(self, apply: Callable[[Subscribers], Iterable[Subscriber]]) -> Subscribers:
        with self._lock:
            self._subscribers = tuple(apply(self._subscribers))
            return self._subscribers


class MemoryHoldChecks(HoldCheckStore):
    """What checks of holds found, in this process only."""

    def __init__(self) -> None:
        self._checks: tuple[HoldCheck, ...] = ()

    def checks(self) -> tuple[HoldCheck, ...]:
        """All of them, in the order in which they were recorded."""
        return self._checks

    def record(self, check: HoldCheck) -> None:
        """Add one."""
        self._checks += (check,)

    def forget(self, before_ms: int, hold_ids: Collection[str], *, dry_run: bool = False) -> int:
        """Take those away that were made before a time, except those of some holds."""
        left = tuple(check for check in self._checks if check.checked_at_ms >= before_ms or check.hold_id in hold_ids)
        gone = len(self._checks) - len(left)
        self._checks = self._checks if dry_run else left
        return gone
