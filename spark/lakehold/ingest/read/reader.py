"""The interface between a source and the system it reads from: fetch offsets, plan, read.

`kafka.py` and `files.py` implement it. An ingest fetches offsets, plans from them which offset ranges a batch reads, and reads
these.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from lakehold.errors import UpstreamError
from lakehold.ingest.read.offset_checks import faults
from lakehold.model.offsets import OffsetRange, Offsets, TopicPartition, Watermarks

RAW_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
"""The columns of raw records, as `Reader.in_driver` returns them; `headers` is null if a record has none."""

RAW_DDL = (
    "topic string, partition int, offset bigint, timestamp_ms bigint, key binary, value binary, "
    "headers array<struct<key:string,value:binary>>"
)
"""The same columns, as `Reader.dataframe` gives them."""


@dataclass(frozen=True)
class FetchedOffsets:
    """The outcome of one fetch of offsets; plain data, so that planning twice from it gives the same plan.

    Attributes:
        topics: The requested topics.
        partitions: Where each of their partitions begins and ends now.
        identities: For each topic an identity that distinguishes it from a later one of the same name, if there is one:
            Kafka's topic id, which may be unknown (`lakehold.model.topic_identities`). The first batch records it, and later
            calls of `faults` get it. FILES: for the internal topic of each file the digest of its first line.
        missing: Requested topics that do not exist.
        refused: Requested topics that the system does not let the caller read.
        other_topics: Topics that do exist, for a hint; empty unless one is missing.
        where: The Kafka cluster or the directory in words, for messages.
        written: The ends of partitions including uncommitted records, fetched after the others; only if the fetch named an
            ordered topic (`Reader.fetch_offsets`).
        fetched_ms: When the fetch began (epoch milliseconds); 0: that does not matter.
    """

    topics: frozenset[str]
    partitions: Mapping[TopicPartition, Watermarks]
    identities: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    refused: frozenset[str] = frozenset()
    other_topics: tuple[str, ...] = ()
    where: str = ""
    written: Offsets = field(default_factory=dict)
    fetched_ms: int = 0

    def without(self, topics: Collection[str]) -> FetchedOffsets:
        """Return the fetched offsets without some topics, so that a faulty topic does not stop others."""
        return replace(
            self,
            topics=self.topics - set(topics),
            partitions={tp: watermarks for tp, watermarks in self.partitions.items() if tp.topic not in topics},
            identities={topic: identity for topic, identity in self.identities.items() if topic not in topics},
            missing=tuple(topic for topic in self.missing if topic not in topics),
            refused=self.refused - set(topics),
            written={tp: at for tp, at in self.written.items() if tp.topic not in topics},
        )


@dataclass(frozen=True)
class Limits:
    """The size limits of a batch.

    Each partition with a backlog gets at least one record, so that none starves; a batch may exceed the limits by that.

    Attributes:
        max_records: Records of all partitions together; malformed lines are among them.
        max_bytes: Bytes of keys and values of all partitions together, as far as estimates are right.
        record_bytes: Average size of a record if the caller knows it (from the last batch); None takes a sample.
    """

    max_records: int
    max_bytes: int
    record_bytes: float | None = None


@dataclass(frozen=True)
class ReadPlan:
    """The offset ranges that one batch reads.

    Attributes:
        ranges: Ranges with records, each starting at the position before.
        position: The position after the batch: the next `plan` starts from it. It names every partition seen, also
            those that were empty, so that it is noticed when retention later deletes records of theirs; partitions that a
            topic got later are named once one of them has a record.
        records: Number of records, or more: Kafka's offsets without a record count, too. Of files also malformed lines.
        size_bytes: Estimated bytes of keys and values.
        remaining: Estimated number of fetched records left for later batches.
    """

    ranges: tuple[OffsetRange, ...]
    position: Offsets
    records: int
    size_bytes: int
    remaining: int = 0

    def fits(self, limits: Limits) -> bool:
        """Return whether the plan reads no more than `limits` allow."""
        return self.records <= limits.max_records and self.size_bytes <= limits.max_bytes


@dataclass(frozen=True)
class MalformedLine:
    """A complete line of a FILES source that is not a message, or repeats one.

    Attributes:
        file: Path relative to the source's directory.
        line_number: One-based.
        byte_offset: Where the line starts in the file.
        raw: The line without its newline.
        reason: Why it is malformed.
    """

    file: str
    line_number: int
    byte_offset: int
    raw: bytes
    reason: str


class Reader(ABC):
    """The interface that reads a source's topics. It keeps no position (the next offset of each partition): the caller does.

    Errors of all methods: `UpstreamUnavailable` if Kafka does not answer in time, or the system refuses the caller,
    `UpstreamError` if it no longer has what it had (codes `offsets-lost`, `topic-recreated`).
    """

    @abstractmethod
    def fetch_offsets(self, topics: Collection[str], ordered: str | None = None) -> FetchedOffsets:
        """Fetch where `topics` begin and end now.

        Args:
            topics: The topics.
            ordered: One of them (the transaction topic), whose ends are fetched before those of the others, and these before
                `FetchedOffsets.written`. So whatever was written before a message below its end lies below `written`.
        """

    def written_ends(self, partitions: Collection[TopicPartition]) -> Offsets:  # noqa: ARG002 - for Kafka
        """Fetch the ends of partitions including uncommitted records; partitions without such ends are skipped."""
        return {}

    def faults(
        self, fetched: FetchedOffsets, position: Offsets, identities: Mapping[str, str] | None = None
    ) -> dict[str, UpstreamError]:
        """Find the errors that keep topics from being read on, by topic: see `lakehold.ingest.read.offset_checks.faults`."""
        return faults(fetched, position, identities)

    def verify(self, fetched: FetchedOffsets, position: Offsets) -> None:
        """Raise the first of `faults`; a topic that is missing or refused does not count."""
        for topic, error in self.faults(fetched, position).items():
            if topic not in fetched.missing and topic not in fetched.refused:
                raise error

    @abstractmethod
    def plan(self, fetched: FetchedOffsets, position: Offsets, limits: Limits) -> ReadPlan:
        """Plan contiguous ranges from `position`, bounded by `limits` and fair over partitions.

        A partition that `position` does not name starts at its earliest offset.

        Raises:
            UpstreamError: The first of `faults`; missing and refused topics are skipped instead.
        """

    @abstractmethod
    def plan_to(self, fetched: FetchedOffsets, position: Offsets, ends: Offsets) -> ReadPlan:
        """Plan to read each partition in `ends` to its end there (exclusive), but not beyond its fetched end, and no other ones.

        It is for a caller that moves the ends of a plan, for example to transaction boundaries.
        """

    @abstractmethod
    def in_driver(self, ranges: Collection[OffsetRange]) -> pa.Table:
        """Read exactly the records of `ranges` in this process, without Spark: for small batches.

        Returns:
            `RAW_SCHEMA`, each partition's rows in offset order.
        """

    @abstractmethod
    def dataframe(self, spark: SparkSession, ranges: Collection[OffsetRange]) -> DataFrame:
        """Return a frame of exactly the records of `ranges`, which Spark reads in parallel for each action: for large batches.

        Returns:
            `RAW_DDL`, in no particular order.
        """

    def malformed(self, plan: ReadPlan) -> tuple[MalformedLine, ...]:  # noqa: ARG002 - for FILES
        """Return the malformed lines in the ranges of `plan`; each is in exactly one batch."""
        return ()


def fetch_in_order(
    fetch: Callable[[Collection[str]], FetchedOffsets],
    written_ends: Callable[[Collection[TopicPartition]], Offsets],
    topics: Collection[str],
    ordered: str | None,
) -> FetchedOffsets:
    """Fetch the ends of topic `ordered`, then of the others, then `FetchedOffsets.written`, see `Reader.fetch_offsets`.

    Args:
        fetch: Fetches the offsets of some topics.
        written_ends: See `Reader.written_ends`.
        topics: All topics.
        ordered: The topic that comes first; None: one fetch of all topics, without `written`.
    """
    if ordered is None:
        return fetch(topics)
    first, others = fetch([ordered]), fetch([topic for topic in topics if topic != ordered])
    partitions = {**first.partitions, **others.partitions}
    return replace(
        others,
        topics=first.topics | others.topics,
        partitions=partitions,
        identities={**first.identities, **others.identities},
        missing=(*first.missing, *others.missing),
        refused=first.refused | others.refused,
        other_topics=first.other_topics or others.other_topics,
        written=written_ends(partitions),
        fetched_ms=first.fetched_ms,
    )
