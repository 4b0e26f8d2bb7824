"""New columns of topics alone: `status` says that older rows may lack values, until they have them or somebody says so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from lakehold.overview import gather
from lakehold.overview.table_problems import problems_of
from lakehold.status import status_of
from tests.conftest import LakeFactory
from tests.debezium_messages import Topic
from tests.debezium_shop import COLUMNS, Shop, each_once, row
from tests.debezium_shop import shop as shop  # noqa: PLC0414 - pytest finds fixtures by name
from tests.debezium_shop import topic as topic  # noqa: PLC0414

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("jvm")]

WITH_C = {**COLUMNS, "c": {"type": "int32", "optional": True}}


def with_c(id_: int, c: int | None = 5) -> dict[str, Any]:
    return {**row(id_), "c": c}


def resnapshot(topic: Topic, *rows: dict[str, Any]) -> None:
    topic.lsn, topic.last_commit = topic.lsn + 1_000, None
    topic.snapshot(rows)


def notices(shop: Shop) -> tuple[str, ...]:
    """Return what `status` says; the page must say the same."""
    found = status_of(shop.lake).notices
    problems = [f"{t.name}: {p.text}. {p.hint}" for t in gather(shop.lake).tables for p in problems_of(t)]
    assert problems == [*found]
    return found


def named(shop: Shop) -> list[str]:
    return [notice.partition(" null ")[0] for notice in notices(shop)]


@each_once
def test_a_new_column_is_named_until_a_later_snapshot_has_brought_it(
    make_lake: LakeFactory, tmp_path: Path, envelope: str, settings: dict[str, int]
) -> None:
    shop, topic = Shop(make_lake(**settings), tmp_path / "topics"), Topic("t", dict(COLUMNS))
    other = Topic("other", dict(COLUMNS))
    for each in (topic, other):
        shop.table(each, envelope)
        each.snapshot([row(1), row(2)])
    shop.ingest(topic, other)
    assert notices(shop) == ()
    topic.columns = WITH_C
    topic.update(row(1), with_c(1))
    shop.ingest(topic)
    assert named(shop) == ["s.t: column c is"]
    # A snapshot that is not complete has not brought all rows.
    topic.lsn, topic.last_commit = topic.lsn + 1_000, None
    topic.snapshot([with_c(1)], ended=False)
    shop.ingest(topic)
    assert named(shop) == ["s.t: column c is"]
    topic.snapshot([with_c(2)])
    shop.ingest(topic)
    assert shop.rows() == [(1, "a", 0, 5), (2, "a", 0, 5)]
    assert notices(shop) == ()
    # So has a table without any row from before.
    topic.columns = {**WITH_C, "d": {"type": "int32", "optional": True}}
    topic.delete({**with_c(1), "d": 1})
    shop.ingest(topic)
    assert named(shop) == ["s.t: column d is"]


def test_somebody_who_knows_the_rows_says_so(shop: Shop, topic: Topic) -> None:
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(1), row(2)])
    shop.ingest(topic)
    topic.columns = {**WITH_C, "d": {"type": "int32", "optional": True}}
    topic.update(row(1), {**with_c(1), "d": 1})
    shop.ingest(topic)
    (notice,) = notices(shop)
    assert notice.startswith("s.t: columns c, d are null in rows from before")
    statement = re.search(r"ALTER TABLE .*\)", notice)
    assert statement is not None
    shop.lake.sql(statement[0])
    assert notices(shop) == ()
    topic.update({**with_c(1), "d": 1}, {**with_c(1, 6), "d": 1})
    shop.ingest(topic)
    assert notices(shop) == ()


def test_a_snapshot_brings_the_columns_that_its_rows_are_the_first_to_have(shop: Shop, topic: Topic) -> None:
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(1), row(2)])
    topic.update(row(1), row(1, "b"))
    shop.ingest(topic)
    topic.columns = WITH_C
    resnapshot(topic, with_c(1), with_c(2))
    shop.ingest(topic)
    assert notices(shop) == ()


def test_a_snapshot_from_before_the_column_brings_nothing(shop: Shop, topic: Topic) -> None:
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(1), row(2)])
    shop.ingest(topic)
    resnapshot(topic, row(1), row(2))
    topic.columns = WITH_C
    topic.update(row(1), with_c(1))
    shop.ingest(topic)
    assert shop.rows() == [(1, "a", 0, 5), (2, "a", 0, None)]
    assert named(shop) == ["s.t: column c is"]


def test_the_first_batch_may_have_rows_from_before_a_column(shop: Shop, topic: Topic) -> None:
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(1), row(2)])
    topic.columns = WITH_C
    topic.update(row(1), with_c(1))
    shop.ingest(topic)
    assert named(shop) == ["s.t: column c is"]


def test_a_table_without_a_key_is_named_until_a_snapshot_replaces_its_rows(shop: Shop) -> None:
    topic = Topic("t", dict(COLUMNS), key=(), has_keys=False, has_orders=True)
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(1), row(1)])
    shop.ingest(topic)
    topic.columns = WITH_C
    topic.create(with_c(3))
    shop.ingest(topic)
    assert named(shop) == ["s.t: column c is"]
    resnapshot(topic, with_c(1), with_c(1), with_c(3))
    shop.ingest(topic)
    assert shop.rows() == [(1, "a", 0, 5), (1, "a", 0, 5), (3, "a", 0, 5)]
    assert notices(shop) == ()


def test_listed_columns_and_a_table_without_rows_lack_nothing(shop: Shop) -> None:
    listed, empty = Topic("listed", dict(COLUMNS)), Topic("empty", dict(COLUMNS))
    shop.lake.sql("CREATE TABLE s.listed (id BIGINT, c INT) FROM SOURCE shop (TOPIC 'listed') ENVELOPE DEBEZIUM")
    shop.table(empty, "DEBEZIUM")
    listed.snapshot([row(1), row(2)])
    empty.create(row(1))
    empty.delete(row(1))
    shop.ingest(listed, empty)
    for each in (listed, empty):
        each.columns = WITH_C
        each.create(with_c(4))
    shop.ingest(listed, empty)
    assert shop.rows("listed") == [(1, None), (2, None), (4, 5)]
    assert notices(shop) == ()
