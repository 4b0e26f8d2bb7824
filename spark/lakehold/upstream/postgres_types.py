"""The table of PostgreSQL's types: what Debezium 3.7 sends of each with lakehold's configuration. Values only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from lakehold.ingest.decode.connect_schema import ConnectSchema, SchemaType
from lakehold.upstream.found_columns import FoundColumn, FoundType, TypeKind
from lakehold.upstream.sent_types import (
    BOOLEAN,
    BYTES,
    CIRCLE,
    DATE,
    EXTENDED_GEOMETRY,
    FLOAT32,
    FLOAT64,
    INSTANT,
    INT16,
    INT32,
    INT64,
    JSON,
    LINE,
    MICRO_TIME,
    MICRO_TIMESTAMP,
    MILLI_TIMESTAMP,
    POINT,
    TEXT,
    UUID,
    VARIABLE_DECIMAL,
    SentType,
    array,
    bits,
    decimal,
    left_out,
    plain,
    struct,
)

_MILLIS = 3
_MONEY_DIGITS: Final = 2
"""Of `money.fraction.digits`."""
_NO_NULLS = "an array that holds a null comes as null"
_NOT_A_NUMBER = "NaN and Infinity come as null, and where the column is NOT NULL the connector fails"
_NOT_A_NUMBER_OF_DIGITS = _NOT_A_NUMBER.replace("NaN and Infinity come", "NaN comes")
_SCALES: Final = 2048
"""Debezium takes the eleven bits of a scale for a positive number."""


_MONEY_SIGNS = "under an lc_monetary whose decimal sign is a comma the connector fails, or values come as others"
_JULIAN = "in a snapshot dates before year 1 come as dates after it, and the ten days before 1582-10-15 ten days later"


def _numeric(of: FoundType) -> SentType:
    if not of.arguments:
        return SentType(VARIABLE_DECIMAL.schema, _NOT_A_NUMBER, is_told=True)
    precision, scale = of.arguments
    if scale < 0:
        return decimal(precision, scale + _SCALES, _NOT_A_NUMBER_OF_DIGITS)
    return decimal(precision, scale, _NOT_A_NUMBER_OF_DIGITS)


def _time(of: FoundType) -> SentType:
    return plain(SchemaType.INT32, "io.debezium.time.Time") if _is_coarse(of) else MICRO_TIME


def _timestamp(of: FoundType) -> SentType:
    return MILLI_TIMESTAMP if _is_coarse(of) else MICRO_TIMESTAMP


def _is_coarse(of: FoundType) -> bool:
    return bool(of.arguments) and of.arguments[0] <= _MILLIS


def _bits(of: FoundType) -> SentType:
    return bits(of.arguments[0] if of.arguments else None)


def _varying_bits(of: FoundType) -> SentType:
    sent = _bits(of)
    return (
        sent if sent is BOOLEAN else SentType(sent.schema, "leading zeros are lost, and so is the length", is_told=True)
    )


_SPARSE = struct(
    "io.debezium.data.SparseDoubleVector",
    dimensions=ConnectSchema(SchemaType.INT16),
    vector=ConnectSchema(
        SchemaType.MAP, keys=ConnectSchema(SchemaType.INT16), values=ConnectSchema(SchemaType.FLOAT64)
    ),
)

TYPES: Final[Mapping[str, SentType | Callable[[FoundType], SentType]]] = {
    "int2": INT16,
    "int4": INT32,
    "int8": INT64,
    "oid": INT64,
    "float4": FLOAT32,
    "float8": FLOAT64,
    "numeric": _numeric,
    "money": decimal(None, _MONEY_DIGITS, _MONEY_SIGNS),
    "bool": BOOLEAN,
    **dict.fromkeys(("text", "varchar", "bpchar", "char", "name", "citext", "isbn"), TEXT),
    "bytea": BYTES,
    "bit": _bits,
    "varbit": _varying_bits,
    "date": SentType(DATE.schema, _JULIAN),
    "time": _time,
    "timetz": plain(SchemaType.STRING, "io.debezium.time.ZonedTime", "the time is shifted to UTC"),
    "timestamp": _timestamp,
    "timestamptz": INSTANT,
    "interval": plain(SchemaType.STRING, "io.debezium.time.Interval"),
    "uuid": UUID,
    **dict.fromkeys(("json", "jsonb", "hstore"), JSON),
    "xml": plain(SchemaType.STRING, "io.debezium.data.Xml"),
    **dict.fromkeys(("inet", "cidr", "macaddr", "macaddr8"), TEXT),
    **dict.fromkeys(("int4range", "int8range", "numrange", "daterange", "tsrange", "tstzrange"), TEXT),
    "tsvector": plain(SchemaType.STRING, "io.debezium.data.Tsvector"),
    "ltree": plain(SchemaType.STRING, "io.debezium.data.Ltree"),
    "point": POINT,
    **dict.fromkeys(("box", "lseg", "path", "polygon", "geometry", "geography"), EXTENDED_GEOMETRY),
    "circle": CIRCLE,
    "line": LINE,
    "vector": array(ConnectSchema(SchemaType.FLOAT64)),
    "halfvec": array(ConnectSchema(SchemaType.FLOAT32)),
    "sparsevec": _SPARSE,
    **dict.fromkeys(("oidvector", "int2vector"), left_out("Debezium sends it empty")),
    "refcursor": left_out("Debezium fails to read it"),
}
"""By the name in the catalogue. A type that is not here comes as PostgreSQL writes it, as text."""

UNSENT_ARRAYS: Final = frozenset({"money", "name", "interval", "varbit", "xml", "point", "refcursor"})
"""Types whose arrays Debezium sends nothing of."""
LOST_ARRAYS: Final = frozenset(
    {"bit", "box", "lseg", "path", "polygon", "circle", "line", "vector", "halfvec", "sparsevec"}
)
"""Types whose arrays Debezium sends as null."""
ARRAYS_WITH_NULLS: Final = frozenset(
    {
        *("int2", "int4", "int8", "oid", "char", "varchar", "text", "bpchar", "inet", "cidr", "macaddr", "macaddr8"),
        *("int4range", "int8range", "numrange", "daterange", "tsrange", "tstzrange", "numeric", "float4", "float8"),
        *("bool", "date", "uuid", "json", "jsonb", "time", "timetz", "timestamp", "timestamptz", "bytea"),
        *("geometry", "geography", "citext", "ltree", "hstore"),
    }
)
"""Types whose arrays may hold nulls."""
ENUM: Final = plain(SchemaType.STRING, "io.debezium.data.Enum")
UNKNOWN: Final = TEXT
"""As `include.unknown.datatypes` has it: the bytes of the text that PostgreSQL writes."""


def sent(column: FoundColumn) -> SentType:
    """Return how a column is sent."""
    if column.is_generated:
        return left_out("PostgreSQL publishes no generated columns")
    return _array(column) if column.is_array else _value(column.type)


def _array(column: FoundColumn) -> SentType:
    name = column.type.name if column.type.kind is TypeKind.PLAIN else ""
    if name in UNSENT_ARRAYS:
        return left_out("Debezium sends no arrays of this type")
    if name in LOST_ARRAYS:
        return left_out("Debezium sends arrays of this type as null")
    if column.dimensions > 1:
        return left_out("Debezium sends the rows of such an array as nulls")
    items = _value(column.type)
    if items.schema is None:
        return items
    return array(items.schema, "" if column.type.name in ARRAYS_WITH_NULLS else _NO_NULLS)


def _value(of: FoundType) -> SentType:
    if of.kind is TypeKind.ENUM:
        return ENUM
    rule = TYPES.get(of.name) if of.kind in (TypeKind.PLAIN, TypeKind.RANGE) else None
    if rule is None:
        return UNKNOWN
    return rule if isinstance(rule, SentType) else rule(of)
