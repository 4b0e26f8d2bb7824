"""A table is unreadable while its connector snapshot runs beside the stream: the topic does not say where the snapshot ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lakehold.ingest.batch_report import BatchReport
from lakehold.ingest.source_ingest import Ingesting
from lakehold.ingest.whole_transactions import WholeTransactions
from lakehold.ingest.write.repeats import Snapshots
from lakehold.lake import Lake
from lakehold.model.log_positions import WAL, LogPosition
from tests.debezium_messages import Topic
from tests.transaction_files import Connector, define, define_table

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("envelope", ["DEBEZIUM", "DEBEZIUM UPSERT"])
def test_a_table_is_readable_from_the_batch_after_its_snapshot(lake: Lake, tmp_path: Path, envelope: str) -> None:
    topic = Topic("t", {"id": {"type": "int64"}, "name": {"type": "string"}})
    directory = tmp_path / "topics"
    lake.sql(f"CREATE SOURCE shop FROM FILES '{directory}' FORMAT JSON")
    lake.sql(f"CREATE TABLE s.t FROM SOURCE shop (TOPIC 't') ENVELOPE {envelope}")
    object_id = lake.definitions.definitions().table("s.t").object_id
    topic.create({"id": 1, "name": "streamed"})
    topic.write(directory)

    with lake._parts.ingesting.leased("shop") as ingesting:
        awaiting = with_snapshots(ingesting, Snapshots(awaited=frozenset({object_id})))
        assert [report.records for report in awaiting.drain()] == [1]
        assert [report.records for report in awaiting.drain()] == [0]
        assert since(lake) is None

    (report,) = lake.ingest("shop")
    assert since(lake) == report.timestamp_ms


@pytest.mark.parametrize(
    ("envelope", "is_readable"), [("DEBEZIUM", False), ("DEBEZIUM UPSERT", False), ("UPSERT", True)]
)
def test_a_table_of_an_empty_topic_waits_for_the_end_of_its_snapshot(
    lake: Lake, tmp_path: Path, envelope: str, is_readable: bool
) -> None:
    define(lake, tmp_path / "topics", {"t": envelope, "late": envelope})
    lake.ingest("shop")
    assert [since(lake, f"shop.{table}") is not None for table in ("t", "late")] == [is_readable] * 2
    with lake._parts.ingesting.leased("shop") as ingesting:
        list(with_snapshots(ingesting, Snapshots(are_reported=True)).drain())
    assert since(lake, "shop.t") is not None, "the connector reports complete snapshots"


def test_a_transaction_shows_that_no_snapshot_will_follow(lake: Lake, tmp_path: Path) -> None:
    define(lake, tmp_path / "topics", {"t": "DEBEZIUM", "empty": "DEBEZIUM UPSERT"})
    Connector(tmp_path / "topics").transaction(("t", 1, 1))
    (report,) = lake.ingest("shop")
    assert (since(lake, "shop.t"), since(lake, "shop.empty")) == (report.timestamp_ms,) * 2


@pytest.mark.parametrize("joins_beside_others", [False, True])
def test_a_table_that_joined_is_readable_when_the_others_reach_the_position_of_its_rows(
    lake: Lake, tmp_path: Path, joins_beside_others: bool
) -> None:
    define(lake, tmp_path / "topics", {"others": "DEBEZIUM UPSERT"})
    connector = Connector(tmp_path / "topics")
    if joins_beside_others:
        connector.transaction(("others", 1, 1))
        lake.ingest("shop")
    define_table(lake, "t", "DEBEZIUM UPSERT")
    object_id = lake.definitions.definitions().table("shop.t").object_id
    connector.transaction(("others", 1, 2), ("t", 1, 2))
    sync_point = LogPosition(WAL, (2_000,))
    for commit, is_readable in ((1_500, False), (1_999, False), (2_000, True)):
        connector.commits_at(commit)
        connector.transaction(("others", 1, commit))
        with lake._parts.ingesting.leased("shop") as ingesting:
            list(with_snapshots(ingesting, Snapshots(sync_points={object_id: sync_point})).drain())
        assert (since(lake, "shop.t") is not None) == is_readable


def test_an_event_in_a_deleted_topic_of_a_table_that_joins_does_not_block_the_others(
    lake: Lake, tmp_path: Path
) -> None:
    define(lake, tmp_path / "topics", {"others": "DEBEZIUM"})
    connector = Connector(tmp_path / "topics")
    connector.transaction(("others", 1, 1))
    lake.ingest("shop")
    define_table(lake, "t", "DEBEZIUM")
    connector.snapshot("t", [(1, 1)])
    object_id = lake.definitions.definitions().table("shop.t").object_id

    def ingest(snapshots: Snapshots) -> list[BatchReport]:
        with lake._parts.ingesting.leased("shop") as ingesting:
            assert isinstance(ingesting.planner, WholeTransactions)
            captured = replace(ingesting, planner=replace(ingesting.planner, is_captured=True))
            return list(with_snapshots(captured, snapshots).drain())

    def commit_with_a_lost_event(v: int) -> None:
        connector.begin()
        connector.event("others", 1, v, 1, 1)
        connector.end({"public.others": 1, "public.t": 1})

    ingest(Snapshots(awaited=frozenset({object_id})))
    commit_with_a_lost_event(2)
    *_, applied = ingest(Snapshots(awaited=frozenset({object_id})))
    assert (applied.records, applied.waiting, since(lake, "shop.t")) == (1, None, None)

    ingest(Snapshots(are_reported=True))
    assert since(lake, "shop.t") is not None
    commit_with_a_lost_event(3)
    *_, waiting = ingest(Snapshots(are_reported=True))
    assert waiting.waiting is not None, "an event of a table that can be read is waited for"
    assert lake.sql("SELECT v FROM shop.others").rows == [(2,)]


def test_a_snapshot_with_an_unreadable_last_row_is_complete_when_the_connector_says_so(
    lake: Lake, tmp_path: Path
) -> None:
    topic = Topic("t", {"id": {"type": "int64"}, "name": {"type": "string"}})
    directory = tmp_path / "topics"
    lake.sql(f"CREATE SOURCE shop FROM FILES '{directory}' FORMAT JSON")
    lake.sql("CREATE TABLE s.t FROM SOURCE shop (TOPIC 't') ENVELOPE DEBEZIUM")
    topic.snapshot([{"id": 1, "name": "a"}], ended=False)
    topic.snapshot([{"id": 2, "name": "b"}], ended=False, partition=1)
    topic.raw(None, b"no JSON")
    topic.write(directory)
    lake.ingest("shop")
    assert since(lake) is None
    with lake._parts.ingesting.leased("shop") as ingesting:
        (report,) = with_snapshots(ingesting, Snapshots(are_reported=True)).drain()
    assert since(lake) == report.timestamp_ms


def with_snapshots(ingesting: Ingesting, snapshots: Snapshots) -> Ingesting:
    """Return `ingesting` with `snapshots` as the state that the connector reports of its tables."""
    return replace(ingesting, snapshots=snapshots)


def since(lake: Lake, table: str = "s.t") -> int | None:
    (main,) = lake.batches.readers("shop").values()
    return main.tables[table].since_ms
