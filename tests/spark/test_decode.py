"""Whole messages: several versions of a schema in a batch, envelopes, keys and values that are no records, bare JSON."""

from __future__ import annotations

import datetime as dt
import io
import json
import re
from contextlib import redirect_stdout
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehold.definitions import DeclaredColumn, Envelope, FormatType, Table
from lakehold.ingest.decode.decoded import Shape, Wanted, decode
from lakehold.ingest.decode.record_schemas import AvroIds, JsonDeclared, JsonHeads, TopicSchemas
from lakehold.ingest.decode.schema_ids import SchemaIds, schema_ids_by_spark, schema_ids_in_driver
from lakehold.ingest.envelope.unwrap import changes_of
from lakehold.ingest.read.reader import RAW_DDL
from lakehold.tables.unify import TypeConflict
from tests.connect_converters import avro_body, avro_schema, envelope, framed, json_head, json_record, struct
from tests.raw_records import raw_records

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("generated_code")]

NO_KEYS = AvroIds()
KEY = struct("Key", {"id": {"type": "int64"}})
OLD = struct("Row", {"id": {"type": "int32"}, "gone": {"type": "string", "optional": True}, "n": {"type": "float32"}})
NEW = struct(
    "Row",
    {"id": {"type": "int64"}, "added": {"type": "string", "optional": True}, "n": {"type": "float64"}},
)
TEXT = {"type": "string"}
_IN_BASE64 = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
SOURCE: dict[str, Any] = {"connector": "postgresql", "db": "shop", "table": "t", "lsn": 26752040}


def event(op: str, before: Any, after: Any, **more: Any) -> Any:
    return {"op": op, "before": before, "after": after, "source": SOURCE, **more}


@pytest.mark.parametrize("written", [FormatType.AVRO, FormatType.JSON])
def test_two_versions_of_a_schema_are_decoded_in_one_batch(spark: SparkSession, written: FormatType) -> None:
    versions = [
        (envelope(OLD), event("c", None, {"id": 1, "gone": "g", "n": 0.5})),
        (envelope(NEW), event("u", {"id": 1, "added": None, "n": 0.5}, {"id": 2**40, "added": "a", "n": 0.1})),
    ]
    if written is FormatType.AVRO:
        texts = [avro_schema(s) for s, _ in versions]
        values = [framed(i, avro_body(texts[i], payload)) for i, (_, payload) in enumerate(versions)]
        schemas = TopicSchemas(NO_KEYS, AvroIds({i: json.dumps(t) for i, t in enumerate(texts)}))
    else:
        values = [json_record(s, payload) for s, payload in versions]
        schemas = TopicSchemas(JsonHeads(), JsonHeads(tuple(json_head(s) for s, _ in versions)))
    decoded = decode(raw_records(spark, [(None, v) for v in values]), Wanted(schemas, Shape.DEBEZIUM))
    assert [(c.name, c.spark_type, c.required) for c in decoded.columns] == [
        ("id", "bigint", True),
        ("added", "string", False),
        ("n", "double", True),
        ("gone", "string", False),
    ]
    first, second = decoded.frame.orderBy("offset").collect()
    assert (first.op, first.before, tuple(first.after)) == ("c", None, (1, None, 0.5, "g"))
    assert (second.op, tuple(second.before), tuple(second.after)) == (
        "u",
        (1, None, 0.5, None),
        (2**40, "a", 0.1, None),
    )
    assert (first.source.connector, first.source.lsn, first.source.file) == ("postgresql", 26752040, None)


def test_versions_that_contradict_each_other_are_a_conflict(spark: SparkSession) -> None:
    texts = {i: json.dumps(avro_schema(struct("Row", {"v": {"type": t}}))) for i, t in enumerate(("int32", "string"))}
    with pytest.raises(TypeConflict, match='column "v" cannot change from int to string'):
        decode(raw_records(spark, []), Wanted(TopicSchemas(NO_KEYS, AvroIds(texts)), Shape.FLAT))


def test_the_envelope_around_the_rows_is_decoded(spark: SparkSession) -> None:
    texts = {
        n: {"type": "string", "optional": True}
        for n in ("connector", "snapshot", "sequence", "file", "gtid", "commit_lsn")
    }
    source = struct("Source", texts | {"txId": texts["file"], "pos": {"type": "int64"}, "row": {"type": "int32"}})
    change = envelope(NEW, source)
    of_event = {
        "connector": "mysql",
        "snapshot": "last",
        "file": "bin.1",
        "pos": 4,
        "row": 1,
        "txId": "x:1",
        "gtid": "g",
    }
    row = {"id": 1, "added": None, "n": 1.0}
    payload = {"op": "r", "after": row, "source": of_event, "transaction": {"id": "7:8", "total_order": 3}}
    schemas = TopicSchemas(NO_KEYS, AvroIds({1: json.dumps(avro_schema(change))}))
    raw = raw_records(spark, [(None, framed(1, avro_body(avro_schema(change), payload))), (None, None)])
    found, tombstone = decode(raw, Wanted(schemas, Shape.DEBEZIUM)).frame.orderBy("offset").collect()
    assert found.source.asDict() == {
        "connector": "mysql",
        "snapshot": "last",
        "sequence": None,
        "lsn": None,
        "file": "bin.1",
        "pos": 4,
        "row": 1,
        "ts_ms": None,
    }
    assert found.transaction.asDict() == {"id": "7:8", "total_order": 3, "collection_order": None}
    assert (tombstone.op, tombstone.error, tombstone.after, tombstone.is_readable) == (None, None, None, True)
    assert {*tombstone.source, *tombstone.transaction} == {None}


@pytest.mark.parametrize("written", [FormatType.AVRO, FormatType.JSON])
def test_unavailable_values_of_debezium_are_recognized(spark: SparkSession, written: FormatType) -> None:
    mark = "__debezium_unavailable_value"
    uuid = {"type": "string", "name": "io.debezium.data.Uuid"}
    columns: dict[str, Any] = {
        "id": {"type": "int64"},
        "note": {"type": "string", "optional": True},
        "doc": {"type": "string", "optional": True, "name": "io.debezium.data.Json"},
        "body": {"type": "bytes", "optional": True},
        "tags": {"type": "array", "optional": True, "items": {"type": "string", "optional": True}},
        "codes": {"type": "array", "optional": True, "items": {"type": "int32", "optional": True}},
        "ids": {"type": "array", "optional": True, "items": uuid | {"optional": True}},
        "pictures": {"type": "array", "optional": True, "items": {"type": "bytes", "optional": True}},
        "pairs": {"type": "map", "optional": True, "keys": TEXT, "values": TEXT | {"optional": True}},
        "pairs_json": {"type": "string", "optional": True, "name": "io.debezium.data.Json"},
        "in_base64": {"type": "string", "optional": True},
        "in_hex": {"type": "string", "optional": True},
    }
    change = envelope(struct("Row", columns))
    absent = {
        "id": 1,
        "note": mark,
        "doc": mark,
        "body": _IN_BASE64,
        "tags": [mark],
        "codes": list(mark.encode()),
        "ids": None,
        "pictures": [_IN_BASE64],
        "pairs": {mark: mark},
        "pairs_json": f'{{"{mark}":"{mark}"}}',
        "in_base64": _IN_BASE64,
        "in_hex": mark.encode().hex(),
    }
    present = {"id": 1, "note": f"{mark}!", "doc": None, "body": None, "tags": [mark, "b"], "codes": [], "ids": []}
    present |= {"pictures": [_IN_BASE64] * 2, "pairs": {mark: "a"}, "pairs_json": '{"a":"b"}', "in_base64": "X19k"}
    present |= {"in_hex": "5f"}
    payloads = [event("u", None, absent), event("u", None, present)]
    if written is FormatType.AVRO:
        text = avro_schema(change)
        raw = raw_records(spark, [(None, framed(1, avro_body(text, p))) for p in payloads])
        schemas = TopicSchemas(NO_KEYS, AvroIds({1: json.dumps(text)}))
    else:
        raw = raw_records(spark, [(None, json_record(change, p)) for p in payloads])
        schemas = TopicSchemas(JsonHeads(), JsonHeads((json_head(change),)))
    first, second = decode(raw, Wanted(schemas, Shape.DEBEZIUM)).frame.orderBy("offset").collect()
    missing = ["body", "codes", "doc", "in_base64", "in_hex", "note", "pairs", "pairs_json", "pictures", "tags"]
    assert sorted(first.unavailable) == missing
    assert second.unavailable is None


def test_a_null_record_is_distinguished_from_a_corrupt_one(spark: SparkSession) -> None:
    row = ["null", avro_schema(KEY)]
    raw = raw_records(spark, [(None, framed(1, body)) for body in (b"\x02\x0e", b"\0", b"\x02", b"\x09")])
    rows = (
        decode(raw, Wanted(TopicSchemas(NO_KEYS, AvroIds({1: json.dumps(row)})), Shape.FLAT))
        .frame.orderBy("offset")
        .collect()
    )
    assert [r.value and r.value.id for r in rows] == [7, None, None, None]
    assert [r.error for r in rows] == [None, None, "undecodable-value", "undecodable-value"]


def test_keys_and_values_that_are_no_records_are_decoded(spark: SparkSession) -> None:
    number, text = {"type": "int64"}, {"type": "string", "optional": True}
    avro = TopicSchemas(AvroIds({1: '"long"'}), AvroIds({2: '["null", "string"]'}))
    records = [
        (framed(1, b"\x0e"), framed(2, b"\x02\x02x")),
        (framed(1, b"\x0e"), framed(2, b"\0")),
        (framed(1, b""), None),
        (framed(1, b"\x0e"), framed(2, b"\x02\x04x")),
    ]
    decoded = decode(raw_records(spark, records), Wanted(avro, Shape.FLAT))
    assert [(c.name, c.spark_type) for c in (*decoded.key_columns, *decoded.columns)] == [
        ("key", "bigint"),
        ("value", "string"),
    ]
    found = decoded.frame.orderBy("offset").collect()
    assert [r.error for r in found] == [None, None, "undecodable-key", "undecodable-value"]
    assert (found[0].key.key, found[0].value.value, found[1].value) == (7, "x", None)

    heads = TopicSchemas(JsonHeads((json_head(number),)), JsonHeads((json_head(text),)))
    records = [(json_record(number, 7), json_record(text, "x")), (json_record(number, 7), json_record(text, None))]
    found = decode(raw_records(spark, records), Wanted(heads, Shape.FLAT)).frame.orderBy("offset").collect()
    assert [r.error for r in found] == [None, None]
    assert (found[0].key.key, found[0].value.value, found[1].value) == (7, "x", None)


DECLARED = {
    "id": "bigint",
    "name": "string",
    "day": "date",
    "at": "timestamp",
    "local": "timestamp_ntz",
    "price": "decimal(12,2)",
    "body": "binary",
    "tags": "array<string>",
    "place": "struct<x:double,y:double>",
}


def declared(**types: str) -> JsonDeclared:
    return JsonDeclared(tuple(DeclaredColumn(n, t) for n, t in types.items()))


def test_bare_json_is_decoded_into_declared_columns(spark: SparkSession) -> None:
    texts = {"day": "2026-11-21", "at": "2026-11-21T08:48:22.5+02:00", "local": "2026-11-21 08:48:22", "price": "10.5"}
    numbers = {"day": 20778, "at": 1795250902045, "local": 1795250902045520, "price": 10.50}
    rest = {"name": 'a "b"', "body": "AP8=", "tags": ["x", None], "place": {"x": 1.5}, "unknown": {"id": "z"}}
    records = [
        (b'{"id": 1}', json.dumps({"id": 1} | texts | rest).encode()),
        (b"2", json.dumps({"payload": {"id": 2} | numbers}).encode()),
        (b'{"schema":null,"payload":{"id":3}}', b'{"id": 3}'),
        (b"4", b"null"),
        (b"5", None),
        (b"6", b" "),
    ]
    decoded = decode(
        raw_records(spark, records), Wanted(TopicSchemas(declared(id="bigint"), declared(**DECLARED)), Shape.FLAT)
    )
    assert [c.spark_type for c in decoded.columns][:7] == list(DECLARED.values())[:7]
    rows = decoded.frame.orderBy("offset").collect()
    assert [(r.key.id, r.error) for r in rows] == [
        (1, None),
        (2, None),
        (3, None),
        (4, None),
        (5, None),
        (6, "empty-value"),
    ]
    assert [r.value is None for r in rows] == [False, False, False, True, True, True]
    first, second = rows[0].value, rows[1].value
    assert (first.name, bytes(first.body), first.tags, tuple(first.place)) == (
        'a "b"',
        b"\0\xff",
        ["x", None],
        (1.5, None),
    )
    assert (first.day, second.day) == (dt.date(2026, 11, 21), dt.date(2026, 11, 21))
    assert (first.price, second.price) == (Decimal("10.50"), Decimal("10.50"))
    assert (first.local.isoformat(), second.local.isoformat()) == ("2026-11-21T08:48:22", "2026-11-21T08:48:22.045520")
    shown = decoded.frame.selectExpr("offset", "CAST(value.at AS STRING) AS at").orderBy("offset").limit(2).collect()
    assert [r["at"] for r in shown] == ["2026-11-21 06:48:22.5", "2026-11-21 08:48:22.045"]


def test_a_declared_decimal_has_all_digits_of_a_json_number(spark: SparkSession) -> None:
    digits = [
        "12345678.90",
        "0.0001",
        "9007199254740993.5",
        "-12345678901234567890123456789012.1234",
        "5",
        "0.0",
        "5e0",
    ]
    tokens = [*digits, '"12345678.90"', "null"]
    values = [f'{{"n": {n}, "all": [{n}], "__debezium": 1}}'.encode() for n in tokens]
    schemas = TopicSchemas(JsonDeclared(), declared(n="decimal(38,4)", all="array<decimal(38,4)>"))
    found = decode(raw_records(spark, [(None, value) for value in values]), Wanted(schemas, Shape.FLAT))
    rows = found.frame.orderBy("offset").collect()
    assert [r.error for r in rows] == [None] * len(tokens)
    assert [r.value.n for r in rows] == [*map(Decimal, digits), Decimal("12345678.90"), None]
    assert [r.value.all for r in rows] == [[r.value.n] for r in rows]


def test_keys_of_one_text_column_stand_alone(spark: SparkSession) -> None:
    keys = [b"plain text", b'"quoted"', b"42", b'{"code": "object"}', b"null"]
    raw = raw_records(spark, [(k, None) for k in keys])
    rows = (
        decode(raw, Wanted(TopicSchemas(declared(code="string"), declared(v="int")), Shape.FLAT))
        .frame.orderBy("offset")
        .collect()
    )
    assert [r.key and r.key.code for r in rows] == ["plain text", "quoted", "42", "object", None]
    assert [r.error for r in rows] == [None] * len(keys)


def test_bare_json_in_debeziums_envelope_is_decoded(spark: SparkSession) -> None:
    change = event(
        "u", {"id": 1, "day": 0}, {"id": 1, "day": "2026-11-21"}, transaction={"id": "7:8", "total_order": 3}
    )
    records = [(None, json.dumps(change).encode()), (None, json.dumps({"payload": change}).encode()), (None, None)]
    schemas = TopicSchemas(JsonDeclared(), declared(id="bigint", day="date"))
    decoded = decode(raw_records(spark, records), Wanted(schemas, Shape.DEBEZIUM))
    rows = decoded.frame.orderBy("offset").collect()
    assert [(r.op, r.error) for r in rows] == [("u", None), ("u", None), (None, None)]
    for row in rows[:2]:
        assert (row.before.day, row.after.day) == (dt.date(1970, 1, 1), dt.date(2026, 11, 21))
        assert (row.source.lsn, row.transaction.total_order) == (26752040, 3)
    assert decoded.key_columns == ()


def test_the_schemas_of_a_batch_are_found(spark: SparkSession) -> None:
    spaced = json.dumps({"schema": KEY, "payload": {"id": 1}})
    batches = {
        FormatType.AVRO: [
            (framed(1, b"\2"), framed(2**31, b"\2")),
            (b"\0\0", framed(7, b"")),
            (None, b""),
            (b"abcde", None),
        ],
        FormatType.JSON: [
            (json_record(KEY, {"id": 1}), spaced.encode()),
            (json_record(KEY, None), b"{}"),
            (None, None),
        ],
    }
    expected = {
        FormatType.AVRO: SchemaIds((1,), (7, 2**31)),
        FormatType.JSON: SchemaIds(
            (json_head(KEY),),
            (spaced[: spaced.index('{"id": 1}')].rstrip(),),
            has_bare_keys=True,
            has_bare_values=True,
        ),
    }
    for written, records in batches.items():
        raw = raw_records(spark, records)
        assert schema_ids_by_spark(raw, written) == schema_ids_in_driver(raw.toArrow(), written) == expected[written]
    heads = expected[FormatType.JSON]
    schemas = TopicSchemas(JsonHeads(tuple(map(str, heads.keys))), JsonHeads(tuple(map(str, heads.values))))
    first = decode(raw_records(spark, batches[FormatType.JSON][:1]), Wanted(schemas, Shape.FLAT)).frame.first()
    assert first is not None
    assert (first.key.id, first.value.id) == (1, 1)


def test_schemas_in_json_are_in_the_order_in_which_a_topic_got_them(spark: SparkSession) -> None:
    names = ("c", "b", "a")
    of = {name: json_record(struct(name, {"id": {"type": "int64"}}), {"id": 1}) for name in names}
    rows = [(0, 7, 90, "b"), (0, 8, 50, "a"), (1, 3, 80, "c"), (1, 4, 81, None), (1, 5, 99, "b"), (2, 1, 95, "a")]
    records = [("t", p, offset, at, None, of.get(name or ""), None) for p, offset, at, name in rows]
    raw = spark.createDataFrame(records, RAW_DDL)
    found = schema_ids_by_spark(raw, FormatType.JSON)
    assert found == schema_ids_in_driver(raw.toArrow(), FormatType.JSON)
    assert found == SchemaIds((), tuple(json_head(struct(name, {"id": {"type": "int64"}})) for name in names))


def test_each_parser_runs_once_a_record_however_often_its_columns_are_used(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = {i: json.dumps(avro_schema(envelope(s))) for i, s in enumerate((OLD, NEW))}
    key = AvroIds({9: json.dumps(avro_schema(KEY))})
    # The records come from a file: Spark Connect decodes rows of the client itself while it plans the query.
    raw_records(spark, []).write.parquet(str(tmp_path / "records"))
    records = spark.read.parquet(str(tmp_path / "records"))
    frame = decode(records, Wanted(TopicSchemas(key, AvroIds(texts)), Shape.DEBEZIUM)).frame
    selected = frame.where("error IS NULL AND after.id > 3 AND op <> 'd'").select(
        "key.id", "after", "error", "source.lsn"
    )
    capsys.readouterr()
    selected.explain()
    assert capsys.readouterr().out.count("from_avro(") == len(texts) + 1


def test_the_code_that_spark_generates_for_decoding_is_short_enough_to_compile(spark: SparkSession) -> None:
    text = json.dumps(avro_schema(envelope(NEW)))
    schemas = TopicSchemas(AvroIds({1: json.dumps(avro_schema(KEY))}), AvroIds({2: text}))
    decoded = decode(raw_records(spark, [(None, None)]), Wanted(schemas, Shape.DEBEZIUM, has_heads=True))
    changes = changes_of(decoded, Table("shop", "t", "live", "shop.public.t", Envelope.DEBEZIUM))
    shown = io.StringIO()
    with redirect_stdout(shown):
        changes.frame.selectExpr("struct(*) AS row").explain("codegen")
    sizes = [int(size) for size in re.findall(r"maxMethodCodeSize:(\d+)", shown.getvalue())]
    # Java's first compiler gives up at about 18,000 bytes, and interprets the method from then on.
    assert 0 < max(sizes) < 12_000
