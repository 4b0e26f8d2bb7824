"""Holds as rows of `mz_catalog.mz_holds`: one table, so that any change of holds is one commit.

`mz_hold_objects` has the tables of each hold, for queries that join them. It is written before the commit: a row whose hold does
not exist means nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from lakehold.state.rows import Rows
from lakehold.state.store import State
from lakehold.state.subscribers import SubscriberKind


class Check(StrEnum):
    """The effect of a failed suite (expectations about the rows of its tables) on a hold and its advances."""

    REQUIRE = "require"
    RECORD = "record"
    OFF = "off"


@dataclass(frozen=True)
class HeldTable:
    """A table that a hold is on.

    `object_id` is its id in `mz_objects` if it has one (`is_fed`): a source feeds it, or it is a view; else its Iceberg UUID.
    """

    object_id: str
    full_name: str
    is_fed: bool = False


@dataclass(frozen=True)
class Hold:
    """A hold: its tables stay readable from a time on.

    Attributes:
        hold_id: An id that is never reused.
        namespace: The namespace it belongs to.
        name: Its name without the namespace; no other hold has it.
        at_ms: From when on its tables stay readable (inclusive), epoch milliseconds; None: from the first time at which they are.
        tables: The tables it is on.
        max_lag_ms: How far it may lag behind the write frontiers of its tables.
        check: The effect of a failed suite.
        kept_by: Id of the subscription or name of the client that advances it; None: people advance it.
        forced_from_ms: Where it was when MAX LAG last moved it; None: it was not moved since it was last advanced.
        sql: The statement as written.
        created_at_ms: Epoch milliseconds.
        owner: Id of the role that created it; None: its creator had no role.
        keeper: The kind of `kept_by`.
    """

    hold_id: str
    namespace: str
    name: str
    at_ms: int | None
    tables: tuple[HeldTable, ...]
    max_lag_ms: int
    check: Check
    sql: str
    created_at_ms: int
    kept_by: str | None = None
    forced_from_ms: int | None = None
    owner: str | None = None
    keeper: SubscriberKind | None = None

    @property
    def full_name(self) -> str:
        """Return `namespace.name`."""
        return f"{self.namespace}.{self.name}"

    def is_on(self, full_name: str) -> bool:
        """Return whether it holds the table `full_name`."""
        return any(table.full_name == full_name for table in self.tables)


Holds = tuple[Hold, ...]


@dataclass(frozen=True)
class HoldObject:
    """One table of a hold, a row of `mz_catalog.mz_hold_objects`."""

    hold_id: str
    on_id: str
    on_name: str


HOLDS = Rows(
    "mz_catalog.mz_holds",
    Hold,
    {
        "hold_id": "id",
        "namespace": "schema_id",
        "at_ms": "at",
        "tables": "objects",
        "keeper": "kept_by_type",
        "forced_from_ms": "forced_from",
        "sql": "create_sql",
    },
)
HOLD_OBJECTS = Rows("mz_catalog.mz_hold_objects", HoldObject)


class HoldStore:
    """A store of a lake's holds."""

    def __init__(self, state: State) -> None:
        self._holds = state.store(HOLDS)
        self._objects = state.store(HOLD_OBJECTS)

    def holds(self) -> Holds:
        """Return all holds, in order of creation."""
        return self._holds.values()

    def change(self, apply: Callable[[Holds], Iterable[Hold]]) -> Holds:
        """Replace the holds by `apply(current)` in one commit and return them, as `Store.change` does."""
        changes_objects = False

        def with_objects(before: Holds) -> Holds:
            nonlocal changes_objects
            after = tuple(apply(before))
            wanted = _objects(after)
            changes_objects = wanted != _objects(before)
            if changes_objects:
                self._objects.change(lambda known: ({_key(o): o for o in (*known, *wanted)}).values())
            return after

        holds = self._holds.change(with_objects)
        if changes_objects:
            self._objects.change(lambda _: _objects(self.holds()))
        return holds


def _objects(holds: Holds) -> list[HoldObject]:
    return [HoldObject(hold.hold_id, table.object_id, table.full_name) for hold in holds for table in hold.tables]


def _key(of: HoldObject) -> tuple[str, str]:
    return of.hold_id, of.on_id
