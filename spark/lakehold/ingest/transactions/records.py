"""From raw records to runs and ENDs, by Spark: of few records one job, of many the runs are made there, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from lakehold.definitions import FormatType
from lakehold.ingest.decode.heads import ANY_JSON, envelope_heads, transaction_metadata
from lakehold.ingest.decode.schema_ids import schema_ids, schema_ids_of
from lakehold.ingest.decode.schemas import AvroIds, JsonDeclared
from lakehold.ingest.offsets import TopicPartition
from lakehold.ingest.position import commits_by_itself, position_of
from lakehold.ingest.read.reader import RAW_DDL
from lakehold.ingest.transactions.log import Begin, End, Kind, Run
from lakehold.ingest.transactions.naming import events_by_topic
from lakehold.ingest.transactions.places import place_of_end, transaction_of
from lakehold.ingest.transactions.runs import Record, Runs, runs_by_spark, runs_in_driver

if TYPE_CHECKING:
    # Its client of the registry is a second of imports, which a source without one does not need.
    from lakehold.ingest.decode.registry import Registry

_BEGIN = "BEGIN"
_END = "END"


@dataclass(frozen=True)
class Found:
    """What records hold, by partition: of topics their runs, of the transaction topic BEGINs and ENDs."""

    runs: Runs = field(default_factory=dict)
    begins: dict[TopicPartition, list[Begin]] = field(default_factory=dict)
    ends: dict[TopicPartition, list[End]] = field(default_factory=dict)


@dataclass(frozen=True)
class Records:
    """Looks at raw records of a source.

    Args:
        transaction_topic: Its transaction topic.
        written: Its format.
        registry: Where Avro schemas are; None for JSON.
        spark: Gives the session.
        max_record_bytes: Longer records are not read.
    """

    transaction_topic: str
    written: FormatType
    registry: Registry | None
    spark: Callable[[], SparkSession]
    max_record_bytes: int

    def look(self, records: pa.Table | DataFrame, topics: frozenset[str]) -> Found:
        """The runs of `topics`, and the ENDs with the numbers of their events there.

        Args:
            records: Raw records of `topics` and of the transaction topic, in any order: a table if they are few.
            topics: The topics that are judged.
        """
        if isinstance(records, pa.Table):
            return self._in_driver(records, topics)
        return self._by_spark(records, topics)

    def _in_driver(self, records: pa.Table, topics: frozenset[str]) -> Found:
        of_data = records.filter(pc.is_in(records["topic"], pa.array(sorted(topics), pa.string())))
        of_transactions = records.filter(pc.equal(records["topic"], self.transaction_topic))
        spark = self.spark()
        # With their schema: a client of Spark Connect does not take it from a table without rows.
        heads = self._heads(spark.createDataFrame(of_data, RAW_DDL), self._schemas_of(of_data))
        ends = self._ends(spark.createDataFrame(of_transactions, RAW_DDL), self._schemas_of(of_transactions))
        # One job for both: starting one takes longer than looking at few records.
        rows = heads.unionByName(ends, allowMissingColumns=True).toArrow().to_pylist()
        runs = runs_in_driver(Record.of(row) for row in rows if row["topic"] != self.transaction_topic)
        return self._found(runs, (row for row in rows if row["topic"] == self.transaction_topic), topics)

    def _by_spark(self, records: DataFrame, topics: frozenset[str]) -> Found:
        of_data = records.filter(records["topic"].isin(*sorted(topics)))
        of_transactions = records.filter(records["topic"] == self.transaction_topic)
        runs = runs_by_spark(self._heads(of_data, self._schemas_of_topics(topics)))
        if self.registry is not None and any(map(_has_unreadable, runs.values())):
            # Their schemas may be others than those of the topics' subjects.
            runs = runs_by_spark(self._heads(of_data, self._schemas_in(of_data)))
        ends = self._ends(of_transactions, self._schemas_in(of_transactions))
        return self._found(runs, ends.toArrow().to_pylist(), topics)

    def _heads(self, raw: DataFrame, schemas: AvroIds | JsonDeclared) -> DataFrame:
        """`lakehold.ingest.transactions.runs.COLUMNS` of the records that are in runs."""
        kind = (
            f"CASE WHEN transaction.id IS NOT NULL THEN '{Kind.EVENTS}'"
            f" WHEN op = 'r' AND source.snapshot = 'last' THEN '{Kind.SNAPSHOT_END}' WHEN op = 'r' THEN '{Kind.SNAPSHOT}'"
            f" WHEN NOT is_readable THEN '{Kind.UNREADABLE}' END"
        )
        found = envelope_heads(raw, schemas, self.max_record_bytes).selectExpr(
            "topic",
            "partition",
            "offset",
            f"{kind} AS kind",
            "transaction.id AS transaction_id",
            "transaction.total_order AS total_order",
            "transaction.collection_order AS collection_order",
            f"{position_of('source', 'transaction', 'op')} AS position",
            "timestamp_ms AS sent_ms",
            f"{commits_by_itself('source', 'op')} AS commits",
        )
        return found.filter("kind IS NOT NULL")

    def _ends(self, raw: DataFrame, schemas: AvroIds | JsonDeclared) -> DataFrame:
        """What the records of the transaction topic say, also those that say nothing: where one stands is no control record."""
        return transaction_metadata(raw, schemas, self.max_record_bytes).selectExpr(
            "topic",
            "partition",
            "offset",
            "timestamp_ms AS sent_ms",
            "status AS kind",
            "id AS transaction_id",
            "data_collections",
        )

    def _schemas_of(self, records: pa.Table) -> AvroIds | JsonDeclared:
        """How few records were written."""
        return self._known(lambda: schema_ids_of(records, self.written).values)

    def _schemas_in(self, records: DataFrame) -> AvroIds | JsonDeclared:
        """How many were, by one more pass over them."""
        return self._known(lambda: schema_ids(records, self.written).values)

    def _schemas_of_topics(self, topics: Iterable[str]) -> AvroIds | JsonDeclared:
        """How those of some topics most likely were."""
        registry = self.registry
        if registry is None:
            return ANY_JSON
        return self._known(lambda: frozenset(i for topic in topics for i in registry.subject_ids(f"{topic}-value")))

    def _known(self, ids: Callable[[], frozenset[int] | frozenset[str]]) -> AvroIds | JsonDeclared:
        if self.registry is None:
            return ANY_JSON
        return self.registry.schemas(i for i in ids() if isinstance(i, int))

    def _found(self, runs: Runs, rows: Iterable[Mapping[str, Any]], topics: frozenset[str]) -> Found:
        """The runs, with the BEGINs and ENDs in `rows`: all records of the transaction topic."""
        found = Found(runs)
        ordered = sorted(rows, key=lambda r: (r["partition"], r["offset"]))
        for partition, records in groupby(ordered, key=lambda r: r["partition"]):
            tp, of_partition = TopicPartition(self.transaction_topic, partition), list(records)
            for number, row in enumerate(of_partition, 1):
                if row["transaction_id"] is None:
                    continue
                followed_by = len(of_partition) - number
                if row["kind"] == _BEGIN:
                    begin = Begin(row["offset"], transaction_of(row["transaction_id"]), row["sent_ms"], followed_by)
                    found.begins.setdefault(tp, []).append(begin)
                elif row["kind"] == _END:
                    end = self._end(row, topics, followed_by)
                    found.ends.setdefault(tp, []).append(end)
        return found

    def _end(self, row: Mapping[str, Any], topics: frozenset[str], followed_by: int) -> End:
        shown_id = row["transaction_id"]
        named = (c for c in row["data_collections"] or () if c is not None and c["data_collection"] is not None)
        counts = [(c["data_collection"], c["event_count"] or 0) for c in named]
        return End(
            row["offset"],
            transaction_of(shown_id),
            shown_id,
            place_of_end(shown_id),
            events_by_topic(counts, topics, self.transaction_topic),
            row["sent_ms"],
            followed_by,
        )


def _has_unreadable(runs: Iterable[Run]) -> bool:
    return any(run.kind is Kind.UNREADABLE for run in runs)
