"""Debezium's messages become tables: each test writes a topic, ingests it, and reads the table."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import LakeFactory
from tests.debezium_messages import Topic
from tests.debezium_shop import COLUMNS, Shop, both, each_once, row
from tests.debezium_shop import shop as shop  # noqa: PLC0414 - pytest finds fixtures by name
from tests.debezium_shop import topic as topic  # noqa: PLC0414

pytestmark = pytest.mark.spark


def decimal(precision: int, scale: int) -> dict[str, Any]:
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    return {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "version": 1, "parameters": parameters}


@both
def test_rows_are_created_updated_and_deleted(shop: Shop, topic: Topic, envelope: str) -> None:
    shop.table(topic, envelope)
    topic.snapshot([row(1), row(2), row(3)])
    topic.update(row(1), row(1, "b"))
    topic.delete(row(2))
    topic.create(row(4))
    (first,) = shop.ingest(topic)
    assert shop.rows() == [(1, "b", 0), (3, "a", 0), (4, "a", 0)]
    assert not first.stopped
    topic.delete(row(1))
    topic.create(row(1, "again", 5))
    topic.update(row(3), row(3, None, None))
    topic.delete(row(4))
    (second,) = shop.ingest(topic)
    assert shop.rows() == [(1, "again", 5), (3, None, None)]
    (table,) = second.tables
    assert (table.inserted, table.updated, table.deleted) == (0, 2, 1)
    (third,) = shop.ingest(topic)
    assert third.tables == ()
    assert third.timestamp_ms > second.timestamp_ms


def test_resent_changes_change_nothing(shop: Shop, topic: Topic) -> None:
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(1)])
    for n in range(1, 6):
        topic.update(row(1, "a", n - 1), row(1, "a", n))
    topic.resend(3)
    shop.ingest(topic)
    assert shop.rows() == [(1, "a", 5)]
    topic.update(row(1, "a", 5), row(1, "a", 6))
    topic.update(row(1, "a", 6), row(1, "a", 7))
    shop.ingest(topic)
    topic.lines = []
    (shop.directory / "t.jsonl").open("a").close()
    history = (shop.directory / "t.jsonl").read_text().splitlines()
    topic.lines = history[-2:-1]
    topic.resend(1)
    topic.lines = topic.lines[1:]
    (report,) = shop.ingest(topic)
    assert shop.rows() == [(1, "a", 7)]
    assert [t.repeated for t in report.tables] == [1]
    assert report.tables[0].snapshot_id is None


def test_a_primary_key_update_is_a_delete_and_a_create(shop: Shop, topic: Topic) -> None:
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(1)])
    shop.ingest(topic)
    topic.lsn += 10
    lsn = topic.lsn
    topic.delete(row(1))
    topic.lsn = lsn
    topic.create(row(2))
    shop.ingest(topic)
    assert shop.rows() == [(2, "a", 0)]


def test_a_resnapshot_is_applied_and_rows_it_lacks_are_deleted(shop: Shop, topic: Topic) -> None:
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(1), row(2), row(3)])
    topic.update(row(1), row(1, "b"))
    shop.ingest(topic)
    topic.lsn, topic.last_commit = 5_000, None
    topic.snapshot([row(1, "again")], ended=False)
    shop.ingest(topic)
    assert shop.rows() == [(1, "again", 0), (2, "a", 0), (3, "a", 0)]
    topic.snapshot([row(3)])
    topic.create(row(4))
    shop.ingest(topic)
    assert shop.rows() == [(1, "again", 0), (3, "a", 0), (4, "a", 0)]


def test_an_abandoned_first_snapshot_leaves_no_rows(shop: Shop, topic: Topic) -> None:
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(1), row(2)], ended=False)
    topic.lsn = 2_000
    topic.snapshot([row(2, "b"), row(3)])
    shop.ingest(topic)
    assert shop.rows() == [(2, "b", 0), (3, "a", 0)]


def test_a_table_is_readable_from_the_batch_that_completes_its_first_snapshot(shop: Shop, topic: Topic) -> None:
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(1)], ended=False)
    shop.ingest(topic)
    main = shop.lake.batches.readers("shop")["main"]
    assert main.tables["s.t"].since_ms is None
    topic.snapshot([row(2)])
    (report,) = shop.ingest(topic)
    main = shop.lake.batches.readers("shop")["main"]
    assert main.tables["s.t"].since_ms == report.timestamp_ms
    assert main.upper_ms == report.timestamp_ms + 1


@each_once
def test_truncate_is_applied_when_requested(
    make_lake: LakeFactory, tmp_path: Path, topic: Topic, envelope: str, settings: dict[str, int]
) -> None:
    shop = Shop(make_lake(**settings), tmp_path / "topics")
    shop.table(topic, envelope, "WITH (TRUNCATE = 'apply')")
    topic.snapshot([row(1), row(2)])
    shop.ingest(topic)
    topic.update(row(1), row(1, "b"))
    topic.resend(1)
    topic.truncate()
    topic.create(row(5))
    (report,) = shop.ingest(topic)
    assert shop.rows() == [(5, "a", 0)]
    repeated = 1 if envelope == "DEBEZIUM" else 0
    assert [(t.inserted, t.deleted, t.repeated) for t in report.tables] == [(1, 2, repeated)]


@both
def test_a_truncate_empties_the_table_of_rows_that_an_ad_hoc_snapshot_sent_before(
    shop: Shop, topic: Topic, envelope: str
) -> None:
    shop.table(topic, envelope, "WITH (TRUNCATE = 'apply')")
    topic.snapshot([row(1), row(2)])
    shop.ingest(topic)
    topic.ad_hoc_snapshot([row(1), row(2)])
    topic.ad_hoc_snapshot([row(3)], partition=1)
    topic.truncate()
    topic.create(row(2, "loaded again"), row(4, "sent before its row is read"))
    topic.create(row(5, "loaded"), partition=1)
    topic.ad_hoc_snapshot([row(4, "read afterwards")])
    topic.ad_hoc_snapshot([row(5, "read afterwards")], partition=1)
    shop.ingest(topic)
    read = "read afterwards"
    assert shop.rows() == [(2, "loaded again", 0), (4, read, 0), (5, read, 0)]


def test_a_truncate_of_a_database_without_positions_keeps_what_comes_afterwards(shop: Shop, topic: Topic) -> None:
    topic.connector = "oracle"
    shop.table(topic, "DEBEZIUM UPSERT", "WITH (TRUNCATE = 'apply')")
    topic.snapshot([row(1)])
    shop.ingest(topic)
    topic.create(row(2))
    topic.truncate()
    topic.create(row(3))
    topic.truncate()
    topic.create(row(4))
    shop.ingest(topic)
    assert shop.rows() == [(4, "a", 0)]


@both
def test_a_resnapshot_replaces_rows_that_an_ad_hoc_snapshot_sent_before(
    shop: Shop, topic: Topic, envelope: str
) -> None:
    shop.table(topic, envelope)
    topic.snapshot([row(1), row(2)])
    shop.ingest(topic)
    topic.ad_hoc_snapshot([row(1), row(2)])
    topic.lsn, topic.last_commit = 5_000, None
    topic.snapshot([row(1, "again")])
    topic.ad_hoc_snapshot([row(1, "read afterwards")])
    topic.create(row(3))
    shop.ingest(topic)
    assert shop.rows() == [(1, "read afterwards", 0), (3, "a", 0)]


def test_truncate_is_ignored_by_default(shop: Shop, topic: Topic) -> None:
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(1)])
    topic.truncate()
    shop.ingest(topic)
    assert shop.rows() == [(1, "a", 0)]


def test_columns_are_added_widened_and_dropped_upstream(shop: Shop, topic: Topic) -> None:
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(1)])
    topic.columns |= {"n": {"type": "int64"}, "extra": {"type": "string"}}
    topic.create({**row(2), "n": 2**40, "extra": "x"})
    shop.ingest(topic)
    assert shop.rows() == [(1, "a", 0, None), (2, "a", 2**40, "x")]
    del topic.columns["name"]
    topic.create({"id": 3, "n": 1, "extra": "y"})
    topic.update({"id": 1, "n": 0, "extra": None}, {"id": 1, "n": 7, "extra": "z"})
    shop.ingest(topic)
    assert shop.rows() == [(1, None, 7, "z"), (2, "a", 2**40, "x"), (3, None, 1, "y")]


@pytest.mark.parametrize("max_records", [0, 1_000], ids=["by Spark", "in the driver"])
@pytest.mark.parametrize("batches", [1, 2])
def test_a_column_that_gets_fewer_digits_keeps_its_type_in_one_batch_and_in_two(
    make_lake: LakeFactory, tmp_path: Path, max_records: int, batches: int
) -> None:
    shop = Shop(make_lake(driver_read_max_records=max_records), tmp_path / "topics")
    topic = Topic("t", {"id": {"type": "int64"}, "x": decimal(10, 2)})
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([{"id": 1, "x": "MDk="}])
    if batches > 1:
        shop.ingest(topic)
    topic.columns["x"] = decimal(5, 1)
    topic.create({"id": 2, "x": "MDk="})
    shop.ingest(topic)
    assert shop.rows() == [(1, Decimal("123.45")), (2, Decimal("1234.50"))]


@pytest.mark.parametrize("max_records", [0, 1_000], ids=["by Spark", "in the driver"])
@pytest.mark.parametrize(
    "cuts", [{1}, {1, 2}, *(pytest.param(cuts, marks=pytest.mark.soak) for cuts in (set(), {2}))], ids=str
)
def test_a_type_that_changes_and_comes_back_gives_the_same_rows_wherever_a_batch_begins(
    make_lake: LakeFactory, tmp_path: Path, max_records: int, cuts: set[int]
) -> None:
    shop = Shop(make_lake(driver_read_max_records=max_records), tmp_path / "topics")
    topic = Topic("t", {"id": {"type": "int64"}, "x": decimal(10, 2)})
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([{"id": 1, "x": "MDk="}])
    for number, digits in enumerate([(5, 1), (10, 2)], 1):
        if number in cuts:
            shop.ingest(topic)
        topic.columns["x"] = decimal(*digits)
        topic.create({"id": number + 1, "x": "MDk="})
    shop.ingest(topic)
    assert shop.rows() == [(1, Decimal("123.45")), (2, Decimal("1234.50")), (3, Decimal("123.45"))]


def test_an_impossible_change_stops_that_table_only(shop: Shop, topic: Topic) -> None:
    other = Topic("other", dict(COLUMNS))
    shop.table(topic, "DEBEZIUM")
    shop.table(other, "DEBEZIUM")
    topic.snapshot([row(1)])
    other.snapshot([row(1)])
    shop.ingest(topic, other)
    topic.columns["n"] = {"type": "string"}
    topic.create(row(2, "a", "not a number"))  # type: ignore[arg-type]
    other.create(row(2))
    assert {name: error.code for name, error in shop.stopped(topic, other).items()} == {"s.t": "type-changed"}
    assert shop.rows("other") == [(1, "a", 0), (2, "a", 0)]
    assert shop.rows("t") == [(1, "a", 0)]
    catalog = shop.lake.settings.catalog_name
    shop.lake.sql(f"ALTER TABLE {catalog}.s.t RENAME COLUMN n TO n_number")
    other.create(row(3))
    shop.ingest(other)
    assert shop.rows("t") == [(1, "a", 0, None), (2, "a", None, "not a number")]
    assert set(shop.lake.batches.readers("shop")) == {"main"}


def test_the_debezium_envelope_needs_before(shop: Shop, topic: Topic) -> None:
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(1)])
    topic.update(None, row(1, "b"))
    (report,) = shop.ingest(topic)
    error = report.stopped["s.t"]
    assert error.code == "before-missing"
    assert "REPLICA IDENTITY FULL" in error.hint


@both
def test_a_restored_database_stops_the_table(shop: Shop, topic: Topic, envelope: str) -> None:
    shop.table(topic, envelope)
    topic.committed_ms = 1_000
    topic.snapshot([row(1), row(2)])
    topic.create(row(3))
    shop.ingest(topic)
    topic.resend(1)
    topic.create(row(4))
    assert shop.ingest(topic)[-1].stopped == {}
    topic.lsn, topic.last_commit, topic.committed_ms = 500, None, 2_000
    topic.snapshot([row(1)])
    error = shop.ingest(topic)[-1].stopped["s.t"]
    assert error.code == "database-restored"
    assert "is at 0/1F4 in the database's log, and is newer than those up to 0/3FC" in error.detail
    assert [id_ for id_, *_ in shop.rows()] == [1, 2, 3, 4]


def test_the_debezium_envelope_is_refused_on_sql_server(shop: Shop) -> None:
    topic = Topic("t", dict(COLUMNS), connector="sqlserver")
    shop.table(topic, "DEBEZIUM")
    topic.create(row(1))
    (report,) = shop.ingest(topic)
    assert report.stopped["s.t"].code == "envelope-connector"
    shop.lake.sql("DROP TABLE s.t")
    shop.table(topic, "DEBEZIUM UPSERT")
    shop.ingest(topic)
    assert shop.rows() == [(1, "a", 0)]


def test_a_bad_message_is_kept_and_healed(shop: Shop, topic: Topic) -> None:
    shop.table(topic, "DEBEZIUM UPSERT")
    topic.snapshot([row(1)])
    key = topic._key(row(1))
    topic.raw(key, b"not json")
    topic.raw(None, b"{}")
    topic.create(row(2))
    shop.ingest(topic)
    assert shop.rows() == [(1, "a", 0), (2, "a", 0)]
    assert [(offset, healed) for offset, _, healed in shop.errors()] == [(1, False), (2, False)]
    assert shop.lake.batches.readers("shop")["main"].tables["s.t"].open_errors == 2
    topic.update(row(1), row(1, "good"))
    shop.ingest(topic)
    assert [(offset, healed) for offset, _, healed in shop.errors()] == [(1, True), (2, False)]
    assert shop.lake.batches.readers("shop")["main"].tables["s.t"].open_errors == 1


def test_on_error_fail_stops_the_table(shop: Shop, topic: Topic) -> None:
    shop.table(topic, "DEBEZIUM UPSERT", "WITH (ON ERROR = 'fail')")
    topic.snapshot([row(1)])
    topic.raw(topic._key(row(1)), b"not json")
    (report,) = shop.ingest(topic)
    assert report.stopped["s.t"].code == "bad-input"


def test_a_table_created_later_catches_up_and_joins(shop: Shop, topic: Topic) -> None:
    later = Topic("later", dict(COLUMNS))
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(1)])
    later.snapshot([row(1), row(2)])
    shop.ingest(topic, later)
    shop.table(later, "DEBEZIUM")
    topic.create(row(2))
    later.create(row(3))
    reports = shop.ingest(topic, later)
    assert [r.reader for r in reports] == ["main", "backfill", "main"]
    assert shop.rows("later") == [(1, "a", 0), (2, "a", 0), (3, "a", 0)]
    assert set(shop.lake.batches.readers("shop")) == {"main"}


def test_a_table_dropped_and_created_again_is_loaded_again(shop: Shop, topic: Topic) -> None:
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(1)])
    topic.create(row(2))
    shop.ingest(topic)
    shop.lake.sql("DROP TABLE s.t")
    shop.table(topic, "DEBEZIUM UPSERT")
    shop.ingest(topic)
    assert shop.rows() == [(1, "a", 0), (2, "a", 0)]
