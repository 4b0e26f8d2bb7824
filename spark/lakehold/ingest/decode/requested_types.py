"""Types for `from_json`: what to request of a text that several readers share, and how each reader takes its part.

A *reader* here is a table, or several with equal needs, that takes decoded records. `parsers.py` parses a text once for all of
them. If two readers want a value in different types, it is parsed for each from the text: parsing it as a VARIANT and converting
it takes longer. Structures with different field names are parsed together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lakehold.ingest.decode.connect_schema import DECLARED_DECIMAL, ConnectSchema, SchemaType
from lakehold.spark_sql import quoted, struct_of


@dataclass(frozen=True)
class Fields:
    """A structure: the names of its fields, and the requested type of each."""

    of: tuple[tuple[str, Requested], ...]


Requested = str | Fields
"""A type in SQL, or a structure."""

_TOKEN = "variant"
"""The type that keeps a number with all of its digits, and distinguishes it from a text."""

PLAIN_TYPES = {
    SchemaType.INT8: "int",
    SchemaType.INT16: "int",
    SchemaType.INT32: "int",
    SchemaType.INT64: "bigint",
    SchemaType.FLOAT32: "float",
    SchemaType.FLOAT64: "double",
    SchemaType.BOOLEAN: "boolean",
    SchemaType.STRING: "string",
    SchemaType.BYTES: "binary",
}
"""The requested type for a schema that has no others inside it."""


def requested(schema: ConnectSchema) -> Requested:
    """Return the type to request for a schema; Connect writes maps with keys that are no strings as pairs."""
    if schema.type is SchemaType.ARRAY and schema.items is not None:
        return f"array<{ddl(requested(schema.items))}>"
    if schema.type is SchemaType.MAP and schema.values is not None:
        return f"map<string,{ddl(requested(schema.values))}>" if has_text_keys(schema) else "array<array<string>>"
    if schema.type is SchemaType.STRUCT:
        return Fields(tuple((f.name, requested(f.schema)) for f in schema.fields))
    return _TOKEN if schema.is_declared else PLAIN_TYPES[schema.type]


def ddl(of: Requested) -> str:
    """Write a requested type as SQL."""
    if isinstance(of, str):
        return of
    return f"struct<{','.join(f'{quoted(name)}:{ddl(wanted)}' for name, wanted in of.of)}>"


def plain(raw: str, schema: ConnectSchema) -> str:
    """Write the value in the plain type of its schema, from what the parser returned.

    Declared decimals, dates and timestamps are requested as a VARIANT: the text that `from_json` returns for a number has been a
    double, and is the same for a number and for its digits in quotes. A decimal is the VARIANT's text without quotes; the
    other types keep them.
    """
    if schema.name == DECLARED_DECIMAL:
        return f"trim('\"' FROM to_json({raw}))"
    return f"to_json({raw})" if schema.is_declared else raw


def is_given(raw: str, schema: ConnectSchema) -> str:
    """Write the condition that the parser returned a value that is not null."""
    return f"({raw} IS NOT NULL AND NOT is_variant_null({raw}))" if schema.is_declared else f"{raw} IS NOT NULL"


def is_double(token: str) -> str:
    """Write the condition that a VARIANT is a double: the JSON number had an exponent or more than 38 digits."""
    return f"schema_of_variant({token}) = 'DOUBLE'"


def doubles(of: Requested, raw: str) -> Iterator[tuple[str, str]]:
    """Yield the name, and the condition `is_double`, of each field of a structure that is a VARIANT or an array of them."""
    for name, wanted in of.of if isinstance(of, Fields) else ():
        place = f"{raw}.{quoted(name)}"
        if wanted == _TOKEN:
            yield name, is_double(place)
        elif wanted == f"array<{_TOKEN}>":
            yield name, f"exists({place}, e -> {is_double('e')})"
        else:
            yield from doubles(wanted, place)


def has_text_keys(schema: ConnectSchema) -> bool:
    """Return whether Connect writes a map as an object."""
    return schema.keys is not None and schema.keys.type is SchemaType.STRING


def requested_by_both(one: Requested, other: Requested) -> Requested | None:
    """Return a requested type that serves two readers.

    None if they want one value in different types, or fields whose names Spark cannot distinguish: they differ in case alone.
    """
    if isinstance(one, str) or isinstance(other, str):
        return one if one == other else None
    found, spelled = dict(one.of), {name.lower(): name for name, _ in one.of}
    for name, wanted in other.of:
        both = requested_by_both(found.get(name, wanted), wanted)
        if both is None or spelled.setdefault(name.lower(), name) != name:
            return None
        found[name] = both
    return Fields(tuple(found.items()))


def as_requested(raw: str, by_all: Requested, own: Requested) -> str:
    """Write the part of a value that a reader requests, in SQL.

    Args:
        raw: SQL of the parsed value.
        by_all: The type requested for all readers, which includes `own`.
        own: The type that the reader requests.
    """
    if by_all == own or isinstance(by_all, str) or isinstance(own, str):
        return raw
    types = dict(by_all.of)
    value = struct_of({name: as_requested(f"{raw}.{quoted(name)}", types[name], wanted) for name, wanted in own.of})
    return f"CASE WHEN {raw} IS NOT NULL THEN {value} END"
