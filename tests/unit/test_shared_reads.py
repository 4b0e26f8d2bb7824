"""Sources of one place that share fetches and reads, with a reader that counts requests."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from lakehold.definitions import Envelope, FormatType, Table
from lakehold.errors import UpstreamUnavailable
from lakehold.ingest.read.reader import RAW_SCHEMA, FetchedOffsets, Limits, Reader, ReadPlan
from lakehold.ingest.shared_reads import SharedReads
from lakehold.ingest.topic import TopicDecoder
from lakehold.model.offsets import OffsetRange, Offsets, TopicPartition, Watermarks
from lakehold.model.readers import ReaderState

A, B = TopicPartition("a", 0), TopicPartition("b", 1)
NOTHING: Any = None


class Counting(Reader):
    """A reader of two topics that records the requests."""

    def __init__(self) -> None:
        self.fetched: list[tuple[str, ...]] = []
        self.read: list[OffsetRange] = []
        self.ordered: str | None = None
        self.end = 10
        self.refused: set[str] = set()

    def fetch_offsets(self, topics: Collection[str], ordered: str | None = None) -> FetchedOffsets:
        self.fetched.append(tuple(topics))
        if not self.refused.isdisjoint(topics):
            raise UpstreamUnavailable("Kafka refuses a topic")
        self.ordered = ordered
        return FetchedOffsets(frozenset(topics), {tp: Watermarks(4, self.end) for tp in (A, B) if tp.topic in topics})

    def in_driver(self, ranges: Collection[OffsetRange]) -> pa.Table:
        self.read += ranges
        rows = [
            {"topic": r.topic_partition.topic, "partition": r.topic_partition.partition, "offset": at}
            for r in ranges
            for at in range(r.start_inclusive, r.end_exclusive)
        ]
        return pa.Table.from_pylist(rows, schema=RAW_SCHEMA)

    def plan(self, fetched: FetchedOffsets, position: Offsets, limits: Limits) -> ReadPlan:
        raise NotImplementedError

    def plan_to(self, fetched: FetchedOffsets, position: Offsets, ends: Offsets) -> ReadPlan:
        raise NotImplementedError

    def dataframe(self, spark: SparkSession, ranges: Collection[OffsetRange]) -> DataFrame:
        raise NotImplementedError


class Sources:
    """Sources that are ingested together: `first` over topic `a`, `second` over `a` and `b`."""

    def __init__(self, **transaction_topics: str) -> None:
        self.reader = Counting()
        self.positions: dict[str, Offsets] = {"first": {}, "second": {}}
        decoder = TopicDecoder(FormatType.JSON, None, NOTHING, 1_000)
        self.reads = SharedReads(self.reader, decoder, self._states)
        for source, topics in {"first": "a", "second": "ab"}.items():
            tables = [Table("s", topic, source, topic, Envelope.DEBEZIUM) for topic in topics]
            self.reads.join(source, tables, transaction_topics.get(source))

    def _states(self) -> list[ReaderState]:
        return [ReaderState(source, "main", position=at) for source, at in self.positions.items()]

    def fetch(self, source: str) -> dict[TopicPartition, Watermarks]:
        return dict(self.reads.fetch(source).partitions)

    def take(self, source: str, *ranges: OffsetRange) -> list[OffsetRange]:
        """Take ranges for a batch, and return those that were read for it."""
        self.reader.read.clear()
        topics = self.reads.topics(source, ranges, [], in_driver=True)
        for r in ranges:
            here = topics[r.topic_partition.topic].here
            assert here is not None
            assert here["offset"].to_pylist() == [*range(r.start_inclusive, r.end_exclusive)]
        return [*self.reader.read]


def test_a_fetch_serves_each_source_once() -> None:
    sources = Sources()
    assert sources.fetch("first") == {A: Watermarks(4, 10)}
    sources.reader.end = 20
    assert sources.fetch("second") == {A: Watermarks(4, 10), B: Watermarks(4, 10)}
    assert sources.fetch("second") == {A: Watermarks(4, 20), B: Watermarks(4, 20)}
    assert sources.fetch("first") == {A: Watermarks(4, 20)}
    assert sources.reader.fetched == [("a", "b")] * 2


def test_a_topic_that_is_refused_fails_only_those_that_read_it() -> None:
    sources = Sources(second="b")
    sources.reader.refused = {"b"}
    for _ in range(2):
        assert sources.fetch("first") == {A: Watermarks(4, 10)}
        with pytest.raises(UpstreamUnavailable):
            sources.fetch("second")
    assert sources.reader.fetched == [("a", "b"), *[("a",), ("a", "b")] * 2]


def test_one_transaction_topic_is_fetched_in_order_for_all() -> None:
    sources = Sources(second="b")
    sources.fetch("first")
    sources.fetch("second")
    assert (len(sources.reader.fetched), sources.reader.ordered) == (1, "b")


def test_sources_with_transaction_topics_of_their_own_fetch_each_in_its_order() -> None:
    sources = Sources(first="a", second="b")
    sources.fetch("first")
    assert sources.reader.ordered == "a"
    sources.fetch("second")
    assert (len(sources.reader.fetched), sources.reader.ordered) == (2, "b")


@pytest.mark.parametrize(
    ("first", "second", "shares"),
    [
        ({A: 6}, {A: 6, B: 9}, True),
        ({A: 6}, {A: 8}, False),
        ({}, {}, True),
        ({A: 4}, {}, True),
        ({A: 6}, {}, False),
    ],
    ids=["at the same offset", "elsewhere", "both new", "one new, the other at the beginning", "one new"],
)
def test_records_are_cached_for_a_source_that_continues_with_them(
    first: Offsets, second: Offsets, shares: bool
) -> None:
    sources = Sources()
    sources.positions = {"first": first, "second": second}
    sources.fetch("first")
    range_ = OffsetRange(A, first.get(A, 4), 10)
    assert sources.take("first", range_) == [range_]
    sources.reads.done("first", ["a"])
    assert sources.take("second", range_, OffsetRange(B, 4, 5)) == [*([] if shares else [range_]), OffsetRange(B, 4, 5)]


def test_records_are_released_when_all_sources_have_taken_them() -> None:
    sources = Sources()
    range_ = OffsetRange(A, 4, 10)
    sources.fetch("first")
    sources.take("first", range_)
    sources.reads.done("first", ["a"])
    assert sources.take("first", range_) == [], "the other source has not taken them"
    sources.reads.done("first", ["a"])
    sources.take("second", range_)
    sources.reads.done("second", ["a"])
    assert sources.take("first", range_) == [range_]


@pytest.mark.parametrize("other", [OffsetRange(A, 4, 9), OffsetRange(A, 5, 10)])
def test_only_the_last_records_of_a_topic_are_cached(other: OffsetRange) -> None:
    sources = Sources()
    range_ = OffsetRange(A, 4, 10)
    sources.fetch("first")
    sources.take("first", range_)
    assert sources.take("second", other) == [other]
    assert sources.take("first", range_) == [range_]


def test_nothing_is_cached_for_a_source_that_left() -> None:
    sources = Sources()
    range_ = OffsetRange(A, 4, 10)
    sources.fetch("first")
    sources.take("first", range_)
    sources.reads.leave("second")
    sources.reads.done("first", ["a"])
    assert sources.take("first", range_) == [range_]


def test_nothing_is_cached_for_a_source_without_a_table_of_the_topic() -> None:
    sources = Sources()
    range_ = OffsetRange(B, 4, 10)
    sources.fetch("second")
    sources.take("second", range_)
    sources.reads.done("second", ["b"])
    assert sources.take("second", range_) == [range_]
