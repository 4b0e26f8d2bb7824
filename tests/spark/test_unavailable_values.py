"""Large values that PostgreSQL did not send: rows keep what the lake has, and a row that has nothing to keep is never null."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakehold.ingest.decode.placeholder import PLACEHOLDER
from tests.conftest import LakeFactory
from tests.debezium_messages import Topic
from tests.debezium_shop import COLUMNS, Shop, both, each_once, row
from tests.debezium_shop import shop as shop  # noqa: PLC0414 - pytest finds fixtures by name
from tests.debezium_shop import topic as topic  # noqa: PLC0414

pytestmark = pytest.mark.spark


def bare(id_: int) -> dict[str, object]:
    """Return a deleted row as `REPLICA IDENTITY DEFAULT` shows it: its key."""
    return {"id": id_, "name": "", "n": 0}


@both
def test_an_unavailable_value_keeps_the_stored_one(shop: Shop, topic: Topic, envelope: str) -> None:
    shop.table(topic, envelope)
    topic.snapshot([row(1, "large"), row(2, "large")])
    shop.ingest(topic)
    topic.update(row(1, "large"), row(1, PLACEHOLDER, 1))
    topic.update(row(2, "large"), row(2, "other", 1))
    topic.update(row(2, "other"), row(2, PLACEHOLDER, 2))
    shop.ingest(topic)
    assert shop.rows() == [(1, "large", 1), (2, "other", 2)]


@pytest.mark.parametrize(
    ("key", "settings"),
    [(2, {}), (7, {"driver_read_max_records": 0})],
    ids=["among others, in driver", "after all others, by Spark"],
)
def test_a_row_that_gets_another_key_stops_a_table_whose_database_cannot_be_asked(
    make_lake: LakeFactory, tmp_path: Path, topic: Topic, settings: dict[str, int], key: int
) -> None:
    shop, other = Shop(make_lake(**settings), tmp_path / "topics"), Topic("other", dict(COLUMNS))
    shop.table(topic, "DEBEZIUM UPSERT")
    shop.table(other, "DEBEZIUM UPSERT")
    topic.snapshot([row(1), row(3), row(4, "large")])
    shop.ingest(topic, other)
    other.create(row(1))
    topic.update(None, row(3, PLACEHOLDER, 1))
    if key == 2:
        topic.delete(bare(4))
    topic.create(row(key, PLACEHOLDER))
    stopped = shop.stopped(topic, other)
    assert {name: error.code for name, error in stopped.items()} == {"s.t": "value-unavailable"}
    assert 'lack their values of "name"' in stopped["s.t"].message
    assert "REPLICA IDENTITY FULL" in stopped["s.t"].hint
    assert shop.rows() == [(1, "a", 0), (3, "a", 0), (4, "large", 0)]
    assert shop.rows("other") == [(1, "a", 0)]


@each_once
def test_a_row_does_not_keep_the_value_of_one_that_had_its_key_before(
    make_lake: LakeFactory, tmp_path: Path, topic: Topic, envelope: str, settings: dict[str, int]
) -> None:
    shop = Shop(make_lake(**settings), tmp_path / "topics")
    shop.table(topic, envelope)
    topic.snapshot([row(4, "large"), row(5, "another")])
    shop.ingest(topic)
    topic.delete(bare(5))
    topic.delete(bare(4))
    topic.create(row(5, PLACEHOLDER))
    assert shop.stopped(topic)["s.t"].code == "value-unavailable"
    assert shop.rows() == [(4, "large", 0), (5, "another", 0)]


def test_a_value_that_the_table_does_not_have_as_a_column_is_not_missed(shop: Shop, topic: Topic) -> None:
    shop.lake.sql("CREATE TABLE s.t (id BIGINT, n INT) FROM SOURCE shop (TOPIC 't') ENVELOPE DEBEZIUM UPSERT")
    topic.snapshot([row(4, "large")])
    shop.ingest(topic)
    topic.delete(bare(4))
    topic.create(row(5, PLACEHOLDER))
    assert shop.stopped(topic) == {}
    assert shop.rows() == [(5, 0)]


@both
def test_a_listed_column_in_another_case_keeps_its_stored_value(shop: Shop, topic: Topic, envelope: str) -> None:
    shop.lake.sql(f"CREATE TABLE s.t (id BIGINT, Name STRING, n INT) FROM SOURCE shop (TOPIC 't') ENVELOPE {envelope}")
    topic.snapshot([row(1, "large"), row(2, "large")])
    shop.ingest(topic)
    topic.update(row(1, "large"), row(1, PLACEHOLDER, 1))
    topic.update(row(2, "large"), row(2, "other", 1))
    shop.ingest(topic)
    assert shop.rows() == [(1, "large", 1), (2, "other", 1)]
