"""Tables that stop leave their reader, are created again, and join the others."""

from __future__ import annotations

from confluent_kafka import Uuid

from lakehold.definitions import Envelope, Table
from lakehold.errors import LakeholdError
from lakehold.ingest.membership import identified, joined, split, with_tables
from lakehold.ingest.read.offset_checks import faults
from lakehold.ingest.read.reader import FetchedOffsets
from lakehold.model.lake_definitions import Entry
from lakehold.model.offsets import TopicPartition, Watermarks
from lakehold.model.readers import MAIN_READER, Readers, ReaderState, TableProgress

_NAMES = ("a", "b", "c")


def _entry(name: str, object_id: str) -> Entry[Table]:
    return Entry(object_id, Table("shop", name, "shop", name, Envelope.DEBEZIUM), "", 0)


def _joined(readers: Readers, table: str, topic: str, identity: str) -> Readers:
    (reader,) = (name for name, state in readers.items() if table in state.tables)
    fetched = FetchedOffsets(frozenset({topic}), {TopicPartition(topic, 0): Watermarks(0, 5)}, {topic: identity})
    return joined(readers, reader, fetched, lambda *_: False, {topic})


def test_a_table_that_stopped_does_not_bring_back_the_identity_of_a_topic_that_was_created_again() -> None:
    main = ReaderState(
        "shop",
        MAIN_READER,
        tables={f"shop.{name}": TableProgress(object_id=name, since_ms=1) for name in _NAMES},
        position={TopicPartition(name, 0): 9 for name in _NAMES},
        topic_ids={name: f"{name} 1" for name in _NAMES},
        upper_ms=9,
    )
    stopped = split({MAIN_READER: main}, {f"shop.{name}": LakeholdError("stopped") for name in ("a", "b")})
    defined = {
        f"shop.{name}": _entry(name, object_id) for name, object_id in (("a", "a"), ("b", "b again"), ("c", "c"))
    }
    readers = with_tables(stopped, "shop", defined)
    found = _joined(_joined(readers, "shop.a", "a", "a 1"), "shop.b", "b", "b 2")
    assert set(found) == {MAIN_READER}
    assert found[MAIN_READER].topic_ids == {"a": "a 1", "b": "b 2", "c": "c 1"}


def test_a_broker_that_begins_to_give_its_topics_identities_has_not_created_them_again() -> None:
    def fetched(identity: Uuid) -> FetchedOffsets:
        return FetchedOffsets(frozenset("t"), {TopicPartition("t", 0): Watermarks(0, 5)}, {"t": str(identity)})

    def recorded(identity: Uuid, before: Readers) -> Readers:
        return identified(before, fetched(identity), lambda _: ["t"])

    none, first, second = Uuid(0, 0), Uuid(1, 1), Uuid(2, 2)
    readers = recorded(none, {MAIN_READER: ReaderState("shop", MAIN_READER)})
    for identity in (first, none, first):  # The broker is upgraded, downgraded and upgraded again.
        assert not faults(fetched(identity), {}, readers[MAIN_READER].topic_ids)
        readers = recorded(identity, readers)
    assert readers[MAIN_READER].topic_ids == {"t": str(first)}
    assert [e.code for e in faults(fetched(second), {}, readers[MAIN_READER].topic_ids).values()] == ["topic-recreated"]
