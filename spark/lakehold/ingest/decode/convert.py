"""Converts the results of `from_avro` and `from_json` to a table's values: SQL expressions that follow a schema.

`structures.py` builds columns with them. `raw` is the expression of a value as the parser returns it, `converted` of the same
value as the table stores it. All functions follow a schema into its items, values and fields.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum

from lakehold.ingest.decode import decimals
from lakehold.ingest.decode.connect_schema import (
    DECLARED_DECIMAL,
    ConnectSchema,
    Field,
    SchemaType,
    UnsupportedSchema,
)
from lakehold.ingest.decode.logical import decimal_parameters, logical_type
from lakehold.ingest.decode.requested_types import PLAIN_TYPES, has_text_keys, is_double, is_given, plain
from lakehold.spark_sql import quoted, struct_of

_LOST_IN_PAIR = "c.key IS NULL OR (get(r, 1) IS NOT NULL AND c.value IS NULL)"


class Encoding(StrEnum):
    """The parser from which a raw value comes."""

    AVRO = "avro"
    JSON = "json"


def converted(raw: str, schema: ConnectSchema, encoding: Encoding) -> str:
    """Write a value as the table stores it; `raw` itself if nothing is to be done. Null and unreadable values become null."""
    if (rule := logical_type(schema)) is not None:
        parsed = decimal_parameters(schema) if encoding is Encoding.AVRO else None
        return rule.sql(plain(raw, schema)) if parsed is None else decimals.fitted(raw, *parsed)
    if schema.type is SchemaType.ARRAY and schema.items is not None:
        item = converted("e", schema.items, encoding)
        return raw if item == "e" else f"transform({raw}, e -> {item})"
    if schema.type is SchemaType.MAP and schema.values is not None:
        if not has_text_keys(schema):
            return _pairs(raw, schema)
        value = converted("v", schema.values, encoding)
        return raw if value == "v" else f"transform_values({raw}, (k, v) -> {value})"
    if schema.type is SchemaType.STRUCT:
        fields = {f.name: converted(f.of(raw), f.schema, encoding) for f in schema.fields}
        places = {f.name: f"{raw}.{quoted(f.name)}" for f in schema.fields}
        is_whole = fields == places and not schema.left_out
        return raw if is_whole else f"CASE WHEN {raw} IS NOT NULL THEN {struct_of(fields)} END"
    return raw


def undecodable(raw: str, value: str, schema: ConnectSchema, encoding: Encoding) -> str | None:
    """Write the condition that a part of a value got lost (null in `value`, not in `raw`) or is no text; None: it cannot be.

    Args:
        raw: The value as the parser returns it; `from_avro` returns the bytes of a text as they are, which may not be UTF-8.
        value: The value that was `converted`.
        schema: Its schema.
        encoding: Its parser.
    """
    no_text = _no_text(raw, schema) if encoding is Encoding.AVRO else None
    return _any(iter((no_text, _got_lost(raw, value, schema, encoding))))


def _got_lost(raw: str, value: str, schema: ConnectSchema, encoding: Encoding) -> str | None:
    if (rule := logical_type(schema)) is not None:
        harmless = not rule.fallible or converted(raw, schema, encoding) == raw
        return None if harmless else f"({is_given(raw, schema)} AND {_lost(raw, value, schema)})"
    if schema.type is SchemaType.ARRAY and schema.items is not None:
        # Whether texts in an array are texts is checked for the whole array.
        of_item = _got_lost if schema.items.type is SchemaType.STRING else undecodable
        inner = of_item("r", "c", schema.items, encoding)
        return inner and f"exists(zip_with({raw}, {value}, (r, c) -> {inner}), b -> b)"
    if schema.type is SchemaType.MAP and schema.values is not None:
        if not has_text_keys(schema):
            return f"exists(zip_with({raw}, {value}, (r, c) -> {_LOST_IN_PAIR}), b -> b)"
        inner = undecodable(f"{raw}[k]", f"{value}[k]", schema.values, encoding)
        keys = f"NOT is_valid_utf8({_joined(f'map_keys({raw})')})" if encoding is Encoding.AVRO else None
        return _any(iter((keys, inner and f"exists(map_keys({raw}), k -> {inner})")))
    if schema.type is SchemaType.STRUCT:
        places = ((f.of(raw), f"{value}.{quoted(f.name)}", f.schema) for f in distinguishable(schema.fields))
        return _any(undecodable(r, v, s, encoding) for r, v, s in places)
    return None


def distinguishable(fields: Sequence[Field]) -> list[Field]:
    """Return the fields that Spark finds by name, which it does whatever the case; others stop their table anyway."""
    names = Counter(f.name.lower() for f in fields)
    return [f for f in fields if names[f.name.lower()] == 1]


def _no_text(raw: str, schema: ConnectSchema) -> str | None:
    """Write the condition that a text, or one directly in an array, has other bytes than UTF-8; None for other types."""
    if schema.type is SchemaType.STRING:
        return f"NOT is_valid_utf8({raw})"
    is_array_of_texts = schema.items is not None and schema.items.type is SchemaType.STRING
    return f"NOT is_valid_utf8({_joined(raw)})" if is_array_of_texts else None


def _joined(texts: str) -> str:
    """Write one text of several, which is UTF-8 if each is; for a higher-order function Spark would compile nothing."""
    return f"array_join({texts}, ',')"


def missing(raw: str, schema: ConnectSchema) -> str | None:
    """Write the condition that a parsed value is null, or has a null inside, where none may be; None: nulls may be anywhere."""
    inside = _missing_inside(raw, schema)
    if not schema.optional:
        return f"({raw} IS NULL OR {inside})" if inside else f"({raw} IS NULL)"
    return inside


def _missing_inside(raw: str, schema: ConnectSchema) -> str | None:
    if schema.type is SchemaType.ARRAY and schema.items is not None:
        inner = missing("e", schema.items)
        return inner and f"coalesce(exists({raw}, e -> {inner}), false)"
    if schema.type is SchemaType.MAP and schema.values is not None and has_text_keys(schema):
        inner = missing("e", schema.values)
        return inner and f"coalesce(exists(map_values({raw}), e -> {inner}), false)"
    if schema.type is SchemaType.STRUCT:
        inner = _any(missing(f.of(raw), f.schema) for f in schema.fields)
        return inner and f"({raw} IS NOT NULL AND {inner})"
    return None


def _pairs(raw: str, schema: ConnectSchema) -> str:
    keys, values = schema.keys, schema.values
    if keys is None or values is None:
        raise UnsupportedSchema("A map must have keys and values.")
    pair = {"key": _single("get(e, 0)", keys), "value": _single("get(e, 1)", values)}
    return f"transform({raw}, e -> {struct_of(pair)})"


def _single(text: str, schema: ConnectSchema) -> str:
    """Write the value from a pair of a map; the parser returns the pair's parts as texts."""
    of_bytes = schema.type is SchemaType.BYTES
    raw = f"try_to_binary({text}, 'base64')" if of_bytes else f"try_cast({text} AS {PLAIN_TYPES[schema.type]})"
    return converted(raw, schema, Encoding.JSON)


def _lost(raw: str, value: str, schema: ConnectSchema) -> str:
    """Write the condition that a value which is not null differs from the table's.

    A decimal that was a double may have lost digits.
    """
    return f"({value} IS NULL OR {is_double(raw)})" if schema.name == DECLARED_DECIMAL else f"{value} IS NULL"


def _any(conditions: Iterator[str | None]) -> str | None:
    found = [c for c in conditions if c]
    return f"({' OR '.join(found)})" if found else None
