"""A Kafka Connect schema: what Debezium, the JSON converter and the Avro converters declare about a key or a value.

All decoding follows this one model, whatever the format of the messages. The vocabulary is Connect's own
(`org.apache.kafka.connect.data.Schema`): a *logical type* is a name beside a plain type, which says what the value means, such
as `io.debezium.time.Date` for the int32 that counts days. Logical types of Avro that do not come from Connect are kept as names
that begin with `AVRO`, so that one table (`logical.py`) has every logical type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from lakehold.spark_sql import quoted

AVRO = "avro:"
"""Prefix of the name of a logical type that is Avro's, such as `avro:timestamp-micros`."""

DECLARED = "declared:"
"""Prefix of the logical types of columns that a statement declares for JSON without a schema; their plain type is text."""

DECLARED_DECIMAL = f"{DECLARED}decimal"
"""The logical type of a column that a statement declares as DECIMAL."""

TEXT_BYTES = "postgres:text"
"""Name of bytes that are a text: Debezium sends values of PostgreSQL types that it does not know as such."""

_SOURCE_TYPE = "__debezium.source.column.type"
_BINARY_TYPE = re.compile(
    r"_?BYTEA|(TINY|MEDIUM|LONG)?BLOB|(VAR)?BINARY|BYTE|(LONG )?RAW|IMAGE|BFILE|ROWVERSION|TIMESTAMP|HIERARCHYID"
    r"|.* FOR BIT DATA",
    re.IGNORECASE,
)
"""Types of all of Debezium's databases whose values are binary."""

_SIZE = re.compile(r"\s*\([^)]*\)")

DEEPEST = 100
"""The most levels of nesting that a schema may have."""

TOO_DEEP = f"It is nested deeper than {DEEPEST} levels."

UNION = f"{AVRO}union"
"""Name of the structure that stands for a union of several types: one optional field per branch, named as its type."""

NULL = f"{AVRO}null"
"""Name of the structure without fields that stands for Avro's type null."""


class SchemaType(StrEnum):
    """The type of a schema, as Connect names it."""

    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    BOOLEAN = "boolean"
    STRING = "string"
    BYTES = "bytes"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"


class UnsupportedSchema(ValueError):
    """A schema is broken, or no table can hold it; the text gives the reason, in a sentence."""


@dataclass(frozen=True)
class Field:
    """A field of a structure.

    Args:
        name: Its name in the table.
        schema: Its schema.
        parsed: Its name in the parser's result, if that is another.
    """

    name: str
    schema: ConnectSchema
    parsed: str | None = None

    def of(self, raw: str) -> str:
        """Write the field of `raw`, SQL of the structure as the parser returns it."""
        return f"{raw}.{quoted(self.parsed or self.name)}"


@dataclass(frozen=True)
class LeftOut:
    """A part of a schema that no table can hold: its path, and the reason."""

    path: str
    why: str

    @property
    def text(self) -> str:
        """Describe the part and the reason for leaving it out, in a sentence."""
        return f'"{self.path}" is left out: {self.why}.'

    def inside(self, path: str) -> LeftOut:
        """Return this part as seen from the structure around `path`."""
        return LeftOut(f"{path}.{self.path}" if self.path else path, self.why)


@dataclass(frozen=True)
class ConnectSchema:
    """One schema: of a key, a value, or something inside it.

    Args:
        type: The plain type.
        optional: Whether a value may be null.
        name: The logical type; None if there is none.
        parameters: Parameters of the logical type, such as the scale of a decimal, and what Debezium adds about the column.
        fields: The fields of a structure.
        items: The schema of an array's items.
        keys: The schema of a map's keys.
        values: The schema of a map's values.
        left_out: The fields of a structure that its messages have and `fields` lacks, because no table can hold them
            (`storable.py`).
    """

    type: SchemaType
    optional: bool = False
    name: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    fields: tuple[Field, ...] = ()
    items: ConnectSchema | None = None
    keys: ConnectSchema | None = None
    values: ConnectSchema | None = None
    left_out: tuple[LeftOut, ...] = ()

    @property
    def is_declared(self) -> bool:
        """Return whether it is a decimal, date or timestamp that a statement declares: JSON has it as a text or a number."""
        return (self.name or "").startswith(DECLARED)

    def field_named(self, name: str) -> ConnectSchema | None:
        """Return the schema of a field, or None."""
        return next((f.schema for f in self.fields if f.name == name), None)

    def walk(self, name: str = "") -> Iterator[tuple[str, ConnectSchema]]:
        """Yield this schema and all inside it, each with the name of its field ('' for items, keys and values)."""
        yield name, self
        for child in (self.items, self.keys, self.values):
            if child is not None:
                yield from child.walk()
        for f in self.fields:
            yield from f.schema.walk(f.name)


def with_text_bytes(schema: ConnectSchema) -> ConnectSchema:
    """Return the schema of a column whose bytes are texts, because Debezium does not know its type, marked as such."""
    source_type = schema.parameters.get(_SOURCE_TYPE)
    if source_type is None or _BINARY_TYPE.fullmatch(_SIZE.sub("", source_type)):
        return schema
    if _is_plain_bytes(schema):
        return replace(schema, name=TEXT_BYTES)
    if schema.items is not None and _is_plain_bytes(schema.items):
        return replace(schema, items=replace(schema.items, name=TEXT_BYTES))
    return schema


def _is_plain_bytes(schema: ConnectSchema) -> bool:
    return schema.type is SchemaType.BYTES and schema.name is None


_JSON_NAMES = {"float": SchemaType.FLOAT32, "double": SchemaType.FLOAT64}
"""The names of Connect's JSON converter that differ (`JsonSchema.FLOAT_TYPE_NAME`, `DOUBLE_TYPE_NAME`)."""


def parsed_json(text: str) -> Any:
    """Parse the JSON text of a schema.

    Raises:
        UnsupportedSchema: It is not JSON, or nested too deeply.
    """
    try:
        return json.loads(text)
    except ValueError as e:
        raise UnsupportedSchema(f"The schema is not JSON: {e}.") from e
    except RecursionError:
        raise UnsupportedSchema(TOO_DEEP) from None


def from_connect_json(node: Any) -> ConnectSchema:
    """Read the schema that Connect's JSON converter writes before a payload, from its text or the parsed JSON.

    Raises:
        UnsupportedSchema: It is not such a schema.
    """
    try:
        return _read(parsed_json(node) if isinstance(node, str) else node, 0)
    except UnsupportedSchema:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as e:
        raise UnsupportedSchema(f"It is no schema that Connect's JSON converter writes ({e}).") from e


def _read(node: dict[str, Any], depth: int) -> ConnectSchema:
    if depth > DEEPEST:
        raise UnsupportedSchema(TOO_DEEP)
    kind = _JSON_NAMES.get(node["type"]) or SchemaType(node["type"])
    parameters = node.get("parameters") or {}
    schema = ConnectSchema(
        type=kind,
        optional=bool(node.get("optional")),
        name=None if node.get("name") is None else _text(node["name"]),
        parameters={str(k): str(v) for k, v in parameters.items()},
        fields=tuple(Field(_text(f["field"]), _read(f, depth + 1)) for f in node["fields"])
        if kind is SchemaType.STRUCT
        else (),
        items=_read(node["items"], depth + 1) if kind is SchemaType.ARRAY else None,
        keys=_read(node["keys"], depth + 1) if kind is SchemaType.MAP else None,
        values=_read(node["values"], depth + 1) if kind is SchemaType.MAP else None,
    )
    return with_text_bytes(schema)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no name")
    return value
