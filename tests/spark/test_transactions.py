"""Sources with a transaction topic: at every timestamp the tables equal the database after one of its commits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakehold.errors import IngestFailed, TransactionIncomplete, UpstreamError
from lakehold.ingest import whole_transactions
from lakehold.ingest.batch_report import BatchReport
from lakehold.ingest.planning import Planned
from lakehold.ingest.read import edge_records
from lakehold.ingest.read.reader import Reader
from lakehold.ingest.whole_transactions import WholeTransactions
from lakehold.lake import Lake
from lakehold.model.offsets import OffsetRange
from lakehold.status import COLUMNS, status_of
from tests.conftest import LakeFactory
from tests.transaction_files import Connector, define, define_table, record, states
from tests.upstream_log import Upstream
from tests.waiting import wait_for

pytestmark = pytest.mark.spark

STOPPED_BY, WAITING_FOR = map(COLUMNS.index, ("stopped_by", "waiting_for"))


def rows(lake: Lake, table: str) -> list[tuple[int, int]]:
    return sorted(lake.sql(f"SELECT * FROM {lake.settings.catalog_name}.shop.{table}").rows)


@pytest.mark.parametrize(
    ("seed", "ids", "settings"),
    [
        (1, "postgres", {}),
        (2, "binlog", {}),
        pytest.param(3, "gtid", {"driver_read_max_records": 0}, marks=pytest.mark.soak),
    ],
)
def test_random_transactions_of_killed_connectors_stay_whole(
    make_lake: LakeFactory, tmp_path: Path, seed: int, ids: str, settings: Mapping[str, int]
) -> None:
    tables = {"t0": "DEBEZIUM UPSERT", "t1": "DEBEZIUM"}
    lake, random = make_lake(**settings), Random(seed)
    upstream = Upstream(random, tables=2, partitions=2, transactions=14, ids=ids, snapshots=False)
    upstream.stream(kills=2)
    define(lake, tmp_path / "topics", tables, "WITH (MAX RECORDS = 12)")
    ends, order = upstream.topics.ends, upstream.topics.order
    written = dict.fromkeys(ends, 0)
    for sent in [*sorted(random.choices(range(len(order)), k=3)), len(order)]:
        until = {tp: end - order[sent:].count(tp) for tp, end in ends.items()}
        record(tmp_path / "topics", upstream.topics, written, until)
        written = until
        for report in lake.ingest("shop"):
            assert not report.stopped

    history = upstream.history()
    commit = 0
    seen = list(states(lake, tables))
    assert len(seen) > 3
    for state in seen:
        commit = history.index(state, commit)
    assert seen[-1] == history[-1]


class Shop:
    """A source over a directory with tables `a` and `b`, and the connector that writes the directory."""

    def __init__(self, lake: Lake, directory: Path, options: str = "") -> None:
        self.lake = lake
        define(lake, directory, {"a": "DEBEZIUM UPSERT", "b": "DEBEZIUM UPSERT"}, options)
        self.connector = Connector(directory)

    def ingest(self) -> list[BatchReport]:
        return self.lake.ingest("shop")

    def rows(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        return rows(self.lake, "a"), rows(self.lake, "b")


@pytest.fixture
def shop(lake: Lake, tmp_path: Path) -> Shop:
    return Shop(lake, tmp_path / "topics")


def test_changes_after_an_incomplete_transaction_wait_and_those_before_it_do_not(shop: Shop) -> None:
    shop.connector.transaction(("a", 1, 1), ("b", 1, 1))
    shop.connector.transaction(("a", 1, 2), ("b", 1, 2), end=False)
    first, waiting = shop.ingest()
    assert first.waiting is None
    assert waiting.records == 0
    assert waiting.waiting is not None
    assert waiting.waiting.transaction.startswith("702:")
    assert waiting.waiting.tables == ("shop.a", "shop.b")
    assert shop.rows() == ([(1, 1)], [(1, 1)])
    (status, _) = status_of(shop.lake).rows
    assert "702:" in status[WAITING_FOR]

    again = shop.ingest()
    assert again[-1].waiting == waiting.waiting, "the wait began when the transaction was first seen"
    shop.connector.end({"public.a": 1, "public.b": 1})
    shop.ingest()
    assert shop.rows() == ([(1, 2)], [(1, 2)])
    assert {row[WAITING_FOR] for row in status_of(shop.lake).rows} == {None}


def test_a_transaction_without_events_is_committed_soon_though_empty_batches_are_far_apart(shop: Shop) -> None:
    reports: list[BatchReport] = []

    def poll() -> bool:
        reports.extend(shop.lake.batches_of("shop", idle_ms=3_600_000))
        return bool(reports)

    shop.connector.transaction(("a", 1, 1), ("b", 1, 1))
    shop.ingest()
    assert not poll()
    shop.connector.transaction()
    wait_for(poll, "the transaction is committed")
    poll()
    assert [report.records for report in reports] == [0]


def test_a_transaction_that_has_ended_is_no_longer_awaited_before_the_topics_are_fully_read(
    lake: Lake, tmp_path: Path
) -> None:
    shop = Shop(lake, tmp_path / "topics", "WITH (MAX RECORDS = 2)")
    shop.connector.transaction(("a", 1, 1), ("b", 1, 1), end=False)
    assert shop.ingest()[-1].waiting is not None
    shop.connector.end({"public.a": 1, "public.b": 1})
    for n in range(8):
        shop.connector.transaction(("a", 1, n), ("b", 1, n))
    with closing(lake.batches_of("shop")) as batches:
        next(batches)
        assert {row[WAITING_FOR] for row in status_of(lake).rows} == {None}
    assert shop.rows() != ([(1, 7)], [(1, 7)])


def test_a_failure_of_spark_while_the_boundary_is_planned_is_an_error(shop: Shop, spark: SparkSession) -> None:
    class Failing(WholeTransactions):
        def plan(self, *_: object, **__: object) -> Planned:
            spark.sql("SELECT raise_error('the position could not be determined')").collect()
            raise AssertionError

    shop.connector.transaction(("a", 1, 1), ("b", 1, 1))
    shop.ingest()
    with shop.lake._parts.ingesting.leased("shop") as ingesting:
        assert isinstance(ingesting.planner, WholeTransactions)
        failing = Failing(**vars(ingesting.planner))
        with pytest.raises(IngestFailed) as failed:
            list(replace(ingesting, planner=failing).drain())
    assert (failed.value.code, failed.value.retryable) == ("ingest-failed", True)
    assert 'source "shop"' in failed.value.message
    assert "the position could not be determined" in failed.value.detail
    assert not shop.ingest()[-1].stopped


def test_a_transaction_that_never_ends_is_an_error_and_its_end_heals_it(make_lake: LakeFactory, tmp_path: Path) -> None:
    shop = Shop(make_lake(transaction_timeout_ms=0), tmp_path / "topics")
    shop.connector.transaction(("a", 1, 1), ("b", 1, 1))
    shop.connector.transaction(("a", 1, 2), ("b", 1, 2), ("b", 2, 2), end=False)
    for _ in range(2):
        with pytest.raises(TransactionIncomplete) as stopped:
            shop.ingest()
        assert (stopped.value.code, stopped.value.retryable) == ("transaction-incomplete", True)
        assert "transaction 702:" in stopped.value.message
        assert "3 of its changes have" in stopped.value.detail
        assert "shop.a, shop.b" in stopped.value.detail
        assert shop.rows() == ([(1, 1)], [(1, 1)])
        assert {(row[2], row[STOPPED_BY].split(":")[0]) for row in status_of(shop.lake).rows} == {
            ("stopped", "transaction-incomplete")
        }
        assert len(shop.lake.batches.history("shop")) == 1, "no empty batch moves upper meanwhile"
    shop.connector.end({"public.a": 1, "public.b": 2})
    assert not shop.ingest()[-1].stopped
    assert shop.rows() == ([(1, 2)], [(1, 2), (2, 2)])
    assert {row[2] for row in status_of(shop.lake).rows} == {"live"}


def test_an_end_that_cannot_be_read_is_named_as_what_the_source_waits_for(
    make_lake: LakeFactory, tmp_path: Path
) -> None:
    shop = Shop(make_lake(transaction_timeout_ms=0), tmp_path / "topics")
    shop.connector.transaction(("a", 1, 1), ("b", 1, 1))
    shop.connector.raw("shop.transaction", {"id": "before"}, "no END")
    shop.ingest()
    shop.connector.transaction(("a", 1, 2), end=False)
    shop.connector.raw("shop.transaction", {"id": shop.connector.shown_id}, "no END")
    with pytest.raises(TransactionIncomplete, match="702") as stopped:
        shop.ingest()
    named = "No message can be read at offset 4 of the transaction topic: that may be its END."
    assert stopped.value.detail.startswith(f"Its END has not arrived; 1 of its changes have. {named}")


def test_an_end_that_counts_more_changes_than_arrived_names_the_topic(make_lake: LakeFactory, tmp_path: Path) -> None:
    shop = Shop(make_lake(transaction_timeout_ms=0), tmp_path / "topics")
    shop.connector.transaction(("a", 1, 1), ("b", 1, 1))
    shop.connector.transaction(("a", 1, 2), end=False)
    shop.connector.end({"public.a": 1, "public.b": 2})
    with pytest.raises(TransactionIncomplete, match="702") as stopped:
        shop.ingest()
    assert 'than have arrived: 0 of 2 changes of topic "shop.public.b".' in stopped.value.detail


def test_a_transaction_larger_than_a_batch_makes_the_batch_larger(lake: Lake, tmp_path: Path) -> None:
    shop = Shop(lake, tmp_path / "topics", "WITH (MAX RECORDS = 10)")
    shop.connector.transaction(*((table, 1, 1) for table in "ab"))
    shop.connector.transaction(*((table, key, 2) for key in range(100) for table in "ab"))
    small, large = shop.ingest()
    assert (small.records, large.records) == (2, 200)
    assert [len(state) for state in states(lake, "ab")] == [2, 200]


def test_snapshot_rows_and_tables_of_another_envelope_have_no_transactions(shop: Shop) -> None:
    define_table(shop.lake, "plain", "UPSERT")
    shop.connector.snapshot("a", [(1, 1), (2, 1)])
    shop.connector.raw("shop.public.plain", {"id": 1}, {"id": 1, "v": 1})
    shop.connector.transaction(("a", 1, 2), ("b", 1, 2), end=False)
    shop.connector.raw("shop.public.plain", {"id": 2}, {"id": 2, "v": 1})
    shop.ingest()
    assert rows(shop.lake, "a") == [(1, 1), (2, 1)]
    assert rows(shop.lake, "plain") == [(1, 1), (2, 1)]
    assert len(shop.lake.timelines.readable(["shop.a"])) == 1, "the snapshot is complete, and only changes are left"


def test_an_unreadable_message_blocks_no_transaction(shop: Shop) -> None:
    shop.connector.transaction(("a", 1, 1), end=False)
    shop.connector.raw("shop.public.b", {"id": 1}, "no envelope")
    shop.connector.end({"public.a": 1, "public.b": 1})
    shop.ingest()
    assert rows(shop.lake, "a") == [(1, 1)]


def test_an_unreadable_message_counts_when_its_transaction_ends_later(shop: Shop) -> None:
    shop.connector.transaction(("a", 1, 1), end=False)
    shop.connector.raw("shop.public.b", {"id": 1}, "no envelope")
    assert shop.ingest()[-1].waiting is not None
    shop.connector.end({"public.a": 1, "public.b": 1})
    assert shop.ingest()[-1].waiting is None
    assert rows(shop.lake, "a") == [(1, 1)]


def test_an_end_without_a_count_of_a_table_is_no_error(shop: Shop) -> None:
    shop.connector.transaction(("a", 1, 1), end=False)
    nothing = {"data_collection": "public.b", "event_count": None}
    nobody = {"data_collection": None, "event_count": 1}
    of_a = {"data_collection": "public.a", "event_count": 1}
    shown_id = shop.connector.shown_id
    end = {"status": "END", "id": shown_id, "event_count": 1, "data_collections": [nothing, nobody, None, of_a]}
    shop.connector.raw("shop.transaction", {"id": shown_id}, end)
    shop.ingest()
    assert rows(shop.lake, "a") == [(1, 1)]


def test_a_table_that_joins_later_joins_at_a_commit(shop: Shop) -> None:
    for v in range(3):
        shop.connector.transaction(("a", 1, v), ("b", 1, v), ("c", 1, v))
    shop.ingest()
    shop.connector.transaction(("a", 1, 3), ("b", 1, 3), ("c", 1, 3))
    shop.connector.transaction(("a", 1, 4), ("c", 1, 4), end=False)
    define_table(shop.lake, "c", "DEBEZIUM UPSERT")
    shop.ingest()
    for state in states(shop.lake, "abc"):
        assert len(set(state.values())) == 1, state
    assert rows(shop.lake, "c") == [(1, 3)]
    shop.connector.end({"public.a": 1, "public.c": 1})
    shop.ingest()
    assert rows(shop.lake, "c") == [(1, 4)]


def test_topics_missing_from_every_end_are_refused(lake: Lake, tmp_path: Path) -> None:
    define(lake, tmp_path / "topics", {"a": "DEBEZIUM UPSERT"})
    connector = Connector(tmp_path / "topics")
    for v in range(2):
        connector.transaction(("a", 1, v), end=False)
        connector.end({"public.renamed": 1})
    with pytest.raises(UpstreamError, match=r"shop\.public\.a") as refused:
        lake.ingest("shop")
    assert refused.value.code == "transaction-counts"


def test_only_topics_of_tables_that_load_are_sampled(
    make_lake: LakeFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(make_lake(driver_read_max_records=0), tmp_path / "topics")
    sampled: list[str] = []

    def edges(reader: Reader, ranges: Collection[OffsetRange]) -> pa.Table:
        sampled.extend(r.topic_partition.topic for r in ranges)
        return edge_records.edges(reader, ranges)

    monkeypatch.setattr(whole_transactions, "edges", edges)
    shop.connector.snapshot("a", [(1, 1), (2, 2)], is_last=False)
    shop.ingest()
    assert sampled.pop() == "shop.public.a"
    sampled.clear()
    shop.connector.snapshot("b", [(1, 1)])
    shop.connector.transaction(("a", 1, 3), ("b", 1, 3))
    shop.ingest()
    assert {*sampled} == {"shop.public.b"}, "table a has its snapshot"
    sampled.clear()
    shop.connector.transaction(("a", 2, 4), ("b", 1, 4))
    shop.ingest()
    assert not sampled
    assert shop.rows() == ([(1, 3), (2, 4)], [(1, 4)])
