"""A backlog of pgbench's changes, drained in whole transactions, against Spark that does the bare work once.

Floor: for each table, Spark reads the same records from Kafka, decodes them by `from_avro` with the only schema, finds the last
change of each key by `max_by`, and merges it into a copy of the table. It ignores transactions, repetitions and errors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from time import perf_counter

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from lakehold.ingest.read.kafka import BULK_READ_OPTIONS
from lakehold.lake import Lake
from tests.benchmarks.figures import Figure, seconds
from tests.benchmarks.first_load import stack_for_benchmark
from tests.benchmarks.pgbench import KEYS, TABLES, Bank
from tests.stack_fixtures import SourceDatabase

_WARM_UP = 3
_EVENTS_PER_TRANSACTION = 4


def drained(lake: Lake, events: int, branches: int, runs: int) -> list[Figure]:
    """Drain `events` change events of four tables, `runs` times, in turn with the floor over the same records."""
    ours, bare = [], []
    with stack_for_benchmark() as addresses:
        database = SourceDatabase(addresses)
        bank = Bank(lake, database, branches, max_records=2 * events)
        floor = BareTables(lake, bank, addresses.kafka, addresses.registry)
        for _ in range(runs + _WARM_UP):
            before = floor.ends()
            bank.run(events // _EVENTS_PER_TRANSACTION)
            bank.source.wait_for_arrival()
            after = floor.ends()
            bare.append(seconds(partial(_merge_all, floor, before, after)))
            started = perf_counter()
            reports = bank.source.ingest()
            ours.append(perf_counter() - started)
            assert sum(report.records for report in reports) >= events
        bank.assert_equal()
        floor.assert_equal()
        database.drop()
    name = f"draining {events:,} events of four tables, whole transactions"
    floor_name = "read, from_avro, max_by per key, a bare MERGE per table"
    return [Figure(name, "s", tuple(ours[_WARM_UP:]), floor_name, tuple(bare[_WARM_UP:]), goal=1.2)]


class BareTables:
    """Copies of pgbench's tables, and the bare work that updates them."""

    def __init__(self, lake: Lake, bank: Bank, kafka: str, registry: str) -> None:
        self._spark, self._bank, self._kafka = lake.spark, bank, kafka
        client = SchemaRegistryClient({"url": registry})
        self._schemas = {table: _schema(client, bank.source.topic(table)) for table in TABLES}
        self._spark.sql("CREATE NAMESPACE IF NOT EXISTS bare")
        for table in TABLES:
            buckets = f"PARTITIONED BY (bucket({lake.settings.buckets}, {KEYS[table]}))"
            merges = "TBLPROPERTIES ('format-version' = '3', 'write.merge.mode' = 'merge-on-read')"
            self._spark.sql(
                f"CREATE OR REPLACE TABLE bare.{table} USING iceberg {buckets} {merges} AS SELECT * FROM live.{table}"
            )

    def ends(self) -> dict[str, int]:
        """Fetch the end offset (exclusive) of the only partition of each table's topic, by table."""
        consumer = Consumer({"bootstrap.servers": self._kafka, "group.id": "bench", "log_level": 0})
        try:
            partitions = {table: TopicPartition(self._bank.source.topic(table), 0) for table in TABLES}
            return {table: consumer.get_watermark_offsets(partition)[1] for table, partition in partitions.items()}
        finally:
            consumer.close()

    def changes(self, table: str, start: int, end: int) -> DataFrame:
        """Read the changes of `[start, end)`: `offset`, `timestamp` of the message, `op`, `before`, `after`."""
        topic = self._bank.source.topic(table)
        read = (
            self._spark.read.format("kafka")
            .option("kafka.bootstrap.servers", self._kafka)
            .option("kafka.isolation.level", "read_committed")
            .option("subscribe", topic)
            .option("startingOffsets", json.dumps({topic: {"0": start}}))
            .option("endingOffsets", json.dumps({topic: {"0": end}}))
            .options(**BULK_READ_OPTIONS)
            .load()
            .filter("value IS NOT NULL")
        )
        change = from_avro(F.expr("substring(value, 6)"), self._schemas[table]).alias("m")
        return read.select("offset", "timestamp", change).select("offset", "timestamp", "m.op", "m.before", "m.after")

    def last_changes(self, table: str, start: int, end: int) -> DataFrame:
        """Read the last change of each key in `[start, end)`: `changed` the key, `op`, and the row's columns."""
        key = KEYS[table]
        last = (
            self.changes(table, start, end)
            .groupBy(F.expr(f"coalesce(after.{key}, before.{key})").alias("changed"))
            .agg(F.max_by(F.struct("op", "after"), "offset").alias("last"))
            .select("changed", "last.op", "last.after.*")
        )
        return (
            last.withColumn("mtime", F.timestamp_micros("mtime").cast("timestamp_ntz")) if table == "history" else last
        )

    def merge(self, table: str, last: DataFrame) -> None:
        """Merge the rows of `last_changes` into the copy of a table."""
        last.createOrReplaceTempView("changed")
        columns = [name for name in last.columns if name not in ("changed", "op")]
        self._spark.sql(
            f"MERGE INTO bare.{table} t USING changed s ON t.{KEYS[table]} = s.changed WHEN MATCHED AND s.op = 'd' THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {', '.join(f't.{name} = s.{name}' for name in columns)} "
            f"WHEN NOT MATCHED AND s.op <> 'd' THEN INSERT ({', '.join(columns)}) VALUES ({', '.join(f's.{c}' for c in columns)})"
        )

    def assert_equal(self) -> None:
        """Compare the copies with the lake's tables, to show that both did the same work."""
        for table in TABLES:
            columns = ", ".join(self._spark.table(f"bare.{table}").columns)
            bare, ours = (self._spark.sql(f"SELECT {columns} FROM {lake}.{table}") for lake in ("bare", "live"))
            assert bare.exceptAll(ours).isEmpty()
            assert ours.exceptAll(bare).isEmpty()


def _merge_all(bare: BareTables, starts: Mapping[str, int], ends: Mapping[str, int]) -> None:
    """Merge the changes of `[starts, ends)` into the copies, one table after the other."""
    for table in TABLES:
        bare.merge(table, bare.last_changes(table, starts[table], ends[table]))


def _schema(client: SchemaRegistryClient, topic: str) -> str:
    text = client.get_latest_version(f"{topic}-value").schema.schema_str
    assert text is not None
    return text
