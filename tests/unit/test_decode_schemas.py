"""Schemas as they are read: Avro's and Connect's say the same, and broken ones say what is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lakehold.ingest.decode.avro_schema import from_avro_json
from lakehold.ingest.decode.connect_schema import ConnectSchema, SchemaType, UnsupportedSchema, from_connect_json
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
    """What both encodings must agree on."""
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
        ("7", "must be a name"),
        ('{"type": "record", "name": "r"}', "no fields"),
        ('"Elsewhere"', "does not define"),
        ('{"type":"record","name":"r","fields":[{"name":"next","type":["null","r"]}]}', "holds itself"),
    ],
)
def test_avro_schemas_that_no_table_can_hold(text: str, reason: str) -> None:
    with pytest.raises(UnsupportedSchema, match=reason):
        from_avro_json(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("{}", "with a type"),
        ('{"type": "int128"}', "no type 'int128'"),
        ('{"type": "struct"}', '"fields"'),
        ('{"type": "struct", "fields": [{"type": "string"}]}', "names it"),
        ('{"type": "array"}', '"items"'),
        ('{"type": "map", "keys": {"type": "string"}}', '"values"'),
    ],
)
def test_connect_schemas_that_are_none(text: str, reason: str) -> None:
    with pytest.raises(UnsupportedSchema, match=reason):
        from_connect_json(text)
