"""Stores and logs in memory and in a lake: values are read as they were stored, and concurrent changes are never lost."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from lakehold.errors import DefinitionError
from lakehold.model.committed_transactions import CommittedTransactions, FurthestEvent, Replaced
from lakehold.model.high_water_marks import HighWaterMarks, SnapshotProgress
from lakehold.model.leases import Lease
from lakehold.model.log_positions import LogPosition
from lakehold.model.offsets import TopicPartition
from lakehold.model.readers import Intent, ReaderError, ReaderState, Stop, TableProgress, Waiting
from lakehold.state.batch_protocol import BATCHES, READERS, Batch, TableChange
from lakehold.state.hold_checks import HOLD_CHECKS, HoldCheck
from lakehold.state.holds import HOLDS, Check, HeldTable, Hold
from lakehold.state.iceberg_state import IcebergState
from lakehold.state.read_lease_store import READS, StoredReadLease
from lakehold.state.roles import ROLES, Grant, GrantedOn, Privilege, Role
from lakehold.state.rows import Row, Rows
from lakehold.state.store import State
from lakehold.state.subscribers import SUBSCRIBERS, Subscriber, SubscriberKind
from lakehold.state.upstream_leases import UPSTREAM_LEASES, UpstreamLease

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
COMMITTED = CommittedTransactions(
    {"": (16,)}, {T1: FurthestEvent(LogPosition("", (5,)), (1, 2, 3, 4))}, frozenset([T0])
)
HIGH_WATER_MARKS = HighWaterMarks({0: (1, 2, 3, 4)}, SnapshotProgress((1, 0, 0, 0), True, False, 3, {0: 7}), 8, "s")
ORDERS = HeldTable("4f1c", "shop.orders", is_fed=True)
DAILY = Hold("u1", "shop", "daily", 1_000, (ORDERS,), 60_000, Check.REQUIRE, "CREATE HOLD …", 1)
OPS = Role("r1", "ops", True, (), 1)
CHECK = HoldCheck("h1", "shop.t", 2**62, 17, "s.json", False, {"found": 2}, ('größe: "a"',), "/1.html", 18)

VALUES: list[tuple[Rows[Any], Any]] = [
    (
        READERS,
        ReaderState(
            source="shop",
            reader="main",
            tables={"shop.t": TableProgress(5, 2, HIGH_WATER_MARKS, "id", 9, (Stop(1, 2),), ("größe",))},
            position={T0: 3, T1: 4},
            topic_ids={"t": "a"},
            upper_ms=11,
            lease=Lease("me", 1, 2),
            intent=Intent("shop", "main", 12, {T0: 5}, frozenset(["shop.t"]), COMMITTED),
            error=ReaderError("c", "m", "d"),
            transactions=replace(COMMITTED, replaced=Replaced((9, 0, 0, 0), frozenset(["u"]))),
            waiting=Waiting("571", 3, 4, ("shop.t",), "it lacks 2", 5),
            seen_upstream_ms=13,
            catch_up_from={T0: 0},
            catch_up_to={T0: 9},
            updated_at_ms=14,
        ),
    ),
    (READERS, ReaderState("shop", "main", updated_at_ms=1)),
    (BATCHES, Batch("shop", "main", 12, {T0: 0}, {T0: 5}, {"shop.t": TableChange(1, 2, 3, 4)}, 5, 6, 7, 8, "me")),
    (HOLDS, DAILY),
    (HOLDS, Hold("u2", "shop", "late", None, (ORDERS,), 6, Check.OFF, "…", 2, "app", 9, "r1", SubscriberKind.CLIENT)),
    (ROLES, OPS),
    (ROLES, Role("r2", "bi", False, (Grant(Privilege.SELECT, GrantedOn.SCHEMA, "shop"),), 2)),
    (SUBSCRIBERS, Subscriber("app", SubscriberKind.CLIENT, "app", "SUBSCRIBE t", 5, None, 3, Lease("me", 1, 2))),
    (SUBSCRIBERS, Subscriber("s", SubscriberKind.SUBSCRIPTION, "s", "SUBSCRIBE u")),
    (HOLD_CHECKS, CHECK),
    (READS, StoredReadLease("1", ("s.t", "s.u"), 5, 6)),
    (UPSTREAM_LEASES, UpstreamLease("shop", Lease("me", 1, 2))),
]
"""Values of each table, in the order of `golden/state_rows.jsonl`, which has their rows as lakes store them."""


def meaning(row: Row) -> dict[str, Any]:
    """Return a row without nulls, and with JSON parsed."""
    return {
        name: json.loads(value) if isinstance(value, str) and value[:1] in ("{", "[") else value
        for name, value in row.items()
        if value is not None
    }


def test_stored_rows_have_the_form_of_existing_lakes() -> None:
    lines = (Path(__file__).parent.parent / "golden" / "state_rows.jsonl").read_text(encoding="utf-8").splitlines()
    for (rows, value), line in zip(VALUES, lines, strict=True):
        row = json.loads(line)
        assert repr(rows.from_row(row)) == repr(value)
        assert meaning(rows.to_row(value)) == meaning(row)
        assert repr(rows.from_row(rows.to_row(value))) == repr(value)


def test_values_are_read_as_they_were_stored(state: State) -> None:
    for rows in dict.fromkeys(rows for rows, _ in VALUES):
        values = tuple(value for of, value in VALUES if of is rows)
        store, other = state.store(rows), state.store(rows)
        assert store.values() == ()
        assert store.change(lambda none, values=values: (*none, *values)) == values  # type: ignore[misc] # mypy: no defaults in a lambda
        assert store.values() == other.values() == values
        assert other.change(lambda all_: all_[1:]) == store.values() == values[1:]


def test_a_refused_change_leaves_nothing(state: State) -> None:
    store = state.store(ROLES)
    store.change(lambda _: (OPS,))

    def refuse(_: tuple[Role, ...]) -> tuple[Role, ...]:
        raise DefinitionError('role "ops" already exists')

    with pytest.raises(DefinitionError):
        store.change(refuse)
    assert store.values() == (OPS,)


def test_changes_of_many_threads_lose_nothing(state: State) -> None:
    store = state.store(ROLES)

    def add(number: int) -> None:
        store.change(lambda roles: (*roles, replace(OPS, role_id=f"r{number}")))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(add, range(24)))
    assert sorted(role.role_id for role in store.values()) == sorted(f"r{number}" for number in range(24))


def test_a_log_keeps_all_rows_in_order_and_forgets_old_ones(state: State) -> None:
    log = state.log(HOLD_CHECKS)
    assert log.values() == ()
    checks = [replace(CHECK, hold_id=f"h{number % 3}", checked_at_ms=number) for number in range(9)]
    for check in (*checks, CHECK, CHECK):
        log.append(check)
    assert log.values() == (*checks, CHECK, CHECK)
    left = tuple(check for check in log.values() if check.checked_at_ms >= 7 or check.hold_id == "h1")

    def is_of_h1(check: HoldCheck) -> bool:
        return check.hold_id == "h1"

    assert log.forget("checked_at_ms", 7, is_of_h1, dry_run=True) == 5
    assert len(log.values()) == 11
    assert log.forget("checked_at_ms", 7, is_of_h1) == 5
    assert log.values() == left
    assert log.forget("checked_at_ms", 7, is_of_h1) == 0
    log.append(CHECK)
    assert log.values() == (*left, CHECK)


def test_stored_rows_can_be_queried(catalog: Catalog) -> None:
    bi = next(value for rows, value in VALUES if rows is ROLES and value != OPS)
    IcebergState(catalog).store(ROLES).change(lambda _: (OPS, bi))
    table = catalog.load_table(ROLES.table)
    assert table.scan(selected_fields=("name", "superuser", "grants")).to_arrow().to_pylist() == [
        {"name": "ops", "superuser": True, "grants": []},
        {
            "name": "bi",
            "superuser": False,
            "grants": [{"privilege": "SELECT", "object_type": "schema", "object_name": "shop"}],
        },
    ]
