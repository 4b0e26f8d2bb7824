"""A batch's records: read once, and each topic decoded once, however many tables take from it (seed "Dynamic resource sharing").

Tables over one topic share its parsing, whatever their envelopes, keys and column lists are, and what one wants of a record is no
error of another. Those that want the same of it share its decoding as well. Tables of several sources that are ingested together
do so in batches that read the same offsets of the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from lakehold.definitions import Table
from lakehold.ingest.decode.types import ColumnType
from lakehold.ingest.metrics import DECODES
from lakehold.ingest.read.edges import edges
from lakehold.ingest.read.reader import Limits, Reader, ReadPlan
from lakehold.ingest.shared_topic import SharedTopic
from lakehold.ingest.shelf import Shelf, Stretch
from lakehold.ingest.topic import DecodedTopic, TopicDecoder
from lakehold.model.marks import Marks
from lakehold.model.offsets import OffsetRange


@dataclass(frozen=True)
class Reading:
    """What reading the records of a source's batches takes.

    Args:
        source: Its name.
        reader: Where they come from.
        decoder: Turns a topic's records into typed columns.
        spark: Gives the session.
        driver_limits: Batches within them are read in the driver.
        shelf: What was decoded for this source, or for those that it is ingested together with.
    """

    source: str
    reader: Reader
    decoder: TopicDecoder
    spark: Callable[[], SparkSession]
    driver_limits: Limits
    shelf: Shelf


class SharedRecords:
    """A batch's raw records, in the driver when they are few, read by Spark otherwise, and what they are decoded.

    Args:
        reading: Reads and decodes.
        plan: The batch.
        tables: Those that take the records.
    """

    def __init__(self, reading: Reading, plan: ReadPlan, tables: Iterable[Table]) -> None:
        self._reading = reading
        self._plan = plan
        self._tables = tuple(tables)
        self.are_few = bool(plan.ranges) and plan.fits(reading.driver_limits)
        """Whether they are read in the driver."""
        topics = {r.topic_partition.topic for r in plan.ranges}
        self._whole = self._taken(topics)
        must_read = self.are_few and not topics <= self._whole.keys()
        self._table = reading.reader.in_driver(plan.ranges) if must_read else None
        self._topics = topics if self._table is None else {*self._whole, *pc.unique(self._table["topic"]).to_pylist()}
        self._edges: dict[str, SharedTopic] = {}

    def _taken(self, topics: Iterable[str]) -> dict[str, SharedTopic]:
        """What another source has read and decoded of the same records."""
        shelf, source = self._reading.shelf, self._reading.source
        found = {topic: shelf.take(source, self._stretch(topic)) for topic in topics}
        return {topic: taken for topic, taken in found.items() if taken is not None}

    def has(self, topic: str) -> bool:
        """Whether the batch may have records of `topic`."""
        return topic in self._topics

    def decoded(self, table: Table, stored_key: Sequence[ColumnType], *, look: bool) -> DecodedTopic:
        """The table's topic, decoded: see `TopicDecoder.schemas`."""
        if table.topic not in self._whole:
            shelf, source, stretch = self._reading.shelf, self._reading.source, self._stretch(table.topic)
            takers = [*self._own(table.topic), *shelf.waiting(source, stretch)]
            self._whole[table.topic] = SharedTopic(self._reading.decoder, self.raw([table.topic]), takers)
            shelf.put(source, stretch, self._whole[table.topic])
        topic, is_shared = self._whole[table.topic].decoded(table, tuple(stored_key), look=look)
        DECODES.labels(source=table.source, by="shared" if is_shared else "own").inc()
        return topic

    def raw(self, topics: Collection[str]) -> pa.Table | DataFrame:
        """Return the records of some topics as they are: a table if they are few."""
        if self._table is not None:
            return self._table.filter(pc.is_in(self._table["topic"], pa.array(sorted(topics), pa.string())))
        ranges = [r for topic in topics for r in self._ranges_of(topic)]
        return self._reading.reader.dataframe(self._reading.spark(), list(dict.fromkeys(ranges)))

    def may_move_keys(self, topic: str, before: Marks) -> bool:
        """Whether a partition has records that had none before, beside others: keys may have come from those."""
        read = {r.topic_partition.partition for r in self._plan.ranges if r.topic_partition.topic == topic}
        return bool(read - before.passed.keys()) and len(read | before.passed.keys()) > 1

    def have_edges(self, topic: str) -> bool:
        """Return whether they are many."""
        return not self.are_few and any(r.topic_partition.topic == topic for r in self._plan.ranges)

    def decoded_edges(
        self, table: Table, stored_key: Sequence[ColumnType], ends: Mapping[int, int] | None
    ) -> DecodedTopic:
        """Decode the first and the last records of each partition of the table's topic, up to `ends` by partition."""
        if table.topic not in self._edges:
            ranges = [r for r in self._plan.ranges if r.topic_partition.topic == table.topic]
            if ends is not None:
                of_batch = (r for r in ranges if r.topic_partition.partition in ends)
                ranges = [replace(r, end_exclusive=ends[r.topic_partition.partition]) for r in of_batch]
            records = edges(self._reading.reader, ranges)
            self._edges[table.topic] = SharedTopic(self._reading.decoder, records, self._own(table.topic))
        topic, _ = self._edges[table.topic].decoded(table, tuple(stored_key), look=False)
        return topic

    def close(self) -> None:
        """Let go of what is kept for several tables, unless another source waits for it."""
        for shared in self._edges.values():
            shared.release()
        self._reading.shelf.clear(but_waiting=True)

    def _own(self, topic: str) -> list[Table]:
        return [table for table in self._tables if table.topic == topic]

    def _ranges_of(self, topic: str) -> list[OffsetRange]:
        return [r for r in self._plan.ranges if r.topic_partition.topic == topic]

    def _stretch(self, topic: str) -> Stretch:
        return Stretch(topic, frozenset(self._ranges_of(topic)), self.are_few)
