"""A batch's records: read once, and each topic decoded once, however many tables take from it (seed "Dynamic resource sharing").

Tables over one topic share its parsing, whatever their envelopes, keys and column lists are, and what one wants of a record is no
error of another. Tables of several sources that are ingested together share as those of one do: `lakehold.ingest.shared_reads`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame

from lakehold.definitions import Table
from lakehold.ingest.decode.types import ColumnType
from lakehold.ingest.metrics import DECODES
from lakehold.ingest.read.edges import edges
from lakehold.ingest.read.reader import RAW_SCHEMA, Limits, Reader, ReadPlan
from lakehold.ingest.shared_reads import SharedReads
from lakehold.ingest.shared_topic import SharedTopic
from lakehold.ingest.topic import DecodedTopic
from lakehold.model.marks import Marks
from lakehold.model.offsets import OffsetRange


@dataclass(frozen=True)
class Reading:
    """What reading the records of a source's batches takes.

    Args:
        source: Its name.
        shared: Reads and decodes, for those that the source is ingested together with as well.
        driver_limits: Batches within them are read in the driver.
    """

    source: str
    shared: SharedReads
    driver_limits: Limits

    @property
    def reader(self) -> Reader:
        """Return what the records come from."""
        return self.shared.reader


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
        self._topics = reading.shared.topics(reading.source, plan.ranges, self._tables, in_driver=self.are_few)
        self._edges: dict[str, SharedTopic] = {}

    def has(self, topic: str) -> bool:
        """Return whether the batch may have records of `topic`."""
        found = self._topics.get(topic)
        return found is not None and (found.here is None or found.here.num_rows > 0)

    def decoded(self, table: Table, stored_key: Sequence[ColumnType], *, look: bool) -> DecodedTopic:
        """Decode the table's topic: see `TopicDecoder.wanted`."""
        topic, is_shared = self._topics[table.topic].decoded(table, tuple(stored_key), look=look)
        DECODES.labels(source=table.source, by="shared" if is_shared else "own").inc()
        return topic

    def raw(self, topics: Collection[str]) -> pa.Table | DataFrame:
        """Return the records of some topics as they are: a table if they are few."""
        if self.are_few:
            found = (shared.here for topic, shared in self._topics.items() if topic in topics)
            return pa.concat_tables([RAW_SCHEMA.empty_table(), *(table for table in found if table is not None)])
        return self._reading.reader.dataframe(self._reading.shared.decoder.spark(), self._ranges_of(topics))

    def may_move_keys(self, topic: str, before: Marks) -> bool:
        """Return whether a partition has records that had none before, beside others: keys may have come from those."""
        read = {r.topic_partition.partition for r in self._ranges_of([topic])}
        return bool(read - before.passed.keys()) and len(read | before.passed.keys()) > 1

    def have_edges(self, topic: str) -> bool:
        """Return whether they are many."""
        return not self.are_few and topic in self._topics

    def decoded_edges(
        self, table: Table, stored_key: Sequence[ColumnType], ends: Mapping[int, int] | None
    ) -> DecodedTopic:
        """Decode the first and the last records of each partition of the table's topic, up to `ends` by partition."""
        if table.topic not in self._edges:
            ranges = self._ranges_of([table.topic])
            if ends is not None:
                of_batch = (r for r in ranges if r.topic_partition.partition in ends)
                ranges = [replace(r, end_exclusive=ends[r.topic_partition.partition]) for r in of_batch]
            own = [each for each in self._tables if each.topic == table.topic]
            self._edges[table.topic] = SharedTopic(
                self._reading.shared.decoder, edges(self._reading.reader, ranges), own
            )
        return self._edges[table.topic].decoded(table, tuple(stored_key), look=False)[0]

    def close(self) -> None:
        """Let go of what is kept for several tables, unless another source takes it."""
        for shared in self._edges.values():
            shared.release()
        self._reading.shared.done(self._reading.source, self._topics)

    def _ranges_of(self, topics: Collection[str]) -> list[OffsetRange]:
        return [r for r in self._plan.ranges if r.topic_partition.topic in topics]
