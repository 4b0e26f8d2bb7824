"""What `from_json` is asked for, what several readers ask of one text, and how each takes its own from that.

A value that two of them want in different types is not shared, but for whole numbers: to read it as a VARIANT and convert that
takes longer than to parse the text again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from lakehold.ingest.decode.connect_schema import DECLARED_DECIMAL, ConnectSchema, SchemaType
from lakehold.spark_sql import quoted, struct_of


@dataclass(frozen=True)
class Plain:
    """A value of one of Spark's types, as SQL text."""

    type: str

    @property
    def ddl(self) -> str:
        """As Spark SQL text."""
        return self.type


@dataclass(frozen=True)
class Items:
    """An array."""

    of: Asked

    @property
    def ddl(self) -> str:
        """As Spark SQL text."""
        return f"array<{self.of.ddl}>"


@dataclass(frozen=True)
class Entries:
    """A map with texts for keys."""

    of: Asked

    @property
    def ddl(self) -> str:
        """As Spark SQL text."""
        return f"map<string,{self.of.ddl}>"


@dataclass(frozen=True)
class Fields:
    """A structure: the names and what is asked of each."""

    of: tuple[tuple[str, Asked], ...]

    @property
    def ddl(self) -> str:
        """As Spark SQL text."""
        return _struct_type((quoted(name), asked) for name, asked in self.of)


Asked = Plain | Items | Entries | Fields

_TOKEN = Plain("variant")
"""A number with all of its digits, or a text, which can be distinguished."""

_INT, _BIGINT = Plain("int"), Plain("bigint")

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
"""What is asked for a schema that has no others inside it."""


class Taken(NamedTuple):
    """SQL of a value, and of the condition that its type can hold it; None: it always can."""

    value: str
    fits: str | None = None


def asked(schema: ConnectSchema) -> Asked:
    """What is asked for a schema; Connect writes maps whose keys are no strings as pairs."""
    if schema.type is SchemaType.ARRAY and schema.items is not None:
        return Items(asked(schema.items))
    if schema.type is SchemaType.MAP and schema.values is not None:
        return Entries(asked(schema.values)) if has_text_keys(schema) else Items(Items(Plain("string")))
    if schema.type is SchemaType.STRUCT:
        return Fields(tuple((f.name, asked(f.schema)) for f in schema.fields))
    return _TOKEN if schema.is_declared else Plain(PLAIN_TYPES[schema.type])


def plain(raw: str, schema: ConnectSchema) -> str:
    """SQL of a value in the plain type of its schema, from what the parser gave.

    Declared decimals, dates and timestamps are asked for as a VARIANT: the text that `from_json` gives of a number has been a
    double, and does not tell a number from the same digits in quotes. A decimal is the text in them, the others have them.
    """
    if schema.name == DECLARED_DECIMAL:
        return f"trim('\"' FROM to_json({raw}))"
    return f"to_json({raw})" if schema.is_declared else raw


def is_given(raw: str, schema: ConnectSchema) -> str:
    """SQL of the condition that the parser gave a value, and no null."""
    return f"({raw} IS NOT NULL AND NOT is_variant_null({raw}))" if schema.is_declared else f"{raw} IS NOT NULL"


def is_double(token: str) -> str:
    """SQL of the condition that a VARIANT is a double: JSON's number had an exponent or more than 38 digits."""
    return f"schema_of_variant({token}) = 'DOUBLE'"


def doubles(of: Asked, raw: str) -> Iterator[tuple[str, str]]:
    """Give, for each field of a structure that is a VARIANT or an array of them, its name and the condition `is_double`."""
    if not isinstance(of, Fields):
        return
    places = _places(raw, of)
    for name, wanted in of.of:
        if wanted == _TOKEN:
            yield name, is_double(places[name])
        elif wanted == Items(_TOKEN):
            yield name, f"exists({places[name]}, e -> {is_double('e')})"
        else:
            yield from doubles(wanted, places[name])


def has_text_keys(schema: ConnectSchema) -> bool:
    """Whether Connect writes a map as an object."""
    return schema.keys is not None and schema.keys.type is SchemaType.STRING


def asked_by_both(one: Asked, other: Asked) -> Asked | None:
    """What has all that two readers ask; None where they want one value in types of which neither has all of the other's."""
    if one == other:
        return one
    match one, other:
        case Fields(), Fields():
            return _fields_of_both(one, other)
        case (Items() | Entries(), Items() | Entries()) if type(one) is type(other):
            both = asked_by_both(one.of, other.of)
            return None if both is None else replace(one, of=both)
    return _BIGINT if {one, other} == {_INT, _BIGINT} else None


def _fields_of_both(one: Fields, other: Fields) -> Fields | None:
    found = dict(one.of)
    for name, wanted in other.of:
        both = asked_by_both(found[name], wanted) if name in found else wanted
        if both is None:
            return None
        found[name] = both
    return Fields(tuple(found.items()))


def taken(raw: str, by_all: Asked, own: Asked) -> Taken:
    """What a reader takes.

    Args:
        raw: SQL of what was read.
        by_all: What was asked for all, `own` among it.
        own: What the reader asks.
    """
    if by_all == own:
        return Taken(raw)
    match by_all, own:
        case Fields(), Fields():
            return _fields_taken(raw, by_all, own)
        case Items(), Items():
            item = taken("e", by_all.of, own.of)
            return Taken(f"transform({raw}, e -> {item.value})", _for_all(raw, item.fits))
        case Entries(), Entries():
            entry = taken("e", by_all.of, own.of)
            return Taken(
                f"transform_values({raw}, (k, e) -> {entry.value})", _for_all(f"map_values({raw})", entry.fits)
            )
    value = f"try_cast({raw} AS INT)"
    return Taken(value, f"({raw} IS NULL OR {value} IS NOT NULL)")


def _fields_taken(raw: str, by_all: Fields, own: Fields) -> Taken:
    places, types = _places(raw, by_all), dict(by_all.of)
    found = {name: taken(places[name], types[name], wanted) for name, wanted in own.of}
    conditions = [each.fits for each in found.values() if each.fits is not None]
    value = struct_of({name: each.value for name, each in found.items()})
    return Taken(f"CASE WHEN {raw} IS NOT NULL THEN {value} END", " AND ".join(conditions) or None)


def _places(raw: str, of: Fields) -> Mapping[str, str]:
    """SQL of each field; where names differ in case alone, which Spark does not tell apart, by its place."""
    names = [name for name, _ in of.of]
    if len({name.lower() for name in names}) == len(names):
        return {name: f"{raw}.{quoted(name)}" for name in names}
    numbered = _struct_type((f"f{number}", wanted) for number, (_, wanted) in enumerate(of.of))
    return {name: f"CAST({raw} AS {numbered}).f{number}" for number, name in enumerate(names)}


def _struct_type(fields: Iterable[tuple[str, Asked]]) -> str:
    return f"struct<{','.join(f'{name}:{wanted.ddl}' for name, wanted in fields)}>"


def _for_all(items: str, condition: str | None) -> str | None:
    return condition and f"coalesce(forall({items}, e -> {condition}), true)"
