"""The clock of a machine steps by an hour between two batches: times go on, and read what they did."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lakehold.errors import LakeholdError, SourceBusy, SubscriberLapsed
from lakehold.lake import Lake
from lakehold.times import now_ms
from tests.conftest import LakeFactory
from tests.debezium_messages import Topic

pytestmark = pytest.mark.spark

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@pytest.fixture
def topic() -> Topic:
    return Topic("t", {"id": {"type": "int64"}})


@pytest.fixture
def shop(make_lake: LakeFactory, topic: Topic, tmp_path: Path) -> Lake:
    """Return a lake with a table of one row."""
    topic.snapshot([{"id": 1}])
    topic.write(tmp_path / "topics")
    lake = make_lake()
    lake.sql(
        f"CREATE SOURCE shop FROM FILES '{tmp_path}/topics' FORMAT JSON;"
        "CREATE TABLE s.t FROM SOURCE shop (TOPIC 't') ENVELOPE DEBEZIUM"
    )
    lake.ingest("shop")
    return lake


def step_back(monkeypatch: pytest.MonkeyPatch) -> None:
    step(monkeypatch, -HOUR_MS)


def step(monkeypatch: pytest.MonkeyPatch, by_ms: int) -> None:
    """Let the clock of this process, but not of Spark's Java, step."""
    nanoseconds, seconds = time.time_ns, time.time
    monkeypatch.setattr(time, "time_ns", lambda: nanoseconds() + by_ms * 1_000_000)
    monkeypatch.setattr(time, "time", lambda: seconds() + by_ms / 1000)


def test_batches_reads_and_changes_go_on_after_the_clock_stepped_back(
    shop: Lake, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_ms = shop.batches.history("shop")[-1].mz_timestamp
    step_back(monkeypatch)
    assert now_ms() < first_ms
    made = []
    for row in (2, 3):
        topic.create({"id": row})
        topic.write(tmp_path / "topics")
        (report,) = [each for each in shop.ingest("shop") if each.records]
        assert not report.stopped
        made.append(report.timestamp_ms)
    second_ms, third_ms = made
    assert first_ms < second_ms < third_ms
    for time_ms, rows in ((first_ms, [1]), (second_ms, [1, 2]), (third_ms, [1, 2, 3])):
        assert sorted(id_ for (id_,) in shop.sql(f"SELECT id FROM s.t AS OF {time_ms}").rows) == rows
    changes = shop.sql(f"SUBSCRIBE s.t WITH (SNAPSHOT = false) AS OF {first_ms} UP TO {third_ms + 1}").rows
    assert changes == [(second_ms, 1, 2), (third_ms, 1, 3)]
    assert [str(report.error) for report in shop.maintain(["s.t"])] == ["None"]


def test_spark_reads_all_tables_that_were_written_after_the_clock_stepped_back(
    shop: Lake, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.sql("CREATE SUBSCRIPTION changes INTO s.changes AS SUBSCRIBE s.t")
    shop.publish("changes")
    step_back(monkeypatch)
    topic.create({"id": 2})
    topic.write(tmp_path / "topics")
    shop.ingest("shop")
    shop.publish("changes")
    catalog = shop.catalog
    tables = [*catalog.list_tables("mz_catalog"), *catalog.list_tables("s")]
    counts = {name: shop.spark.table(f"{catalog.name}.{'.'.join(name)}").count() for name in tables}
    assert counts["s", "changes"] == 2
    assert counts["mz_catalog", "mz_batches"] > 0


def test_spark_writes_after_a_process_whose_clock_is_ahead_of_its_own(
    shop: Lake, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step(monkeypatch, HOUR_MS)
    for row in (2, 3):
        topic.delete({"id": row - 1})
        topic.create({"id": row})
        topic.write(tmp_path / "topics")
        for report in shop.ingest("shop"):
            assert not report.stopped
    assert shop.sql("SELECT id FROM s.t").rows == [(3,)]


def test_a_table_that_a_machine_far_ahead_has_written_names_the_clocks(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.sql("CREATE NAMESPACE s; CREATE TABLE s.foreign AS SELECT 1 AS id")
    with monkeypatch.context() as ahead:
        step(ahead, HOUR_MS)
        written = lake.catalog.load_table("s.foreign")
        written.append(written.scan().to_arrow())
    with pytest.raises(LakeholdError) as refused:
        lake.sql("INSERT INTO s.foreign VALUES (2)")
    assert refused.value.code == "clocks-differ"
    assert "snapshot log entr" in refused.value.detail


def test_the_lease_of_a_dead_process_lasts_longer_by_the_step_and_says_until_when(
    shop: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.batches.acquire("shop", "dead", now_ms() + 15_000)
    step_back(monkeypatch)
    with pytest.raises(SourceBusy) as busy:
        shop.ingest("shop")
    lease = shop.batches.readers("shop")["main"].lease
    assert lease is not None
    assert lease.until_ms - now_ms() > HOUR_MS
    assert '"dead"' in busy.value.detail


def test_a_batch_of_a_machine_a_year_ahead_moves_no_hold_and_expires_no_history(
    shop: Lake, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_ms = shop.batches.history("shop")[-1].mz_timestamp
    shop.sql("CREATE HOLD report ON s.t WITH (MAX LAG = '30 days')")
    with monkeypatch.context() as ahead:
        step(ahead, 365 * DAY_MS)
        topic.create({"id": 2})
        topic.write(tmp_path / "topics")
        shop.ingest("shop")
    shop.sql("CREATE HOLD newest ON s.t; ALTER HOLD newest ADVANCE")
    shop.maintain(["s.t"])
    assert {(hold.at_ms, hold.forced_from_ms) for hold in shop.holds.all()} == {(first_ms, None)}
    assert shop.sql(f"SELECT id FROM s.t AS OF {first_ms}").rows == [(1,)]


def test_an_output_loses_no_rows_to_a_publisher_whose_clock_is_ahead(
    shop: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.sql("CREATE SUBSCRIPTION changes INTO s.changes WITH (RETAIN OUTPUT = '7 days') AS SUBSCRIBE s.t")
    shop.publish("changes")
    with monkeypatch.context() as ahead:
        step(ahead, 365 * DAY_MS)
        shop.publish("changes")
    assert shop.sql("SELECT id FROM s.changes").rows == [(1,)]


def test_readers_that_rest_while_nothing_but_a_compaction_comes_miss_nothing_afterwards(
    shop: Lake, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.sql("CREATE SUBSCRIPTION changes INTO s.changes WITH (MAX LAG = '3h') AS SUBSCRIBE s.t")
    shop.publish("changes")
    position_ms = shop.holds.all()[0].at_ms
    shop.sql("CALL system.rewrite_data_files(table => 's.t', options => map('rewrite-all', 'true'))")
    assert len(shop.catalog.load_table("s.t").history()) == 2
    step(monkeypatch, 2 * DAY_MS)
    topic.create({"id": 2})
    topic.write(tmp_path / "topics")
    shop.ingest("shop")
    shop.maintain(["s.t"])
    assert [(hold.at_ms, hold.forced_from_ms) for hold in shop.holds.all()] == [(position_ms, None)]
    shop.publish("changes")
    assert sorted(shop.sql("SELECT id FROM s.changes").rows) == [(1,), (2,)]
    topic.create({"id": 3})
    topic.write(tmp_path / "topics")
    shop.ingest("shop")
    step(monkeypatch, 4 * HOUR_MS)
    shop.ingest("shop")
    shop.maintain(["s.t"])
    assert shop.holds.all()[0].forced_from_ms is not None
    with pytest.raises(SubscriberLapsed):
        shop.publish("changes")


def test_max_lag_moves_a_hold_also_where_another_tool_expired_the_changes_after_it(
    make_lake: LakeFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = make_lake(foreign_lag_ms=0)
    lake.sql("CREATE NAMESPACE s; CREATE TABLE s.foreign AS SELECT 1 AS id")
    lake.sql("CREATE HOLD report ON s.foreign WITH (MAX LAG = '3h')")
    (held,) = lake.holds.all()
    lake.sql("INSERT INTO s.foreign VALUES (2); INSERT INTO s.foreign VALUES (3)")
    changed_ms = [entry.timestamp_ms for entry in lake.catalog.load_table("s.foreign").history()]

    def enforced_ms(now_ms: int) -> list[int | None]:
        with monkeypatch.context() as frozen:
            frozen.setattr(time, "time_ns", lambda: now_ms * 1_000_000)
            return [hold.forced_from_ms for hold in lake.holds.enforce_lag()]

    assert enforced_ms(changed_ms[1] + 3 * HOUR_MS - 1) == []  # The first change after the hold is known.
    lake.sql("CALL system.expire_snapshots(table => 's.foreign', older_than => now(), retain_last => 1)")
    assert len(lake.catalog.load_table("s.foreign").history()) == 1
    assert enforced_ms(changed_ms[1] + 3 * HOUR_MS - 1) == [held.at_ms]
