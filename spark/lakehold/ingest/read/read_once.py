"""One reader for several sources over the same topics: what one of them has looked at or read, the others are given.

A look serves each source once, so that all of them read up to the same offsets and then stand at the same ones; records that were
read in the driver are kept until the next look. A source that stands elsewhere reads what it lacks by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from lakehold.errors import LakeholdError, UpstreamError
from lakehold.ingest.read.reader import Available, Limits, MalformedLine, Reader, ReadPlan
from lakehold.model.offsets import OffsetRange, Offsets, TopicPartition


class ReadOnce:
    """Keeps what sources read of partitions for each other.

    Args:
        reader: Reads.
        topics: All that any of the sources reads: a look is at all of them.
        ordered: One of them that some of the sources ask for as such.
    """

    def __init__(self, reader: Reader, topics: Collection[str], ordered: str | None = None) -> None:
        self._reader = reader
        self._topics = frozenset(topics)
        self._default = ordered
        self._looked: Available | None = None
        self._ordered: str | None = None
        self._given: set[str] = set()
        self._read: dict[TopicPartition, _Read] = {}

    def reader_for(self, source: str) -> Reader:
        """The reader of one of the sources."""
        return _OneOfSeveral(self, self._reader, source)

    def look(self, source: str, topics: Collection[str], ordered: str | None) -> Available:
        """The last look, if `source` has not been given it and it was at `topics`, `ordered` as such; a new one otherwise."""
        if self._looked is None or source in self._given or not self._is_at(self._looked, topics, ordered):
            self._ordered = ordered or self._default
            self._looked = self._look(topics, ordered)
            self._given.clear()
            self._read.clear()
        self._given.add(source)
        return self._looked.without(self._looked.topics.difference(topics))

    def _look(self, topics: Collection[str], ordered: str | None) -> Available:
        wanted = self._topics.union(topics)
        try:
            return self._reader.look(sorted(wanted), self._ordered)
        except LakeholdError:
            if wanted == {*topics} and self._ordered == ordered:
                raise
        # A topic of the others may be what fails: from now on each is looked at for those alone that read it.
        self._topics, self._default, self._ordered = frozenset(), None, ordered
        return self._reader.look(sorted(topics), ordered)

    def _is_at(self, looked: Available, topics: Collection[str], ordered: str | None) -> bool:
        return looked.topics.issuperset(topics) and ordered in (None, self._ordered)

    def in_driver(self, ranges: Collection[OffsetRange]) -> pa.Table:
        """The records of `ranges`, of which only those are read that were not."""
        if not ranges:
            return self._reader.in_driver(())
        found = {r: read for r in ranges if (read := self._read.get(r.topic_partition)) is not None and read.has(r)}
        missing = [r for r in ranges if r not in found]
        if missing:
            new = _Read.of(missing, self._reader.in_driver(missing))
            found.update(dict.fromkeys(missing, new))
            self._read.update({r.topic_partition: new for r in missing})
        only, *others = {*found.values()}
        if not others and only.asked == found.keys():
            return only.records
        return pa.concat_tables([read.within(r) for r, read in found.items()])


@dataclass(frozen=True, eq=False)
class _Read:
    """Records that were read at once, and the ranges of each partition."""

    records: pa.Table
    asked: frozenset[OffsetRange]
    ranges: Mapping[TopicPartition, list[OffsetRange]]

    @classmethod
    def of(cls, ranges: Collection[OffsetRange], records: pa.Table) -> _Read:
        by_partition: dict[TopicPartition, list[OffsetRange]] = {}
        for r in ranges:
            by_partition.setdefault(r.topic_partition, []).append(r)
        return cls(records, frozenset(ranges), by_partition)

    def has(self, wanted: OffsetRange) -> bool:
        return any(r.contains(wanted) for r in self.ranges.get(wanted.topic_partition, ()))

    def within(self, wanted: OffsetRange) -> pa.Table:
        tp, offset = wanted.topic_partition, pc.field("offset")
        of_partition = (pc.field("topic") == tp.topic) & (pc.field("partition") == tp.partition)
        return self.records.filter(of_partition & (offset >= wanted.start_inclusive) & (offset < wanted.end_exclusive))


class _OneOfSeveral(Reader):
    """See `Reader`."""

    def __init__(self, shared: ReadOnce, reader: Reader, source: str) -> None:
        self._shared = shared
        self._reader = reader
        self._source = source

    def look(self, topics: Collection[str], ordered: str | None = None) -> Available:
        return self._shared.look(self._source, topics, ordered)

    def written_ends(self, partitions: Collection[TopicPartition]) -> Offsets:
        return self._reader.written_ends(partitions)

    def plan(self, available: Available, position: Offsets, limits: Limits) -> ReadPlan:
        return self._reader.plan(available, position, limits)

    def plan_to(self, available: Available, position: Offsets, ends: Offsets) -> ReadPlan:
        return self._reader.plan_to(available, position, ends)

    def in_driver(self, ranges: Collection[OffsetRange]) -> pa.Table:
        return self._shared.in_driver(ranges)

    def dataframe(self, spark: SparkSession, ranges: Collection[OffsetRange]) -> DataFrame:
        return self._reader.dataframe(spark, ranges)

    def malformed(self, plan: ReadPlan) -> tuple[MalformedLine, ...]:
        return self._reader.malformed(plan)

    def faults(
        self, available: Available, position: Offsets, identities: Mapping[str, str] | None = None
    ) -> dict[str, UpstreamError]:
        return self._reader.faults(available, position, identities)
