"""The seam between a source and what it reads from: look, plan, read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from lakehold.errors import UpstreamError
from lakehold.ingest.read.checks import faults
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
"""The columns of raw records, as `Reader.in_driver` gives them; `headers` is null where a record has none."""

RAW_DDL = (
    "topic string, partition int, offset bigint, timestamp_ms bigint, key binary, value binary, "
    "headers array<struct<key:string,value:binary>>"
)
"""The same columns, as `Reader.dataframe` gives them."""


@dataclass(frozen=True)
class Available:
    """The outcome of one fetch; numbers, so that planning twice from it plans the same.

    Attributes:
        topics: The topics asked for.
        partitions: Their partitions.
        identities: For each topic what tells it from a later one of the same name, if anything does: Kafka's topic id. To be
            recorded with the first batch and handed to `faults` from then on. FILES: of each file the digest of its first line.
        missing: Topics asked for that do not exist.
        other_topics: Topics that do exist, for a hint; empty unless one is missing.
        where: The place in words, for messages.
        written: Where partitions ended after that, with what was not committed in Kafka yet; of looks at an ordered topic only.
        fetched_ms: When the look began (epoch milliseconds); 0: that does not matter.
    """

    topics: frozenset[str]
    partitions: Mapping[TopicPartition, Watermarks]
    identities: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    other_topics: tuple[str, ...] = ()
    where: str = ""
    written: Offsets = field(default_factory=dict)
    fetched_ms: int = 0

    def without(self, topics: Collection[str]) -> Available:
        """Return what was fetched without some topics, so that a faulty one does not stop its neighbours."""
        return replace(
            self,
            topics=self.topics - set(topics),
            partitions={tp: marks for tp, marks in self.partitions.items() if tp.topic not in topics},
            identities={topic: identity for topic, identity in self.identities.items() if topic not in topics},
            missing=tuple(topic for topic in self.missing if topic not in topics),
            written={tp: at for tp, at in self.written.items() if tp.topic not in topics},
        )


@dataclass(frozen=True)
class Limits:
    """The size that a batch may have.

    So that no partition starves, each one that has something gets at least one record; by that a batch may exceed them.

    Attributes:
        max_records: Records of all partitions together; malformed lines are among them.
        max_bytes: Bytes of keys and values of all partitions together; kept as well as the estimate is good.
        record_bytes: Average size of a record where the caller knows it (from the last batch); None takes a sample.
    """

    max_records: int
    max_bytes: int
    record_bytes: float | None = None


@dataclass(frozen=True)
class ReadPlan:
    """The offset ranges that one batch reads.

    Attributes:
        ranges: Ranges with records, each starting where the position was.
        position: The position after the batch: what the next `plan` starts from. It names every partition seen, also
            those that were empty, so that what retention takes from them later is noticed; those that a topic got later
            from when one of them has a record.
        records: Estimated number of records; an upper bound but for offsets that hold none.
        size_bytes: Estimated bytes of keys and values.
        remaining: Estimated number of records left for later batches, by the look that was planned from.
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
    """A complete line of a FILES source that is no message, or repeats one.

    Attributes:
        file: Path relative to the source's directory.
        line_number: One-based.
        byte_offset: Where the line starts in the file.
        raw: The line without its newline.
        reason: What is wrong with it.
    """

    file: str
    line_number: int
    byte_offset: int
    raw: bytes
    reason: str


class Reader(ABC):
    """The reader of a source's topics. It keeps no position: what was read is the caller's to know.

    Errors of all methods: `UpstreamUnavailable` when the other side does not answer in time or refuses the caller,
    `UpstreamError` when it no longer has what it had (codes `offsets-lost`, `topic-recreated`).
    """

    @abstractmethod
    def fetch_offsets(self, topics: Collection[str], ordered: str | None = None) -> Available:
        """Fetch where `topics` begin and end now.

        Args:
            topics: The topics.
            ordered: One of them, whose ends are fetched before those of the others: what was sent before something that it shows
                lies below `Available.written`.
        """

    def written_ends(self, partitions: Collection[TopicPartition]) -> Offsets:  # noqa: ARG002 - for Kafka
        """Fetch where partitions end, with what is not committed yet; nothing of those that have no such thing."""
        return {}

    def faults(
        self, available: Available, position: Offsets, identities: Mapping[str, str] | None = None
    ) -> dict[str, UpstreamError]:
        """Return what keeps topics from being read on: see `lakehold.ingest.read.checks.faults`."""
        return faults(available, position, identities)

    def verify(self, available: Available, position: Offsets) -> None:
        """Raise the first of `faults`; a missing topic is none here."""
        for topic, error in self.faults(available, position).items():
            if topic not in available.missing:
                raise error

    @abstractmethod
    def plan(self, available: Available, position: Offsets, limits: Limits) -> ReadPlan:
        """Plan contiguous ranges from `position`, bounded by `limits` and fair over partitions.

        A partition that `position` does not name starts at its earliest offset.

        Raises:
            UpstreamError: The first of `faults`; missing topics are left out instead.
        """

    @abstractmethod
    def plan_to(self, available: Available, position: Offsets, ends: Offsets) -> ReadPlan:
        """Plan to end exactly at `ends` for each partition of a topic they name, and to read nothing of the others.

        For a caller that moves the ends of a plan, to transaction ends for example.
        """

    @abstractmethod
    def in_driver(self, ranges: Collection[OffsetRange]) -> pa.Table:
        """Read exactly the records of `ranges` here, without Spark: for small batches.

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
        """Return the lines that `plan` passes and nobody can take; each is passed by exactly one batch."""
        return ()


def fetch_in_order(
    fetch: Callable[[Collection[str]], Available],
    written_ends: Callable[[Collection[TopicPartition]], Offsets],
    topics: Collection[str],
    ordered: str | None,
) -> Available:
    """Fetch the ends of `ordered`, then those of the other topics, then `Available.written`: see `Reader.fetch_offsets`."""
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
        other_topics=first.other_topics or others.other_topics,
        written=written_ends(partitions),
        fetched_ms=first.fetched_ms,
    )
