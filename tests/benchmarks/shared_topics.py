"""Tables over one topic: reading, decoding and ingesting the topic for many tables, against one table."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from functools import partial
from time import perf_counter
from typing import Any

from pyspark.sql import DataFrame

from lakehold.definitions import DeclaredColumn, Envelope, FormatType, Table
from lakehold.ingest.arriving_records import ArrivingRecords
from lakehold.ingest.read.kafka import KafkaReader
from lakehold.ingest.read.reader import Limits
from lakehold.ingest.shared_reads import Reading, SharedReads
from lakehold.ingest.side_by_side import Lanes
from lakehold.ingest.topic import Stored, TopicDecoder
from lakehold.kafka.connection_options import kafka_options
from lakehold.kafka.registry import registry_of
from lakehold.lake import Lake
from lakehold.model.lake_definitions import Entry
from lakehold.model.readers import MAIN_READER, ReaderState
from lakehold.stack import StackAddresses
from tests.benchmarks.figures import Figure, seconds
from tests.benchmarks.first_load import PARTITIONS, fill, snapshot_rows, stack_for_benchmark, write

_WARM_UP = 2
_COLUMNS = tuple(
    DeclaredColumn(name, of)
    for name, of in {
        "id": "bigint",
        "customer": "string",
        "status": "string",
        "quantity": "int",
        "price": "double",
        "placed_at": "bigint",
        "note": "string",
    }.items()
)
_WHOLE_EVENT = (_COLUMNS[0], DeclaredColumn("op", "string"), DeclaredColumn("after", "struct<id:bigint,status:string>"))
_ENVELOPES = (Envelope.DEBEZIUM, Envelope.DEBEZIUM_UPSERT)
_NO_LIMIT = Limits(max_records=10**9, max_bytes=10**12)


def tables_of_one_topic(lake: Lake, records: int, tables: int, runs: int) -> list[Figure]:
    """Read and decode a topic of `records` records for `tables` tables, and ingest it into them, each beside one.

    The tables belong to one source, or to a source each. Topics are Avro with all envelopes, and bare JSON with columns of each
    table's own, in other types, and with all envelopes.
    """
    with stack_for_benchmark() as addresses:
        avro, json_, events = (
            _Topic(lake, addresses, written) for written in (FormatType.AVRO, FormatType.JSON, FormatType.JSON)
        )
        fill(addresses, avro.name, records)
        write(addresses, json_.name, ((_json(key), _json(event["after"])) for key, event in snapshot_rows(records)))
        write(addresses, events.name, ((_json(key), _json(event)) for key, event in snapshot_rows(records)))
        lake.sql(f"""
            CREATE CONNECTION IF NOT EXISTS shared_kafka TO KAFKA (BROKER '{addresses.kafka}');
            CREATE CONNECTION IF NOT EXISTS shared_registry TO SCHEMA REGISTRY (URL '{addresses.registry}');
        """)
        of_debezium = [_ENVELOPES[n % 2] for n in range(tables)]
        with_whole_values = [*of_debezium[1:], Envelope.UPSERT]
        took: dict[str, list[float]] = {}
        ingested: dict[int, list[float]] = {1: [], tables: []}
        for run in range(runs + _WARM_UP):
            # This read is not measured: in it Java collects the garbage of the ingests before.
            avro.decode({"shared": [avro.table(0, Envelope.DEBEZIUM)]})
            for name, seconds_ in {
                "one": avro.decode({"shared": [avro.table(0, Envelope.DEBEZIUM)]}),
                "tables": avro.decode({"shared": [avro.table(n, e) for n, e in enumerate(of_debezium)]}),
                "sources": avro.decode(
                    {f"shared{n}": [avro.table(n, e, source=f"shared{n}")] for n, e in enumerate(of_debezium)}
                ),
                "envelopes": avro.decode({"shared": [avro.table(n, e) for n, e in enumerate(with_whole_values)]}),
                "one list": json_.decode({"shared": [json_.table(0, Envelope.UPSERT, _COLUMNS)]}),
                "lists": json_.decode({"shared": [json_.table(n, Envelope.UPSERT, _some(n)) for n in range(tables)]}),
                "one event": events.decode({"shared": [events.table(0, Envelope.DEBEZIUM, _COLUMNS)]}),
                "events": events.decode(
                    {
                        "shared": [
                            events.table(n, e, _WHOLE_EVENT if e is Envelope.UPSERT else _some(n))
                            for n, e in enumerate(with_whole_values)
                        ]
                    }
                ),
            }.items():
                took.setdefault(name, []).append(seconds_)
            for count in (1, tables):
                ingested[count].append(seconds(partial(_ingest, lake, avro.name, count, f"shared{count}_{run}")))
    reading = f"reading and decoding {records:,} records of a topic for {tables}"
    return [
        _figure(f"{reading} tables", took["tables"], took["one"], 1.3),
        _figure(f"{reading} sources with a table each", took["sources"], took["one"], 1.3),
        _figure(f"{reading} tables, one of them with ENVELOPE UPSERT", took["envelopes"], took["one"], 1.3),
        _figure(f"{reading} tables, bare JSON, with a list of columns each", took["lists"], took["one list"], 1.3),
        _figure(
            f"{reading} tables, bare JSON, one of them with ENVELOPE UPSERT", took["events"], took["one event"], 1.3
        ),
        _figure(f"ingesting them into {tables} tables", ingested[tables], ingested[1], None),
    ]


def _figure(name: str, values: Sequence[float], floors: Sequence[float], goal: float | None) -> Figure:
    return Figure(name, "s", tuple(values[_WARM_UP:]), "the same for one", tuple(floors[_WARM_UP:]), goal)


def _json(content: object) -> bytes:
    return json.dumps(content).encode()


def _some(n: int) -> tuple[DeclaredColumn, ...]:
    """Return the key and a choice of the other columns, which differs for each `n` below 64."""
    return tuple(column for at, column in enumerate(_COLUMNS) if at == 0 or not n >> (at - 1) & 1)


class _Topic:
    """A topic, with the reader and the decoder of its records."""

    def __init__(self, lake: Lake, addresses: StackAddresses, written: FormatType) -> None:
        self.name = f"bench.public.orders_{uuid.uuid4().hex[:6]}"
        self._lake = lake
        self._addresses = addresses
        self._written = written

    def table(
        self, n: int, envelope: Envelope, columns: tuple[DeclaredColumn, ...] = (), source: str = "shared"
    ) -> Table:
        """Define a table over the topic."""
        return Table("bench", f"t{n}", source, self.name, envelope, columns=columns)

    def decode(self, tables: Mapping[str, Sequence[Table]]) -> float:
        """Read and decode the topic for tables by source, as batches do before their merges; return the seconds."""
        lake, is_avro = self._lake, self._written is FormatType.AVRO
        reader = KafkaReader(kafka_options({"broker": self._addresses.kafka}), timeout_s=60, parallelism=PARTITIONS)
        registry = registry_of({"url": self._addresses.registry}, timeout_s=60) if is_avro else None
        decoder = TopicDecoder(self._written, registry, lambda: lake.spark, lake.settings.max_record_bytes)
        nothing_here = Limits(max_records=0, max_bytes=0)
        nothing: Any = None
        lanes = Lanes(lambda: lake.spark, nullcontext, 1)
        reads = SharedReads(reader, decoder, lambda: [ReaderState(source, MAIN_READER) for source in tables])
        for source, own_tables in tables.items():
            reads.join(source, own_tables, None)
        written: list[DataFrame] = []
        started = perf_counter()
        for source, own_tables in tables.items():
            plan = reader.plan(reads.fetch(source), {}, _NO_LIMIT)
            entries = {table.full_name: Entry("", table, "", 0) for table in own_tables}
            with closing(ArrivingRecords(Reading(source, reads, nothing_here), entries, nothing, lanes)) as arriving:
                arriving.read(plan)
                for table in own_tables:
                    frame = arriving.decoded(table, Stored(), scan_schemas=False).decoded.frame
                    if not any(frame is before for before in written):
                        # Shared records are in memory after this: the other tables do not decode them again.
                        frame.write.format("noop").mode("overwrite").save()
                        written.append(frame)
        return perf_counter() - started


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
