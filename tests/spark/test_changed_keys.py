"""Keys of Debezium tables: named by the statement, read from the messages, changed or dropped upstream."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import LakeFactory
from tests.debezium_messages import Topic
from tests.debezium_shop import COLUMNS, Shop, both, each_once, row
from tests.debezium_shop import shop as shop  # noqa: PLC0414 - pytest finds fixtures by name
from tests.debezium_shop import topic as topic  # noqa: PLC0414

pytestmark = pytest.mark.spark


@both
def test_an_update_of_a_key_that_only_rows_have_removes_the_former_row(shop: Shop, topic: Topic, envelope: str) -> None:
    shop.table(topic, envelope, "KEY (name)")
    topic.snapshot([row(1, "a"), row(2, "b"), row(3, "c")])
    shop.ingest(topic)
    topic.update(row(1, "a"), row(1, "d"))
    topic.update(row(2, "b"), row(2, "a"))
    topic.update(row(3, "c"), row(3, "c", 5))
    topic.delete(row(1, "d"))
    shop.ingest(topic)
    assert shop.rows() == [(2, "a", 0), (3, "c", 5)]


def test_a_key_that_only_rows_have_needs_before(shop: Shop, topic: Topic) -> None:
    shop.table(topic, "DEBEZIUM UPSERT", "KEY (name)")
    topic.snapshot([row(1)])
    topic.update(None, row(1, "b"))
    (report,) = shop.ingest(topic)
    error = report.stopped["s.t"]
    assert error.code == "before-missing"
    assert "KEY (name) is not in every message key" in error.detail


@each_once
def test_a_null_in_a_message_key_stops_the_table_unless_it_has_a_key_of_its_own(
    make_lake: LakeFactory, tmp_path: Path, topic: Topic, envelope: str, settings: dict[str, int]
) -> None:
    shop = Shop(make_lake(**settings), tmp_path / "topics")
    topic.key = ("name",)
    topic.columns = {**COLUMNS, "name": {"type": "string", "optional": True}}
    shop.table(topic, envelope)
    topic.snapshot([row(1, "a"), row(2, None), row(3, None)])
    (report,) = shop.ingest(topic)
    error = report.stopped["s.t"]
    assert (error.code, error.detail[:34]) == ("key-null", "2 of 3 messages of topic t have a ")
    shop.lake.sql("DROP TABLE s.t")
    shop.table(topic, envelope, "KEY (id)")
    shop.ingest(topic)
    assert shop.rows() == [(1, "a", 0), (2, None, 0), (3, None, 0)]


@both
@pytest.mark.parametrize("at_once", [True, False])
def test_another_message_key_stops_the_table(shop: Shop, topic: Topic, envelope: str, at_once: bool) -> None:
    shop.table(topic, envelope)
    topic.snapshot([row(1)])
    if not at_once:
        shop.ingest(topic)
    topic.key = ("id", "name")
    topic.create(row(1, "b"))
    report = shop.ingest(topic)[-1]
    error = report.stopped["s.t"]
    assert error.code == "key-changed"
    assert "(id) and (id, name)" in error.detail
    shop.lake.sql("DROP TABLE s.t")
    shop.table(topic, envelope, "KEY (id, name)")
    shop.ingest(topic)
    assert shop.rows() == [(1, "a", 0), (1, "b", 0)]


@each_once
def test_a_dropped_primary_key_stops_the_table(
    make_lake: LakeFactory,
    tmp_path: Path,
    topic: Topic,
    envelope: str,
    settings: dict[str, int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    shop, other = Shop(make_lake(**settings), tmp_path / "topics"), Topic("other", dict(COLUMNS))
    shop.table(topic, envelope)
    shop.table(other, envelope)
    topic.snapshot([row(1), row(2)])
    other.snapshot([row(1)])
    shop.ingest(topic, other)
    topic.has_keys = False
    topic.create(row(1, "b"))
    topic.truncate()
    other.create(row(2))
    stopped = shop.stopped(topic, other)
    assert {name: error.code for name, error in stopped.items()} == {"s.t": "key-changed"}
    assert "are identified by (id)" in stopped["s.t"].detail
    assert "1 of 2 have none" in stopped["s.t"].detail
    assert "KEY (…)" in stopped["s.t"].hint
    assert shop.rows("t") == [(1, "a", 0), (2, "a", 0)]
    assert shop.rows("other") == [(1, "a", 0), (2, "a", 0)]
    topic.has_keys = True
    topic.create(row(3))
    assert shop.stopped(topic).keys() == {"s.t"}, "the messages without a key are still in the topic"
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len([line for line in warnings if line.startswith("table s.t stopped")]) == 1, (
        "each try of a follower would log it"
    )
    shop.lake.sql("DROP TABLE s.t")
    shop.table(topic, envelope, "KEY (id, name)")
    shop.ingest(topic)
    assert shop.rows("t") == [(1, "a", 0), (1, "b", 0), (2, "a", 0), (3, "a", 0)]
    assert shop.errors() == []


@both
def test_a_table_that_names_its_key_goes_on_without_a_primary_key(shop: Shop, topic: Topic, envelope: str) -> None:
    shop.table(topic, envelope, "KEY (id)")
    topic.snapshot([row(1), row(2), row(3)])
    shop.ingest(topic)
    topic.has_keys = False
    topic.update(row(1), row(1, "b"))
    topic.update(row(2), row(4))
    topic.delete(row(3), tombstone=False)
    shop.ingest(topic)
    assert shop.rows() == [(1, "b", 0), (4, "a", 0)]


@pytest.mark.parametrize(("envelope", "at_once"), [("DEBEZIUM", False), ("DEBEZIUM UPSERT", True)])
def test_a_column_that_leaves_a_key_of_several_stops_the_table_before_rows_become_one(
    shop: Shop, topic: Topic, envelope: str, at_once: bool
) -> None:
    shop.table(topic, envelope, "KEY (name, n)")
    topic.snapshot([row(1, "a", 1), row(2, "a", 2)])
    if not at_once:
        shop.ingest(topic)
    topic.columns = {"id": COLUMNS["id"], "name": COLUMNS["name"], "number": COLUMNS["n"]}
    for id_ in (1, 2):
        topic.update({"id": id_, "name": "a", "number": id_}, {"id": id_, "name": "a", "number": id_})
    error = shop.stopped(topic)["s.t"]
    assert error.code == "key-changed"
    assert 'Column "n" is neither in rows with the columns (id, name, number) nor in their message keys' in error.detail
    if not at_once:
        assert shop.rows() == [(1, "a", 1), (2, "a", 2)]
    shop.lake.sql("DROP TABLE s.t")
    shop.table(topic, envelope, "KEY (id, name)")
    shop.ingest(topic)
    assert [number for _, _, number, _ in shop.rows()] == [1, 2]


@both
def test_a_truncate_has_no_key_and_needs_none(shop: Shop, topic: Topic, envelope: str) -> None:
    shop.table(topic, envelope)
    topic.snapshot([row(1)])
    topic.truncate()
    topic.raw(None, None)
    topic.create(row(2))
    assert shop.ingest(topic)[-1].stopped == {}
    assert shop.rows() == [(1, "a", 0), (2, "a", 0)]


@both
def test_a_column_of_the_key_may_be_added_later_and_is_null_in_the_rows_from_before(
    shop: Shop, topic: Topic, envelope: str
) -> None:
    shop.table(topic, envelope, "KEY (tenant, id)")
    topic.snapshot([row(1), row(2)])
    topic.columns = {**COLUMNS, "tenant": {"type": "string", "optional": True}}
    topic.create({**row(3), "tenant": "a"})
    topic.create({**row(3, "b"), "tenant": "b"})
    topic.update({**row(2), "tenant": None}, {**row(2, "c"), "tenant": None})
    topic.update({**row(1), "tenant": None}, {**row(1), "tenant": "a"})
    assert shop.stopped(topic) == {}
    assert shop.rows() == [(1, "a", 0, "a"), (2, "c", 0, None), (3, "a", 0, "a"), (3, "b", 0, "b")]
    topic.create({**row(4), "tenant": "a"})
    assert shop.stopped(topic) == {}


def test_a_column_of_the_key_that_an_earlier_one_was_renamed_to_stops_the_table(shop: Shop, topic: Topic) -> None:
    shop.table(topic, "DEBEZIUM", "KEY (number, name)")
    topic.snapshot([row(1, "a", 1), row(2, "a", 2)])
    topic.columns = {"id": COLUMNS["id"], "name": COLUMNS["name"], "number": COLUMNS["n"]}
    topic.update({"id": 1, "name": "a", "number": 1}, {"id": 1, "name": "a", "number": 3})
    assert shop.stopped(topic)["s.t"].code == "key-changed"
