"""Tables without a key whose columns come and go within one batch: each removal finds its row."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import LakeFactory
from tests.debezium_messages import Topic
from tests.debezium_shop import Shop

pytestmark = pytest.mark.spark

_INT = {"type": "int32"}
_OPTIONAL = {"type": "int32", "optional": True}


@pytest.fixture(params=[{}, {"driver_read_max_records": 0}], ids=["in-driver", "by-spark"])
def shop(make_lake: LakeFactory, tmp_path: Path, request: pytest.FixtureRequest) -> Shop:
    return Shop(make_lake(**request.param), tmp_path / "topics")


@pytest.fixture
def topic(shop: Shop) -> Topic:
    topic = Topic("t", {"id": _INT, "n": _OPTIONAL}, key=(), has_keys=False, has_orders=True)
    shop.table(topic, "DEBEZIUM")
    return topic


def _row(id_: int, **others: int | None) -> dict[str, int | None]:
    return {"id": id_, **others}


def test_rows_are_removed_after_a_column_is_dropped(shop: Shop, topic: Topic) -> None:
    topic.snapshot([_row(1, n=0), _row(2, n=0), _row(3, n=0), _row(3, n=1), _row(3, n=2)])
    assert shop.stopped(topic) == {}
    topic.create(_row(4, n=4), _row(5, n=5))
    topic.delete(_row(3, n=1))
    del topic.columns["n"]
    topic.delete(_row(1))
    topic.update(_row(2), _row(6))
    topic.delete(_row(3))
    topic.delete(_row(5))
    assert shop.stopped(topic) == {}
    assert [id_ for id_, _ in shop.rows()] == [3, 4, 6]
    assert {(4, 4), (6, None)} < {*shop.rows()}
    topic.delete(_row(3))
    assert shop.stopped(topic) == {}
    assert shop.rows() == [(4, 4), (6, None)]


def test_columns_are_dropped_one_after_the_other_before_the_first_batch(shop: Shop, topic: Topic) -> None:
    topic.columns["m"] = _OPTIONAL
    topic.snapshot([_row(1, n=0, m=0), _row(1, n=1, m=1), _row(2, n=2, m=2)])
    del topic.columns["n"]
    topic.update(_row(1, m=1), _row(3, m=3))
    del topic.columns["m"]
    topic.delete(_row(1))
    topic.delete(_row(3))
    assert shop.stopped(topic) == {}
    assert [row[0] for row in shop.rows()] == [2]


def test_a_row_that_the_table_lacks_is_reported_after_a_column_is_dropped(shop: Shop, topic: Topic) -> None:
    topic.snapshot([_row(1, n=0)])
    shop.ingest(topic)
    topic.create(_row(2, n=2))
    del topic.columns["n"]
    topic.delete(_row(9))
    assert [error.code for error in shop.stopped(topic).values()] == ["row-missing"]


def test_a_removal_from_before_a_new_column_leaves_later_rows(shop: Shop, topic: Topic) -> None:
    topic.snapshot([_row(1, n=0), _row(2, n=0)])
    shop.ingest(topic)
    topic.delete(_row(1, n=0))
    topic.columns["c"] = _OPTIONAL
    topic.create(_row(1, n=0, c=7))
    topic.update(_row(2, n=0, c=None), _row(2, n=0, c=8))
    assert shop.stopped(topic) == {}
    assert shop.rows() == [(1, 0, 7), (2, 0, 8)]


def test_a_column_that_is_added_again_keeps_the_rows_that_have_it(shop: Shop, topic: Topic) -> None:
    topic.create(_row(1, n=0))
    del topic.columns["n"]
    topic.delete(_row(1))
    assert shop.stopped(topic) == {}
    assert shop.rows() == []
    topic.columns["n"] = _OPTIONAL
    topic.create(_row(1, n=9))
    assert shop.stopped(topic) == {}
    assert shop.rows() == [(1, 9)]


def test_a_removal_between_a_drop_and_a_new_column_of_the_name_is_not_guessed(shop: Shop, topic: Topic) -> None:
    topic.snapshot([_row(1, n=0)])
    shop.ingest(topic)
    topic.create(_row(2, n=0))
    del topic.columns["n"]
    topic.delete(_row(1))
    topic.columns["n"] = _OPTIONAL
    topic.create(_row(1, n=9))
    assert [error.code for error in shop.stopped(topic).values()] == ["row-missing"]
    assert shop.rows() == [(1, 0)]
