"""PostgreSQL's types, and the Kafka Connect type that Debezium 3.7 sends for each with lakehold's configuration. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, LiteralString

from lakehold.ingest.decode.connect_schema import ConnectSchema, SchemaType
from lakehold.upstream.found.columns import FoundColumn, FoundType, TypeKind
from lakehold.upstream.found.values import Loss
from lakehold.upstream.types.sent_types import (
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

_NAMED = (TypeKind.PLAIN, TypeKind.RANGE)
"""Kinds of types that lakehold recognizes by name."""
_HOLD_OTHERS = (TypeKind.COMPOSITE, TypeKind.RANGE, TypeKind.MULTIRANGE)
"""Kinds of types whose values may hold a `timestamptz`."""
_MILLIS = 3
_MONEY_DIGITS: Final = 2
"""The value of `money.fraction.digits`."""
_SCALES: Final = 2048
"""Debezium reads the eleven bits of a negative scale as a positive number."""

_MONEY_SIGNS = "under an lc_monetary whose decimal sign is a comma the connector fails, or sends other values"
_IS_NO_NUMBER = "{0} - {0} <> 0"
_NOT_A_NUMBER = Loss("NaN and Infinity come as null", _IS_NO_NUMBER, is_null=True)
_NOT_A_NUMBER_OF_DIGITS = Loss("NaN comes as null", _IS_NO_NUMBER, is_null=True)
_WITH_ZONE = SentType(TEXT.schema, "a timestamptz in it is written in the time zone of the connector's worker")
_JULIAN = "dates before year 1 come as dates after it, and the ten days before 1582-10-15 ten days later"
_IS_JULIAN = "{0} < DATE '0001-01-01' AND isfinite({0}) OR {0} BETWEEN DATE '1582-10-05' AND DATE '1582-10-14'"


def _numeric(of: FoundType) -> SentType:
    if not of.arguments:
        return SentType(VARIABLE_DECIMAL.schema, losses=(_NOT_A_NUMBER,))
    precision, scale = of.arguments
    return decimal(precision, scale + _SCALES if scale < 0 else scale, losses=(_NOT_A_NUMBER_OF_DIGITS,))


def _time(of: FoundType) -> SentType:
    return plain(SchemaType.INT32, "io.debezium.time.Time") if _is_coarse(of) else MICRO_TIME


def _timestamp(of: FoundType) -> SentType:
    return MILLI_TIMESTAMP if _is_coarse(of) else MICRO_TIMESTAMP


def _is_coarse(of: FoundType) -> bool:
    return bool(of.arguments) and of.arguments[0] <= _MILLIS


def _bits(of: FoundType) -> SentType:
    sent = bits(of.arguments[0] if of.arguments else None)
    return sent if sent is BOOLEAN else SentType(sent.schema, "bytes of leading zeros are left out")


def _varying_bits(of: FoundType) -> SentType:
    sent = _bits(of)
    return (
        sent
        if sent is BOOLEAN
        else SentType(sent.schema, "leading zeros are lost, and so is the length", is_reported=True)
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
    "date": SentType(DATE.schema, losses=(Loss(f"in a snapshot {_JULIAN}", _IS_JULIAN),)),
    "time": _time,
    "timetz": plain(SchemaType.STRING, "io.debezium.time.ZonedTime", "the time is shifted to UTC"),
    "timestamp": _timestamp,
    "timestamptz": INSTANT,
    "interval": replace(
        plain(SchemaType.STRING, "io.debezium.time.Interval"),
        losses=(Loss("infinity and -infinity come as zero", "NOT isfinite({0})"),),
    ),
    "uuid": UUID,
    **dict.fromkeys(("json", "jsonb", "hstore"), JSON),
    "xml": plain(SchemaType.STRING, "io.debezium.data.Xml"),
    **dict.fromkeys(("inet", "cidr", "macaddr", "macaddr8"), TEXT),
    **dict.fromkeys(("int4range", "int8range", "numrange", "daterange", "tsrange"), TEXT),
    "tstzrange": _WITH_ZONE,
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
"""Types by their name in the catalogue. A value of any other type arrives as PostgreSQL's text."""

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
        *("geometry", "geography", "citext", "hstore"),
    }
)
"""Types whose arrays may hold nulls."""
_WITHOUT_PLACEHOLDER: Final = frozenset(
    {"bit", "varbit", "path", "polygon", "geometry", "geography", "vector", "halfvec", "sparsevec"}
)
_ARRAYS_WITH_PLACEHOLDER: Final = frozenset(
    {"text", "varchar", "bpchar", "json", "jsonb", "bytea", "int4", "int8", "date", "uuid"}
)
_BITS_IN_THE_ROW: Final = 128
"""PostgreSQL stores no value outside of the row that is not longer than the pointer to it."""
_NULLS: Final = Loss(
    "an array that holds a null comes as null",
    # Needs no equality of the type, and no single dimension, as array_position does.
    "array_to_string({0}, '') <> array_to_string({0}, '', '!')",
    is_null=True,
)
_HAS_DIMENSIONS: Final = "array_ndims({0}) > 1"
_DIMENSIONS: Final = Loss("an array of several dimensions comes as nulls, or its row is an error", _HAS_DIMENSIONS)
_NULL_DIMENSIONS: Final = Loss("an array of several dimensions comes as null", _HAS_DIMENSIONS, is_null=True)


def _of_elements(what: str, where: LiteralString, *, is_null: bool = False) -> Loss:
    return Loss(what, f"EXISTS (SELECT FROM unnest({{0}}) AS element WHERE {where.format('element')})", is_null)


_ELEMENTS: Final[Mapping[str, Loss]] = {
    "numeric": _of_elements("an array that holds NaN or Infinity comes as null", _IS_NO_NUMBER, is_null=True),
    "date": _of_elements(_JULIAN, _IS_JULIAN),
    "timestamp": _of_elements(
        "times before 1582-10-15 come some days earlier or later", "{0} < TIMESTAMP '1582-10-15' AND isfinite({0})"
    ),
    "timestamptz": _of_elements(
        "times before year 1 come as times after it, the ten days before 1582-10-15 ten days later, and -infinity makes its row "
        "an error",
        "{0} < '0001-01-01 00:00+00' OR {0} >= '1582-10-05 00:00+00' AND {0} < '1582-10-15 00:00+00'",
    ),
    "time": _of_elements(
        "microseconds are cut, and 24:00 comes as 00:00",
        "extract(microseconds FROM {0})::bigint % 1000 <> 0 OR {0} = '24:00'",
    ),
}
"""The values that arrays of a type lose, beside nulls and dimensions, in a snapshot and after it."""
ENUM: Final = plain(SchemaType.STRING, "io.debezium.data.Enum")
UNKNOWN: Final = TEXT
"""The type of all other values: by `include.unknown.datatypes` the connector sends PostgreSQL's text as bytes, and lakehold
reads them as text."""


_UNCOMPARED: Final = frozenset({"time", "timetz", "timestamp", "timestamptz", "bit", "money"})


def is_ordered(column: FoundColumn) -> bool:
    """Return whether Debezium can read a single table in chunks by a key with the column: at an array the connector fails."""
    return not column.is_array


def is_compared(column: FoundColumn) -> bool:
    """Return whether PostgreSQL compares the column with what Debezium gives it to read a second chunk: text, or a number."""
    is_domain_of_enum = bool(column.domain) and column.type.kind is TypeKind.ENUM
    return column.type.name not in _UNCOMPARED and not is_domain_of_enum


def sent(column: FoundColumn) -> SentType:
    """Return the type in which Debezium sends a column; a type without a schema: it does not send the column."""
    if column.is_generated:
        return left_out("PostgreSQL publishes no generated columns")
    return _array(column) if column.is_array else _value(column.type)


def lacks_placeholder(column: FoundColumn) -> bool:
    """Return whether Debezium sends null for a large value of the column that an update left as it is.

    It does so for `numeric` as well, which PostgreSQL keeps in the row while that fits on a page.
    """
    if column.storage == "p" or sent(column).schema is None:
        return False
    name = column.type.name if column.type.kind in _NAMED else ""
    if column.is_array:
        return name not in _ARRAYS_WITH_PLACEHOLDER
    is_short = name in ("bit", "varbit") and 0 < next(iter(column.type.arguments), 0) <= _BITS_IN_THE_ROW
    return name in _WITHOUT_PLACEHOLDER and not is_short


def _array(column: FoundColumn) -> SentType:
    name = column.type.name if column.type.kind in _NAMED else ""
    if name in UNSENT_ARRAYS:
        return left_out("Debezium sends no arrays of this type")
    if name in LOST_ARRAYS:
        return left_out("Debezium sends arrays of this type as null")
    if column.dimensions > 1:
        return left_out("Debezium sends the rows of such an array as nulls")
    items = _value(column.type)
    if items.schema is None:
        return items
    is_known = name in TYPES.keys() - {"timetz", "isbn"} or items is ENUM
    losses = [_DIMENSIONS if is_known else _NULL_DIMENSIONS]
    losses += [] if name in ARRAYS_WITH_NULLS else [_NULLS]
    losses += [_ELEMENTS[name]] if name in _ELEMENTS else []
    return array(items.schema, tuple(losses), items.lost if items is _WITH_ZONE else "")


def _value(of: FoundType) -> SentType:
    if of.kind is TypeKind.ENUM:
        return ENUM
    rule = TYPES.get(of.name) if of.kind in _NAMED else None
    if rule is None:
        return _WITH_ZONE if of.kind in _HOLD_OTHERS else UNKNOWN
    return rule if isinstance(rule, SentType) else rule(of)
