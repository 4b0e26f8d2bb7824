"""Tables over one topic: reading and decoding it for many of them against one, and ingesting them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import partial
from time import perf_counter

from pyspark.sql import DataFrame

from lakehold.definitions import Envelope, Format, FormatType, Source, Table
from lakehold.ingest.decode.registry import registry_of
from lakehold.ingest.read.opening import open_reader
from lakehold.ingest.read.read_once import ReadOnce
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
    """Read and decode a topic of `records` Avro records for `tables` tables, and ingest it into them, each beside one.

    The tables are those of one source, and of a source each.
    """
    with stack_for_benchmark() as addresses:
        topic = f"bench.public.orders_{uuid.uuid4().hex[:6]}"
        fill(addresses, topic, records)
        lake.sql(f"""
            CREATE CONNECTION IF NOT EXISTS shared_kafka TO KAFKA (BROKER '{addresses.kafka}');
            CREATE CONNECTION IF NOT EXISTS shared_registry TO SCHEMA REGISTRY (URL '{addresses.registry}');
        """)
        one: list[float] = []
        of_one_source: list[float] = []
        of_a_source_each: list[float] = []
        ingested: dict[int, list[float]] = {1: [], tables: []}
        for run in range(runs + _WARM_UP):
            one.append(_decode(lake, addresses, topic, [1]))
            of_one_source.append(_decode(lake, addresses, topic, [tables]))
            of_a_source_each.append(_decode(lake, addresses, topic, [1] * tables))
            for count in (1, tables):
                ingested[count].append(seconds(partial(_ingest, lake, topic, count, f"shared{count}_{run}")))
    reading = f"reading and decoding {records:,} records of a topic for {tables}"
    return [
        _figure(f"{reading} tables", of_one_source, one, 1.3),
        _figure(f"{reading} sources with a table each", of_a_source_each, one, 1.3),
        _figure(f"ingesting them into {tables} tables", ingested[tables], ingested[1], None),
    ]


def _figure(name: str, values: Sequence[float], floors: Sequence[float], goal: float | None) -> Figure:
    return Figure(name, "s", tuple(values[_WARM_UP:]), "the same for one", tuple(floors[_WARM_UP:]), goal)


def _decode(lake: Lake, addresses: StackAddresses, topic: str, tables_of_sources: Sequence[int]) -> float:
    """What batches of sources do before tables take their changes: every row is decoded, and every table has its DataFrame."""
    sources = {f"shared{n}": count for n, count in enumerate(tables_of_sources)}
    definition = Source(
        "shared", Format(FormatType.AVRO, "shared_registry"), connection="shared_kafka", topics=(topic,)
    )
    reader = open_reader(definition, {"broker": addresses.kafka}, timeout_s=60, parallelism=PARTITIONS)
    registry = registry_of({"url": addresses.registry}, timeout_s=60)
    decoder = TopicDecoder(FormatType.AVRO, registry, lambda: lake.spark, lake.settings.max_record_bytes)
    nothing_here = Limits(max_records=0, max_bytes=0)
    tables = {
        source: [Table("bench", f"t{n}", source, topic, _ENVELOPES[n % 2]) for n in range(count)]
        for source, count in sources.items()
    }
    shelf, once = Shelf(tables), ReadOnce(reader, [topic])
    for source in sources:
        shelf.stands(source, [{}])
    frames: list[DataFrame] = []
    started = perf_counter()
    for source, count in sources.items():
        own = once.reader_for(source)
        plan = own.plan(own.look([topic]), {}, _NO_LIMIT)
        reading = Reading(source, own, decoder, lambda: lake.spark, nothing_here, shelf)
        with shared_records(reading, plan, tables[source]) as records:
            frames += [records.decoded(table, (), look=False).decoded.frame for table in tables[source]]
            if len(frames) == count:
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
