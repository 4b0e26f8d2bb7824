"""What readers of one topic take from a parsing that they share is what each of them decodes by itself, errors included."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import Row, SparkSession

from lakehold.definitions import DeclaredColumn
from lakehold.ingest.decode import AvroIds, JsonDeclared, JsonHeads, Shape, TopicSchemas, decode
from lakehold.ingest.decode.decoded import Decoded, Wanted, calls_for
from lakehold.ingest.decode.parsers import Call, Parsed, parsed_for
from tests.connect_converters import avro_body, avro_schema, envelope, framed, json_head, json_record, struct
from tests.raw_records import raw_records

pytestmark = pytest.mark.spark

TYPES = {
    "a": ["int", "bigint"],
    "b": ["string"],
    "B": ["string"],
    "day": ["date", "string"],
    "place": ["struct<x:int,y:string>", "struct<y:string,z:array<int>>"],
    "tags": ["map<string,int>"],
    "after": ["struct<a:int>"],
}
VALUES = st.sampled_from(
    [None, 1, 2**40, 1.5, True, "", "2026-11-23", "x", [1], {}, {"x": 1, "y": "y"}, {"y": 2, "z": ["z"]}]
)


@st.composite
def columns(draw: st.DrawFn) -> tuple[DeclaredColumn, ...]:
    """A list of columns; Spark tells names apart that differ by more than their case."""
    names = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, unique_by=str.lower))
    return tuple(DeclaredColumn(name, draw(st.sampled_from(TYPES[name]))) for name in names)


@st.composite
def texts(draw: st.DrawFn) -> bytes | None:
    """A JSON value, whole or broken, alone or within an envelope or a payload."""
    row = st.dictionaries(st.sampled_from(sorted(TYPES)), VALUES)
    event = st.fixed_dictionaries({"op": st.sampled_from(["c", "u", 1, None]), "before": st.none() | row, "after": row})
    content: Any = draw(st.one_of(row, event, VALUES))
    if draw(st.booleans()):
        content = {"payload": content}
    text = json.dumps(content).encode()
    return draw(st.sampled_from([text, text, text, text, text[:-1], b" ", None]))


@st.composite
def readers(draw: st.DrawFn) -> Wanted:
    """What a table with a list of columns wants."""
    key = JsonDeclared(draw(st.just(()) | columns().map(lambda found: found[:2])))
    return Wanted(TopicSchemas(key, JsonDeclared(draw(columns()))), draw(st.sampled_from(list(Shape))))


def rows(decoded: Decoded) -> list[Row]:
    return decoded.frame.orderBy("offset").collect()


def shared(spark: SparkSession, records: list[tuple[Any, Any]], wanted: list[Wanted]) -> Parsed:
    return parsed_for(raw_records(spark, records), [call for reader in wanted for call in calls_for(reader)])


def require_alike(spark: SparkSession, records: list[tuple[Any, Any]], wanted: list[Wanted], parsed: Parsed) -> None:
    raw = raw_records(spark, records)
    for reader in wanted:
        alone = decode(raw, reader.schemas, reader.shape)
        taken = decode(raw, reader.schemas, reader.shape, parsed=parsed)
        assert taken.columns == alone.columns
        assert rows(taken) == rows(alone)


@given(
    records=st.lists(st.tuples(texts(), texts()), min_size=6, max_size=12),
    wanted=st.lists(readers(), min_size=2, max_size=4),
)
@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
def test_each_list_of_columns_finds_in_json_what_it_would_find_alone(
    spark: SparkSession, records: list[tuple[Any, Any]], wanted: list[Wanted]
) -> None:
    parsed = shared(spark, records, wanted)
    assert all(parsed.has(call) for reader in wanted for call in calls_for(reader))
    require_alike(spark, records, wanted, parsed)


def test_lists_of_columns_that_agree_take_the_calls_of_one(spark: SparkSession) -> None:
    key = declared(id="bigint")
    lists = [
        declared(a="int", b="string"),
        declared(b="string", place="struct<x:int>"),
        declared(place="struct<y:int>"),
    ]
    wanted = [Wanted(TopicSchemas(key, columns), shape) for columns in lists for shape in Shape]
    raw = raw_records(spark, [])

    def parsed_columns(readers: list[Wanted]) -> int:
        parsed = parsed_for(raw, [call for reader in readers for call in calls_for(reader)])
        return len(parsed.frame.columns) - len(raw.columns)

    assert parsed_columns(wanted) == parsed_columns(wanted[:1])
    assert parsed_columns([*wanted, Wanted(TopicSchemas(key, declared(a="bigint")), Shape.FLAT)]) > parsed_columns(
        wanted
    )


def declared(**types: str) -> JsonDeclared:
    return JsonDeclared(tuple(DeclaredColumn(name, of) for name, of in types.items()))


@pytest.mark.parametrize("written", ["avro", "json"])
def test_debeziums_envelope_and_the_whole_value_take_one_call(spark: SparkSession, written: str) -> None:
    row = struct("Row", {"id": {"type": "int64"}, "name": {"type": "string", "optional": True}})
    schema = envelope(row)
    event = {
        "op": "c",
        "before": None,
        "after": {"id": 1, "name": "a"},
        "source": {"connector": "postgresql", "lsn": 7},
    }
    if written == "avro":
        text = avro_schema(schema)
        values: list[Any] = [framed(0, avro_body(text, event)), b"\0\0\0\0\0broken", b"", None]
        schemas = TopicSchemas(AvroIds(), AvroIds({0: json.dumps(text)}))
    else:
        values = [json_record(schema, event), json_record(schema, event)[:-9], b"", None]
        schemas = TopicSchemas(JsonHeads(), JsonHeads((json_head(schema),)))
    records = [(None, value) for value in values]
    wanted = [Wanted(schemas, shape) for shape in Shape]
    calls: list[list[Call]] = [calls_for(reader) for reader in wanted]
    assert calls[0] == calls[1]
    require_alike(spark, records, wanted, shared(spark, records, wanted))
