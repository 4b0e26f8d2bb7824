"""Values of random Avro schemas, written by fastavro, are decoded as they were written."""

from __future__ import annotations

import io
import json
import random
import struct
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from pyspark.sql import SparkSession

from lakehold.ingest.decode.decoded import Shape, Wanted, decode
from lakehold.ingest.decode.record_schemas import AvroIds, TopicSchemas
from tests.connect_converters import framed
from tests.raw_records import raw_records

pytestmark = pytest.mark.spark

NOTHING = object()
"""A mark for values of types that no table can hold."""

_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "string", "bytes")
_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
_FIELDS, _RECORDS = 40, 5


class Schemas:
    """Random schemas, random values of them, and the values that a table has for those."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._named: dict[str, Any] = {}

    def record(self, fields: int, depth: int) -> Any:
        """Return a record with fields of any types."""
        schema: dict[str, Any] = {"type": "record", "name": self._name(), "fields": []}
        schema["fields"] = [{"name": f"f{n}", "type": self.schema(depth - 1)} for n in range(fields)]
        self._named[schema["name"]] = schema
        return schema

    def schema(self, depth: int, *, in_union: bool = False) -> Any:  # noqa: PLR0911 - one for each kind
        """Return a schema of any type."""
        kinds = ["primitive"] * 3 + ["decimal", "enum", "fixed", "named"]
        kinds += (["record", "array", "map"] + ([] if in_union else ["union"] * 4)) if depth > 0 else []
        match self._random.choice(kinds):
            case "primitive":
                return self._random.choice(_PRIMITIVES)
            case "decimal":
                return _DECIMAL
            case "enum":
                return self._known({"type": "enum", "name": self._name(), "symbols": ["A", "B", "C"]})
            case "fixed":
                return self._known({"type": "fixed", "name": self._name(), "size": self._random.randint(1, 4)})
            case "named":
                return self._random.choice([*self._named, "string"])
            case "record":
                return self.record(self._random.randint(0, 3), depth)
            case "array":
                return {"type": "array", "items": self.schema(depth - 1)}
            case "map":
                return {"type": "map", "values": self.schema(depth - 1)}
            case _:
                return self._union(depth)

    def _union(self, depth: int) -> list[Any]:
        branches: dict[str, Any] = {}
        if self._random.random() < 0.2:
            pair = self._random.choice([("int", "long"), ("long", "int"), ("float", "double"), ("string", "bytes")])
            branches = {name: name for name in pair}
        else:
            for _ in range(self._random.choice((1, 1, 2, 3))):
                named = dict(self._named)
                branch = self.schema(depth - 1, in_union=True)
                if self._branch(branch) in branches:
                    self._named = named
                else:
                    branches[self._branch(branch)] = branch
        found = list(branches.values())
        if "null" not in branches and self._random.random() < 0.5:
            found.insert(self._random.randint(0, len(found)), "null")
        return found

    def value(self, schema: Any) -> tuple[Any, Any]:  # noqa: PLR0911, PLR0912 - one for each form of a schema
        """Return a value as fastavro takes it, and as the table has it."""
        rnd = self._random
        if isinstance(schema, list):
            return self._union_value(schema)
        if isinstance(schema, str) and schema in self._named:
            schema = self._named[schema]
        kind = schema if isinstance(schema, str) else schema["type"]
        match kind:
            case "null":
                return None, NOTHING
            case "boolean":
                return (rnd.random() < 0.5,) * 2
            case "int":
                return (rnd.choice((0, -1, 2**31 - 1, rnd.randint(-(2**31), 2**31 - 1))),) * 2
            case "long":
                return (rnd.choice((0, -1, 2**63 - 1, rnd.randint(-(2**63), 2**63 - 1))),) * 2
            case "float":
                return (struct.unpack("f", struct.pack("f", rnd.uniform(-1e6, 1e6)))[0],) * 2
            case "double":
                return (rnd.uniform(-1e9, 1e9),) * 2
            case "string":
                return (rnd.choice(("", "x", "é\n\\'${a}", "long" * 20)),) * 2
            case "bytes" if isinstance(schema, dict):
                return (Decimal(rnd.randint(-(10**8), 10**8)).scaleb(-2),) * 2
            case "bytes":
                return (rnd.randbytes(rnd.randint(0, 5)),) * 2
            case "fixed":
                return (rnd.randbytes(schema["size"]),) * 2
            case "enum":
                return (rnd.choice(schema["symbols"]),) * 2
            case "array":
                items = [self.value(schema["items"]) for _ in range(rnd.randint(0, 3))]
                known = NOTHING if self.is_nothing(schema) else [item for _, item in items]
                return [raw for raw, _ in items], known
            case "map":
                entries = {f"k{n}": self.value(schema["values"]) for n in range(rnd.randint(0, 2))}
                known = NOTHING if self.is_nothing(schema) else {k: v for k, (_, v) in entries.items()}
                return {k: raw for k, (raw, _) in entries.items()}, known
            case _:
                fields = {f["name"]: self.value(f["type"]) for f in schema["fields"]}
                known = {name: v for name, (_, v) in fields.items() if v is not NOTHING}
                return {name: raw for name, (raw, _) in fields.items()}, known or NOTHING

    def _union_value(self, branches: list[Any]) -> tuple[Any, Any]:
        members = [branch for branch in branches if branch != "null"]
        held = [member for member in members if not self.is_nothing(member)]
        chosen = self._random.choice(branches)
        raw, known = self.value(chosen)
        written = raw if chosen == "null" else (self._branch(chosen), raw)
        if not held:
            return written, NOTHING
        if chosen == "null":
            return written, None
        if len(members) == 1 or {str(m) for m in members} in ({"int", "long"}, {"float", "double"}):
            return written, known
        own = {self._branch(m): known if m is chosen else None for m in members if m in held}
        return written, own

    def is_nothing(self, schema: Any) -> bool:
        """Return whether no table can hold the values of a schema."""
        if isinstance(schema, list):
            return all(self.is_nothing(branch) for branch in schema)
        if isinstance(schema, str):
            return schema == "null" or (schema in self._named and self.is_nothing(self._named[schema]))
        match schema["type"]:
            case "array":
                return self.is_nothing(schema["items"])
            case "map":
                return self.is_nothing(schema["values"])
            case "record":
                return all(self.is_nothing(f["type"]) for f in schema["fields"])
            case _:
                return False

    def _branch(self, schema: Any) -> str:
        if isinstance(schema, str):
            return schema
        return str(schema["name"] if "name" in schema else schema["type"])

    def _known(self, schema: dict[str, Any]) -> dict[str, Any]:
        self._named[schema["name"]] = schema
        return schema

    def _name(self) -> str:
        return f"t{len(self._named)}_{self._random.randint(0, 10**9)}"


def _written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return framed(1, out.getvalue())


def _plain(value: Any) -> Any:
    """Return a value of a row as a model has it."""
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return {name: _plain(item) for name, item in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize("seed", range(4))
def test_values_are_decoded_as_they_were_written(spark: SparkSession, seed: int) -> None:
    schemas = Schemas(seed)
    schema = schemas.record(_FIELDS, 4)
    pairs = [schemas.value(schema) for _ in range(_RECORDS)]
    raw = raw_records(spark, [(None, _written(schema, value)) for value, _ in pairs])
    decoded = decode(raw, Wanted(TopicSchemas(AvroIds(), AvroIds({1: json.dumps(schema)})), Shape.FLAT))
    rows = decoded.frame.orderBy("offset").collect()
    assert [(row.error, row.error_detail) for row in rows] == [(None, None)] * len(pairs)
    assert [_plain(row.value.asDict(recursive=True)) for row in rows] == [known for _, known in pairs]
    assert {c.name for c in decoded.columns} == set(pairs[0][1])
    assert {part.path for part in decoded.left_out} >= {
        f["name"] for f in schema["fields"] if schemas.is_nothing(f["type"])
    }


ALONE = [
    (["long"], 7, 7),
    (["null", "long"], None, None),
    (["string", "null"], "x", "x"),
    ([{"type": "record", "name": "r", "fields": [{"name": "value", "type": ["string"]}]}], {"value": "y"}, "y"),
    ([{"type": "fixed", "name": "f", "size": 2}], b"ab", b"ab"),
    ([{"type": "enum", "name": "e", "symbols": ["A"]}], "A", "A"),
    ([{"type": "array", "items": ["null", "int"]}], [1, None], [1, None]),
    ([_DECIMAL], Decimal("1.50"), Decimal("1.50")),
    ("null", None, None),
    (["null"], None, None),
]


@pytest.mark.parametrize(("schema", "value", "known"), ALONE, ids=lambda each: json.dumps(each, default=str)[:40])
def test_a_union_may_be_a_whole_key_or_value(spark: SparkSession, schema: Any, value: Any, known: Any) -> None:
    part = _written(schema, value)
    ids = AvroIds({1: json.dumps(schema)})
    (row,) = decode(raw_records(spark, [(part, part)]), Wanted(TopicSchemas(ids, ids), Shape.FLAT)).frame.collect()
    assert row.error is None
    found = None if row.value is None else row.value.value
    of_key = None if row.key is None else row.key[0]
    assert (_plain(found), _plain(of_key)) == (known, known)


def test_a_union_of_a_date_and_a_timestamp_distinguishes_them(spark: SparkSession) -> None:
    date, moment = {"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "timestamp-millis"}
    schema = {"type": "record", "name": "r", "fields": [{"name": "at", "type": ["null", date, moment]}]}
    bodies = [b"\x02\x02", b"\x04\xd0\x0f", b"\x00", b"\x06\x00"]
    raw = raw_records(spark, [(None, framed(1, body)) for body in bodies])
    frame = decode(raw, Wanted(TopicSchemas(AvroIds(), AvroIds({1: json.dumps(schema)})), Shape.FLAT)).frame
    shown = frame.selectExpr("offset", "to_json(value) AS shown", "error").orderBy("offset").collect()
    assert [row.shown for row in shown[:3]] == [
        '{"at":{"int":"1970-01-02"}}',
        '{"at":{"long":"1970-01-01T00:00:01.000Z"}}',
        "{}",
    ]
    assert [row.error for row in shown] == [None, None, None, "undecodable-value"]
