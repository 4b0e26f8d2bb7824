"""Subscriptions published to tables: the output equals the SUBSCRIBE, wherever a publisher stopped.

PyIceberg writes the tables that are subscribed to, so that only queries need Spark.
"""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import REGISTRY

from lakehold.errors import LakeholdError
from lakehold.failpoints import Point
from tests.conftest import LakeFactory
from tests.published_shop import DAY_MS, Row, Shop, publish_and_die

pytestmark = pytest.mark.spark


@pytest.fixture
def shop(make_lake: LakeFactory) -> Shop:
    made = Shop(make_lake)
    made.write((1, "a"), (2, "b"))
    return made


@pytest.mark.parametrize(
    ("clauses", "first"),
    [
        ("", {"mz_diff": 1, "id": 1, "v": "a"}),
        ("ENVELOPE UPSERT (KEY (id))", {"mz_state": "upsert", "id": 1, "v": "a"}),
        ("ENVELOPE DEBEZIUM (KEY (id))", {"mz_state": "insert", "id": 1, "before_v": None, "after_v": "a"}),
    ],
)
def test_the_output_equals_the_subscribe_and_grows_with_it(shop: Shop, clauses: str, first: Row) -> None:
    shop.subscribe(clauses)
    (report,) = shop.lake.publish("s")
    assert (report.table, report.rows, report.timestamps) == ("bi.out", 2, 1)
    assert shop.output()[0] == {"mz_timestamp": shop.output()[0]["mz_timestamp"], **first}
    shop.write((1, "A"), (3, "c"))
    shop.write((2, None))
    (report,) = shop.lake.publish("s")
    assert report.timestamps >= 2
    assert shop.output() == shop.expected(clauses)
    assert shop.lake.publish("s") == []


def test_a_failure_of_spark_is_explained_and_counted(shop: Shop) -> None:
    shop.lake.sql("CREATE SUBSCRIPTION s INTO bi.out AS SUBSCRIBE (SELECT id, 10 DIV (id - 3) AS share FROM shop.t)")
    shop.write((3, "c"))
    with pytest.raises(LakeholdError, match="division by zero") as raised:
        shop.lake.publish("s")
    labels = {"subscription": "s", "code": raised.value.code}
    assert REGISTRY.get_sample_value("lakehold_publish_failures_total", labels) == 1


def test_a_query_is_published_with_the_types_of_its_result(shop: Shop) -> None:
    query = "(SELECT v, count(*) AS n, CAST(sum(id) AS DECIMAL(10, 1)) AS ids FROM shop.t GROUP BY v)"
    shop.lake.sql(f"CREATE SUBSCRIPTION s INTO bi.out AS SUBSCRIBE {query} ENVELOPE UPSERT (KEY (v))")
    shop.write((3, "a"))
    shop.lake.publish("s")
    schema = shop.lake.catalog.load_table("bi.out").schema()
    assert {field.name: str(field.field_type) for field in schema.fields} == {
        "mz_timestamp": "long",
        "mz_state": "string",
        "v": "string",
        "n": "long",
        "ids": "decimal(10, 1)",
    }
    state = {row["v"]: (row["n"], str(row["ids"])) for row in shop.output()}
    assert state == {"a": (2, "4.0"), "b": (1, "2.0")}


def test_a_filter_on_the_newest_day_reads_only_that_day(shop: Shop) -> None:
    shop.subscribe()
    shop.lake.publish("s")
    table = shop.lake.catalog.load_table("bi.out")
    newest = max(row["mz_timestamp"] for row in shop.output())
    assert len(list(table.scan(row_filter=f"mz_timestamp >= {newest}").plan_files())) == 1
    assert list(table.scan(row_filter=f"mz_timestamp >= {newest + DAY_MS}").plan_files()) == []
    assert shop.lake.sql(f"SELECT id, v FROM bi.out WHERE mz_timestamp = {newest} ORDER BY id").rows == [
        (1, "a"),
        (2, "b"),
    ]


def test_a_subscription_begins_at_its_creation_however_late_it_is_published(shop: Shop) -> None:
    shop.subscribe()
    shop.write((3, "c"))
    shop.lake.publish("s")
    assert [row["id"] for row in shop.output() if row["mz_timestamp"] == shop.output()[0]["mz_timestamp"]] == [1, 2]
    assert shop.output() == shop.expected()


def test_changes_can_be_published_without_a_snapshot(shop: Shop) -> None:
    shop.subscribe("WITH (SNAPSHOT = false)")
    (report,) = shop.lake.publish("s")
    assert (report.rows, shop.output()) == (0, [])
    shop.write((3, "c"))
    shop.lake.publish("s")
    assert {row["id"] for row in shop.output()} >= {3}


def test_the_hold_advances_when_there_is_nothing_to_publish(shop: Shop) -> None:
    shop.subscribe()
    shop.lake.publish("s")
    first = shop.hold.at_ms
    assert first == shop.position - 1
    assert shop.lake.publish("s") == []
    assert (shop.hold.at_ms or 0) > (first or 0)
    assert shop.state() == "idle"
    shop.write((3, "c"))
    shop.lake.publish("s")
    assert shop.output() == shop.expected()


@pytest.mark.parametrize("point", ["before-publication", "after-publication"])
def test_a_killed_publisher_loses_and_repeats_nothing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, point: Point
) -> None:
    shop.subscribe()
    for step in range(3):
        publish_and_die(shop.lake, "s", monkeypatch, point)
        shop.write((1, f"step {step}"))
    shop.lake.publish("s")
    assert shop.counted(shop.output()) == shop.counted(shop.expected())
    assert (shop.hold.at_ms or 0) >= shop.position - 1


def test_a_commit_whose_answer_was_lost_is_not_repeated(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.subscribe()
    shop.lake.publish("s")
    shop.write((3, "c"))
    commit, lost = shop.lake.catalog.commit_table, list[Any]()

    def answers_late(table: Any, *rest: Any) -> Any:
        done = commit(table, *rest)
        if table.name() == ("bi", "out") and not lost:
            lost.append(done)
            raise OSError("the connection was reset")
        return done

    monkeypatch.setattr(shop.lake.catalog, "commit_table", answers_late)
    shop.lake.publish("s")
    assert lost
    assert shop.output() == shop.expected()


def test_compaction_and_expiry_of_the_output_keep_its_position(shop: Shop) -> None:
    shop.subscribe()
    shop.lake.publish("s")
    shop.write((3, "c"))
    shop.lake.publish("s")
    before = shop.output()
    shop.lake.sql("CALL system.rewrite_data_files(table => 'bi.out', options => map('min-input-files', '2'))")
    shop.lake.sql(
        "CALL system.expire_snapshots(table => 'bi.out', older_than => TIMESTAMP '2100-01-01', retain_last => 1)"
    )
    assert len(shop.lake.catalog.load_table("bi.out").snapshots()) == 1
    shop.write((4, "d"))
    shop.lake.publish("s")
    assert len(shop.output()) > len(before)
    assert shop.output() == shop.expected()


def test_a_rolled_back_output_is_published_again(shop: Shop) -> None:
    shop.subscribe(options="WITH (ON LAPSE = 'resnapshot')")
    shop.lake.publish("s")
    first = shop.lake.catalog.load_table("bi.out").current_snapshot()
    shop.write((3, "c"))
    shop.lake.publish("s")
    assert first is not None
    shop.lake.catalog.load_table("bi.out").manage_snapshots().set_current_snapshot(first.snapshot_id).commit()
    (report,) = shop.lake.publish("s")
    assert report.restarted
    assert [(row["id"], row["v"]) for row in shop.output()] == [(1, "a"), (2, "b"), (3, "c")]


def test_many_small_commits_keep_few_manifests(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakehold.publish.output_table.MANIFESTS_MOST", 3)
    shop.subscribe()
    for step in range(6):
        shop.write((1, f"step {step}"))
        shop.lake.publish("s")
    snapshot = shop.lake.catalog.load_table("bi.out").current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(shop.lake.catalog.load_table("bi.out").io)) <= 3
    assert shop.output() == shop.expected()


def test_a_commit_never_ends_within_a_timestamp(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakehold.publish.publisher.COMMIT_ROWS", 1)
    monkeypatch.setattr("lakehold.publish.output_files.FILE_BYTES", 1)
    shop.subscribe()
    for step in range(3):
        shop.write((1, f"step {step}"), (2, f"step {step}"))
    reports = shop.lake.publish("s")
    assert len(reports) > 3
    assert all(report.timestamps <= 1 for report in reports)
    positions = [report.position_ms for report in reports]
    assert positions == sorted(set(positions))
    assert shop.output() == shop.expected()
