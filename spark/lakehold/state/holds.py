"""Holds as rows of `mz_catalog.mz_holds`: one table, so that any change of holds is one commit.

`mz_hold_objects` says which tables they are on, for those who join. It is written before the commit, and what it has of
a hold that is not there means nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from pydantic import TypeAdapter
from pyiceberg.catalog import Catalog

from lakehold.state.state_table import Row, StateTable, StateValues
from lakehold.state.subscribers import SubscriberKind

HOLDS_TABLE = "mz_catalog.mz_holds"
HOLD_OBJECTS_TABLE = "mz_catalog.mz_hold_objects"


class Check(StrEnum):
    """What a suite that fails does to a hold, and to its advances."""

    REQUIRE = "require"
    RECORD = "record"
    OFF = "off"


@dataclass(frozen=True)
class HeldTable:
    """A table that a hold is on; `object_id` is its id in `mz_objects`, or its Iceberg UUID where no source feeds it."""

    object_id: str
    full_name: str
    is_fed: bool = False


@dataclass(frozen=True)
class Hold:
    """Keeps tables readable from a time on.

    Attributes:
        hold_id: Never used again.
        namespace: Where it stands.
        name: Without the namespace; no other hold has it.
        at_ms: From when on its tables stay readable (inclusive), epoch milliseconds; None: from the first time at which they are.
        tables: What it is on.
        max_lag_ms: How far it may stay behind what its tables have reached.
        check: What a suite that fails does to it.
        kept_by: Id of the subscription or name of the client that advances it; None: whoever made it.
        forced_from_ms: Where it stood when MAX LAG last moved it; None: it was not moved since it was last advanced.
        sql: The statement as written.
        created_at_ms: Epoch milliseconds.
        owner: Id of the role that made it; None: whoever made it had none.
        keeper: What `kept_by` is.
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
        """`namespace.name`."""
        return f"{self.namespace}.{self.name}"

    def is_on(self, full_name: str) -> bool:
        """Whether it holds the table `full_name`."""
        return any(table.full_name == full_name for table in self.tables)


Holds = tuple[Hold, ...]


class HoldStore(ABC):
    """Reads and changes holds."""

    @abstractmethod
    def holds(self) -> Holds:
        """All holds now, in order of creation."""

    @abstractmethod
    def change(self, apply: Callable[[Holds], Iterable[Hold]]) -> Holds:
        """Replace the holds by `apply(current)` in one commit and return them.

        `apply` runs again on the newest holds when another writer came between; it raises to refuse.
        """


class PyIcebergHolds(HoldStore):
    """The holds of the lake behind `catalog`."""

    def __init__(self, catalog: Catalog) -> None:
        self._holds = StateValues(catalog, HOLDS_TABLE, _from_row, _to_row)
        self._objects = StateTable(catalog, HOLD_OBJECTS_TABLE)

    def holds(self) -> Holds:
        """All holds now, in order of creation."""
        return self._holds.values()

    def change(self, apply: Callable[[Holds], Iterable[Hold]]) -> Holds:
        """Replace the holds by `apply(current)` in one commit and return them."""
        changes_objects = False

        def with_objects(before: Holds) -> Holds:
            nonlocal changes_objects
            after = tuple(apply(before))
            wanted = _object_rows(after)
            changes_objects = wanted != _object_rows(before)
            if changes_objects:
                self._objects.change(lambda known: _with_missing(known, wanted))
            return after

        holds = self._holds.change(with_objects)
        if changes_objects:
            self._objects.change(lambda _: _object_rows(self.holds()))
        return holds


_TABLES = TypeAdapter(tuple[HeldTable, ...])


def _from_row(row: Row) -> Hold:
    return Hold(
        hold_id=row["id"],
        namespace=row["schema_id"],
        name=row["name"],
        at_ms=row["at"],
        tables=_TABLES.validate_json(row["objects"]),
        max_lag_ms=row["max_lag_ms"],
        check=Check(row["check"]),
        sql=row["create_sql"],
        created_at_ms=row["created_at_ms"],
        kept_by=row["kept_by"],
        forced_from_ms=row["forced_from"],
        owner=row.get("owner"),
        keeper=SubscriberKind(row["kept_by_type"]) if row.get("kept_by_type") else None,
    )


def _to_row(hold: Hold) -> Row:
    return {
        "id": hold.hold_id,
        "schema_id": hold.namespace,
        "name": hold.name,
        "at": hold.at_ms,
        "max_lag_ms": hold.max_lag_ms,
        "check": hold.check.value,
        "objects": _TABLES.dump_json(hold.tables).decode(),
        "kept_by": hold.kept_by,
        "kept_by_type": hold.keeper.value if hold.keeper else None,
        "forced_from": hold.forced_from_ms,
        "create_sql": hold.sql,
        "created_at_ms": hold.created_at_ms,
        "owner": hold.owner,
    }


def _object_rows(holds: Holds) -> list[Row]:
    return [
        {"hold_id": hold.hold_id, "on_id": table.object_id, "on_name": table.full_name}
        for hold in holds
        for table in hold.tables
    ]


def _with_missing(known: Iterable[Row], wanted: Iterable[Row]) -> list[Row]:
    rows = {(row["hold_id"], row["on_id"]): row for row in known}
    return list((rows | {(row["hold_id"], row["on_id"]): row for row in wanted}).values())
