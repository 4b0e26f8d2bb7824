"""The records of the batch that is being planned: read once, and decoded once for each table, before anything is written.

`batch.py` makes an `ArrivingRecords` for each batch of a *reader*: the tables of one source that share a position in its topics.
The planner reads a range (`read`). From the `HEADERS` of its records (partition, offset, transaction; not Kafka's headers) it
finds where the batch ends, possibly earlier (`take`). Then each table of the batch applies the same changes, without those
after the end. Reading has no effects, so it comes before the intent.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from lakehold.definitions import Table
from lakehold.errors import TableStopped
from lakehold.iceberg.data_tables import DataTables, TableState
from lakehold.ingest.decode.decoded import Decoded
from lakehold.ingest.decode.record_problems import UNKNOWN_SCHEMA
from lakehold.ingest.deduplicate.carriers import Carrier, DriverRows, SparkRows, before
from lakehold.ingest.envelope.change_columns import ERROR, Changes
from lakehold.ingest.envelope.column_history import column_history
from lakehold.ingest.envelope.header_columns import Kind
from lakehold.ingest.envelope.unwrap import changes_of
from lakehold.ingest.envelope.upstream_columns import UpstreamColumns, UpstreamColumnsOf, no_columns
from lakehold.ingest.metrics import DECODES
from lakehold.ingest.read.edge_records import edges
from lakehold.ingest.read.reader import RAW_SCHEMA, ReadPlan
from lakehold.ingest.shared_reads import Reading
from lakehold.ingest.shared_topic import SharedTopic
from lakehold.ingest.side_by_side import Lanes
from lakehold.ingest.topic import DecodedTopic, Stored
from lakehold.ingest.transactions.record_headers import HEADERS, headers_of_changes
from lakehold.model.high_water_marks import HighWaterMarks
from lakehold.model.lake_definitions import Entry
from lakehold.model.offsets import OffsetRange
from lakehold.spark_errors import is_sparks
from lakehold.tables.stored_key import is_keyless, stored_columns, stored_key

Result = TypeVar("Result")

log = logging.getLogger(__name__)


class ArrivingRecords:
    """The records that arrive for the tables of a reader; `close` releases them.

    Tables over one topic share its parsing, whatever their envelopes, keys and column lists are. A record that one of them cannot
    take is no error of another. Tables of several sources share like those of one: `lakehold.ingest.shared_reads`.

    Args:
        reading: Reads and decodes.
        entries: The reader's tables, by full name.
        tables: Reads the state of their Iceberg tables.
        lanes: Work on topics in parallel.
        columns_of: Returns the columns of a table in the database.
    """

    def __init__(
        self,
        reading: Reading,
        entries: Mapping[str, Entry[Table]],
        tables: DataTables,
        lanes: Lanes,
        columns_of: UpstreamColumnsOf = no_columns,
    ) -> None:
        self._reading = reading
        self._entries = entries
        self._definitions = [entry.definition for entry in entries.values()]
        self._tables = tables
        self._lanes = lanes
        self._columns_of = columns_of
        self._lane_of: dict[str, int] = {}
        self._plan: ReadPlan | None = None
        self._ends: dict[str, dict[int, int]] | None = None
        self._topics: dict[str, SharedTopic] = {}
        self._edges: dict[str, SharedTopic] = {}
        self._of: dict[str, TableArrival] = {}

    @property
    def are_few(self) -> bool:
        """Return whether the records are read in the driver."""
        return self._plan is not None and bool(self._plan.ranges) and self._plan.fits(self._reading.driver_limits)

    def read(self, plan: ReadPlan) -> None:
        """Read the ranges of `plan`, and release what was read before."""
        if self._plan != plan:
            self.close()
            self._plan = plan
            source, shared = self._reading.source, self._reading.shared
            self._topics = shared.topics(source, plan.ranges, self._definitions, in_driver=self.are_few)
            sizes = Counter[str]()
            for r in plan.ranges:
                sizes[r.topic_partition.topic] += r.end_exclusive - r.start_inclusive
            self._lane_of = self._lanes.of(sizes)

    def take(self, plan: ReadPlan) -> None:
        """Make `plan` the batch: records outside of it are skipped. Reads the plan if nothing was read yet."""
        if self._plan == plan:
            return
        if self._plan is None:
            self.read(plan)
            return
        self._ends = {r.topic_partition.topic: {} for r in self._plan.ranges}
        for r in plan.ranges:
            self._ends[r.topic_partition.topic][r.topic_partition.partition] = r.end_exclusive
        for name, arrival in self._of.items():
            arrival.end_at(self._ends[self._entries[name].definition.topic])

    def headers(self, topic: str) -> pa.Table | None:
        """Return a topic's `HEADERS` (`lakehold.ingest.transactions.record_headers`), as decoded for one of its tables.

        None if all of its tables fail to decode the topic, or a message cannot be decoded: then the caller reads what is around
        the rows in Debezium's messages, without decoding the rows (`transactions/header_reader.py`).
        """
        if not self.has(topic):
            return HEADERS.empty_table()
        for name, entry in self._entries.items():
            if entry.definition.topic == topic and entry.definition.envelope.wraps_rows:
                try:
                    found = self.of(name).carrier.header_rows
                # The table stops with this error when its turn comes.
                except Exception as error:
                    if not (isinstance(error, TableStopped) or is_sparks(error)):
                        raise
                    log.info("the changes of %s cannot be decoded: %s", name, error)
                    continue
                headers = headers_of_changes(found, topic)
                return None if pc.any(pc.equal(headers["kind"], Kind.UNREADABLE)).as_py() else headers
        return None

    def has(self, topic: str) -> bool:
        """Return whether the batch may have records of a topic."""
        found = self._topics.get(topic)
        return found is not None and found.may_have_records and (self._ends is None or bool(self._ends.get(topic)))

    def raw(self, topics: Collection[str]) -> pa.Table | DataFrame:
        """Return the raw records of some topics: an Arrow table if they are few."""
        if self.are_few:
            found = (self._topics[topic].here for topic in topics if topic in self._topics)
            return pa.concat_tables([RAW_SCHEMA.empty_table(), *(table for table in found if table is not None)])
        return self._reading.reader.dataframe(self._reading.shared.decoder.spark(), self._ranges_of(topics))

    def decoded(self, table: Table, stored: Stored, *, scan_schemas: bool) -> DecodedTopic:
        """Decode a table's topic.

        With `scan_schemas` the messages are searched for the schemas that they use. Without it the registry says which schemas
        the topic has, which is faster (`TopicDecoder.wanted`).
        """
        topic, is_shared = self._topics[table.topic].decoded(table, stored, scan_schemas=scan_schemas)
        DECODES.labels(source=table.source, by="shared" if is_shared else "own").inc()
        return topic

    def decoded_edges(self, table: Table, stored: Stored) -> DecodedTopic:
        """Decode the first and the last records of each partition of a table's topic; the result is kept until `close`.

        To be called after `take`, which decides where the batch ends.
        """
        if table.topic not in self._edges:
            ranges = self._ranges_of([table.topic])
            if self._ends is not None:
                ends = self._ends[table.topic]
                of_batch = (r for r in ranges if r.topic_partition.partition in ends)
                ranges = [replace(r, end_exclusive=ends[r.topic_partition.partition]) for r in of_batch]
            takers = [each for each in self._definitions if each.topic == table.topic]
            records = edges(self._reading.reader, ranges)
            self._edges[table.topic] = SharedTopic(self._reading.shared.decoder, records, takers)
        return self._edges[table.topic].decoded(table, stored, scan_schemas=False)[0]

    def may_move_keys(self, topic: str, high_water_marks: HighWaterMarks) -> bool:
        """Return whether the changes of one key may come from two partitions, as after somebody added partitions to the topic.

        That is possible if a partition had no records before this batch and the topic has others. Then offsets do not order
        the changes of a key, and positions in the upstream's log must.
        """
        read = {r.topic_partition.partition for r in self._ranges_of([topic])}
        return bool(read - high_water_marks.positions.keys()) and len(read | high_water_marks.positions.keys()) > 1

    def of(self, name: str) -> TableArrival:
        """Return the records that arrive for a table."""
        if name not in self._of:
            entry = self._entries[name]
            state = self._tables.table_state(entry.definition.full_name)
            arrival = TableArrival(self, entry, state, self._columns_of)
            if self._ends is not None:
                arrival.end_at(self._ends[entry.definition.topic])
            self._of[name] = arrival
        return self._of[name]

    def side_by_side(self, work: Mapping[str, Callable[[], Result]]) -> dict[str, Result]:
        """Run work for each topic in parallel. Returns the results by topic."""
        found = self._lanes.run([(self._lane_of.get(topic, 0), do) for topic, do in work.items()])
        return dict(zip(work, found, strict=True))

    def for_tables(self, names: Sequence[str], do: Callable[[str], Result]) -> dict[str, Result]:
        """Run work for tables, in one lane for each topic. Returns the results by table, in their order."""
        of_topic: dict[str, list[str]] = {}
        for name in names:
            of_topic.setdefault(self._entries[name].definition.topic, []).append(name)
        work = {
            topic: partial(lambda these: {name: do(name) for name in these}, these) for topic, these in of_topic.items()
        }
        found = {name: result for results in self.side_by_side(work).values() for name, result in results.items()}
        return {name: found[name] for name in names}

    def close(self) -> None:
        """Release what was read; what another source still needs stays in the shared cache."""
        for arrival in self._of.values():
            arrival.close()
        for sampled in self._edges.values():
            sampled.release()
        self._reading.shared.done(self._reading.source, self._topics)
        self._of, self._edges, self._topics, self._plan, self._ends = {}, {}, {}, None, None

    def _ranges_of(self, topics: Collection[str]) -> list[OffsetRange]:
        return [r for r in self._plan.ranges if r.topic_partition.topic in topics] if self._plan is not None else []


class TableArrival:
    """The records that arrive for one table, read and decoded at the first use.

    Args:
        arriving: The records of its reader.
        entry: The table.
        state: The Iceberg table; None before the first batch.
        columns_of: Returns the columns of a table in the database.
    """

    def __init__(
        self, arriving: ArrivingRecords, entry: Entry[Table], state: TableState | None, columns_of: UpstreamColumnsOf
    ) -> None:
        self.entry = entry
        self.state = state
        self._columns_of = columns_of
        self._arriving = arriving
        self._stored = Stored(stored_key(state), stored_columns(state))
        self._ends: dict[int, int] | None = None
        self._found: tuple[DecodedTopic, Changes] | None = None
        self._carrier: Carrier | None = None
        self._failed: Exception | None = None

    @property
    def table(self) -> Table:
        """Return the table's definition."""
        return self.entry.definition

    @property
    def changes(self) -> Changes:
        """Return the changes, decoded when they are read.

        Raises:
            TableStopped: The table cannot take such messages.
        """
        changes = self._decoded[1]
        return changes if self._ends is None else replace(changes, frame=changes.frame.filter(before(self._ends)))

    @property
    def raw(self) -> DataFrame:
        """Return the raw records, perhaps with some that lie after the batch."""
        return self._decoded[0].raw

    @property
    def carrier(self) -> Carrier:
        """Return the carrier of the changes: it keeps their rows in the driver or in Spark, and has their headers in the driver.

        The records are read and decoded once, at the first use.

        Raises:
            TableStopped: The table cannot take such messages. Each further use raises the same error.
        """
        if self._failed is not None:
            raise self._failed
        if self._carrier is None:
            try:
                self._carrier = self._read()
            except Exception as error:
                self._failed = error
                raise
        return self._carrier

    def _read(self) -> Carrier:
        topic, changes = self._decoded
        carrier = DriverRows(changes) if self._arriving.are_few else SparkRows(changes)
        if self._ends is not None:
            carrier.end_at(self._ends)
        try:
            unknown = pc.any(pc.equal(carrier.header_rows[ERROR], UNKNOWN_SCHEMA)).as_py()
        except BaseException:
            carrier.release()
            raise
        # A record names a schema that the topic was not known to have: search the records for all that they name.
        if topic.knows_all or not unknown:
            return carrier
        carrier.release()
        self._found = self._decode(scan_schemas=True)
        return self._read()

    @property
    def has_edges(self) -> bool:
        """Return whether there are so many records that a direct load looks at the first and last ones of each partition only.

        If these are all new rows, all records are expected to be (`write/direct_load.py`).
        """
        return not self._arriving.are_few and self._arriving.has(self.table.topic)

    @property
    def edges(self) -> Changes:
        """Return the changes of the first and the last records of each partition."""
        decoded = self._arriving.decoded_edges(self.table, self._stored).decoded
        return changes_of(decoded, self.table, self._stored.key, has_keyless_rows=self._has_keyless_rows(decoded))

    def may_move_keys(self, high_water_marks: HighWaterMarks) -> bool:
        """Return whether the changes of one key may come from two partitions, see `ArrivingRecords.may_move_keys`."""
        return self._arriving.may_move_keys(self.table.topic, high_water_marks)

    def end_at(self, ends: dict[int, int]) -> None:
        """Skip records at or after `ends`, by partition."""
        self._ends = ends
        if self._carrier is not None:
            self._carrier.end_at(ends)

    def close(self) -> None:
        """Release the changes."""
        if self._carrier is not None:
            self._carrier.release()
        self._carrier = None

    @property
    def _decoded(self) -> tuple[DecodedTopic, Changes]:
        if self._found is None:
            try:
                self._found = self._decode(scan_schemas=False)
            except TableStopped:
                if self._arriving.are_few:
                    raise
                # The topic's subjects may have conflicting schemas that no message of the batch uses: scan the messages.
                self._found = self._decode(scan_schemas=True)
        return self._found

    def _decode(self, *, scan_schemas: bool) -> tuple[DecodedTopic, Changes]:
        topic = self._arriving.decoded(self.table, self._stored, scan_schemas=scan_schemas)
        try:
            return topic, self._changes(topic.decoded)
        except TableStopped as stop:
            if not (
                self._stored.key
                and stop.code == "key-changed"
                and self.state is not None
                and self.state.current is None
            ):
                raise
        # The key came from the database, and the table has no rows yet that depend on it: take the messages' key.
        self._stored = replace(self._stored, key=())
        return self._decode(scan_schemas=scan_schemas)

    def _changes(self, decoded: Decoded) -> Changes:
        history = column_history(decoded, self.table, self.state, lambda _: self._in_database)
        return changes_of(
            decoded, self.table, self._stored.key, history, has_keyless_rows=self._has_keyless_rows(decoded)
        )

    def _has_keyless_rows(self, decoded: Decoded) -> bool:
        """Return whether the table has no key, though messages may have one: Debezium takes a unique index over nulls for it."""
        if is_keyless(self.state):
            return True
        is_new = self.state is None or self.state.current is None
        if not (is_new and decoded.key_columns and self.table.envelope.takes_keyless and not self.table.key):
            return False
        return bool(self._in_database.columns) and not self._in_database.key

    @cached_property
    def _in_database(self) -> UpstreamColumns:
        """Return the columns in the database, which is asked once for a batch."""
        return self._columns_of(self.table)
