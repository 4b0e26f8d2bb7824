"""Parts of whole transactions: ids and log positions, names of topics, stored state, joining tables, and messages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakehold.definitions import Envelope, Table
from lakehold.ingest.envelope.header_columns import Kind
from lakehold.ingest.membership import joined, with_tables
from lakehold.ingest.read.reader import FetchedOffsets
from lakehold.ingest.transactions.collection_topics import topic_of
from lakehold.ingest.transactions.waiting import Incomplete, incomplete_error, waiting_for
from lakehold.model.committed_transactions import (
    NOTHING_COMMITTED,
    CommittedTransactions,
    FurthestEvent,
    Replaced,
    joined_transactions,
)
from lakehold.model.high_water_marks import HighWaterMarks, SnapshotProgress
from lakehold.model.lake_definitions import Entry
from lakehold.model.log_positions import LogPosition, position_of_end, transaction_of
from lakehold.model.offsets import TopicPartition
from lakehold.model.readers import MAIN_READER, Intent, Readers, ReaderState, TableProgress
from tests.transaction_headers import Record, runs_of_records

GTID = "0e4d5dcd-a33b-11ea-80f1-02010a22a99e"
ORDERS, TRANSACTIONS = TopicPartition("shop.public.orders", 0), TopicPartition("shop.transaction", 0)


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("753:999", "12:1000"),
        ("file=binlog.000009,pos=700", "file=binlog.000010,pos=4"),
        (f"{GTID}:9", f"{GTID}:10"),
        ("0-1-9", "0-2-10"),
        ("00000025:00000d98:00a2", "00000025:00000e00:0001"),
    ],
)
def test_transactions_follow_each_other_by_their_ids(earlier: str, later: str) -> None:
    first, second = position_of_end(earlier), position_of_end(later)
    assert first is not None
    assert second is not None
    assert (second.log, second.at > first.at) == (first.log, True)


def test_ids_of_other_connectors_have_no_log_position() -> None:
    assert position_of_end("5.6.641") is None
    assert transaction_of("5.6.641") == "5.6.641"


def test_events_of_postgres_share_their_transaction_and_log_position() -> None:
    ids = ("765:26756832", "765:26757136", "765:26757768")
    assert {transaction_of(id_) for id_ in ids} == {"765"}
    events = [
        Record("orders", 0, number, Kind.EVENTS, id_, number + 1, number + 1, (26757568, 26756832 + number, 1, 1))
        for number, id_ in enumerate(ids)
    ]
    ((run,),) = runs_of_records(events).values()
    assert (run.first, run.last, run.transaction) == (0, 2, "765")
    end_before, end = position_of_end("766:26757568"), position_of_end("765:26757768")
    assert run.log_position is not None
    assert end_before is not None
    assert end is not None
    assert end_before.at < run.log_position.at < end.at, (
        "the transaction commits after the commit that its events name, and not after its own"
    )


@pytest.mark.parametrize(
    ("collection", "topic"),
    [
        ("public.orders", "shop.public.orders"),
        ("public.order items", "shop.public.order_items"),
        ("public.elsewhere", None),
        ("io.debezium.connector.postgresql.LogicalDecodingMessageMonitor$LogicalDecodingMessageId@17bbbff0", None),
        ("c.orders", None),
    ],
)
def test_a_table_is_found_by_the_name_of_its_topic(collection: str, topic: str | None) -> None:
    topics = frozenset({"shop.public.orders", "shop.public.order_items", "other.public.orders"})
    assert topic_of(collection, topics, "shop.transaction") == topic


def test_committed_transactions_are_stored_as_text() -> None:
    committed = CommittedTransactions(
        commits={"binlog binlog.": (3, 4_000)},
        furthest={ORDERS: FurthestEvent(LogPosition("binlog binlog.", (3, 100)), (3, 120, 0, 1))},
        cut_off=frozenset({TRANSACTIONS}),
        replaced=Replaced((3, 110, -1, 1), frozenset({ORDERS.topic})),
        resnapshot=(3, 110, -1, 1),
    )
    assert CommittedTransactions.from_json(committed.to_json()) == committed
    assert CommittedTransactions.from_json(
        '{"commits":{"wal":[9]},"marks":[],"cut_off":[],"begun":{"7":2}}'
    ) == CommittedTransactions({"wal": (9,)})
    assert CommittedTransactions().to_json() == ""
    assert CommittedTransactions.from_json("") == CommittedTransactions()


def test_a_table_that_joins_adds_the_furthest_events_of_its_partitions() -> None:
    own = CommittedTransactions({"wal": (5,)}, {ORDERS: FurthestEvent(LogPosition("wal", (4,)), (3, 3, 1, 1))})
    main = CommittedTransactions({"wal": (9,)})
    assert joined_transactions(main, own) == CommittedTransactions(
        {"wal": (9,)}, {ORDERS: FurthestEvent(LogPosition("wal", (4,)), (3, 3, 1, 1))}
    )
    assert joined_transactions(NOTHING_COMMITTED, own) == own


def test_committed_transactions_of_one_log_do_not_affect_another() -> None:
    committed = CommittedTransactions({"server a": (100,), "server b": (5,)})
    assert committed.has(LogPosition("server a", (50,)))
    assert not committed.has(LogPosition("server b", (6,)))
    assert not committed.has(LogPosition("server c", (1,)))
    assert not CommittedTransactions({"server a": (100,)}).is_ahead_of(committed), (
        "a table that stopped before a failover joins again after it"
    )
    assert CommittedTransactions({"server c": (1,)}).is_ahead_of(committed)


COMMITTED = CommittedTransactions({"wal": (9,)})


def readers_of(*states: ReaderState) -> Readers:
    return {state.reader: state for state in states}


def entry(name: str, topic: str) -> Entry[Table]:
    return Entry(f"id of {name}", Table("shop", name, "shop", topic, Envelope.DEBEZIUM), "", 0)


def test_the_transaction_topic_stays_when_tables_go_and_goes_with_the_last() -> None:
    orders = {"shop.orders": entry("orders", ORDERS.topic)}
    progress = {"shop.orders": TableProgress(object_id="id of orders")}
    gone = TopicPartition("shop.public.gone", 0)
    main = ReaderState(
        "shop", MAIN_READER, tables=progress, position={ORDERS: 5, TRANSACTIONS: 9, gone: 3}, transactions=COMMITTED
    )
    left = with_tables(readers_of(main), "shop", orders, TRANSACTIONS.topic)[MAIN_READER]
    assert dict(left.position) == {ORDERS: 5, TRANSACTIONS: 9}
    assert left.transactions == COMMITTED
    empty = with_tables(readers_of(main), "shop", {}, TRANSACTIONS.topic)[MAIN_READER]
    assert (dict(empty.position), empty.transactions) == ({}, NOTHING_COMMITTED)


def test_a_batch_that_a_crash_left_open_goes_with_the_last_table() -> None:
    again = {"shop.orders": replace(entry("orders", ORDERS.topic), object_id="another")}
    progress = {"shop.orders": TableProgress(object_id="id of orders")}
    intent = Intent("shop", MAIN_READER, 70, {ORDERS: 8, TRANSACTIONS: 12}, frozenset())
    position, ids = {ORDERS: 5, TRANSACTIONS: 9}, {ORDERS.topic: "old", TRANSACTIONS.topic: "old"}
    main = ReaderState("shop", MAIN_READER, progress, position, ids, upper_ms=51, intent=intent, transactions=COMMITTED)
    found = with_tables(readers_of(main), "shop", again, TRANSACTIONS.topic)
    assert set(found) == {MAIN_READER}, "the recreated table does not wait for topics that it no longer reads"
    assert found[MAIN_READER] == ReaderState(
        "shop", MAIN_READER, {"shop.orders": TableProgress(object_id="another")}, upper_ms=71
    )


@pytest.mark.parametrize(("is_complete", "since_ms"), [(True, 99), (False, None)])
def test_a_table_is_readable_as_it_joins(is_complete: bool, since_ms: int | None) -> None:
    high_water_marks = HighWaterMarks(snapshot=SnapshotProgress((1, 1, 1, 1), complete=is_complete))
    main = ReaderState("shop", MAIN_READER, position={ORDERS: 5}, upper_ms=50)
    own = ReaderState(
        "shop",
        "shop.orders",
        tables={"shop.orders": TableProgress(high_water_marks=high_water_marks)},
        position={ORDERS: 5},
        upper_ms=100,
    )
    found = joined(
        readers_of(main, own),
        "shop.orders",
        FetchedOffsets(frozenset({ORDERS.topic}), {}),
        lambda *_: False,
        {ORDERS.topic},
    )
    assert set(found) == {MAIN_READER}
    assert found[MAIN_READER].tables["shop.orders"].since_ms == since_ms


def test_the_wait_of_a_source_counts_from_the_last_new_event() -> None:
    tables = {"shop.orders": ORDERS.topic, "shop.other": "shop.public.other"}
    first = waiting_for(Incomplete("7:70", 3, came=3), {ORDERS.topic}, tables, None, 1_000)
    assert (first.since_ms, first.tables) == (1_000, ("shop.orders",))
    assert waiting_for(Incomplete("7:70", 3, came=3), {ORDERS.topic}, tables, first, 2_000) == first
    assert waiting_for(Incomplete("7:70", 3, came=4), {ORDERS.topic}, tables, first, 2_000).since_ms == 2_000
    assert waiting_for(Incomplete("8:80", 3, came=3), {ORDERS.topic}, tables, first, 2_000).since_ms == 2_000
    more_arrived = Incomplete("7:75", 4, came=3)
    assert waiting_for(more_arrived, {ORDERS.topic}, tables, first, 2_000).since_ms == 1_000


def test_an_error_names_the_transaction_its_missing_events_and_the_waiting_tables() -> None:
    incomplete = Incomplete("7:70", 3, {ORDERS.topic: (3, 1_500)})
    error = incomplete_error("shop", waiting_for(incomplete, set(), {"shop.orders": ORDERS.topic}, None, 0))
    assert error.message == 'transaction 7:70 of source "shop" is incomplete'
    assert 'than have arrived: 3 of 1,500 changes of topic "shop.public.orders".' in error.detail
    assert "since 1970-01-01 00:00:00.000 UTC" in error.detail
    assert "shop.orders" in error.detail
    assert "DROP SOURCE … CASCADE" in error.hint
    assert "have the connector snapshot its tables again" in error.hint
