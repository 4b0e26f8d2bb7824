"""The journal of signals and notifications, read from topics of a real broker that hold messages as Debezium writes them."""

from __future__ import annotations

import json

import pytest

from lakehold.kafka.client import KafkaClient, shared_client
from lakehold.kafka.connection_options import KafkaOptions
from lakehold.model.log_positions import LogPosition
from lakehold.upstream.connector_config import SideTopics
from lakehold.upstream.found import FoundSnapshot
from lakehold.upstream.found_log import FoundLog
from lakehold.upstream.journal import (
    Journal,
    recorded_first_snapshot,
    recorded_log,
    recorded_members,
    recorded_missed,
    recorded_sync_point,
    requested_snapshot,
)
from tests.kafka_broker import Broker

pytestmark = pytest.mark.stack


class Conversation:
    """The signals sent to a connector, the notifications it answers with, and a journal that reads both."""

    def __init__(self, broker: Broker, prefix: str) -> None:
        self._broker = broker
        self._topics = SideTopics(prefix)
        self._said = 0
        for name in (self._topics.signals, self._topics.notifications):
            broker.create_topic(name=name)
        self.journal = self.open_journal()

    def open_journal(self) -> Journal:
        """Open a journal, as another process would."""
        client: KafkaClient = shared_client(KafkaOptions(self._broker.address, {}, {}), 15.0)
        return Journal(client, self._topics, None)

    def ask(self, object_id: str, table: str) -> str:
        """Signal that a table be snapshotted; return the id of the signal."""
        signal = requested_snapshot(object_id, table)
        self._broker.produce(self._topics.signals, [signal.encode()])
        return str(json.loads(signal)["id"])

    def ask_again(self, *object_ids: str, table: str = "public.a", through: int = 7) -> str:
        """Signal that a table be snapshotted again for the lake tables that it feeds; return the id of the signal."""
        signal = requested_snapshot(object_ids[0], table, dict.fromkeys(object_ids, through), is_certain=True)
        self.signal(signal)
        return str(json.loads(signal)["id"])

    def signal(self, text: str) -> None:
        self._broker.produce(self._topics.signals, [text.encode()])

    def ended(self, last_signal: str, kind: str = "COMPLETED") -> None:
        """Notify that the connector finished all that it was asked for."""
        self._say(last_signal, "Incremental Snapshot", kind, {})

    def repeated(self) -> dict[str, str]:
        """Return the signals of complete repeated snapshots by object id."""
        self.complete()
        return {o: repeat.signal_id for o, repeat in self.journal.repeats.items() if repeat.is_complete}

    def note(self, object_id: str, table: str) -> None:
        """Note that a table is in a first snapshot that has not begun."""
        signal = recorded_first_snapshot(object_id, table, self._said)
        self._broker.produce(self._topics.signals, [signal.encode()])

    def scanned(self, last_signal: str, table: str, status: str = "SUCCEEDED") -> None:
        """Notify that the connector scanned a table, and which signal it read last."""
        data = {"scanned_collection": table, "status": status, "data_collections": "…", "total_rows_scanned": "1"}
        self._say(last_signal, "Incremental Snapshot", "TABLE_SCAN_COMPLETED", data)

    def first_snapshot(self, kind: str) -> None:
        self._say("f0f0", "Initial Snapshot", kind, {})

    def notify(self, value: bytes) -> None:
        self._broker.produce(self._topics.notifications, [value])
        self._said += 1

    def _say(self, signal: str, aggregate: str, kind: str, data: dict[str, str]) -> None:
        said = {"id": signal, "aggregate_type": aggregate, "type": kind, "additional_data": data}
        self._broker.produce(self._topics.notifications, [json.dumps({"payload": said}).encode()])
        self._said += 1

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
    said = Conversation(broker, "together")
    said.ask("a1", "public.a")
    said.ask("b1", "public.odd b")
    last = said.ask("c1", "public.c")
    assert said.complete() == set()
    said.scanned(last, "public.a")
    assert said.complete() == {"a1"}
    said.scanned(last, "public.odd b", "EMPTY")
    said.scanned(last, "public.c", "SQL_EXCEPTION")
    assert said.complete() == {"a1", "b1"}
    assert said.journal.snapshots["c1"].failures == ("SQL_EXCEPTION",)

    again = said.ask("c1", "public.c")
    assert said.complete() == {"a1", "b1"}
    said.scanned(again, "public.c")
    assert said.complete() == {"a1", "b1", "c1"}


def test_a_table_that_is_created_again_is_not_completed_by_earlier_notifications(broker: Broker) -> None:
    said = Conversation(broker, "again")
    first = said.ask("a1", "public.a")
    said.scanned(first, "public.a")
    assert said.complete() == {"a1"}
    second = said.ask("a2", "public.a")
    assert said.complete() == {"a1"}
    said.scanned(second, "public.a")
    assert said.complete() == {"a1", "a2"}


def test_tables_of_the_first_snapshot_are_complete_when_the_snapshot_is(broker: Broker) -> None:
    said = Conversation(broker, "first")
    said.note("a1", "public.a")
    said.first_snapshot("STARTED")
    assert said.complete() == set()
    said.first_snapshot("COMPLETED")
    assert said.complete() == {"a1"}
    said.ask("b1", "public.b")
    assert said.complete() == {"a1"}

    # The connector starts over: earlier notifications are not about the new snapshot.
    said.note("b1", "public.b")
    assert said.complete() == {"a1"}
    said.first_snapshot("STARTED")
    said.first_snapshot("COMPLETED")
    assert said.complete() == {"a1", "b1"}


def test_a_table_is_snapshotted_again_for_all_lake_tables_that_it_feeds(broker: Broker) -> None:
    said = Conversation(broker, "repeated")
    joined = said.ask("b1", "public.b")
    again = said.ask_again("a1", "a2")
    said.scanned(joined, "public.b")
    said.ended(joined)
    assert said.repeated() == {}
    said.scanned(again, "public.a")
    assert said.repeated() == {}, "the connector may have other requests left"
    said.ended(again)
    assert said.repeated() == {"a1": again, "a2": again}
    assert {repeat.replaces_through for repeat in said.journal.repeats.values()} == {7}


def test_a_scan_that_began_before_the_request_does_not_complete_the_repeated_snapshot(broker: Broker) -> None:
    said = Conversation(broker, "scanning")
    first = said.ask_again("a1")
    second = said.ask_again("a1")
    said.scanned(second, "public.a")
    assert said.repeated() == {}, "the scan may be that of the first request"
    assert first != second
    said.scanned(second, "public.a", "SQL_EXCEPTION")
    said.ended(second)
    assert said.repeated() == {}
    assert said.journal.repeats["a1"].is_failed
    third = said.ask_again("a1")
    said.scanned(third, "public.a", "EMPTY")
    said.ended(third)
    assert said.repeated() == {"a1": third}


def test_a_repeated_snapshot_that_is_aborted_or_without_a_scan_is_not_complete(broker: Broker) -> None:
    said = Conversation(broker, "stopped")
    for kind in ("ABORTED", "COMPLETED"):
        requested = said.ask_again("a1")
        said.ended(requested, kind)
        assert said.repeated() == {}
        assert said.journal.repeats["a1"].is_failed


def test_a_first_snapshot_has_the_changes_missed_before_it(broker: Broker) -> None:
    said = Conversation(broker, "restarted")
    said.ask_again("a1")
    said.signal(recorded_missed("b1", "public.b"))
    said.complete()
    assert said.journal.snapshots["b1"].missed
    for table in ("a", "b"):
        said.note(f"{table}1", f"public.{table}")
    said.complete()
    assert said.journal.repeats == {}
    assert not said.journal.snapshots["b1"].missed


def test_missed_changes_are_forgotten_when_the_table_is_snapshotted_again(broker: Broker) -> None:
    said = Conversation(broker, "missed")
    said.signal(recorded_missed("a1", "public.a"))
    said.ask_again("a1")
    said.complete()
    assert not said.journal.snapshots["a1"].missed


def test_the_last_note_of_each_membership_counts(broker: Broker) -> None:
    said = Conversation(broker, "members")
    said.signal(recorded_members("s1", "p", {"public.a": "1/2", "public.b": "3/4"}))
    said.signal(recorded_members("s1", "p", {"public.a": "5/2"}))
    assert said.complete() == set()
    assert said.journal.members == {"public.a": "5/2", "public.b": "3/4"}
    assert said.journal.snapshots == {}


def test_the_last_note_of_the_databases_log_counts(broker: Broker) -> None:
    said = Conversation(broker, "wal")
    assert said.journal.log is None
    for log in (FoundLog("7", 1), FoundLog("7", 3, ((1, 500), (2, 2**40)), is_awaited=True)):
        said.signal(recorded_log("s1", log))
        assert said.complete() == set()
        assert said.journal.log == log
    assert said.journal.snapshots == {}


def test_the_position_where_a_joined_table_fits_the_others_is_noted(broker: Broker) -> None:
    said = Conversation(broker, "fits")
    position = LogPosition("domain 0", (7,))
    said.signal(recorded_sync_point("a1", "public.a", position))
    assert said.complete() == set()
    assert said.journal.snapshots == {"a1": FoundSnapshot(sync_point=position)}


def test_notifications_in_another_format_are_skipped(broker: Broker) -> None:
    said = Conversation(broker, "foreign")
    for value in (b"\0\0\0\0\x05\x02a", b"{}", b"[1]", b"\xff"):
        said.notify(value)
    said.scanned(said.ask("a1", "public.a"), "public.a")
    assert said.complete() == {"a1"}
