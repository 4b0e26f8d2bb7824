"""A batch's records: read once, and each topic decoded once, however many tables take from it (seed "Dynamic resource sharing").

Tables over one topic share its decoding when the topic says how it is written and both look at it as the same shape: with any
envelopes of Debezium, keys and column lists. Bare JSON is decoded as the columns that a table declares, for each list of
columns once, so that a value which one table cannot hold is no error of another that does not have its column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from lakehold.definitions import Table
from lakehold.ingest.decode.decoded import Shape
from lakehold.ingest.decode.schemas import TopicSchemas
from lakehold.ingest.decode.types import ColumnType
from lakehold.ingest.marks import Marks
from lakehold.ingest.metrics import DECODES
from lakehold.ingest.read.edges import edges
from lakehold.ingest.read.lines import file_of
from lakehold.ingest.read.reader import Limits, Reader, ReadPlan
from lakehold.ingest.topic import DecodedTopic, TopicDecoder, TopicPart, shape_of


@dataclass(frozen=True)
class Reading:
    """What reading the records of a source's batches takes.

    Args:
        reader: Where they come from.
        decoder: Turns a topic's records into typed columns.
        spark: Gives the session.
        driver_limits: Batches within them are read in the driver.
    """

    reader: Reader
    decoder: TopicDecoder
    spark: Callable[[], SparkSession]
    driver_limits: Limits


@contextmanager
def shared_records(reading: Reading, plan: ReadPlan, tables: Iterable[Table]) -> Iterator[SharedRecords]:
    """The records of `plan` for the tables that take them; they can be read until the context ends."""
    records = SharedRecords(reading, plan, tables)
    try:
        yield records
    finally:
        records.release()


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
        self._takers = Counter(table.topic for table in tables)
        few = plan.fits(reading.driver_limits)
        self._table = reading.reader.in_driver(plan.ranges) if few and plan.ranges else None
        self._topics = (
            set(pc.unique(self._table["topic"]).to_pylist())
            if self._table is not None
            else {r.topic_partition.topic for r in plan.ranges}
        )
        self._whole: dict[str, _Shared] = {}
        self._edges: dict[str, _Shared] = {}

    @property
    def are_few(self) -> bool:
        """Whether they are in the driver."""
        return self._table is not None

    def has(self, topic: str) -> bool:
        """Whether the batch may have records of `topic`."""
        return topic in self._topics

    def decoded(self, table: Table, stored_key: Sequence[ColumnType], *, look: bool) -> DecodedTopic:
        """The table's topic, decoded: see `TopicDecoder.schemas`."""
        if table.topic not in self._whole:
            self._whole[table.topic] = self._shared(self._of(table.topic), table.topic)
        topic, is_shared = self._whole[table.topic].decoded(table, stored_key, look=look)
        DECODES.labels(source=table.source, by="shared" if is_shared else "own").inc()
        return topic

    def may_move_keys(self, topic: str, before: Marks) -> bool:
        """Whether a partition has records that had none before, beside others: keys may have come from those."""
        read = {r.topic_partition.partition for r in self._plan.ranges if r.topic_partition.topic == topic}
        return bool(read - before.passed.keys()) and len(read | before.passed.keys()) > 1

    def have_edges(self, topic: str) -> bool:
        """Whether they are many, and of partitions: files hold messages of several partitions."""
        return self._table is None and any(r.topic_partition.topic == topic for r in self._plan.ranges)

    def decoded_edges(self, table: Table, stored_key: Sequence[ColumnType]) -> DecodedTopic:
        """The first and the last records of each partition of the table's topic, decoded."""
        if table.topic not in self._edges:
            ranges = [r for r in self._plan.ranges if r.topic_partition.topic == table.topic]
            self._edges[table.topic] = self._shared(edges(self._reading.reader, ranges), table.topic)
        topic, _ = self._edges[table.topic].decoded(table, stored_key, look=False)
        return topic

    def release(self) -> None:
        """Let go of what is kept for several tables."""
        for shared in (*self._whole.values(), *self._edges.values()):
            shared.release()

    def _of(self, topic: str) -> pa.Table | DataFrame:
        if self._table is not None:
            return self._table.filter(pc.equal(self._table["topic"], topic))
        wanted = [
            r for r in self._plan.ranges if r.topic_partition.topic == topic or file_of(r.topic_partition) is not None
        ]
        return self._reading.reader.dataframe(self._reading.spark(), wanted)

    def _shared(self, records: pa.Table | DataFrame, topic: str) -> _Shared:
        return _Shared(self._reading.decoder, self._reading.decoder.part(records), keeps=self._takers[topic] > 1)


@dataclass
class _Shared:
    """Records of one topic, and what they were decoded to so far.

    Args:
        decoder: Decodes.
        part: The records.
        keeps: Several tables may take them.
    """

    decoder: TopicDecoder
    part: TopicPart
    keeps: bool
    found: list[tuple[TopicSchemas, Shape, DecodedTopic]] = field(default_factory=list)

    def decoded(self, table: Table, stored_key: Sequence[ColumnType], *, look: bool) -> tuple[DecodedTopic, bool]:
        """The records decoded for a table, and whether they were for another one."""
        schemas, knows_all = self.decoder.schemas(table, self.part, tuple(stored_key), look=look)
        shape = shape_of(table)
        for of_schemas, of_shape, topic in self.found:
            if (of_schemas, of_shape) == (schemas, shape):
                return topic, True
        topic = self.decoder.decode(table, self.part, schemas, knows_all=knows_all)
        if self.keeps:
            topic.decoded.frame.persist()
            self.found.append((schemas, shape, topic))
        return topic, False

    def release(self) -> None:
        for _, _, topic in self.found:
            topic.decoded.frame.unpersist()
