"""A bad record becomes a row with an error, which keeps a readable key and affects no other record."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehold.definitions import DeclaredColumn
from lakehold.ingest.decode.decoded import Shape, Wanted, decode
from lakehold.ingest.decode.record_schemas import AvroIds, JsonDeclared, JsonHeads, TopicSchemas
from tests.connect_converters import avro_body, avro_schema, envelope, framed, json_head, json_record, struct
from tests.raw_records import raw_records

pytestmark = pytest.mark.spark

KEY = struct("Key", {"id": {"type": "int64"}})
ROW = struct(
    "Row",
    {
        "id": {"type": "int64"},
        "name": {"type": "string"},
        "price": {
            "type": "bytes",
            "optional": True,
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2", "connect.decimal.precision": "4"},
        },
        "seen_at": {"type": "string", "optional": True, "name": "io.debezium.time.ZonedTimestamp"},
        "tags": {"type": "array", "optional": True, "items": {"type": "int64"}},
        "photo": {"type": "bytes", "optional": True, "parameters": {"__debezium.source.column.type": "PHOTO"}},
    },
)
GOOD = {"id": 1, "name": "one", "price": "BBo=", "seen_at": "2026-11-21T08:48:22Z", "tags": [1], "photo": "YQ=="}
AVRO_KEY, AVRO_ROW = avro_schema(KEY), avro_schema(ROW)
AVRO = TopicSchemas(
    AvroIds({1: json.dumps(AVRO_KEY)}),
    AvroIds({2: json.dumps(AVRO_ROW), 3: '"Nowhere"'}, {4: "it is of type PROTOBUF"}),
)
JSON = TopicSchemas(JsonHeads((json_head(KEY),)), JsonHeads((json_head(ROW),)))

HUGE = 2**31 - 20


def zigzag(n: int) -> bytes:
    """Encode a number as Avro does."""
    n, out = (n << 1) ^ (n >> 63), b""
    while n > 0x7F:
        out, n = out + bytes([n & 0x7F | 0x80]), n >> 7
    return out + bytes([n])


def avro_key(number: int = 1) -> bytes:
    return framed(1, avro_body(AVRO_KEY, {"id": number}))


def avro_row(**changes: Any) -> bytes:
    return framed(2, avro_body(AVRO_ROW, GOOD | changes))


def json_key(number: Any = 1) -> bytes:
    return json_record(KEY, {"id": number})


def json_row(**changes: Any) -> bytes:
    return json_record(ROW, GOOD | changes)


AVRO_RECORDS: list[tuple[bytes | None, bytes | None, str | None, str]] = [
    (avro_key(), avro_row(), None, ""),
    (avro_key(), None, None, ""),
    (None, avro_row(), None, ""),
    (avro_key(), b"", "empty-value", "The value is empty, not null."),
    (avro_key(), b"\0\0\0", "undecodable-value", "byte 0"),
    (avro_key(), b'{"id": 1}', "undecodable-value", "byte 0"),
    (avro_key(), framed(99, b"\2"), "unknown-schema", "schema 99"),
    (avro_key(), framed(3, b"\2"), "unsupported-schema", "Nowhere"),
    (avro_key(), framed(4, b"\2"), "unsupported-schema", "Schema 4 of the value: it is of type PROTOBUF."),
    (avro_key(), framed(0, b"\0\0\0\5\2"), "unknown-schema", "apicurio.registry.as-confluent=true"),
    (avro_key(), avro_row()[:-3], "undecodable-value", "cannot be read"),
    (avro_key(), framed(2, b""), "undecodable-value", "cannot be read"),
    (avro_key(), framed(2, zigzag(1) + zigzag(-5) + b"x"), "undecodable-value", "cannot be read"),
    (avro_key(), framed(2, zigzag(1) + zigzag(HUGE) + b"x"), "undecodable-value", "cannot be read"),
    (avro_key(), framed(2, zigzag(1) + zigzag(2**50) + b"x"), "undecodable-value", "cannot be read"),
    (avro_key(), framed(2, zigzag(1) + zigzag(0) + zigzag(7)), "undecodable-value", "cannot be read"),
    (
        avro_key(),
        framed(2, zigzag(1) + zigzag(0) + zigzag(0) + zigzag(0) + zigzag(1) + zigzag(HUGE)),
        "undecodable-value",
        "cannot be read",
    ),
    (avro_key(), avro_row(price="AYag"), "undecodable-value", '"price"'),
    (avro_key(), avro_row(price="AQAAAAAAAAAF"), "undecodable-value", "cannot be read"),
    (avro_key(), avro_row(seen_at="yesterday"), "undecodable-value", '"seen_at"'),
    (
        avro_key(),
        avro_row(photo="/9j/4A=="),
        "undecodable-value",
        '"photo" holds a value that its type cannot hold. Its bytes',
    ),
    (avro_key(), avro_row(name="x" * 500), "oversized", "LAKEHOLD_MAX_RECORD_BYTES"),
    (b"", avro_row(), "undecodable-key", "empty"),
    (b"1", avro_row(), "undecodable-key", "byte 0"),
    (framed(99, b"\2"), avro_row(), "unknown-schema", "The key was written with schema 99."),
    (framed(1, b"\xff"), avro_row(), "undecodable-key", "cannot be read"),
]

HEAD = json_head(ROW).encode()

JSON_RECORDS: list[tuple[bytes | None, bytes | None, str | None, str]] = [
    (json_key(), json_row(), None, ""),
    (json_key(), None, None, ""),
    (json_key(), json_record(ROW, None), None, ""),
    (json_key(), b"", "empty-value", "empty"),
    (json_key(), b" \n", "empty-value", "empty"),
    (json_key(), b"null", None, ""),
    (json_key(), b'{"id": 1}', "unknown-schema", "payload"),
    (json_key(), framed(5, b'{"id": 1}'), "unknown-schema", "The value begins with a byte 0 and the id of a schema"),
    (json_key(), json_row()[:-3], "undecodable-value", "cannot be read"),
    (json_key(), HEAD + b"7}", "undecodable-value", "cannot be read"),
    (json_key(), HEAD + b"[]}", "undecodable-value", "cannot be read"),
    (json_key(), HEAD + b"\xff\xfe}", "undecodable-value", "is not UTF-8"),
    (json_key(), json_row(id="1"), "undecodable-value", 'schema: the value of field "id" is of another type.'),
    (json_key(), json_row(id=1.5), "undecodable-value", 'field "id"'),
    (json_key(), json_row(id=2**63), "undecodable-value", "cannot be read"),
    (json_key(), json_row(name=5), "undecodable-value", 'field "name"'),
    (json_key(), json_row(name={"first": "x"}), "undecodable-value", 'field "name"'),
    (json_key(), json_row(name='{"id":"x"}'), None, ""),
    (json_key(), json_row(name=None), "not-null-violated", '"name"'),
    (json_key(), json_record(ROW, {"id": 1}), "not-null-violated", '"name"'),
    (json_key(), json_row(tags=[1, None]), "not-null-violated", '"tags"'),
    (json_key(), json_row(tags={"a": 1}), "undecodable-value", 'field "tags"'),
    (json_key(), json_row(price="%%"), "undecodable-value", "cannot be read"),
    (json_key(), json_row(price="AYag"), "undecodable-value", '"price"'),
    (json_key(), json_row(price="AQAAAAAAAAAF"), "undecodable-value", '"price"'),
    (
        json_key(),
        json_row(photo="/9j/4A=="),
        "undecodable-value",
        '"photo" holds a value that its type cannot hold. Its bytes',
    ),
    (json_key(), json_row(seen_at="2026-11-21T08:48:22"), "undecodable-value", '"seen_at"'),
    (json_key(), json_row(name="x" * 3000), "oversized", "LAKEHOLD_MAX_RECORD_BYTES"),
    (json_key("x"), json_row(), "undecodable-key", 'The key cannot be read with its schema: the value of field "id"'),
    (json_key(None), json_row(), "not-null-violated", '"id"'),
    (b"", json_row(), "undecodable-key", "empty"),
    (b'{"id": 1}', json_row(), "unknown-schema", "key"),
]


@pytest.mark.parametrize(
    ("records", "schemas", "max_record_bytes"),
    [(AVRO_RECORDS, AVRO, 400), (JSON_RECORDS, JSON, 3000)],
    ids=["avro", "json"],
)
def test_bad_records_become_errors_that_keep_their_keys(
    spark: SparkSession,
    records: list[tuple[bytes | None, bytes | None, str | None, str]],
    schemas: TopicSchemas,
    max_record_bytes: int,
) -> None:
    raw = raw_records(spark, [(k, v) for k, v, _, _ in records])
    decoded = decode(raw, Wanted(schemas, Shape.FLAT), max_record_bytes=max_record_bytes)
    found = decoded.frame.orderBy("offset").collect()
    assert [(n, r.error) for n, r in enumerate(found)] == [(n, e) for n, (_, _, e, _) in enumerate(records)]
    for row, (key, value, error, detail) in zip(found, records, strict=True):
        assert detail in (row.error_detail or "")
        has_value = error is None and value not in (None, b"null") and b'"payload":null' not in value
        assert (row.value is not None) == has_value
        if key is None or (row.error or "").endswith("-key") or "key" in detail:
            assert row.key is None
        elif error != "not-null-violated":
            assert row.key.id == 1


def test_values_that_are_no_change_events_are_errors(spark: SparkSession) -> None:
    change = envelope(ROW)
    schemas = TopicSchemas(JsonHeads(), JsonHeads((json_head(change), json_head(ROW))))
    no_op = {"op": None, "after": GOOD, "before": None}
    records = [(None, json_record(change, no_op)), (None, json_row()), (None, json_record(change, None))]
    found = decode(raw_records(spark, records), Wanted(schemas, Shape.DEBEZIUM)).frame.orderBy("offset").collect()
    assert [r.error for r in found] == ["undecodable-value", "not-debezium", None]


def test_an_array_of_arrays_that_arrives_as_java_texts_is_an_error(spark: SparkSession) -> None:
    texts = {"type": "array", "optional": True, "items": {"type": "string", "optional": True}}
    change = envelope(struct("Row", {"id": {"type": "int64"}, "a b": texts}))
    of_java = ["[Ljava.lang.String;@1b2c3d", "[[Ljava.util.UUID;@7f92b1c9", "[I@486c366d"]
    plain = [["", None, "[Ljava"], [], None, [None], ["x [I@486c366d"], ["[I@486c366d y"]]
    values = [*([text, None] for text in of_java), *plain]
    events = [{"op": "c", "before": None, "after": {"id": 1, "a b": value}} for value in values]
    raw = raw_records(spark, [(None, json_record(change, e)) for e in events])
    found = decode(raw, Wanted(TopicSchemas(JsonHeads(), JsonHeads((json_head(change),))), Shape.DEBEZIUM)).frame
    rows = found.orderBy("offset").collect()
    assert [r.error for r in rows] == ["undecodable-value"] * len(of_java) + [None] * len(plain)
    assert [r.after["a b"] for r in rows[len(of_java) :]] == plain
    assert rows[0].error_detail == (
        'Column "a b" holds an array of several dimensions, which the connector sends without its values.'
    )


def test_before_may_lack_values_that_after_must_have(spark: SparkSession) -> None:
    change = envelope(ROW)
    sparse = {"id": 1, "name": None}
    events = [
        {"op": "u", "before": sparse, "after": GOOD},
        {"op": "u", "before": sparse, "after": sparse},
        {"op": "d", "before": sparse, "after": None},
    ]
    raw = raw_records(spark, [(None, json_record(change, e)) for e in events])
    found = decode(raw, Wanted(TopicSchemas(JsonHeads(), JsonHeads((json_head(change),))), Shape.DEBEZIUM)).frame
    rows = found.orderBy("offset").collect()
    assert [(r.op, r.error) for r in rows] == [("u", None), ("u", "not-null-violated"), ("d", None)]
    assert [r.after is None for r in rows] == [False, True, True]
    assert rows[2].before.id == 1


def test_the_envelope_of_a_record_with_an_error_is_decoded(spark: SparkSession) -> None:
    change = envelope(ROW)
    no_row = {"op": "c", "before": None, "after": {"id": 1, "name": None}}
    records = [
        (None, json_record(change, no_row)),
        (None, json_record(change, {"op": "c", "before": None, "after": GOOD})),
        (None, json_row()),
        (None, json_record(change, no_row)[:-9]),
        (None, None),
    ]
    schemas = TopicSchemas(JsonHeads(), JsonHeads((json_head(change), json_head(ROW))))
    found = decode(raw_records(spark, records), Wanted(schemas, Shape.DEBEZIUM)).frame
    rows = found.orderBy("offset").collect()
    errors = ["not-null-violated", None, "not-debezium", "undecodable-value", None]
    assert [row.error for row in rows] == errors
    assert [row.op for row in rows] == ["c", "c", None, None, None]
    # A readable value is known to be a Debezium event or not; an unreadable one may be an event.
    assert [row.is_readable for row in rows] == [True, True, True, False, True]


def test_json_that_breaks_a_contract_is_an_error(spark: SparkSession) -> None:
    columns = tuple(
        DeclaredColumn(n, t)
        for n, t in {"id": "bigint", "day": "date", "at": "timestamp", "price": "decimal(6,2)"}.items()
    )
    schemas = TopicSchemas(JsonDeclared((DeclaredColumn("id", "bigint"),)), JsonDeclared(columns))
    bad = [
        '{"id": "x"}',
        '{"day": "soon"}',
        '{"at": "2026-11-21T08:00:00"}',
        '{"price": "1.239"}',
        '{"price": 12345.6}',
        '{"price": "BBo="}',
        "7",
        '{"id": 1}x',
    ]
    raw = raw_records(spark, [(b"1", text.encode()) for text in bad] + [(b"x", b'{"id": 1}')])
    rows = decode(raw, Wanted(schemas, Shape.FLAT)).frame.orderBy("offset").collect()
    assert [r.error for r in rows] == ["undecodable-value"] * len(bad) + ["undecodable-key"]
    assert "decimal.handling.mode=string" in rows[bad.index('{"price": "BBo="}')].error_detail
