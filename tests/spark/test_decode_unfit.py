"""Messages of Avro that Spark can parse and no table can hold: texts that are not UTF-8, rows that contradict each other."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehold.ingest.decode.decoded import Shape, Wanted, decode
from lakehold.ingest.decode.record_schemas import AvroIds, TopicSchemas
from lakehold.tables.unify import TypeConflict
from tests.connect_converters import avro_body, avro_schema, envelope, framed, struct
from tests.raw_records import raw_records

pytestmark = pytest.mark.spark

NO_KEYS = AvroIds()
OLD = struct("Row", {"id": {"type": "int32"}, "gone": {"type": "string", "optional": True}, "n": {"type": "float32"}})
SOURCE: dict[str, Any] = {"connector": "postgresql", "db": "shop", "table": "t", "lsn": 26752040}
TEXT: dict[str, Any] = {"type": "string"}
TEXTS: dict[str, tuple[Any, Any]] = {
    "plain": (TEXT, "Z~"),
    "enum": (TEXT | {"name": "io.debezium.data.Enum", "parameters": {"allowed": "Z~,a\\,b"}}, "Z~"),
    "item": ({"type": "array", "items": TEXT}, ["a", "Z~"]),
    "inner_item": ({"type": "array", "items": {"type": "array", "items": TEXT}}, [["a", "Z~"]]),
    "map_key": ({"type": "map", "keys": TEXT, "values": {"type": "int32"}}, {"Z~": 1}),
    "map_value": ({"type": "map", "keys": TEXT, "values": TEXT}, {"a": "Z~"}),
    "field": (struct("Inner", {"a": TEXT}), {"a": "Z~"}),
    "field_of_item": ({"type": "array", "items": struct("Inner", {"a": TEXT})}, [{"a": "Z~"}]),
}
"""Types with a text in them, each with a value."""


def test_a_text_of_avro_that_is_not_utf_8_is_an_error_wherever_it_stands(spark: SparkSession) -> None:
    schemas = [avro_schema(struct("Row", {"c": schema})) for schema, _ in TEXTS.values()]
    values = [framed(n, avro_body(schemas[n], {"c": value})) for n, (_, value) in enumerate(TEXTS.values())]
    found = []
    for n, value in enumerate(values):
        wanted = Wanted(TopicSchemas(NO_KEYS, AvroIds({n: json.dumps(schemas[n])})), Shape.FLAT)
        records = [(None, value), (None, value.replace(b"Z~", b"Z\xff"))]
        found.append([row.error for row in decode(raw_records(spark, records), wanted).frame.collect()])
    assert dict(zip(TEXTS, found, strict=True)) == {name: [None, "undecodable-value"] for name in TEXTS}


def test_a_schema_whose_old_rows_contradict_its_new_ones_is_refused(spark: SparkSession) -> None:
    schema = avro_schema(envelope(OLD))
    before = schema["fields"][0]["type"][1]
    before["fields"][2]["type"] = "string"
    wanted = Wanted(TopicSchemas(NO_KEYS, AvroIds({0: json.dumps(schema)})), Shape.DEBEZIUM)
    with pytest.raises(TypeConflict, match='column "n" cannot change from float to string'):
        decode(raw_records(spark, []), wanted)


def test_an_envelope_of_avro_with_texts_that_are_not_utf_8_is_an_error(spark: SparkSession) -> None:
    schema = avro_schema(envelope(OLD))
    row = {"id": 1, "gone": "g", "n": 0.5}
    source = SOURCE | {"connector": "Z~"}
    good = framed(0, avro_body(schema, {"op": "c", "before": None, "after": row, "source": source}))
    wanted = Wanted(TopicSchemas(NO_KEYS, AvroIds({0: json.dumps(schema)})), Shape.DEBEZIUM)
    records = [(None, good), (None, good.replace(b"Z~", b"Z\xff"))]
    rows = decode(raw_records(spark, records), wanted).frame.select("error", "source.connector").collect()
    assert [tuple(row) for row in rows] == [(None, "Z~"), ("undecodable-value", "Z\ufffd")]
