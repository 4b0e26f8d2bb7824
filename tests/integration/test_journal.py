"""The journal of signals and notifications, read from topics of a real broker that hold messages as Debezium writes them."""

from __future__ import annotations

import json

import pytest

from lakehold.errors import UpstreamError
from lakehold.kafka.client import KafkaClient, shared_client
from lakehold.kafka.connection_options import KafkaOptions
from lakehold.model.log_positions import LogPosition
from lakehold.upstream.connect.journal import Journal
from lakehold.upstream.connect.signals import (
    new_signal_id,
    recorded_first_snapshot,
    recorded_log,
    recorded_members,
    recorded_missed,
    recorded_shapes,
    recorded_sync_point,
    requested_snapshot,
)
from lakehold.upstream.found.server_log import FoundLog
from lakehold.upstream.found.snapshots import FoundSnapshot
from lakehold.upstream.wanted.connector_config import SideTopics
from tests.kafka_broker import Broker

pytestmark = pytest.mark.stack


class Conversation:
    """The signals sent to a connector, the notifications it answers with, and a journal that reads both."""

    def __init__(self, broker: Broker, prefix: str) -> None:
        self._broker = broker
        self._topics = SideTopics(prefix)
        self._sent = 0
        for name in (self._topics.signals, self._topics.notifications):
            broker.create_topic(name=name)
        self.journal = self.open_journal()

    def open_journal(self) -> Journal:
        """Open a journal, as another process would."""
        client: KafkaClient = shared_client(KafkaOptions(self._broker.address, {}, {}), 15.0)
        return Journal(client, self._topics, None)

    def request(self, object_id: str, table: str) -> str:
        """Signal that a table be snapshotted; return the id of the signal."""
        signal = requested_snapshot(new_signal_id(object_id), table)
        self._broker.produce(self._topics.signals, [signal.encode()])
        return str(json.loads(signal)["id"])

    def request_again(self, *object_ids: str, table: str = "public.a", through: int = 7) -> str:
        """Signal that a table be snapshotted again for the lake tables that it feeds; return the id of the signal."""
        signal = requested_snapshot(
            new_signal_id(object_ids[0]), table, dict.fromkeys(object_ids, through), is_certain=True
        )
        self.signal(signal)
        return str(json.loads(signal)["id"])

    def signal(self, text: str) -> None:
        self._broker.produce(self._topics.signals, [text.encode()])

    def ended(self, last_signal: str, kind: str = "COMPLETED") -> None:
        """Notify that the connector finished all that it was asked for."""
        self._notify(last_signal, "Incremental Snapshot", kind, {})

    def repeated(self) -> dict[str, str]:
        """Return the signals of complete repeated snapshots by object id."""
        self.complete()
        return {o: repeat.signal_id for o, repeat in self.journal.repeats.items() if repeat.is_complete}

    def record_first_snapshot(self, object_id: str, table: str) -> None:
        """Record that a table is in a first snapshot that has not begun."""
        signal = recorded_first_snapshot(object_id, table, self._sent)
        self._broker.produce(self._topics.signals, [signal.encode()])

    def scanned(self, last_signal: str, table: str, status: str = "SUCCEEDED") -> None:
        """Notify that the connector scanned a table, and which signal it read last."""
        data = {"scanned_collection": table, "status": status, "data_collections": "…", "total_rows_scanned": "1"}
        self._notify(last_signal, "Incremental Snapshot", "TABLE_SCAN_COMPLETED", data)

    def first_snapshot(self, kind: str) -> None:
        self._notify("f0f0", "Initial Snapshot", kind, {})

    def notify(self, value: bytes) -> None:
        self._broker.produce(self._topics.notifications, [value])
        self._sent += 1

    def _notify(self, signal: str, aggregate: str, kind: str, data: dict[str, str]) -> None:
        notification = {"id": signal, "aggregate_type": aggregate, "type": kind, "additional_data": data}
        self._broker.produce(self._topics.notifications, [json.dumps({"payload": notification}).encode()])
        self._sent += 1

    def complete(self) -> set[str]:
        """Return the object ids of complete snapshots, and compare the journal with one that reads the topics at once."""
        reread = self.open_journal()
        for journal in (self.journal, reread):
            journal.refresh()
        assert reread.snapshots == self.journal.snapshots
        assert (reread.repeats, reread.members) == (self.journal.repeats, self.journal.members)
        assert reread.complete == self.journal.complete
        return set(reread.complete)


def test_each_of_several_tables_is_complete_when_it_was_scanned(broker: Broker) -> None:
    conversation = Conversation(broker, "together")
    conversation.request("a1", "public.a")
    conversation.request("b1", "public.odd b")
    last = conversation.request("c1", "public.c")
    assert conversation.complete() == set()
    conversation.scanned(last, "public.a")
    assert conversation.complete() == {"a1"}
    conversation.scanned(last, "public.odd b", "EMPTY")
    conversation.scanned(last, "public.c", "SQL_EXCEPTION")
    assert conversation.complete() == {"a1", "b1"}
    assert conversation.journal.snapshots["c1"].failures == ("SQL_EXCEPTION",)

    again = conversation.request("c1", "public.c")
    assert conversation.complete() == {"a1", "b1"}
    conversation.scanned(again, "public.c")
    assert conversation.complete() == {"a1", "b1", "c1"}


def test_a_table_that_is_created_again_is_not_completed_by_earlier_notifications(broker: Broker) -> None:
    conversation = Conversation(broker, "again")
    first = conversation.request("a1", "public.a")
    conversation.scanned(first, "public.a")
    assert conversation.complete() == {"a1"}
    second = conversation.request("a2", "public.a")
    assert conversation.complete() == {"a1"}
    conversation.scanned(second, "public.a")
    assert conversation.complete() == {"a1", "a2"}


def test_tables_of_the_first_snapshot_are_complete_when_the_snapshot_is(broker: Broker) -> None:
    conversation = Conversation(broker, "first")
    conversation.record_first_snapshot("a1", "public.a")
    conversation.first_snapshot("STARTED")
    assert conversation.complete() == set()
    conversation.first_snapshot("COMPLETED")
    assert conversation.complete() == {"a1"}
    conversation.request("b1", "public.b")
    assert conversation.complete() == {"a1"}

    # The connector starts over: earlier notifications are not about the new snapshot.
    conversation.record_first_snapshot("b1", "public.b")
    assert conversation.complete() == {"a1"}
    conversation.first_snapshot("STARTED")
    conversation.first_snapshot("COMPLETED")
    assert conversation.complete() == {"a1", "b1"}


def test_a_table_is_snapshotted_again_for_all_lake_tables_that_it_feeds(broker: Broker) -> None:
    conversation = Conversation(broker, "repeated")
    joined = conversation.request("b1", "public.b")
    again = conversation.request_again("a1", "a2")
    conversation.scanned(joined, "public.b")
    conversation.ended(joined)
    assert conversation.repeated() == {}
    conversation.scanned(again, "public.a")
    assert conversation.repeated() == {}, "the connector may have other requests left"
    conversation.ended(again)
    assert conversation.repeated() == {"a1": again, "a2": again}
    assert {repeat.replaces_through for repeat in conversation.journal.repeats.values()} == {7}


def test_a_scan_that_began_before_the_request_does_not_complete_the_repeated_snapshot(broker: Broker) -> None:
    conversation = Conversation(broker, "scanning")
    first = conversation.request_again("a1")
    second = conversation.request_again("a1")
    conversation.scanned(second, "public.a")
    assert conversation.repeated() == {}, "the scan may be that of the first request"
    assert first != second
    conversation.scanned(second, "public.a", "SQL_EXCEPTION")
    conversation.ended(second)
    assert conversation.repeated() == {}
    assert conversation.journal.repeats["a1"].is_failed
    third = conversation.request_again("a1")
    conversation.scanned(third, "public.a", "EMPTY")
    conversation.ended(third)
    assert conversation.repeated() == {"a1": third}


def test_a_repeated_snapshot_that_is_aborted_or_without_a_scan_is_not_complete(broker: Broker) -> None:
    conversation = Conversation(broker, "stopped")
    for kind in ("ABORTED", "COMPLETED"):
        requested = conversation.request_again("a1")
        conversation.ended(requested, kind)
        assert conversation.repeated() == {}
        assert conversation.journal.repeats["a1"].is_failed


def test_a_first_snapshot_has_the_changes_missed_before_it(broker: Broker) -> None:
    conversation = Conversation(broker, "restarted")
    conversation.request_again("a1")
    conversation.signal(recorded_missed("b1", "public.b"))
    conversation.complete()
    assert conversation.journal.snapshots["b1"].missed
    for table in ("a", "b"):
        conversation.record_first_snapshot(f"{table}1", f"public.{table}")
    conversation.complete()
    assert conversation.journal.repeats == {}
    assert not conversation.journal.snapshots["b1"].missed


def test_missed_changes_are_forgotten_when_the_table_is_snapshotted_again(broker: Broker) -> None:
    conversation = Conversation(broker, "missed")
    conversation.signal(recorded_missed("a1", "public.a"))
    conversation.request_again("a1")
    conversation.complete()
    assert not conversation.journal.snapshots["a1"].missed


def test_the_last_record_of_each_membership_counts(broker: Broker) -> None:
    conversation = Conversation(broker, "members")
    conversation.signal(recorded_members("s1", "p", {"public.a": "1/2", "public.b": "3/4"}))
    conversation.signal(recorded_members("s1", "p", {"public.a": "5/2"}))
    assert conversation.complete() == set()
    assert conversation.journal.members == {"public.a": "5/2", "public.b": "3/4"}
    assert conversation.journal.snapshots == {}


def test_the_last_record_of_the_databases_log_counts(broker: Broker) -> None:
    conversation = Conversation(broker, "wal")
    assert conversation.journal.log is None
    for log in (FoundLog("7", 1), FoundLog("7", 3, ((1, 500), (2, 2**40)), is_awaited=True)):
        conversation.signal(recorded_log("s1", log))
        assert conversation.complete() == set()
        assert conversation.journal.log == log
    assert conversation.journal.snapshots == {}


def test_the_position_where_a_joined_table_fits_the_others_is_recorded(broker: Broker) -> None:
    conversation = Conversation(broker, "fits")
    position = LogPosition("domain 0", (7,))
    conversation.signal(recorded_sync_point("a1", "public.a", position))
    assert conversation.complete() == set()
    assert conversation.journal.snapshots == {"a1": FoundSnapshot(sync_point=position)}


def test_notifications_in_another_format_are_skipped(broker: Broker) -> None:
    conversation = Conversation(broker, "foreign")
    for value in (b"\0\0\0\0\x05\x02a", b"{}", b"[1]", b"\xff"):
        conversation.notify(value)
    conversation.scanned(conversation.request("a1", "public.a"), "public.a")
    assert conversation.complete() == {"a1"}


def test_shapes_of_many_tables_are_recorded_though_no_message_could_hold_them(broker: Broker) -> None:
    conversation = Conversation(broker, "wide")
    columns = {str(number): [f"column_{number}", str(70_000 + number), False, True] for number in range(50)}
    shapes = {f"public.table_{number}": {"table": str(number), "columns": columns} for number in range(300)}
    client = shared_client(KafkaOptions(broker.address, {}, {}), 15.0)
    signals = recorded_shapes("s1", shapes)
    assert max(map(len, signals)) < 200_000 < sum(map(len, signals))
    client.send(SideTopics("wide").signals, "wide", signals[:1])
    journal = conversation.open_journal()
    journal.refresh()
    assert journal.shapes.items() < shapes.items()
    client.send(SideTopics("wide").signals, "wide", signals[1:])
    journal.refresh()
    assert journal.shapes == shapes


def test_a_record_that_is_too_large_is_reported_as_such(broker: Broker) -> None:
    conversation = Conversation(broker, "large")
    client = shared_client(KafkaOptions(broker.address, {}, {}), 15.0)
    with pytest.raises(UpstreamError, match="takes no record of this size") as refusal:
        client.send(SideTopics("large").signals, "large", ["x" * 3_000_000])
    assert (refusal.value.code, refusal.value.retryable) == ("kafka-record-size", False)
    conversation.journal.refresh()
