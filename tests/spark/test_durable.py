"""Durable clients: acknowledged rows are never delivered again, and no row is lost, wherever a client stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from lakehold.errors import DefinitionError, StatementError, SubscriberBusy, SubscriberLapsed
from lakehold.lake import Lake
from lakehold.publish import deliveries
from lakehold.publish.durable import ClientState
from lakehold.publish.follower import FollowedTogether, FollowedWindow
from lakehold.state.subscribers import SubscriberStore
from lakehold.times import now_ms
from tests.conftest import LakeFactory

pytestmark = pytest.mark.spark

COLUMNS = pa.schema([("id", pa.int64())])
Row = tuple[Any, ...]


class Killed(BaseException):
    """The death of the process, which no handler for errors catches."""


class Program:
    """A program that follows `shop.t`, records its callbacks and can die in one of them."""

    def __init__(self, lake: Lake, clauses: str = "") -> None:
        self.lake, self.text = lake, f"SUBSCRIBE shop.t {clauses}"
        self.snapshots: list[list[Row]] = []
        self.updates: list[tuple[int, list[Row]]] = []
        self.dies: Callable[[], bool] = lambda: False

    def run(self, stop: threading.Event | None = None, **options: Any) -> None:
        self.lake.durable("app", self.text, **options).run(self.on_snapshot, self.on_update, stop)

    def on_snapshot(self, rows: Iterator[Row]) -> None:
        self.snapshots.append([row[1:] for row in rows])
        if self.dies():
            raise Killed

    def on_update(self, timestamp: int, rows: Iterator[Row]) -> None:
        found = list(rows)
        assert {row[0] for row in found} == {timestamp}
        self.updates.append((timestamp, [row[1:] for row in found]))
        if self.dies():
            raise Killed

    @property
    def changed(self) -> list[list[Row]]:
        return [rows for _, rows in self.updates]


@pytest.fixture
def lake(make_lake: LakeFactory) -> Lake:
    made = make_lake(foreign_lag_ms=0)
    made.catalog.create_namespace("shop")
    made.catalog.create_table("shop.t", COLUMNS)
    add(made, 1, 2)
    return made


def add(lake: Lake, *ids: int, table: str = "shop.t") -> None:
    changed = lake.catalog.load_table(table)
    changed.append(pa.table({"id": list(ids)}, COLUMNS))
    committed = changed.metadata.last_updated_ms
    while now_ms() <= committed:
        pass


def state(lake: Lake, program: Program) -> tuple[ClientState, int | None]:
    client = lake.durable("app", program.text)
    return client.state, client.position


def test_a_client_gets_a_snapshot_then_each_timestamp_once_over_restarts(lake: Lake) -> None:
    program = Program(lake)
    assert state(lake, program) == (ClientState.NOT_STARTED, None)
    program.run()
    assert program.snapshots == [[(1, 1), (1, 2)]]
    assert state(lake, program)[0] is ClientState.FOLLOWING
    add(lake, 3)
    add(lake, 4)
    program.run()
    program.run()
    assert (len(program.snapshots), program.changed) == (1, [[(1, 3)], [(1, 4)]])
    hold = lake.holds.hold("client_app")
    assert (hold.kept_by, hold.at_ms) == ("app", (state(lake, program)[1] or 0) - 1)


def test_unacknowledged_rows_are_delivered_again(lake: Lake) -> None:
    program = Program(lake)
    program.dies = lambda: True
    with pytest.raises(Killed):
        program.run()
    assert state(lake, program) == (ClientState.READING_SNAPSHOT, None)
    add(lake, 3)
    program.dies = lambda: len(program.updates) == 1
    with pytest.raises(Killed):
        program.run()
    assert program.snapshots == [[(1, 1), (1, 2)]] * 2
    program.dies = lambda: False
    add(lake, 4)
    program.run()
    assert len(program.snapshots) == 2
    assert program.changed == [[(1, 3)], [(1, 3)], [(1, 4)]]


def test_acknowledged_rows_are_not_delivered_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill the process after it stored its position and before it moves its hold."""
    program = Program(lake)
    with monkeypatch.context() as patch:
        patch.setattr(deliveries, "failpoint", _killed)
        with pytest.raises(Killed):
            program.run()
        add(lake, 3)
        with pytest.raises(Killed):
            program.run()
    add(lake, 4)
    program.run()
    assert (program.snapshots, program.changed) == ([[(1, 1), (1, 2)]], [[(1, 3)], [(1, 4)]])


def _killed(_: object) -> None:
    raise Killed


def test_acknowledging_a_delivery_acknowledges_those_before_it(lake: Lake) -> None:
    client = lake.durable("app", "SUBSCRIBE shop.t")
    (snapshot,) = client.deliveries()
    assert (snapshot.is_snapshot, snapshot.columns) == (True, ("mz_timestamp", "mz_diff", "id"))
    add(lake, 3)
    given = client.deliveries()
    first, second = next(given), next(given)
    assert [first.is_snapshot, second.is_snapshot] == [True, False]
    second.acknowledge()
    assert client.position == second.timestamp + 1
    first.acknowledge()
    assert client.position == second.timestamp + 1
    given.close()
    assert list(client.deliveries()) == []


def test_a_run_ends_by_rows_and_by_time(lake: Lake) -> None:
    program = Program(lake)
    client = lake.durable("app", program.text)
    client.run(program.on_snapshot, program.on_update, max_rows=1)
    for id_ in (3, 4, 5):
        add(lake, id_)
    client.run(program.on_snapshot, program.on_update, max_rows=2)
    assert (program.snapshots, program.changed) == ([[(1, 1), (1, 2)]], [[(1, 3)], [(1, 4)]])
    seen = []
    for delivery in client.deliveries(timeout=60, max_rows=2):
        seen.append([row[1:] for row in delivery])
        delivery.acknowledge()
        if len(seen) == 1:
            add(lake, 6)
    assert seen == [[(1, 5)], [(1, 6)]]
    assert list(client.deliveries(timeout=0)) == []


def test_a_client_that_waits_in_vain_stores_its_position_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(lake)
    program.run()
    stored, read, move, windows = list[int](), list[int](), SubscriberStore.move, FollowedTogether.windows

    def moved(self: SubscriberStore, name: str, holder: str, position_ms: int, **more: Any) -> None:
        stored.append(position_ms)
        move(self, name, holder, position_ms, **more)

    def followed(self: FollowedTogether, opened: Any, ends: threading.Event | None) -> Iterator[FollowedWindow]:
        for window in windows(self, opened, ends):
            read.append(window.until_ms)
            yield window

    monkeypatch.setattr(SubscriberStore, "move", moved)
    monkeypatch.setattr(FollowedTogether, "windows", followed)
    lake.durable("app", program.text).run(program.on_snapshot, program.on_update, timeout=3)
    assert len(read) > 2
    assert stored == read[-1:], "when the run ended"


def test_a_client_follows_until_it_is_stopped(lake: Lake) -> None:
    program, stop = Program(lake), threading.Event()

    def on_update(timestamp: int, rows: Iterator[Row]) -> None:
        program.updates.append((timestamp, [row[1:] for row in rows]))
        if len(program.updates) < 2:
            add(lake, 4)
        else:
            stop.set()

    def on_snapshot(rows: Iterator[Row]) -> None:
        program.on_snapshot(rows)
        add(lake, 3)

    lake.durable("app", "SUBSCRIBE shop.t").run(on_snapshot, on_update, stop)
    assert (program.snapshots, program.changed) == ([[(1, 1), (1, 2)]], [[(1, 3)], [(1, 4)]])


def test_a_client_may_skip_the_snapshot(lake: Lake) -> None:
    program = Program(lake, "WITH (SNAPSHOT = false)")
    program.run()
    add(lake, 3)
    program.run()
    assert (program.snapshots, program.changed) == ([], [[(1, 3)]])


def test_an_empty_snapshot_is_delivered(lake: Lake) -> None:
    lake.catalog.load_table("shop.t").delete()
    program = Program(lake)
    while now_ms() <= lake.catalog.load_table("shop.t").metadata.last_updated_ms:
        pass
    program.run()
    add(lake, 3)
    program.run()
    assert (program.snapshots, program.changed) == ([[]], [[(1, 3)]])


def test_only_one_process_runs_a_client(lake: Lake) -> None:
    given = lake.durable("app", "SUBSCRIBE shop.t").deliveries()
    next(given)
    with pytest.raises(SubscriberBusy, match='client "app"'):
        Program(lake).run()
    given.close()
    Program(lake).run()


def test_another_statement_under_the_same_name_is_refused(lake: Lake) -> None:
    Program(lake).run()
    with pytest.raises(DefinitionError, match="another statement") as refused:
        Program(lake, "ENVELOPE UPSERT (KEY (id))").run()
    assert "SUBSCRIBE shop.t" in refused.value.detail
    lake.durable("app", "SUBSCRIBE shop.t").forget()
    assert lake.holds.all() == ()
    Program(lake, "ENVELOPE UPSERT (KEY (id))").run()


def test_a_forget_that_is_killed_keeps_no_history_and_is_finished_by_the_next(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(lake)
    program.run()
    add(lake, 3)

    def die(_store: SubscriberStore, _subscriber_id: str) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(SubscriberStore, "forget", die)
        with pytest.raises(Killed):
            lake.durable("app", program.text).forget()
    assert lake.holds.all() == ()
    program.run()
    assert program.changed == [[(1, 3)]], "it continues, as if it had not been forgotten"
    lake.durable("app", program.text).forget()
    assert (lake.holds.all(), lake.durable("app", program.text).state) == ((), ClientState.NOT_STARTED)


def test_invalid_names_and_statements_are_refused(lake: Lake) -> None:
    with pytest.raises(DefinitionError, match="not a valid name"):
        lake.durable("my app", "SUBSCRIBE shop.t")
    for text in ("SUBSCRIBE shop.t UP TO 5", "SUBSCRIBE shop.t WITH (PROGRESS)", "SELECT 1"):
        with pytest.raises(StatementError):
            lake.durable("app", text)


def test_a_lapsed_client_stops_or_gets_a_snapshot(lake: Lake) -> None:
    program = Program(lake)
    program.run()
    add(lake, 3)
    lake.subscriptions.holds.advance("client_app", now_ms())
    with pytest.raises(SubscriberLapsed) as lapsed:
        program.run()
    assert "on_lapse='resnapshot'" in lapsed.value.hint
    assert program.changed == []
    program.run(on_lapse="resnapshot")
    assert program.snapshots == [[(1, 1), (1, 2)], [(1, 1), (1, 2), (1, 3)]]
    add(lake, 4)
    program.run()
    assert program.changed == [[(1, 4)]]


class TogetherProgram:
    """A program that follows two statements, and keeps what each delivery has."""

    STATEMENTS: ClassVar = {
        "rows": "SUBSCRIBE shop.t",
        "sums": "SUBSCRIBE (SELECT count(*) AS n FROM shop.u) ENVELOPE UPSERT (KEY (n))",
    }

    def __init__(self, lake: Lake) -> None:
        self.client = lake.durable("app", self.STATEMENTS)
        self.seen: list[tuple[bool, dict[str, list[Row]]]] = []

    def run(self, *, acknowledges: bool = True, **options: Any) -> list[tuple[bool, dict[str, list[Row]]]]:
        self.seen = []
        for delivery in self.client.deliveries(**options):
            # The last statement first: each has its rows, whatever was read before.
            found = {name: [row[1:] for row in delivery.by_statement[name]] for name in ("sums", "rows")}
            self.seen.append((delivery.is_snapshot, found))
            if not acknowledges:
                break
            delivery.acknowledge()
        return self.seen


@pytest.fixture
def two_tables(lake: Lake) -> Lake:
    lake.catalog.create_table("shop.u", COLUMNS)
    add(lake, 7, table="shop.u")
    return lake


def test_a_client_follows_several_statements_at_common_timestamps(two_tables: Lake) -> None:
    lake, program = two_tables, TogetherProgram(two_tables)
    assert program.run() == [(True, {"sums": [("upsert", 1)], "rows": [(1, 1), (1, 2)]})]
    assert [table.full_name for table in lake.holds.hold("client_app").tables] == ["shop.t", "shop.u"]
    add(lake, 3)
    add(lake, 8, table="shop.u")
    only_rows = (False, {"sums": [], "rows": [(1, 3)]})
    only_sums = (False, {"sums": [("delete", 1), ("upsert", 2)], "rows": []})
    assert program.run(acknowledges=False) == [only_rows]
    assert program.run(max_rows=1) == [only_rows], (
        "a delivery that was not acknowledged comes again, with all statements"
    )
    assert program.run() == [only_sums]
    assert program.run() == []
    assert program.client.state is ClientState.FOLLOWING


def test_a_client_of_several_statements_may_leave_rows_unread(two_tables: Lake) -> None:
    client = two_tables.durable("app", TogetherProgram.STATEMENTS)
    add(two_tables, 3)
    for delivery in client.deliveries():
        next(iter(delivery.by_statement["rows"]))
        delivery.acknowledge()
    add(two_tables, 4)
    given = client.deliveries()
    delivery = next(given)
    assert [row[1:] for row in delivery.by_statement["rows"]] == [(1, 4)]
    assert delivery.by_statement["sums"].columns == ("mz_timestamp", "mz_state", "n")
    assert list(given) == []


def test_a_client_follows_several_statements_until_it_is_stopped(two_tables: Lake) -> None:
    lake, stop = two_tables, threading.Event()
    seen: list[dict[str, list[Row]]] = []

    def on_update(_: int, rows: Mapping[str, Iterable[Row]]) -> None:
        seen.append({name: [row[1:] for row in found] for name, found in rows.items()})
        if len(seen) == 1:
            add(lake, 8, table="shop.u")
        else:
            stop.set()

    lake.durable("app", TogetherProgram.STATEMENTS).run(lambda _: add(lake, 3), on_update, stop)
    assert seen == [
        {"rows": [(1, 3)], "sums": []},
        {"rows": [], "sums": [("delete", 1), ("upsert", 2)]},
    ]


def test_statements_that_cannot_be_followed_together_are_refused(two_tables: Lake) -> None:
    lake, statements = two_tables, TogetherProgram.STATEMENTS
    for wrong, code in (
        ({}, "client-statements"),
        ({**statements, "late": f"SUBSCRIBE shop.t AS OF {now_ms()}"}, "client-statements"),
        ({"not a name": "SUBSCRIBE shop.t"}, "client-name"),
        ({**statements, "": "SUBSCRIBE shop.t"}, "client-name"),
    ):
        with pytest.raises(DefinitionError) as refused:
            lake.durable("app", wrong)
        assert refused.value.code == code
    TogetherProgram(lake).run()
    with pytest.raises(DefinitionError, match="another statement") as refused:
        next(lake.durable("app", {**statements, "more": "SUBSCRIBE shop.u"}).deliveries())
    assert refused.value.code == "client-statement"
    (snapshot,) = lake.durable("other", statements).deliveries()
    with pytest.raises(DefinitionError) as refused:
        list(snapshot)
    assert refused.value.code == "delivery-statements"


def test_a_lapsed_client_of_several_statements_gets_a_snapshot_of_all(two_tables: Lake) -> None:
    lake, program = two_tables, TogetherProgram(two_tables)
    program.run()
    add(lake, 3)
    lake.subscriptions.holds.advance("client_app", now_ms())
    program.client = lake.durable("app", TogetherProgram.STATEMENTS, on_lapse="resnapshot")
    assert program.run() == [(True, {"sums": [("upsert", 1)], "rows": [(1, 1), (1, 2), (1, 3)]})]
