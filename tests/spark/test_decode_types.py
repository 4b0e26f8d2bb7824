"""Every value of `tests/golden/types/*.txt` arrives exact, as JSON and as Avro."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehold.ingest.decode.decoded import Decoded, Shape, Wanted, decode
from lakehold.ingest.decode.record_schemas import AvroIds, JsonHeads, TopicSchemas
from tests.connect_converters import avro_body, avro_schema, framed, json_head, json_record, struct
from tests.raw_records import raw_records
from tests.type_cases import SHOWN_OPTIONS, TypeCase, read_cases

pytestmark = pytest.mark.spark

CONNECT = read_cases("connect.txt")
AVRO = read_cases("avro.txt")

_NO_KEYS = AvroIds()


def _rows(cases: list[TypeCase]) -> list[dict[str, Any]]:
    """Return rows with a column for each case: row n has the nth payload of each, and the last row only nulls."""
    most = max(len(c.values) for c in cases)
    return [{c.name: c.values[n][0] if n < len(c.values) else None for c in cases} for n in range(most + 1)]


def _shown(decoded: Decoded, cases: list[TypeCase]) -> list[dict[str, str]]:
    """Return the decoded rows, each column as JSON text and a null as `null`."""
    columns = [f"to_json(struct(value.`{c.name}` AS v), {SHOWN_OPTIONS}) AS {c.name}" for c in cases]
    found = decoded.frame.selectExpr("error", "error_detail", *columns).orderBy("offset").collect()
    assert [(r.error, r.error_detail) for r in found] == [(None, None)] * len(found)
    return [{c.name: _value(r[c.name]) for c in cases} for r in found]


def _value(shown: str) -> str:
    return "null" if shown == "{}" else shown.removeprefix('{"v":').removesuffix("}")


def _expected(cases: list[TypeCase]) -> list[dict[str, str]]:
    rows = _rows(cases)
    return [{c.name: c.values[n][1] if n < len(c.values) else "null" for c in cases} for n in range(len(rows))]


def _types(decoded: Decoded) -> dict[str, str]:
    return {c.name: c.spark_type for c in decoded.columns}


@pytest.fixture(scope="module")
def connect_schema() -> Any:
    return struct("Row", {c.name: c.schema | {"optional": True} for c in CONNECT})


def test_connect_values_are_exact_as_json(spark: SparkSession, connect_schema: Any) -> None:
    records = [(None, json_record(connect_schema, row)) for row in _rows(CONNECT)]
    schemas = TopicSchemas(_NO_KEYS, JsonHeads((json_head(connect_schema),)))
    decoded = decode(raw_records(spark, records), Wanted(schemas, Shape.FLAT))
    assert _shown(decoded, CONNECT) == _expected(CONNECT)
    assert _types(decoded) == {c.name: c.spark for c in CONNECT}


def test_connect_values_are_exact_as_avro(spark: SparkSession, connect_schema: Any) -> None:
    schema = avro_schema(connect_schema)
    records = [(None, framed(7, avro_body(schema, row))) for row in _rows(CONNECT)]
    schemas = TopicSchemas(_NO_KEYS, AvroIds({7: json.dumps(schema)}))
    decoded = decode(raw_records(spark, records), Wanted(schemas, Shape.FLAT))
    assert _shown(decoded, CONNECT) == _expected(CONNECT)
    assert _types(decoded) == {c.name: c.spark for c in CONNECT}


def test_avro_values_are_exact(spark: SparkSession) -> None:
    fields = [{"name": c.name, "type": _optional(c.schema)} for c in AVRO]
    schema = {"type": "record", "name": "Row", "fields": fields}
    records = [(None, framed(7, avro_body(schema, row))) for row in _rows(AVRO)]
    decoded = decode(
        raw_records(spark, records), Wanted(TopicSchemas(_NO_KEYS, AvroIds({7: json.dumps(schema)})), Shape.FLAT)
    )
    assert _shown(decoded, AVRO) == _expected(AVRO)
    assert _types(decoded) == {c.name: c.spark for c in AVRO}


def _optional(schema: Any) -> Any:
    if isinstance(schema, list):
        return schema if "null" in schema else ["null", *schema]
    return ["null", schema]
