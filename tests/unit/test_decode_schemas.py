"""Schemas of Avro and Connect, which agree in both encodings, and broken ones, which are reported."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lakehold.ingest.decode.avro_schema import from_avro_json
from lakehold.ingest.decode.connect_schema import ConnectSchema, SchemaType, UnsupportedSchema, from_connect_json
from lakehold.ingest.decode.message_parts import Part, part
from lakehold.ingest.decode.record_schemas import AvroIds, JsonHeads
from tests.connect_converters import avro_schema, envelope, struct

ROW = struct(
    "shop-a.public.Value",
    {
        "id": {"type": "int16", "default": 0},
        "name": {"type": "string", "optional": True, "name": "io.debezium.data.Enum", "parameters": {"allowed": "a,b"}},
        "tags": {"type": "array", "items": {"type": "string", "optional": True}},
        "attributes": {"type": "map", "keys": {"type": "string"}, "values": {"type": "float32"}, "optional": True},
    },
)


def shape(schema: ConnectSchema | None) -> Any:
    """Return the parts of a schema on which both encodings must agree."""
    if schema is None:
        return None
    fields = [(f.name, shape(f.schema)) for f in schema.fields]
    logical = None if schema.type is SchemaType.STRUCT else (schema.name, dict(schema.parameters))
    return (schema.type, schema.optional, logical, fields, shape(schema.items), shape(schema.values))


def test_avro_and_json_schemas_of_one_envelope_agree() -> None:
    change = envelope(ROW)
    assert shape(from_avro_json(json.dumps(avro_schema(change))).schema) == shape(from_connect_json(change))


def test_a_named_type_is_read_where_it_is_referred_to() -> None:
    value = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "long"}]}
    fields = [{"name": "before", "type": ["null", value]}, {"name": "after", "type": ["null", "Value"]}]
    text = json.dumps({"type": "record", "name": "Envelope", "namespace": "shop.public.t", "fields": fields})
    read = from_avro_json(text)
    assert read.schema.field_named("after") == read.schema.field_named("before")
    names = [f["type"][1]["name"] for f in read.bare["fields"]]
    assert len(set(names)) == len(names)


def test_the_bare_schema_keeps_nothing_that_avro_or_spark_could_stumble_over() -> None:
    odd = {
        "type": "record",
        "name": "shop-a.Key",
        "fields": [
            {
                "name": "at",
                "type": {"type": "long", "logicalType": "timestamp-nanos", "connect.default": 0},
                "default": "x",
            },
            {"name": "state", "type": {"type": "enum", "name": "e-1", "symbols": ["A"]}},
        ],
    }
    assert from_avro_json(json.dumps(odd)).bare == {
        "type": "record",
        "name": "n1",
        "fields": [
            {"name": "at", "type": "long"},
            {"name": "state", "type": {"type": "enum", "name": "n2", "symbols": ["A"]}},
        ],
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("7", "no schema of Avro"),
        ('{"type": "record", "name": "r"}', "no schema of Avro .*fields"),
        ('"Elsewhere"', "does not define"),
        ('{"type":"record","name":"r","fields":[{"name":"next","type":["null","r"]}]}', "holds itself"),
    ],
)
def test_avro_schemas_that_no_table_can_hold_are_refused(text: str, reason: str) -> None:
    with pytest.raises(UnsupportedSchema, match=reason):
        from_avro_json(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("{}", "no schema that Connect.*'type'"),
        ('{"type": "int128"}', "'int128'"),
        ('{"type": "struct"}', "'fields'"),
        ('{"type": "struct", "fields": [{"type": "string"}]}', "'field'"),
        ('{"type": "array"}', "'items'"),
        ('{"type": "map", "keys": {"type": "string"}}', "'values'"),
    ],
)
def test_invalid_connect_schemas_are_refused(text: str, reason: str) -> None:
    with pytest.raises(UnsupportedSchema, match=reason):
        from_connect_json(text)


_DEEP = 3_000


def nested(inner: str, levels: int) -> str:
    """Return the schema of arrays inside each other."""
    return '{"type":"array","items":' * levels + inner + "}" * levels


@pytest.mark.parametrize(
    "schema",
    [
        '{"type":["object","null"]}',
        '{"type":{"type":"string"}}',
        '{"type":"struct","fields":[],"name":["Row"]}',
        nested('{"type":"int32"}', 150),
        nested('{"type":"int32"}', _DEEP),
    ],
    ids=["list of types", "type in a type", "list for a name", "deep", "very deep"],
)
def test_a_schema_that_no_converter_of_connect_writes_is_an_error_of_its_records(schema: str) -> None:
    read = part(Part("value"), JsonHeads((f'{{"schema":{schema},"payload":',)))
    assert [refused.reason for refused in read.refused] == ["unsupported-schema"]
    assert not read.versions


@pytest.mark.parametrize(
    "schema",
    [
        '{"type":"record","name":"r","fields":["x"]}',
        nested('"int"', 150),
        nested('"int"', _DEEP),
    ],
    ids=["field without a name", "deep", "very deep"],
)
def test_a_broken_schema_of_avro_is_an_error_of_its_records(schema: str) -> None:
    read = part(Part("value"), AvroIds({7: schema}))
    assert [refused.reason for refused in read.refused] == ["unsupported-schema"]
    assert "Schema 7" in read.refused[0].detail


@pytest.mark.parametrize("written", [{"precision": -1}, {"precision": 4, "scale": 6}, {"precision": 4, "scale": -1}])
def test_avro_ignores_a_decimal_that_cannot_be_one(written: dict[str, int]) -> None:
    read = from_avro_json(json.dumps({"type": "bytes", "logicalType": "decimal", **written}))
    assert (read.schema.type, read.schema.name, read.bare) == (SchemaType.BYTES, None, "bytes")


def test_parameters_that_connect_did_not_write_are_ignored() -> None:
    row = {"type": "record", "name": "r", "connect.parameters": [1], "fields": [{"name": "a", "type": "int"}]}
    assert from_avro_json(json.dumps(row)).schema.parameters == {}


@pytest.mark.parametrize(
    ("source_type", "is_text"),
    [
        *((name, False) for name in ("bytea", "_BYTEA", "BLOB", "VARBINARY(10)", "LONGBLOB", "IMAGE", "LONG RAW")),
        ("CHAR(3) FOR BIT DATA", False),
        ("PG_LSN", True),
        ("mood", True),
    ],
)
def test_bytes_are_a_text_only_if_their_type_is_binary_in_no_database(source_type: str, is_text: bool) -> None:
    parameters = {"__debezium.source.column.type": source_type}
    read = from_connect_json({"type": "bytes", "parameters": parameters})
    assert (read.name is not None) == is_text
