"""Headers of raw records are the same for every format, and for few records as for many."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from operator import itemgetter
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakehold.definitions import FormatType
from lakehold.ingest.envelope.header_columns import Kind
from lakehold.ingest.read.reader import RAW_SCHEMA
from lakehold.ingest.transactions.candidate import Extent, candidate_of
from lakehold.ingest.transactions.header_reader import Records
from lakehold.ingest.transactions.metadata import RECORDS
from lakehold.ingest.transactions.record_headers import HEADERS
from lakehold.kafka.registry import Registry
from tests.connect_converters import framed
from tests.registry_server import registry_server, subjects
from tests.transaction_headers import Record, headers_of, runs_of_headers

pytestmark = pytest.mark.spark

TOPICS = frozenset({"shop.public.pg", "shop.shop.my"})
PG, MY = sorted(TOPICS)
TRANSACTIONS = "shop.transaction"
CHANGE_ID, METADATA_ID, LOST_ID = 7, 8, 99


def record(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": n, "type": t, "default": None} for n, t in fields.items()],
    }


def nullable(*types: Any) -> list[Any]:
    return ["null", *types]


TEXT, NUMBER = nullable("string"), nullable("long")
SOURCE = {
    **dict.fromkeys(("connector", "snapshot", "sequence", "file"), TEXT),
    **dict.fromkeys(("lsn", "pos", "row"), NUMBER),
}
BLOCK = {"id": TEXT, "total_order": NUMBER, "data_collection_order": NUMBER}
CHANGE = record(
    "Envelope",
    {
        "after": nullable(record("Row", {"id": NUMBER})),
        "source": nullable(record("Source", SOURCE)),
        "transaction": nullable(record("Block", BLOCK)),
        "op": TEXT,
    },
)
COLLECTION = record("Collection", {"data_collection": TEXT, "event_count": NUMBER})
METADATA = record(
    "Metadata",
    {"status": TEXT, "id": TEXT, "data_collections": nullable({"type": "array", "items": nullable(COLLECTION)})},
)


def postgres(op: str, lsn: int, order: int | None, snapshot: str = "false") -> dict[str, Any]:
    last_commit = None if op == "r" else "1000"
    block = None if order is None else {"id": f"7:{lsn}", "total_order": order, "data_collection_order": order}
    source = {
        "connector": "postgresql",
        "snapshot": snapshot,
        "sequence": json.dumps([last_commit, str(lsn)]),
        "lsn": lsn,
    }
    return {"after": {"id": 1}, "source": source, "transaction": block, "op": op}


def mysql(op: str, pos: int, row: int, transaction: str, order: int) -> dict[str, Any]:
    source = {"connector": "mysql", "snapshot": "false", "file": "binlog.000003", "pos": pos, "row": row}
    block = {"id": transaction, "total_order": order, "data_collection_order": order}
    return {"after": None if op == "t" else {"id": 1}, "source": source, "transaction": block, "op": op}


BINLOG = "file=binlog.000003,pos=100"
COUNTS = [
    {"data_collection": "public.pg", "event_count": 2},
    None,
    {"data_collection": "public.other", "event_count": None},
]
VALUES: dict[str, list[Any]] = {
    PG: [
        postgres("r", 900, None, "true"),
        postgres("r", 900, None, "last"),
        postgres("c", 1010, 1),
        None,
        postgres("d", 1020, 2),
    ],
    MY: [mysql("c", 154, 2, BINLOG, 1), mysql("t", 200, 0, "0-1-9", 1), b"broken"],
    TRANSACTIONS: [
        {"status": "BEGIN", "id": "7:1010"},
        {"status": "END", "id": "7:1030", "data_collections": COUNTS},
        b"broken",
        None,
    ],
    "shop.public.elsewhere": [postgres("c", 1015, 3)],
}
EVENTS = [
    Record(PG, 0, 0, Kind.SNAPSHOT, position=(900, 900, -1, 1)),
    Record(PG, 0, 1, Kind.SNAPSHOT_END, position=(900, 900, -1, 1), sent_ms=1),
    Record(PG, 0, 2, Kind.EVENTS, "7:1010", 1, 1, (1000, 1010, 1, 1), sent_ms=2),
    Record(PG, 0, 4, Kind.EVENTS, "7:1020", 2, 2, (1000, 1020, 2, 0), sent_ms=4),
    Record(MY, 0, 0, Kind.EVENTS, BINLOG, 1, 1, (3, 154, 2, 1)),
    Record(MY, 0, 1, Kind.EVENTS, "0-1-9", 1, 1, (3, 200, 0, 1), sent_ms=1, commits=True),
    Record(MY, 0, 2, Kind.UNREADABLE, sent_ms=2),
]
BOUNDARIES = [
    ("BEGIN", "7:1010", None),
    ("END", "7:1030", COUNTS),
    (Kind.UNREADABLE, None, None),
]


def raw(written: FormatType, *, lost: bool = False) -> pa.Table:
    """Encode the records of partition 0 of each topic; if `lost`, add one whose schema is unknown."""

    def encoded(topic: str, value: Any) -> bytes | None:
        if value is None or isinstance(value, bytes):
            return value
        if written is FormatType.JSON:
            return json.dumps(value).encode()
        number, schema = (METADATA_ID, METADATA) if topic == TRANSACTIONS else (CHANGE_ID, CHANGE)
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
        return framed(number, out.getvalue())

    values = {topic: [encoded(topic, value) for value in found] for topic, found in VALUES.items()}
    if lost:
        values[MY][2] = framed(LOST_ID, b"lost")
    rows = [(topic, 0, at, at, b"1", value, None) for topic, found in values.items() for at, value in enumerate(found)]
    columns = zip(*rows, strict=True)
    return pa.Table.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, RAW_SCHEMA, strict=True)], schema=RAW_SCHEMA
    )


@contextmanager
def records_of(spark: SparkSession, written: FormatType, *, names_subjects: bool = True) -> Iterator[Records]:
    """Make a reader of headers, over a registry that knows schemas by id, and by subject if `names_subjects`."""
    texts = {CHANGE_ID: json.dumps(CHANGE), METADATA_ID: json.dumps(METADATA)}
    answers = subjects(
        {
            **{f"{t}-value": {CHANGE_ID: texts[CHANGE_ID]} for t in TOPICS},
            f"{TRANSACTIONS}-value": {METADATA_ID: texts[METADATA_ID]},
        }
    )
    if not names_subjects:
        answers = {path: answer for path, answer in answers.items() if not path.startswith("/subjects")}
    with registry_server(answers) as server:
        registry = None if written is FormatType.JSON else Registry(server.url)
        yield Records(TRANSACTIONS, written, registry, lambda: spark, 1_000_000)


def assert_found(found: tuple[pa.Table, pa.Table]) -> None:
    changes, transactions = found
    assert (changes.schema, transactions.schema) == (HEADERS, RECORDS)
    assert sorted(changes.to_pylist(), key=itemgetter("topic", "offset")) == headers_of(EVENTS).to_pylist()
    boundaries = sorted(transactions.to_pylist(), key=itemgetter("offset"))
    assert [(row["kind"], row["transaction_id"], row["data_collections"]) for row in boundaries] == BOUNDARIES


@pytest.mark.parametrize("written", [FormatType.JSON, FormatType.AVRO])
def test_few_and_many_records_have_the_same_headers(spark: SparkSession, written: FormatType) -> None:
    few = raw(written)
    with records_of(spark, written) as records:
        assert_found(records.headers(few, TOPICS))
        assert_found(records.headers(spark.createDataFrame(few), TOPICS))


def test_schemas_that_no_subject_names_are_found_in_the_records(spark: SparkSession) -> None:
    many = spark.createDataFrame(raw(FormatType.AVRO, lost=True))
    with records_of(spark, FormatType.AVRO, names_subjects=False) as records:
        assert_found(records.headers(many, TOPICS))
        headers, boundaries = records.headers(many, TOPICS)
    runs = runs_of_headers(headers)
    assert {tp.topic: [run.kind for run in of_topic] for tp, of_topic in runs.items()} == {
        PG: [Kind.SNAPSHOT, Kind.SNAPSHOT_END, Kind.EVENTS],
        MY: [Kind.EVENTS, Kind.EVENTS, Kind.UNREADABLE],
    }
    found = candidate_of(Extent({}, {}), headers.slice(0, 0), boundaries, TOPICS, TRANSACTIONS).boundaries
    assert found.is_end.tolist() == [False, True]
    assert list(zip(found.counting, found.topic, found.events, strict=True)) == [(1, sorted(TOPICS).index(PG), 2)]


def test_no_records_have_no_headers(spark: SparkSession) -> None:
    with records_of(spark, FormatType.JSON) as records:
        headers, boundaries = records.headers(RAW_SCHEMA.empty_table(), TOPICS)
    assert (headers.num_rows, boundaries.num_rows) == (0, 0)
