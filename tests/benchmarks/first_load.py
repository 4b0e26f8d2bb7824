"""A first load from Kafka: Avro with a registry, one topic, several partitions.

Floor: Spark's Kafka source reads the same records, decodes them by `from_avro` with the only schema, and appends them to an
unpartitioned Iceberg table. It ignores keys, order, errors and repetitions.
"""

from __future__ import annotations

import io
import json
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from lakehold import stack
from lakehold.ingest.read.kafka import BULK_READ_OPTIONS
from lakehold.lake import Lake
from lakehold.stack import StackAddresses
from tests.benchmarks.figures import Figure, seconds
from tests.stack_fixtures import free_ports

PARTITIONS = 4

_WARM_UP = 3
"""Loads after which Java has compiled the code of a load."""

_ROW = {
    "type": "record",
    "name": "Value",
    "namespace": "bench.public.orders",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "status", "type": ["null", "string"], "default": None},
        {"name": "quantity", "type": "int"},
        {"name": "price", "type": ["null", "double"], "default": None},
        {"name": "placed_at", "type": {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
_SOURCE = {
    "type": "record",
    "name": "Source",
    "namespace": "io.debezium.connector.postgresql",
    "fields": [
        {"name": "connector", "type": "string"},
        {"name": "ts_ms", "type": "long"},
        {"name": "snapshot", "type": ["null", "string"], "default": None},
        {"name": "db", "type": "string"},
        {"name": "sequence", "type": ["null", "string"], "default": None},
        {"name": "schema", "type": "string"},
        {"name": "table", "type": "string"},
        {"name": "txId", "type": ["null", "long"], "default": None},
        {"name": "lsn", "type": ["null", "long"], "default": None},
    ],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "bench.public.orders",
    "fields": [
        {"name": "before", "type": ["null", _ROW], "default": None},
        {"name": "after", "type": ["null", "bench.public.orders.Value"], "default": None},
        {"name": "source", "type": _SOURCE},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ],
}
KEY = {
    "type": "record",
    "name": "Key",
    "namespace": "bench.public.orders",
    "fields": [{"name": "id", "type": "long"}],
}


def first_load(lake: Lake, records: int, runs: int) -> list[Figure]:
    """Load `records` Debezium snapshot rows into a new table, `runs` times, in turn with Spark alone.

    Spark reads Kafka with its default options, to which the goal refers, and with the options of lakehold.
    """
    ours, plain, tuned = [], [], []
    with stack_for_benchmark() as addresses:
        topic = f"bench.public.orders_{uuid.uuid4().hex[:6]}"
        value_schema = fill(addresses, topic, records)
        lake.sql(f"""
            CREATE CONNECTION IF NOT EXISTS bench_kafka TO KAFKA (BROKER '{addresses.kafka}');
            CREATE CONNECTION IF NOT EXISTS bench_registry TO SCHEMA REGISTRY (URL '{addresses.registry}');
        """)
        for run in range(runs + _WARM_UP):
            lake.sql(f"""
                CREATE SOURCE load{run} FROM KAFKA CONNECTION bench_kafka (TOPICS ('{topic}'))
                    FORMAT AVRO USING SCHEMA REGISTRY CONNECTION bench_registry;
                CREATE TABLE load.orders{run} FROM SOURCE load{run} (TOPIC '{topic}') ENVELOPE DEBEZIUM;
            """)
            plain.append(seconds(partial(_bare, lake, addresses, topic, value_schema, f"plain{run}", {})))
            tuned.append(
                seconds(partial(_bare, lake, addresses, topic, value_schema, f"tuned{run}", BULK_READ_OPTIONS))
            )
            ours.append(seconds(partial(lake.ingest, f"load{run}")))
            for table in (f"load.orders{run}", f"load.plain{run}", f"load.tuned{run}"):
                found = lake.sql(f"SELECT count(*) FROM {table}").rows[0][0]
                assert found == records, f"{table} has {found} rows of {records}"
    name, floor = f"first load of {records:,} Avro records, {PARTITIONS} partitions", "read + from_avro + plain append"
    rates, plain_rates, tuned_rates = (
        tuple(records / took for took in runs_[_WARM_UP:]) for runs_ in (ours, plain, tuned)
    )
    return [
        Figure(name, "records/s", rates, floor, plain_rates, goal=0.6),
        Figure(name, "records/s", rates, f"{floor}, read with the same options", tuned_rates, goal=0.7),
    ]


def _bare(
    lake: Lake, addresses: StackAddresses, topic: str, schema: str, table: str, options: Mapping[str, str]
) -> None:
    spark = lake.spark
    read = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", addresses.kafka)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .options(**options)
        .load()
    )
    body = F.expr("substring(value, 6)")
    rows = read.select(from_avro(body, schema).alias("m")).select("m.after.*")
    spark.sql("CREATE NAMESPACE IF NOT EXISTS load")
    rows.writeTo(f"load.{table}").using("iceberg").create()


@contextmanager
def stack_for_benchmark() -> Iterator[StackAddresses]:
    """Start a stack, and delete it after the benchmark."""
    with tempfile.TemporaryDirectory(prefix="lakehold-bench-") as name:
        directory = Path(name)
        directory.chmod(0o755)  # PostgreSQL runs as a user of its own when this one is root
        try:
            yield stack.up(directory, free_ports())
        finally:
            stack.down(directory, delete_data=True)


def fill(addresses: StackAddresses, topic: str, records: int) -> str:
    """Write the topic as the connector's first snapshot does; return the value schema."""
    registry = SchemaRegistryClient({"url": addresses.registry})
    value_schema = json.dumps(ENVELOPE)
    key_id = registry.register_schema(f"{topic}-key", Schema(json.dumps(KEY), "AVRO"))
    value_id = registry.register_schema(f"{topic}-value", Schema(value_schema, "AVRO"))
    key_parsed, value_parsed = fastavro.parse_schema(KEY), fastavro.parse_schema(ENVELOPE)
    write(
        addresses,
        topic,
        (
            (_framed(key_id, key_parsed, key), _framed(value_id, value_parsed, event))
            for key, event in snapshot_rows(records)
        ),
    )
    return value_schema


def snapshot_rows(records: int) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Generate the keys and events of a connector's first snapshot."""
    for number in range(records):
        row = {
            "id": number,
            "customer": f"customer {number % 5_000}",
            "status": ("placed", "paid", "shipped", None)[number % 4],
            "quantity": number % 17,
            "price": number * 0.25,
            "placed_at": 1_750_000_000_000_000 + number,
            "note": f"note of order {number}" if number % 3 else None,
        }
        source = {
            "connector": "postgresql",
            "ts_ms": 1_750_000_000_000,
            "snapshot": "last" if number == records - 1 else "true",
            "db": "bench",
            "sequence": '[null,"1000"]',
            "schema": "public",
            "table": "orders",
            "txId": 7,
            "lsn": 1000,
        }
        yield {"id": number}, {"before": None, "after": row, "source": source, "op": "r", "ts_ms": 1_750_000_000_000}


def write(addresses: StackAddresses, topic: str, records: Iterable[tuple[bytes, bytes]]) -> None:
    """Write keys and values to a new topic."""
    admin = AdminClient({"bootstrap.servers": addresses.kafka})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(60)
    producer = Producer(
        {"bootstrap.servers": addresses.kafka, "queue.buffering.max.messages": 2_000_000, "linger.ms": 50}
    )
    for key, value in records:
        producer.produce(topic, key=key, value=value)
        producer.poll(0)
    assert producer.flush(120) == 0


def _framed(schema_id: int, schema: fastavro.types.Schema, content: object) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, schema, content)
    return b"\x00" + schema_id.to_bytes(4, "big") + body.getvalue()
