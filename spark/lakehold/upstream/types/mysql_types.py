"""The types of MySQL and MariaDB, and the Kafka Connect type that Debezium sends for each with lakehold's configuration. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from lakehold.ingest.decode.connect_schema import ConnectSchema, SchemaType
from lakehold.upstream.found.columns import FoundColumn, FoundType
from lakehold.upstream.types.sent_types import (
    BYTES,
    DATE,
    FLOAT32,
    FLOAT64,
    GEOMETRY,
    INSTANT,
    INT16,
    INT32,
    INT64,
    JSON,
    MICRO_TIME,
    MICRO_TIMESTAMP,
    MILLI_TIMESTAMP,
    POINT,
    TEXT,
    UUID,
    SentType,
    array,
    bits,
    decimal,
    plain,
    stops,
)

_MILLIS = 3
_NO_DAY = "a date that has a zero for its month or day comes as null, or as 1970-01-01 where the column is NOT NULL"
_SIX_DIGITS = "in a snapshot digits after the sixth are rounded, as in the server's own texts"
_REWRITTEN = (
    "a change writes a document without the spaces that a snapshot has, and its numbers with exponents, times and binary "
    "values in another form"
)
_SHIFTED = "a UUID whose last bytes are zero comes with them in front, unless it comes in a snapshot"
_NOT_READ = "Debezium does not read the definition of such a column"


def _bigint(of: FoundType) -> SentType:
    return decimal(20, 0) if of.is_unsigned else INT64


def _decimal(of: FoundType) -> SentType:
    precision, scale = of.arguments
    return decimal(precision, scale)


def _float(of: FoundType) -> SentType:
    # The server's text of a value with declared decimals has them all.
    if len(of.arguments) > 1:
        return FLOAT64
    return SentType(FLOAT32.schema, _SIX_DIGITS, is_reported=True, differs_in_snapshot=True)


def _datetime(of: FoundType) -> SentType:
    sent = MICRO_TIMESTAMP if of.arguments and of.arguments[0] > _MILLIS else MILLI_TIMESTAMP
    return SentType(sent.schema, _NO_DAY)


TYPES: Final[Mapping[str, SentType | Callable[[FoundType], SentType]]] = {
    "tinyint": INT16,
    "smallint": lambda of: INT32 if of.is_unsigned else INT16,
    "mediumint": INT32,
    "int": lambda of: INT64 if of.is_unsigned else INT32,
    "bigint": _bigint,
    "decimal": _decimal,
    "float": _float,
    "double": FLOAT64,
    "bit": lambda of: bits(of.arguments[0] if of.arguments else 1),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), TEXT),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), BYTES),
    "json": SentType(JSON.schema, _REWRITTEN, differs_in_snapshot=True),
    "enum": plain(SchemaType.STRING, "io.debezium.data.Enum"),
    "set": plain(SchemaType.STRING, "io.debezium.data.EnumSet"),
    "date": SentType(DATE.schema, _NO_DAY),
    "time": MICRO_TIME,
    "datetime": _datetime,
    "timestamp": SentType(INSTANT.schema, "0000-00-00 comes as null or as 1970-01-01"),
    "year": plain(SchemaType.INT32, "io.debezium.time.Year", "0000 comes as 1900 or 2000"),
    "point": POINT,
    **dict.fromkeys(
        (
            *("geometry", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
            *("geometrycollection", "geomcollection"),
        ),
        GEOMETRY,
    ),
    "vector": array(ConnectSchema(SchemaType.FLOAT32)),
    "uuid": SentType(UUID.schema, _SHIFTED, is_reported=True, differs_in_snapshot=True),
    **dict.fromkeys(("inet4", "inet6"), stops(_NOT_READ)),
}
"""Types by their `DATA_TYPE` in the information schema."""


_UNORDERED = frozenset({"enum", "set", "float"})


def is_ordered(column: FoundColumn) -> bool:
    """Return whether the server sorts a column's values as it compares them with those that Debezium reads.

    Debezium reads a single table in chunks: the rows after the last key that it has, in the order of the key. The server sorts
    members of ENUM and SET by their number and compares them as text. It compares BIT with bytes as text. FLOAT has digits that
    a value lacks once it is read: the last row is greater than itself, and the snapshot never ends.
    """
    return column.type.name not in _UNORDERED and not (column.type.name == "bit" and column.type.arguments[:1] > (1,))


def sent(column: FoundColumn) -> SentType:
    """Return the type in which Debezium sends a column."""
    rule = TYPES.get(column.type.name)
    if rule is None:
        return stops(_NOT_READ)
    return rule if isinstance(rule, SentType) else rule(column.type)
