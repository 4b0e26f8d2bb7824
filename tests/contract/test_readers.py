"""Promises of every reader, whatever it reads from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakehold.errors import UpstreamError
from lakehold.ingest.read.reader import RAW_DDL, RAW_SCHEMA, Limits, ReadPlan
from lakehold.model.offsets import OffsetRange, Offsets, TopicPartition
from tests.upstreams import Cluster, RecordedDirectory, Upstream

LARGE = Limits(10_000, 10_000_000)

Row = tuple[Any, ...]


@pytest.fixture(params=["files", pytest.param("kafka", marks=pytest.mark.stack)])
def upstream(request: pytest.FixtureRequest, tmp_path: Path) -> Upstream:
    if request.param == "files":
        return RecordedDirectory(tmp_path)
    return Cluster(request.getfixturevalue("broker"))


def planned(upstream: Upstream, topics: Sequence[str], position: Offsets, limits: Limits = LARGE) -> ReadPlan:
    return upstream.reader.plan(upstream.reader.fetch_offsets(topics), position, limits)


def rows(table: pa.Table) -> list[Row]:
    return [tuple(row.values()) for row in table.to_pylist()]


def values(table: pa.Table) -> list[bytes]:
    return [bytes(value) for value in table["value"].to_pylist()]


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, last)]


def test_records_are_read_unchanged(upstream: Upstream) -> None:
    topic = upstream.new_topic()
    upstream.publish(topic, [b"", b"\x00\xff", "ü".encode()])
    table = upstream.reader.in_driver(planned(upstream, [topic], {}).ranges)

    assert table.schema == RAW_SCHEMA
    assert [(*row[:2], *row[3:]) for row in rows(table)] == [
        (topic, 0, 1_000, b"k", b"", None),
        (topic, 0, 1_000, b"k", b"\x00\xff", None),
        (topic, 0, 1_000, b"k", "ü".encode(), None),
    ]


@pytest.mark.spark
def test_headers_are_read_in_the_order_of_sending(upstream: Upstream, spark: SparkSession) -> None:
    topic, sent = upstream.new_topic(), [("b", b"\x00"), ("ü", None), ("b", b"")]
    upstream.publish(topic, [b"v"], headers=sent)
    ranges = planned(upstream, [topic], {}).ranges
    (here,) = upstream.reader.in_driver(ranges)["headers"].to_pylist()
    assert [(header["key"], header["value"]) for header in here] == sent
    ((by_spark,),) = upstream.reader.dataframe(spark, ranges).select("headers").collect()
    assert [tuple(header) for header in by_spark] == sent


def test_nothing_is_read_twice_and_new_records_follow(upstream: Upstream) -> None:
    topic = upstream.new_topic()
    empty = planned(upstream, [topic], {})
    assert empty.ranges == ()
    assert upstream.reader.in_driver(empty.ranges).schema == RAW_SCHEMA

    upstream.publish(topic, numbered(0, 3))
    first = planned(upstream, [topic], empty.position)
    assert values(upstream.reader.in_driver(first.ranges)) == numbered(0, 3)
    assert first.remaining == 0
    assert planned(upstream, [topic], first.position).ranges == ()

    upstream.publish(topic, numbered(3, 5))
    second = planned(upstream, [topic], first.position)
    assert values(upstream.reader.in_driver(second.ranges)) == numbered(3, 5)


@pytest.mark.parametrize("limits", [Limits(1, 1_000_000), Limits(4, 1_000_000), Limits(1_000, 20), Limits(1_000, 1)])
def test_small_batches_read_everything_once_in_order(upstream: Upstream, limits: Limits) -> None:
    topics = [upstream.new_topic(), upstream.new_topic()]
    for partition, topic in [(0, topics[0]), (1, topics[0]), (0, topics[1])]:
        upstream.publish(topic, numbered(0, 6), partition)
        upstream.publish(topic, numbered(6, 9), partition)
    position: Offsets = {}
    seen: list[Row] = []
    while (plan := planned(upstream, topics, position, limits)).ranges:
        batch = rows(upstream.reader.in_driver(plan.ranges))
        assert len(batch) <= max(limits.max_records, 3)
        seen += batch
        position = plan.position

    for topic, partition in [(topics[0], 0), (topics[0], 1), (topics[1], 0)]:
        ours = [row for row in seen if row[:2] == (topic, partition)]
        assert [row[5] for row in ours] == numbered(0, 9)
        assert [row[2] for row in ours] == sorted(row[2] for row in ours)
    assert len(seen) == 27


def test_a_busy_partition_leaves_room_for_the_others(upstream: Upstream) -> None:
    busy, calm = upstream.new_topic(), upstream.new_topic()
    upstream.publish(busy, numbered(0, 500))
    upstream.publish(calm, numbered(0, 4))
    plan = planned(upstream, [busy, calm], {}, Limits(40, 1_000_000))
    topics = [row[0] for row in rows(upstream.reader.in_driver(plan.ranges))]

    assert topics.count(calm) == 4
    assert 25 <= topics.count(busy) <= 36
    assert plan.remaining > 400


def test_estimates_are_close(upstream: Upstream) -> None:
    topic = upstream.new_topic()
    upstream.publish(topic, [b"x" * 1_000] * 50)
    plan = planned(upstream, [topic], {})
    assert 50 <= plan.records <= 60
    assert 40_000 <= plan.size_bytes <= 75_000
    assert planned(upstream, [topic], {}, Limits(1_000, 20_000, record_bytes=2_000)).records == 10


def test_any_range_can_be_read_again(upstream: Upstream) -> None:
    topic = upstream.new_topic()
    upstream.publish(topic, numbered(0, 10))
    everything = rows(upstream.reader.in_driver(planned(upstream, [topic], {}).ranges))
    first, last = everything[3][2], everything[7][2]
    middle = [OffsetRange(TopicPartition(topic, 0), first, last + 1)]
    assert rows(upstream.reader.in_driver(middle)) == everything[3:8]


def test_a_plan_can_end_at_given_offsets(upstream: Upstream) -> None:
    topic, other = upstream.new_topic(), upstream.new_topic()
    upstream.publish(topic, numbered(0, 10))
    upstream.publish(other, numbered(0, 10))
    fetched = upstream.reader.fetch_offsets([topic, other])
    whole = rows(upstream.reader.in_driver(upstream.reader.plan(fetched, {}, LARGE).ranges))
    end = next(row[2] for row in whole if row[0] == topic and row[5] == b"4")

    plan = upstream.reader.plan_to(fetched, {}, {TopicPartition(topic, 0): end})
    assert values(upstream.reader.in_driver(plan.ranges)) == numbered(0, 4)
    rest = upstream.reader.plan(fetched, plan.position, LARGE)
    table = upstream.reader.in_driver(rest.ranges)
    assert [row[5] for row in rows(table) if row[0] == topic] == numbered(4, 10)
    assert [row[5] for row in rows(table) if row[0] == other] == numbered(0, 10)


@pytest.mark.spark
def test_spark_reads_the_same_as_the_driver(upstream: Upstream, spark: SparkSession) -> None:
    topics = [upstream.new_topic(), upstream.new_topic()]
    upstream.publish(topics[0], numbered(0, 2_000))
    upstream.publish(topics[1], [b"", b"\x00\xff"], 1)
    plan = planned(upstream, topics, {}, Limits(1_500, 10_000_000))
    frame = upstream.reader.dataframe(spark, plan.ranges)

    assert frame.schema.simpleString() == f"struct<{RAW_DDL.replace(', ', ',').replace(' ', ':')}>"
    ordered = frame.orderBy("topic", "partition", "offset")
    expected = upstream.reader.in_driver(plan.ranges).sort_by(
        [(n, "ascending") for n in ("topic", "partition", "offset")]
    )
    assert [tuple(row) for row in ordered.collect()] == rows(expected)


@pytest.mark.spark
def test_spark_splits_one_large_partition(upstream: Upstream, spark: SparkSession) -> None:
    topic = upstream.new_topic()
    upstream.publish(topic, numbered(0, 1_000))
    frame = upstream.reader.dataframe(spark, planned(upstream, [topic], {}).ranges)
    tasks = frame.groupBy(F.spark_partition_id().alias("task")).count().collect()
    assert sum(row["count"] for row in tasks) == 1_000
    assert len(tasks) >= 2


@pytest.mark.spark
def test_spark_reads_nothing_from_no_ranges(upstream: Upstream, spark: SparkSession) -> None:
    frame = upstream.reader.dataframe(spark, [])
    assert frame.schema.names == RAW_SCHEMA.names
    assert frame.count() == 0


def test_lost_records_are_an_error(upstream: Upstream) -> None:
    topic = upstream.new_topic()
    upstream.publish(topic, numbered(0, 10))
    plan = planned(upstream, [topic], {}, Limits(2, 1_000_000))
    upstream.publish(topic, numbered(10, 20))
    upstream.lose(topic)
    with pytest.raises(UpstreamError) as raised:
        planned(upstream, [topic], plan.position)
    assert raised.value.code == "offsets-lost"
    assert topic in raised.value.message


def test_a_recreated_topic_is_an_error(upstream: Upstream) -> None:
    topic = upstream.new_topic()
    upstream.publish(topic, numbered(0, 10))
    plan = planned(upstream, [topic], {})
    upstream.recreate(topic)
    with pytest.raises(UpstreamError) as raised:
        planned(upstream, [topic], plan.position)
    assert raised.value.code == "topic-recreated"
    assert topic in raised.value.message


def test_a_recreated_topic_is_known_by_its_identity(upstream: Upstream) -> None:
    topic = upstream.new_topic()
    upstream.publish(topic, numbered(0, 5))
    before = upstream.reader.fetch_offsets([topic])
    plan = upstream.reader.plan(before, {}, LARGE)
    upstream.recreate(topic)
    upstream.publish(topic, [b"another record, and longer"] * 100)
    after = upstream.reader.fetch_offsets([topic])
    found = upstream.reader.faults(after, plan.position, before.identities)
    assert [error.code for error in found.values()] == ["topic-recreated"]
    assert upstream.reader.faults(after, {}, after.identities) == {}


def test_a_missing_upstream_is_an_error(upstream: Upstream, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UpstreamError) as raised:
        upstream.unreachable().fetch_offsets(["t"])
    assert raised.value.hint
    assert capfd.readouterr().err == ""
