"""Tables over one topic: reading and decoding it for many of them against one, and ingesting them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import partial
from time import perf_counter

from lakehold.definitions import Envelope, Format, FormatType, Source, Table
from lakehold.ingest.decode.registry import registry_of
from lakehold.ingest.read.opening import open_reader
from lakehold.ingest.read.reader import Limits
from lakehold.ingest.shared_records import Reading, shared_records
from lakehold.ingest.shelf import Shelf
from lakehold.ingest.topic import TopicDecoder
from lakehold.lake import Lake
from lakehold.stack import StackAddresses
from tests.benchmarks.figures import Figure, seconds
from tests.benchmarks.first_load import PARTITIONS, fill, stack_for_benchmark

_WARM_UP = 2
_ENVELOPES = (Envelope.DEBEZIUM, Envelope.DEBEZIUM_UPSERT)
_NO_LIMIT = Limits(max_records=10**9, max_bytes=10**12)


def tables_of_one_topic(lake: Lake, records: int, tables: int, runs: int) -> list[Figure]:
    """Read and decode a topic of `records` Avro records for `tables` tables, and ingest it into them, each beside one."""
    with stack_for_benchmark() as addresses:
        topic = f"bench.public.orders_{uuid.uuid4().hex[:6]}"
        fill(addresses, topic, records)
        lake.sql(f"""
            CREATE CONNECTION IF NOT EXISTS shared_kafka TO KAFKA (BROKER '{addresses.kafka}');
            CREATE CONNECTION IF NOT EXISTS shared_registry TO SCHEMA REGISTRY (URL '{addresses.registry}');
        """)
        read: dict[int, list[float]] = {1: [], tables: []}
        ingested: dict[int, list[float]] = {1: [], tables: []}
        for run in range(runs + _WARM_UP):
            for count in (1, tables):
                read[count].append(_decode(lake, addresses, topic, count))
                ingested[count].append(seconds(partial(_ingest, lake, topic, count, f"shared{count}_{run}")))
    return [
        _figure(f"reading and decoding {records:,} records of a topic for {tables} tables", read[tables], read[1], 1.3),
        _figure(f"ingesting them into {tables} tables", ingested[tables], ingested[1], None),
    ]


def _figure(name: str, values: Sequence[float], floors: Sequence[float], goal: float | None) -> Figure:
    return Figure(name, "s", tuple(values[_WARM_UP:]), "the same for one", tuple(floors[_WARM_UP:]), goal)


def _decode(lake: Lake, addresses: StackAddresses, topic: str, count: int) -> float:
    """What a batch does before tables take their changes: every row is decoded, and every table has its DataFrame."""
    source = Source("shared", Format(FormatType.AVRO, "shared_registry"), connection="shared_kafka", topics=(topic,))
    reader = open_reader(source, {"broker": addresses.kafka}, timeout_s=60, parallelism=PARTITIONS)
    registry = registry_of({"url": addresses.registry}, timeout_s=60)
    decoder = TopicDecoder(FormatType.AVRO, registry, lambda: lake.spark, lake.settings.max_record_bytes)
    nothing_here = Limits(max_records=0, max_bytes=0)
    tables = [Table("bench", f"t{n}", "shared", topic, _ENVELOPES[n % 2]) for n in range(count)]
    started = perf_counter()
    plan = reader.plan(reader.look([topic]), {}, _NO_LIMIT)
    reading = Reading("shared", reader, decoder, lambda: lake.spark, nothing_here, Shelf({}))
    with shared_records(reading, plan, tables) as records:
        frames = [records.decoded(table, (), look=False).decoded.frame for table in tables]
        # What tables share is in memory then: the others do not decode it.
        frames[0].write.format("noop").mode("overwrite").save()
        took = perf_counter() - started
        assert all(frame is frames[0] for frame in frames)
        return took


def _ingest(lake: Lake, topic: str, count: int, name: str) -> None:
    lake.sql(
        f"CREATE SOURCE {name} FROM KAFKA CONNECTION shared_kafka (TOPICS ('{topic}')) "
        "FORMAT AVRO USING SCHEMA REGISTRY CONNECTION shared_registry; BEGIN;"
        + "".join(
            f"CREATE TABLE {name}.t{n} FROM SOURCE {name} (TOPIC '{topic}') ENVELOPE {_clause(_ENVELOPES[n % 2])};"
            for n in range(count)
        )
        + "COMMIT"
    )
    reports = lake.ingest(name)
    assert not any(report.stopped for report in reports)


def _clause(envelope: Envelope) -> str:
    return envelope.value.replace("-", " ").upper()
