"""What one source has looked at or read, the others of its place are given: how often a reader that counts is asked."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from lakehold.errors import UpstreamUnavailable
from lakehold.ingest.read.read_once import ReadOnce
from lakehold.ingest.read.reader import RAW_SCHEMA, Available, Limits, Reader, ReadPlan
from lakehold.model.offsets import OffsetRange, Offsets, TopicPartition, Watermarks

A, B = TopicPartition("a", 0), TopicPartition("b", 1)


class Counting(Reader):
    """Two topics, of which it says what was asked for."""

    def __init__(self) -> None:
        self.looks: list[list[str]] = []
        self.read: list[OffsetRange] = []
        self.ordered: str | None = None
        self.end = 10
        self.refused: set[str] = set()

    def look(self, topics: Collection[str], ordered: str | None = None) -> Available:
        self.looks.append([*topics])
        if not self.refused.isdisjoint(topics):
            raise UpstreamUnavailable("Kafka refuses a topic")
        self.ordered = ordered
        return Available(frozenset(topics), {tp: Watermarks(0, self.end) for tp in (A, B) if tp.topic in topics})

    def in_driver(self, ranges: Collection[OffsetRange]) -> pa.Table:
        self.read += ranges
        rows = [
            {"topic": r.topic_partition.topic, "partition": r.topic_partition.partition, "offset": at}
            for r in ranges
            for at in range(r.start_inclusive, r.end_exclusive)
        ]
        return pa.Table.from_pylist(rows, schema=RAW_SCHEMA)

    def plan(self, available: Available, position: Offsets, limits: Limits) -> ReadPlan:
        raise NotImplementedError

    def plan_to(self, available: Available, position: Offsets, ends: Offsets) -> ReadPlan:
        raise NotImplementedError

    def dataframe(self, spark: SparkSession, ranges: Collection[OffsetRange]) -> DataFrame:
        raise NotImplementedError


@pytest.fixture
def counting() -> Counting:
    return Counting()


def test_a_look_serves_each_source_once(counting: Counting) -> None:
    once = ReadOnce(counting, ["a", "b"])
    first, second = once.reader_for("first"), once.reader_for("second")
    assert first.look(["a"]).partitions == {A: Watermarks(0, 10)}
    counting.end = 20
    assert second.look(["a", "b"]).partitions == {A: Watermarks(0, 10), B: Watermarks(0, 10)}
    assert second.look(["b"]).partitions == {B: Watermarks(0, 20)}
    assert first.look(["a"]).partitions == {A: Watermarks(0, 20)}
    assert counting.looks == [["a", "b"], ["a", "b"]]


def test_a_topic_that_is_refused_fails_only_those_that_read_it(counting: Counting) -> None:
    once = ReadOnce(counting, ["a", "b"], "b")
    first, second, third = (once.reader_for(name) for name in ("first", "second", "third"))
    counting.refused = {"b"}
    for _ in range(2):
        assert first.look(["a"]).partitions == {A: Watermarks(0, 10)}
        assert third.look(["a"]).partitions == {A: Watermarks(0, 10)}
        with pytest.raises(UpstreamUnavailable):
            second.look(["a", "b"], "b")
    assert counting.looks == [["a", "b"], *[["a"], ["a", "b"]] * 2]


def test_a_topic_that_nobody_was_known_to_read_is_looked_at(counting: Counting) -> None:
    once = ReadOnce(counting, ["a"])
    once.reader_for("first").look(["a"])
    assert once.reader_for("second").look(["b"]).partitions == {B: Watermarks(0, 10)}


def test_a_look_that_took_a_topic_as_ordered_serves_who_needs_that_or_no_order(counting: Counting) -> None:
    once = ReadOnce(counting, ["a", "b"])
    once.reader_for("first").look(["a", "b"], "b")
    once.reader_for("second").look(["a", "b"], "b")
    once.reader_for("third").look(["a"])
    assert (len(counting.looks), counting.ordered) == (1, "b")
    once.reader_for("fourth").look(["a", "b"], "a")
    assert (len(counting.looks), counting.ordered) == (2, "a")


@pytest.mark.parametrize(
    ("asked", "lacking"),
    [
        ([OffsetRange(A, 0, 10), OffsetRange(B, 0, 5)], []),
        ([OffsetRange(A, 0, 10)], []),
        ([OffsetRange(A, 3, 7), OffsetRange(B, 0, 5)], []),
        ([OffsetRange(A, 0, 2), OffsetRange(A, 8, 10)], []),
        ([OffsetRange(A, 5, 12), OffsetRange(B, 1, 2)], [OffsetRange(A, 5, 12)]),
        ([OffsetRange(A, 0, 10), OffsetRange(B, 5, 6)], [OffsetRange(B, 5, 6)]),
        ([OffsetRange(A, 0, 3), OffsetRange(A, 9, 12)], [OffsetRange(A, 9, 12)]),
    ],
)
def test_only_what_is_lacking_is_read(counting: Counting, asked: list[OffsetRange], lacking: list[OffsetRange]) -> None:
    once = ReadOnce(counting, ["a", "b"])
    once.reader_for("first").in_driver([OffsetRange(A, 0, 10), OffsetRange(B, 0, 5)])
    expected = Counting().in_driver(asked)
    counting.read.clear()
    assert (
        once.reader_for("second").in_driver(asked).sort_by([("topic", "ascending"), ("offset", "ascending")])
        == expected
    )
    assert counting.read == lacking


def test_nothing_is_kept_beyond_the_next_look(counting: Counting) -> None:
    once = ReadOnce(counting, ["a"])
    reader = once.reader_for("first")
    reader.look(["a"])
    reader.in_driver([OffsetRange(A, 0, 10)])
    reader.look(["a"])
    counting.read.clear()
    reader.in_driver([OffsetRange(A, 0, 10)])
    assert counting.read == [OffsetRange(A, 0, 10)]
    assert reader.in_driver([]).schema == RAW_SCHEMA
