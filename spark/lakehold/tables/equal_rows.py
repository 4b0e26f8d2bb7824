"""Finds and removes rows of a table by all of their values, for tables whose rows need not have a key.

Rows are equal if their columns hold the same values: NULL is the same as NULL and NaN as NaN. A mirrored table has exactly the
values of its source, so there -0.0 and 0.0 differ (`exactly`). Diffs take them for the same value, so the tables that follow
diffs do, too (`as_in_diffs`). Iceberg's `_row_id` tells equal rows apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)
from pyspark.sql import DataFrame, SparkSession

from lakehold.session import snapshot_properties, temp_view
from lakehold.spark_sql import quoted, struct_of
from lakehold.tables.bounds import BOUNDED_TYPES, Bounds, range_literals, rounded
from lakehold.tables.column_types import ColumnType

_GONE, _FOUND = "lakehold_gone", "lakehold_found"
_NTH = "_lh_nth"
_LONGEST_TEXT = 100
"""Bounds that are longer texts are left out of statements."""

Comparable = Callable[[str, IcebergType], str]
"""Writes SQL that Spark can compare, and that is equal for two values of a type if they are the same."""


def bounds_of(columns: Sequence[ColumnType], where: str = "true") -> list[str]:
    """Write the aggregates from which `ranges` are made, over the rows that fulfil `where`."""
    found = []
    for number, column in enumerate(columns):
        value = _in_order(quoted(column.name), column.type)
        if value is not None:
            found.append(f"min({value}) FILTER (WHERE {where}) AS lowest{number}")
            found.append(f"max({value}) FILTER (WHERE {where}) AS highest{number}")
            found.append(f"count_if({where} AND {value} IS NULL) AS nulls{number}")
    return found


def bounds_in(rows: pa.Table, columns: Sequence[ColumnType]) -> dict[str, Any]:
    """Compute what `bounds_of` computes, over rows that are in this process: this needs no job of Spark's.

    Args:
        rows: The rows, in types that Spark turns into those of `columns`. Columns in unforeseen types get no bounds.
        columns: Some of their columns.
    """
    found: dict[str, Any] = {}
    for number, column in enumerate(columns):
        values = rows.column(column.name)
        in_order = _in_order_here(values, column.type)
        if in_order is not None:
            bounds = pc.min_max(in_order).as_py()
            found |= {f"lowest{number}": bounds["min"], f"highest{number}": bounds["max"]}
            found[f"nulls{number}"] = values.null_count
    return found


def ranges(columns: Sequence[ColumnType], totals: Mapping[str, Any], table: str = "") -> Iterator[str]:
    """Yield conditions that all rows counted in `totals` fulfil. With them Iceberg skips files by their statistics.

    Args:
        columns: The columns of the rows.
        totals: The values of `bounds_of` or `bounds_in` these columns.
        table: The table's alias and a dot, if the statement reads others, too.
    """
    for number, column in enumerate(columns):
        name = table + quoted(column.name)
        if f"nulls{number}" not in totals:
            continue
        lowest, highest, nulls = (totals[f"{what}{number}"] for what in ("lowest", "highest", "nulls"))
        if lowest is None:
            yield f"{name} IS NULL"
        elif (literals := _literals(column.type, lowest, highest)) is not None:
            between = f"{name} BETWEEN {literals}"
            yield f"({between} OR {name} IS NULL)" if nulls else between


def find(  # noqa: PLR0913 - a table, and the rows to find
    name: str,
    gone: DataFrame,
    columns: Sequence[ColumnType],
    conditions: Sequence[str],
    identity: Sequence[str],
    copies: str,
    comparable: Comparable,
) -> pa.Table:
    """Find rows of a table: of the rows that equal one of `gone`, as many as it has copies, or fewer if the table has fewer.

    Args:
        name: The table's full name in SQL, quoted.
        gone: The rows to find, each once.
        columns: The columns that make rows equal.
        conditions: Conditions that all rows to find fulfil.
        identity: The columns of `gone` that tell its rows apart.
        copies: The column of `gone` with the number of copies to find.
        comparable: Says which values are the same.

    Returns:
        The column `row_id`, and those of `identity`.
    """
    names = ", ".join(quoted(column.name) for column in columns)
    sides = [[comparable(f"{side}.{quoted(c.name)}", c.type) for side in ("t", "s")] for c in columns]
    same = [" <=> ".join(both) for both in sides]
    of = ", ".join(f"s.{column}" for column in identity)
    statement = f"""
        SELECT row_id, {", ".join(identity)} FROM (
            SELECT t._row_id AS row_id, {of}, s.{copies},
                row_number() OVER (PARTITION BY {of} ORDER BY t._row_id) AS {_NTH}
            FROM (
                SELECT {names}, _row_id FROM {name}
                WHERE {" AND ".join(conditions) or "true"}
            ) t JOIN {_GONE} s ON {row_hash("t", columns)} = {row_hash("s", columns)} AND least(true, {", ".join(same)})
        ) WHERE {_NTH} <= {copies}"""
    with temp_view(gone, _GONE):
        return gone.sparkSession.sql(statement).toArrow()


def remove(
    spark: SparkSession,
    name: str,
    found: pa.Table,
    properties: Mapping[str, str],
    reading: Callable[[], AbstractContextManager[None]],
) -> None:
    """Remove the rows of the table `name` that were found, in one commit with `properties` in its summary."""
    rows = spark.createDataFrame(found.select(["row_id"]))
    with reading(), temp_view(rows, _FOUND), snapshot_properties(spark, properties):
        spark.sql(f"MERGE INTO {name} t USING {_FOUND} s ON t._row_id = s.row_id WHEN MATCHED THEN DELETE")


def exactly(value: str, of: IcebergType) -> str:
    """Write SQL that is equal for two values only if a table stores the same for them, with the sign of a zero."""
    return _comparable(value, of, lambda number: f"CAST({number} AS string)")


def as_in_diffs(value: str, of: IcebergType) -> str:
    """Write SQL that is equal for two values if diffs take them for the same: by Spark's equality, which maps lack."""
    return _comparable(value, of, lambda number: number)


def _comparable(value: str, of: IcebergType, number: Callable[[str], str]) -> str:
    match of:
        case FloatType() | DoubleType():
            return number(value)
        case ListType():
            element = _comparable("e", of.element_type, number)
            return value if element == "e" else f"transform({value}, e -> {element})"
        case MapType():
            entry = struct_of({"key": "e.key", "value": _comparable("e.value", of.value_type, number)})
            return f"array_sort(transform(map_entries({value}), e -> {entry}))"
        case StructType():
            fields = {f.name: _comparable(f"{value}.{quoted(f.name)}", f.field_type, number) for f in of.fields}
            if all(sql == f"{value}.{quoted(name)}" for name, sql in fields.items()):
                return value
            return f"CASE WHEN {value} IS NOT NULL THEN {struct_of(fields)} END"
        case _:
            return value


def _in_order(column: str, of: IcebergType) -> str | None:
    """Write a column's value for its bounds, dates and times as numbers, texts as bytes; None: files have no such bounds."""
    match of:
        case DateType():
            return f"unix_date({column})"
        case TimestampType() | TimestamptzType():
            return f"unix_micros(CAST({column} AS timestamp))"
        case StringType():
            return f"CAST({column} AS binary)"
        case _:
            return column if isinstance(of, BOUNDED_TYPES) else None


def _in_order_here(values: pa.ChunkedArray, of: IcebergType) -> pa.ChunkedArray | None:
    """Convert a column of this process as `_in_order` does; None: it has no such bounds."""
    kind = values.type
    match of:
        case DateType() if pa.types.is_date32(kind):
            into = pa.int32()
        case TimestampType() | TimestamptzType() if pa.types.is_timestamp(kind) and kind.unit == "us":
            into = pa.int64()
        case StringType() if pa.types.is_string(kind):
            into = pa.binary()
        case IntegerType() | LongType() if pa.types.is_signed_integer(kind):
            into = pa.int64()
        case DecimalType() if pa.types.is_decimal(kind) or pa.types.is_signed_integer(kind):
            into = pa.decimal128(of.precision, of.scale)
        case _ if pa.types.is_null(kind) and _in_order("", of) is not None:
            into = pa.int64()
        case _:
            return None
    return values.cast(into)


def _literals(of: IcebergType, lowest: Any, highest: Any) -> str | None:
    """Write the bounds; None for texts that are too long, or that are not UTF-8: other writers may store any bytes as text."""
    match of:
        case StringType():
            try:
                lowest, highest = lowest.decode(), highest.decode()
            except UnicodeDecodeError:
                return None
            if max(len(lowest), len(highest)) > _LONGEST_TEXT:
                return None
            return range_literals(Bounds(of, lowest, highest))
        case TimestampType() | TimestamptzType():
            kind = "timestamp_ntz" if isinstance(of, TimestampType) else "timestamp"
            numbers = rounded(Bounds(LongType(), lowest, highest))
            return " AND ".join(f"CAST(timestamp_micros({number}L) AS {kind})" for number in numbers)
        case _:
            return range_literals(Bounds(of, lowest, highest))


def row_hash(table: str, columns: Sequence[ColumnType]) -> str:
    """Write a hash of the row, so that Spark joins by one number; maps are left out, because Spark does not hash them."""
    hashed = [f"{table}.{quoted(c.name)}" for c in columns if "map<" not in c.spark_type]
    return f"xxhash64({', '.join(['0', *hashed])})"
