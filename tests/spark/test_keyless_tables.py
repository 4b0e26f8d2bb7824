"""Tables without a key: rows are a multiset, which Debezium's events of whole rows change by one row at a time."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lakehold.lake import Lake
from tests.conftest import LakeFactory
from tests.debezium_messages import Topic
from tests.debezium_shop import COLUMNS, Shop, few_and_many, row
from tests.debezium_shop import shop as shop  # noqa: PLC0414 - pytest finds fixtures by name

pytestmark = pytest.mark.spark

MEASURED = {"id": {"type": "int64"}, "name": {"type": "string"}, "x": {"type": "double"}}


def keyless(name: str, columns: dict[str, dict[str, Any]]) -> Topic:
    return Topic(name, dict(columns), key=(), has_keys=False, has_orders=True)


@pytest.fixture
def topic() -> Topic:
    return keyless("t", COLUMNS)


@few_and_many
def test_a_life_of_equal_rows(make_lake: LakeFactory, tmp_path: Path, topic: Topic, settings: dict[str, int]) -> None:
    shop = Shop(make_lake(**settings), tmp_path / "topics")
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(1), row(1), row(2, None, None), row(2, None, None), row(3)])
    (first,) = shop.ingest(topic)
    assert not first.stopped
    assert shop.rows() == [(1, "a", 0), (1, "a", 0), (2, None, None), (2, None, None), (3, "a", 0)]
    topic.create(row(1), row(1), row(4), row(4))
    topic.delete(row(2, None, None))
    topic.update(row(3), row(4))
    topic.update(row(4), row(4))
    topic.delete(row(1))
    (second,) = shop.ingest(topic)
    assert not second.stopped
    assert shop.rows() == [(1, "a", 0)] * 3 + [(2, None, None)] + [(4, "a", 0)] * 3
    (table,) = second.tables
    assert (table.records, table.inserted, table.updated, table.deleted) == (10, 4, 0, 2)
    topic.create(row(5), row(5))
    (third,) = shop.ingest(topic)
    assert [(t.inserted, t.deleted) for t in third.tables] == [(2, 0)]
    state = shop.lake.tables.table_state("s.t")
    assert state is not None
    assert [s.summary["lakehold.step"] for s in state.history] == ["1", "1", "0", "1"]
    assert [s.summary["operation"] for s in state.history] == ["append", "append", "delete", "overwrite"]
    assert state.table.metadata.refs.keys() == {"main"}


VALUES = (0.0, -0.0, float("nan"), 1.5, None)


class Model:
    """A table of a database in plain Python, and the topic that reports its changes."""

    def __init__(self, topic: Topic, seed: int) -> None:
        self.rows: list[dict[str, Any]] = []
        self._topic = topic
        self._random = random.Random(seed)

    def step(self) -> None:
        """Make one change, or send messages again; most rows exist several times."""
        choice = self._random.random()
        if choice < 0.1:
            self._topic.resend(self._random.randint(1, min(6, len(self._topic.lines) or 1)))
        elif choice < 0.5 or not self.rows:
            added = [self._row() for _ in range(self._random.randint(1, 3))]
            self.rows += added
            self._topic.create(*added)
        else:
            gone = self.rows.pop(self._random.randrange(len(self.rows)))
            if choice < 0.8:
                self._topic.delete(gone)
            else:
                self.rows.append(self._row())
                self._topic.update(gone, self.rows[-1])

    def _row(self) -> dict[str, Any]:
        choose = self._random.choice
        return {"id": choose([1, 2, None]), "name": choose(["a", None]), "x": choose(VALUES)}


def counted(rows: list[Any]) -> Counter[str]:
    """Count rows as images of them show them: NaN is NaN, and -0.0 is not 0.0."""
    return Counter(map(repr, rows))


@pytest.mark.parametrize(("seed", "settings"), [(1, {"max_batch_records": 7}), (2, {"driver_read_max_records": 0})])
def test_a_table_is_what_a_multiset_would_be(
    make_lake: LakeFactory, tmp_path: Path, seed: int, settings: dict[str, int]
) -> None:
    topic = keyless("t", MEASURED)
    shop, model = Shop(make_lake(**settings), tmp_path / "topics"), Model(topic, seed)
    shop.table(topic, "DEBEZIUM")
    model.rows = [model._row() for _ in range(10)]
    topic.snapshot(model.rows)
    for steps in (0, 6, 20):
        for _ in range(steps):
            model.step()
        if steps == 20:
            topic.lsn, topic.last_commit = topic.lsn + 1_000, None
            topic.snapshot(model.rows)
        assert shop.stopped(topic) == {}
        assert counted(shop.rows()) == counted([tuple(row.values()) for row in model.rows])


def test_a_thousand_equal_rows(shop: Shop, topic: Topic) -> None:
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(1)] * 3_000)
    topic.create(*[row(1, None)] * 2_000)
    shop.ingest(topic)
    for _ in range(1_000):
        topic.delete(row(1), tombstone=False)
        topic.update(row(1, None), row(1))
    shop.ingest(topic)
    assert Counter(shop.rows()) == {(1, "a", 0): 3_000, (1, None, 0): 1_000}


def test_events_that_are_sent_again_are_skipped(shop: Shop, topic: Topic) -> None:
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(1)])
    topic.create(row(1), row(1))
    topic.update(row(1), row(2))
    topic.resend(3)
    (first,) = shop.ingest(topic)
    assert shop.rows() == [(1, "a", 0), (1, "a", 0), (2, "a", 0)]
    assert [table.repeated for table in first.tables] == [4], "an update makes two changes"
    topic.lines = (shop.directory / "t.jsonl").read_text().splitlines()[-2:]
    topic.resend(2)
    topic.lines = topic.lines[2:]
    topic.create(row(3))
    shop.ingest(topic)
    assert shop.rows() == [(1, "a", 0), (1, "a", 0), (2, "a", 0), (3, "a", 0)]


def test_a_resnapshot_replaces_all_rows(shop: Shop, topic: Topic) -> None:
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(1), row(1), row(2)], ended=False)
    topic.lsn += 1_000
    topic.snapshot([row(1), row(1), row(2)])
    topic.delete(row(1))
    shop.ingest(topic)
    assert shop.rows() == [(1, "a", 0), (2, "a", 0)], "the first snapshot was not finished"
    topic.create(row(3))
    topic.delete(row(2))
    shop.ingest(topic)
    topic.lsn, topic.last_commit = topic.lsn + 1_000, None
    topic.snapshot([row(1), row(4), row(4)])
    topic.delete(row(4))
    (report,) = shop.ingest(topic)
    assert not report.stopped
    assert shop.rows() == [(1, "a", 0), (4, "a", 0)]
    assert [(table.inserted, table.deleted) for table in report.tables] == [(2, 2)]


def test_a_truncate_empties_the_table(shop: Shop, topic: Topic) -> None:
    shop.table(topic, "DEBEZIUM", "WITH (TRUNCATE = 'apply')")
    topic.snapshot([row(1), row(1)])
    shop.ingest(topic)
    topic.delete(row(1))
    topic.truncate()
    topic.create(row(2), row(2))
    topic.delete(row(2))
    shop.ingest(topic)
    assert shop.rows() == [(2, "a", 0)]
    topic.truncate()
    (report,) = shop.ingest(topic)
    assert not report.stopped
    assert shop.rows() == []


def test_columns_come_and_go(shop: Shop, topic: Topic) -> None:
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(1), row(2), row(2)])
    shop.ingest(topic)
    topic.columns["note"] = {"type": "string"}
    topic.create({**row(3), "note": "x"})
    topic.delete({**row(2), "note": None})
    topic.columns["id"] = {"type": "int32"}
    topic.create({**row(1), "note": None})
    shop.ingest(topic)
    del topic.columns["n"]
    topic.delete({"id": 3, "name": "a", "note": "x"})
    topic.delete({"id": 1, "name": "a", "note": None})
    assert shop.stopped(topic) == {}
    assert shop.rows() == [(1, "a", 0, None), (2, "a", 0, None)]


def test_nested_values_are_compared_exactly(shop: Shop) -> None:
    numbers = {"type": "array", "items": {"type": "double", "optional": True}}
    tags = {"type": "map", "keys": {"type": "string"}, "values": {"type": "double"}}
    topic = keyless("t", {"id": {"type": "int32"}, "numbers": numbers, "tags": tags})
    shop.table(topic, "DEBEZIUM")
    rows = [{"id": 1, "numbers": [zero, None], "tags": {"a": other}} for zero in (0.0, -0.0) for other in (0.0, -0.0)]
    topic.snapshot([*rows, {"id": 1, "numbers": None, "tags": None}])
    shop.ingest(topic)
    topic.delete(rows[1])
    topic.delete(rows[2])
    topic.delete({"id": 1, "numbers": None, "tags": None})
    assert shop.stopped(topic) == {}
    assert shop.rows() == [(1, [-0.0, None], {"a": -0.0}), (1, [0.0, None], {"a": 0.0})]
    assert [str(numbers) for _, numbers, _ in shop.rows()] == ["[-0.0, None]", "[0.0, None]"]


def test_columns_of_the_message_are_not_compared(shop: Shop, topic: Topic) -> None:
    shop.lake.sql(
        "CREATE TABLE s.t (id BIGINT, n BIGINT, later STRING) FROM SOURCE shop (TOPIC 't') INCLUDE OFFSET ENVELOPE DEBEZIUM"
    )
    topic.snapshot([row(1, "a"), row(1, "b"), row(2)])
    topic.delete(row(1, "b"))
    shop.ingest(topic)
    topic.update(row(2), row(3))
    assert shop.stopped(topic) == {}
    assert [(id_, n, later) for id_, n, later, _ in shop.rows()] == [(1, 0, None), (3, 0, None)]


def test_message_keys_that_come_later_change_nothing(shop: Shop, topic: Topic) -> None:
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(1), row(2)])
    shop.ingest(topic)
    topic.key, topic.has_keys = ("id",), True
    topic.update(row(1), row(1, "b"))
    topic.delete(row(2))
    topic.create(row(3))
    topic.key, topic.has_keys = (), False
    topic.create(row(3))
    assert shop.stopped(topic) == {}
    assert shop.rows() == [(1, "b", 0), (3, "a", 0), (3, "a", 0)]


def test_a_delete_of_a_row_that_the_table_lacks_stops_it(shop: Shop, topic: Topic) -> None:
    other = keyless("other", COLUMNS)
    shop.table(topic, "DEBEZIUM")
    shop.table(other, "DEBEZIUM")
    topic.snapshot([row(1), row(2)])
    other.create(row(1))
    shop.ingest(topic, other)
    topic.delete(row(1))
    topic.delete(row(3))
    other.update(row(7), row(8))
    stopped = shop.stopped(topic, other)
    assert stopped.keys() == {"s.t"}, "nothing says that the other table has all rows"
    assert stopped["s.t"].code == "row-missing"
    assert "The change at offset 4 of topic t" in stopped["s.t"].detail
    assert shop.rows() == [(1, "a", 0), (2, "a", 0)]
    assert shop.rows("other") == [(1, "a", 0), (8, "a", 0)]


def test_a_message_in_error_is_not_healed_by_another(shop: Shop, topic: Topic) -> None:
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(1)])
    topic.raw(None, b"{}")
    shop.ingest(topic)
    topic.create(row(2))
    topic.delete(row(9))
    topic.update(row(8), row(7))
    topic.delete(row(2))
    (report,) = shop.ingest(topic)
    assert not report.stopped, "the message in error may have been row 8 or 9"
    assert shop.rows() == [(1, "a", 0), (7, "a", 0)]
    assert shop.errors() == [(1, "unknown-schema", False), (3, "row-missing", False), (5, "row-missing", False)]
    assert shop.lake.batches.readers("shop")["main"].tables["s.t"].open_errors == len(shop.errors())


@pytest.mark.parametrize(
    "code", ["order-missing", "keyless-partitions", "keyless-snapshot", "before-missing", "key-missing"]
)
def test_events_that_a_table_without_a_key_cannot_follow_stop_it(shop: Shop, topic: Topic, code: str) -> None:
    shop.table(topic, "DEBEZIUM UPSERT" if code == "key-missing" else "DEBEZIUM")
    topic.snapshot([row(1)])
    send_what_stops(topic, code)
    (stop,) = shop.stopped(topic).values()
    assert stop.code == code
    assert shop.lake.tables.table_state("s.t") is None


def send_what_stops(topic: Topic, code: str) -> None:
    """Send an event that stops a table without a key by the error `code`; the code of a missing key needs none."""
    match code:
        case "order-missing":
            topic.has_orders = False
            topic.create(row(2))
        case "keyless-partitions":
            topic.create(row(2), partition=1)
        case "keyless-snapshot":
            topic.ad_hoc_snapshot([row(1)])
        case "before-missing":
            topic.update(None, row(2))


def test_a_primary_key_that_is_dropped_stops_a_table_that_has_it(shop: Shop, topic: Topic) -> None:
    topic.key, topic.has_keys = ("id",), True
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(1)])
    shop.ingest(topic)
    topic.key, topic.has_keys = (), False
    topic.create(row(1))
    (stop,) = shop.stopped(topic).values()
    assert stop.code == "key-changed"
    shop.lake.sql("DROP TABLE s.t")
    shop.table(topic, "DEBEZIUM")
    (stop,) = shop.stopped(topic).values()
    assert stop.code == "key-changed", "the topic still has messages with a key"


def test_subscribe_shows_how_many_equal_rows_came_and_went(shop: Shop, topic: Topic) -> None:
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(1), row(1), row(1)])
    (first,) = shop.ingest(topic)
    topic.delete(row(1))
    topic.delete(row(1))
    topic.create(row(2), row(2))
    (second,) = shop.ingest(topic)
    changes = shop.lake.sql(f"SUBSCRIBE s.t AS OF {first.timestamp_ms}").rows
    assert changes == [
        (first.timestamp_ms, 3, 1, "a", 0),
        (second.timestamp_ms, -2, 1, "a", 0),
        (second.timestamp_ms, 2, 2, "a", 0),
    ]
    states = shop.lake.sql(f"SUBSCRIBE s.t ENVELOPE UPSERT (KEY (id)) AS OF {first.timestamp_ms}").rows
    assert [state for _, state, *_ in states] == ["key_violation"] * 3


def test_a_topic_whose_first_message_has_neither_key_nor_row_has_the_key_of_its_first_rows(
    lake: Lake, tmp_path: Path
) -> None:
    topic = Topic("t", dict(COLUMNS))
    shop = Shop(lake, tmp_path / "topics")
    shop.table(topic, "DEBEZIUM")
    topic.truncate()
    shop.ingest(topic)
    assert shop.rows() == []
    topic.create(row(1))
    topic.update(row(1), row(1, "b"))
    (report,) = shop.ingest(topic)
    assert not report.stopped
    assert shop.rows() == [(1, "b", 0)]
    state = lake.tables.table_state("s.t")
    assert state is not None
    assert state.properties["lakehold.key"] == "id"
