"""Records decoded once for all readers of a topic give each reader the same rows as decoding for that reader alone."""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stdout
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from lakehold.definitions import DeclaredColumn
from lakehold.ingest.decode.decoded import Decoded, Shape, Wanted, decode
from lakehold.ingest.decode.flattened import DELETED
from lakehold.ingest.decode.record_schemas import AvroIds, JsonDeclared, JsonHeads, TopicSchemas
from lakehold.ingest.decode.shared_decoding import DecodedTogether, decode_together
from tests.connect_converters import avro_body, avro_schema, envelope, framed, json_head, json_record, struct
from tests.raw_records import raw_records

pytestmark = pytest.mark.spark

TYPES = {
    "a": ["int", "bigint", "string", "double", "boolean", "decimal(30,10)"],
    "b": ["string", "double", "decimal(9,2)"],
    "B": ["string"],
    "day": ["date", "string"],
    "place": ["struct<x:int,y:string>", "struct<y:string,z:array<int>>"],
    "tags": ["map<string,int>", "map<string,string>"],
    "many": ["array<int>", "array<double>", "array<struct<a:int>>"],
    "after": ["struct<a:int>"],
}
PLAIN = [
    None,
    0,
    1,
    -7,
    2**40,
    2**70,
    1.5,
    5.0,
    -0.0,
    1e-7,
    1e22,
    9007199254740993.5,
    True,
    "",
    "1",
    "2026-11-23",
    "NaN",
]
VALUES = st.sampled_from(
    [
        *PLAIN,
        [1],
        [1.5, None, 2**70, "1"],
        [{"a": "1"}],
        {},
        {"x": 1, "y": "y"},
        {"y": 2, "z": ["z"]},
        {"x": None, "y": 5.0},
    ]
)


@st.composite
def columns(draw: st.DrawFn) -> tuple[DeclaredColumn, ...]:
    """Draw a list of columns; Spark distinguishes names that differ by more than their case."""
    names = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, unique_by=str.lower))
    return tuple(DeclaredColumn(name, draw(st.sampled_from(TYPES[name]))) for name in names)


@st.composite
def texts(draw: st.DrawFn) -> bytes | None:
    """Draw a JSON value, whole or broken, alone or within an envelope or a payload."""
    deleted = st.sampled_from(["true", "false", True, None])
    row = st.fixed_dictionaries({}, optional={**dict.fromkeys(sorted(TYPES), VALUES), DELETED: deleted})
    event = st.fixed_dictionaries({"op": st.sampled_from(["c", "u", 1, None]), "before": st.none() | row, "after": row})
    content: Any = draw(st.one_of(row, event, VALUES))
    if draw(st.booleans()):
        content = {"payload": content}
    text = json.dumps(content).encode()
    return draw(st.sampled_from([text, text, text, text, text[:-1], b" ", None]))


@st.composite
def readers(draw: st.DrawFn) -> Wanted:
    """Draw the request of a table with a list of columns."""
    key = JsonDeclared(draw(st.just(()) | columns().map(lambda found: found[:2])))
    return Wanted(TopicSchemas(key, JsonDeclared(draw(columns()))), draw(st.sampled_from(list(Shape))))


def rows(decoded: Decoded) -> list[dict[str, Any]]:
    """Return the decoded rows, with the requested columns."""
    found = [row.asDict() for row in decoded.frame.orderBy("offset").collect()]
    names = [column.name for column in decoded.columns]
    for row in found:
        for part in {"value", "before", "after"} & row.keys():
            row[part] = row[part] and {name: row[part][name] for name in names}
        if row.get("unavailable"):
            row["unavailable"] = [name for name in row["unavailable"] if name in names]
    return found


def require_alike(spark: SparkSession, records: list[tuple[Any, Any]], wanted: list[Wanted]) -> DecodedTogether:
    raw = raw_records(spark, records)
    together = decode_together(raw, wanted)
    for reader in wanted:
        alone, own = decode(raw, reader), together.of(reader)
        assert own is not None
        assert own.key_columns == alone.key_columns
        assert own.keys == alone.keys
        assert sorted(map(str, own.columns)) == sorted(map(str, alone.columns))
        # As texts: NaN is not equal to itself.
        assert list(map(str, rows(own))) == list(map(str, rows(replace(alone, columns=own.columns))))
    return together


@given(
    records=st.lists(st.tuples(texts(), texts()), min_size=6, max_size=12),
    wanted=st.lists(readers(), min_size=2, max_size=4),
)
@settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
def test_each_list_of_columns_reads_json_as_it_would_alone(
    spark: SparkSession, records: list[tuple[Any, Any]], wanted: list[Wanted]
) -> None:
    require_alike(spark, records, wanted)


def test_lists_of_columns_that_agree_are_read_at_once(spark: SparkSession) -> None:
    key = declared(id="bigint")
    lists = [declared(a="int", b="string"), declared(b="string", day="date"), declared(a="int", day="date")]
    wanted = [Wanted(TopicSchemas(key, columns), shape) for columns in lists for shape in Shape]
    assert len(decode_together(raw_records(spark, []), wanted).done) == len(Shape)
    other = Wanted(TopicSchemas(key, declared(a="bigint")), Shape.FLAT)
    assert len(decode_together(raw_records(spark, []), [*wanted, other]).done) == len(Shape) + 1


NUMBERS = ["0", "-0", "7", "2147483648", "-2147483648", "12345678901234567890", "5.0", "1e2", "1E400", "0.10"]
OTHERS = ['""', '"1"', '"NaN"', "true", "null", "[1, 2.0]", '{"a": 1.10}', '{"a": 1, "a": 2}', '{"a":']


@pytest.mark.parametrize(
    ("types", "calls"),
    [(["int", "bigint"], 2), (["decimal(38,10)", "decimal(9,2)"], 1), (["double", "string"], 2)],
)
def test_a_value_becomes_each_type_as_it_would_alone(spark: SparkSession, types: list[str], calls: int) -> None:
    records: list[tuple[Any, Any]] = [
        (None, text.encode())
        for value in [*NUMBERS, *OTHERS]
        for text in (f'{{"n": {value}}}', f'{{"op": "c", "after": {{"n": {value}, "many": [{value}]}}}}')
    ]
    lists = [declared(n=of, many=f"array<{of}>") for of in types]
    wanted = [Wanted(TopicSchemas(JsonDeclared(), columns), shape) for columns in lists for shape in Shape]
    together = require_alike(spark, records, wanted)
    assert calls_in(together.frame) == calls


def test_names_that_differ_in_case_alone_are_read_apart(spark: SparkSession) -> None:
    values = [
        '{"id": 1, "ID": "x"}',
        '{"ID": {"id": 5}, "id": 2.5}',
        '{"op": "u", "after": {"Id": 1, "ID": 3}}',
        "7",
        "",
    ]
    lists = [declared(id="bigint"), declared(ID="string"), declared(Id="double"), declared(id="int", b="string")]
    wanted = [Wanted(TopicSchemas(JsonDeclared(), columns), shape) for columns in lists for shape in Shape]
    together = require_alike(spark, [(None, value.encode()) for value in values], wanted)
    assert calls_in(together.frame) == 4


def declared(**types: str) -> JsonDeclared:
    return JsonDeclared(tuple(DeclaredColumn(name, of) for name, of in types.items()))


def parsers_in(frame: DataFrame) -> tuple[int, int]:
    """Count the parser calls in the analyzed plan, and in the physical plan, which has already decoded local records."""
    shown = io.StringIO()
    with redirect_stdout(shown):
        frame.explain(extended=True)
    analyzed, physical = (
        shown.getvalue().partition(f"== {title} Plan ==")[2].partition("\n== ")[0]
        for title in ("Analyzed Logical", "Physical")
    )
    calls = re.compile(r"from_avro|avrodatatocatalyst|from_json")
    return len(calls.findall(analyzed)), len(calls.findall(physical))


def calls_in(frame: DataFrame) -> int:
    """Count the parser calls that a valid record takes."""
    shown = io.StringIO()
    with redirect_stdout(shown):
        frame.explain(extended=True)
    analyzed = shown.getvalue().partition("== Analyzed Logical Plan ==")[2].partition("\n== ")[0]
    return len(set(re.findall(r"AS (_call[0-9]+)#", analyzed)))


@pytest.mark.parametrize("written", ["avro", "json"])
def test_debeziums_envelope_and_the_whole_value_are_parsed_once(spark: SparkSession, written: str) -> None:
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
    together = require_alike(spark, records, wanted)
    assert parsers_in(together.frame) in [(1, 1), (1, 0)]
