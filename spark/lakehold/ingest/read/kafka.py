"""Reads topics of a Kafka cluster, committed records only.

librdkafka's client fetches offsets and reads few records in the driver. Spark's Kafka source reads many.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehold.ingest.read.bounding import plan_batch, plan_to, sampled_record_bytes
from lakehold.ingest.read.reader import RAW_DDL, RAW_SCHEMA, FetchedOffsets, Limits, Reader, ReadPlan, fetch_in_order
from lakehold.kafka.client import shared_client
from lakehold.kafka.connection_options import KafkaOptions
from lakehold.model.offsets import OffsetRange, Offsets, TopicPartition, ends, starts, to_json
from lakehold.times import LAST_MS, now_ms

BULK_READ_OPTIONS = {
    # After each poll Spark asks the broker where the partition begins and ends; by default a poll has 500 records.
    "kafka.max.poll.records": "50000",
    # That request queues after the client's fetch of further records, which a broker without more keeps for 500 ms by default.
    "kafka.fetch.max.wait.ms": "10",
}
"""Options of Spark's Kafka source for records that are known to exist; with its defaults reading takes three times as long."""


class KafkaReader(Reader):
    """A reader of the committed records of topics; it is also the `Backlog` (`bounding.py`) by which its batches are planned.

    Args:
        options: The options that reach the brokers.
        timeout_s: How long a broker may stay silent (seconds).
        parallelism: The least number of tasks of a large read, also of one large partition.
    """

    def __init__(self, options: KafkaOptions, *, timeout_s: float = 15.0, parallelism: int = 1) -> None:
        self._options = options
        self._timeout_s = timeout_s
        self._parallelism = parallelism

    def fetch_offsets(self, topics: Collection[str], ordered: str | None = None) -> FetchedOffsets:
        """Fetch where topics begin and end now, see `Reader.fetch_offsets`.

        It takes three round trips, whatever the number of topics; seven with `ordered`.
        """
        return fetch_in_order(self._fetch, self.written_ends, topics, ordered)

    def written_ends(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Fetch the ends with uncommitted records, see `Reader.written_ends`."""
        return shared_client(self._options, self._timeout_s).written_ends(partitions)

    def _fetch(self, topics: Collection[str]) -> FetchedOffsets:
        fetched_ms = now_ms()
        client = shared_client(self._options, self._timeout_s)
        described, refused = client.describe_readable(topics)
        found = client.watermarks(
            [TopicPartition(name, p.id) for name, topic in described.items() for p in topic.partitions]
        )
        missing = tuple(sorted({*topics} - {tp.topic for tp in found} - refused))
        return FetchedOffsets(
            topics=frozenset(topics),
            partitions=found,
            identities={name: str(topic.topic_id) for name, topic in described.items() if name not in missing},
            missing=missing,
            refused=refused,
            other_topics=client.topic_names() if missing else (),
            where=f"Kafka at {self._options.brokers}",
            fetched_ms=fetched_ms,
        )

    def plan(self, fetched: FetchedOffsets, position: Offsets, limits: Limits) -> ReadPlan:
        """Plan ranges, see `Reader.plan`: a backlog counts offsets, which are no fewer than records."""
        self.verify(fetched, position)
        return plan_batch(fetched, position, limits, self)

    def plan_to(self, fetched: FetchedOffsets, position: Offsets, ends: Offsets) -> ReadPlan:
        """Plan ranges to given ends, see `Reader.plan_to`."""
        self.verify(fetched, position)
        return plan_to(fetched, position, ends, self)

    def count(self, r: OffsetRange) -> int:
        """Return the number of offsets in a range, see `Backlog.count`."""
        return r.width

    def end_after(self, r: OffsetRange, records: int) -> int:
        """Return the end of the first so many offsets, see `Backlog.end_after`."""
        return r.start_inclusive + records

    def in_driver(self, ranges: Collection[OffsetRange]) -> pa.Table:
        """Read records in the driver, see `Reader.in_driver`."""
        return self._records(ranges)

    def _records(self, ranges: Collection[OffsetRange]) -> pa.Table:
        client = shared_client(self._options, self._timeout_s)
        rows = [
            (m.topic(), m.partition(), m.offset(), m.timestamp()[1], m.key(), m.value(), m.headers())
            for m in client.records(ranges)
        ]
        columns = zip(*rows, strict=True) if rows else ((),) * len(RAW_SCHEMA)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, RAW_SCHEMA, strict=True)]
        return pa.Table.from_arrays(arrays, schema=RAW_SCHEMA)

    def dataframe(self, spark: SparkSession, ranges: Collection[OffsetRange]) -> DataFrame:
        """Return a frame of records, see `Reader.dataframe`; persist it before reading twice: each action asks Kafka again.

        Spark's Kafka source fails at a timestamp that Spark cannot hold. The first such record of a partition and all after it
        are read in the driver.
        """
        partitions = {r.topic_partition for r in ranges if not r.is_empty}
        unreadable = shared_client(self._options, self._timeout_s).first_sent_at(partitions, LAST_MS + 1)
        by_spark, in_driver = [], []
        for r in ranges:
            at = min(max(unreadable.get(r.topic_partition, r.end_exclusive), r.start_inclusive), r.end_exclusive)
            by_spark.append(replace(r, end_exclusive=at))
            in_driver.append(replace(r, start_inclusive=at))
        frame = self._by_spark(spark, by_spark)
        if all(r.is_empty for r in in_driver):
            return frame
        return frame.union(spark.createDataFrame(self._records(in_driver), RAW_DDL))

    def _by_spark(self, spark: SparkSession, ranges: Collection[OffsetRange]) -> DataFrame:
        wanted = [r for r in ranges if not r.is_empty]
        if not wanted:
            return spark.createDataFrame([], RAW_DDL)
        options = {
            **{f"kafka.{name}": value for name, value in self._options.java.items()},
            "kafka.bootstrap.servers": self._options.brokers,
            "kafka.isolation.level": "read_committed",
            # Otherwise a topic that is deleted while it is read would be created again, empty and without an owner.
            "kafka.allow.auto.create.topics": "false",
            **BULK_READ_OPTIONS,
            "kafkaConsumer.pollTimeoutMs": str(int(self._timeout_s * 1_000)),
            "assign": _assignment(wanted),
            "startingOffsets": to_json(starts(wanted)),
            "endingOffsets": to_json(ends(wanted)),
            "failOnDataLoss": "true",
            "includeHeaders": "true",
            "minPartitions": str(self._parallelism),
        }
        records = spark.read.format("kafka").options(**options).load()
        return records.select(
            "topic", "partition", "offset", F.unix_millis("timestamp").alias("timestamp_ms"), "key", "value", "headers"
        )

    def record_bytes(self, ranges: Collection[OffsetRange]) -> float:
        """Return the average size of the first records, see `Backlog.record_bytes`."""
        return sampled_record_bytes(self._records, ranges)


def _assignment(ranges: Collection[OffsetRange]) -> str:
    """Write `{"topic": [0, 1]}`, as Spark's option `assign` takes it."""
    partitions: dict[str, list[int]] = {}
    for r in sorted(ranges):
        partitions.setdefault(r.topic_partition.topic, []).append(r.topic_partition.partition)
    return json.dumps(partitions)
