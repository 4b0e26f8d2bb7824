"""Fetches the values that PostgreSQL shows in rows older than a column, from its catalogue.

`ADD COLUMN … DEFAULT` rewrites no row if the default is a constant, or an expression that PostgreSQL evaluates once, such as
`now()`. PostgreSQL keeps the value beside the column (`pg_attribute.attmissingval`), whatever the column's default becomes
later. Any other default rewrites the table, and so do VACUUM FULL and changes of types. Then only the rows show their values.
When a column is added, its ingest asks for the value and gives it to the lake's older rows
(`ingest/envelope/column_history.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from math import isfinite
from typing import Any

import psycopg
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from lakehold.ingest.envelope.upstream_columns import InitialValues
from lakehold.upstream.found.columns import FoundColumn, TypeKind
from lakehold.upstream.types.postgres_types import sent

_SESSION = "SET LOCAL timezone = 'UTC'; SET LOCAL datestyle = ISO; SET LOCAL bytea_output = hex; SET LOCAL extra_float_digits = 1"
_MISSING = """
    WITH relation AS (
        SELECT c.oid, c.relkind FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname || '.' || c.relname = %s
    ), stored AS (
        SELECT oid FROM relation WHERE relkind <> 'p'
        UNION SELECT p.relid FROM relation, pg_partition_tree(relation.oid) p WHERE p.isleaf AND p.level > 0
    )
    SELECT a.attname, a.atthasdef OR a.attidentity <> '' OR a.attnotnull OR t.typnotnull OR t.typdefault IS NOT NULL,
           array_agg(DISTINCT to_jsonb(s.attmissingval::text::text[])) FILTER (WHERE s.attrelid IS NOT NULL)
    FROM relation JOIN pg_attribute a ON a.attrelid = relation.oid AND a.attnum > 0 AND NOT a.attisdropped
    JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_attribute s ON s.attrelid IN (SELECT oid FROM stored) AND s.attname = a.attname AND NOT s.attisdropped
    GROUP BY a.attnum, a.attname, a.atthasdef, a.attidentity, a.attnotnull, t.typnotnull, t.typdefault
"""
"""For each column whether older rows may have a value, and the distinct missing values of table and partitions, with null."""

_GREGORIAN = date(1582, 10, 15)
"""Debezium sends some earlier days shifted (docs/reference/types.md)."""
_INFINITE = {"infinity": "9999-12-31 23:59:59.999999", "-infinity": "0001-01-01 00:00:00"}
"""The dates and times that stand for infinity in the lake."""
_TEXTS = frozenset(
    {
        *("text", "varchar", "bpchar", "char", "name", "citext", "uuid", "json", "jsonb", "xml", "ltree", "tsvector"),
        *("inet", "cidr", "macaddr", "macaddr8", "time", "numeric"),
        *("int4range", "int8range", "numrange", "daterange", "tsrange"),
    }
)
"""Types that a table of the lake holds as the text that PostgreSQL writes, whatever the time zone of its session."""


class _Unknown(Exception):
    """The lake's value is not known, though PostgreSQL's is."""


def initial_values(
    connection: psycopg.Connection[tuple[Any, ...]], table: str, columns: Sequence[FoundColumn]
) -> InitialValues:
    """Fetch the values of columns of a table, `schema.name`, in rows older than the column, as Python values for the lake."""
    with connection.transaction():
        for setting in _SESSION.split(";"):
            connection.execute(setting.encode())
        found = {name: tuple(rest) for name, *rest in connection.execute(_MISSING, [table])}
    known: dict[str, object] = {}
    unknown = set()
    for column in columns:
        may_have_value, missing = found.get(column.name, (False, None))
        try:
            value = _value(column, may_have_value, missing or [None])
        except (_Unknown, ValueError, ArithmeticError):
            unknown.add(column.name)
        else:
            if value is not None:
                known[column.name] = value
    return InitialValues(known, frozenset(unknown))


def _value(column: FoundColumn, may_have_value: bool, missing: Sequence[Sequence[str] | None]) -> object:
    """Return the one value that all older rows have, given the distinct missing values of the table's partitions.

    Raises:
        _Unknown: Rows have different values, or one that only they show.
    """
    if len(missing) != 1:
        raise _Unknown
    (only,) = missing
    if only is None and not may_have_value:
        return None
    convert = _CONVERTED.get(type(sent(column).column))
    if only is None or len(only) != 1 or column.is_array or convert is None:
        raise _Unknown
    return convert(only[0], column)


def _boolean(text: str, _: FoundColumn) -> bool:
    return text in {"t", "1"}


def _float(text: str, _: FoundColumn) -> float:
    value = float(text)
    if not isfinite(value):
        # JSON, in which Iceberg keeps a default, has no such number.
        raise _Unknown
    return value


def _decimal(text: str, column: FoundColumn) -> Decimal:
    if column.type.name != "numeric":
        raise _Unknown
    return _finite(text)


def _finite(text: str) -> Decimal:
    value = Decimal(text)
    if not value.is_finite():
        raise _Unknown
    return value


def _text(text: str, column: FoundColumn) -> str:
    if column.type.kind is not TypeKind.ENUM and column.type.name not in _TEXTS:
        raise _Unknown
    if column.type.name != "numeric":
        return text
    _finite(text)
    has_scale = bool(column.type.arguments)
    # Debezium strips the trailing zeros of a numeric without a scale.
    return text if has_scale or "." not in text else text.rstrip("0").removesuffix(".")


def _bytes(text: str, column: FoundColumn) -> bytes:
    if column.type.name != "bytea":
        raise _Unknown
    return bytes.fromhex(text.removeprefix("\\x"))


def _day(text: str, column: FoundColumn) -> date:
    return _moment(text, column).date()


def _moment(text: str, column: FoundColumn) -> datetime:
    value = datetime.fromisoformat(_INFINITE.get(text, text))
    if text not in _INFINITE and value.date() < _GREGORIAN:
        raise _Unknown
    return value.replace(tzinfo=UTC) if column.type.name == "timestamptz" else value


_CONVERTED: Mapping[type[IcebergType] | type[None], Callable[[str, FoundColumn], object]] = {
    BooleanType: _boolean,
    IntegerType: lambda text, _: int(text),
    LongType: lambda text, _: int(text),
    FloatType: _float,
    DoubleType: _float,
    DecimalType: _decimal,
    StringType: _text,
    BinaryType: _bytes,
    DateType: _day,
    TimestampType: _moment,
    TimestamptzType: _moment,
}
"""Conversions from PostgreSQL's text, by the type of the lake's column."""
