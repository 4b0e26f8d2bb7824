"""Bounds of columns, and how they stand in statements: with them Iceberg skips files by their statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyiceberg.types import DateType, DecimalType, IcebergType, IntegerType, LongType, StringType
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from lakehold.spark_sql import date_literal, literal

BOUNDED_TYPES = (IntegerType, LongType, StringType, DateType, DecimalType)
"""Key types whose smallest and largest value are worth a predicate: exact as SQL literals and kept by Iceberg per file."""


@dataclass(frozen=True)
class Bounds:
    """The smallest and largest value of a key column among the applied changes, both inclusive; dates as days since 1970."""

    type: IcebergType
    lowest: Any
    highest: Any


def range_literals(bounds: Bounds) -> str:
    """Write literals around `bounds`, see `rounded`."""
    return " AND ".join(key_literal(bounds.type, value) for value in rounded(bounds))


def rounded(bounds: Bounds) -> tuple[Any, Any]:
    """Return bounds around `bounds`: for whole numbers round ones, which widen the range by a quarter to a half.

    Spark compiles numbers into the code it generates. Round ones are the same in batch after batch, and so is the code:
    compiling it for each batch costs more than reading the extra rows.
    """
    lowest, highest = bounds.lowest, bounds.highest
    if isinstance(bounds.type, IntegerType | LongType):
        limit = 1 << (31 if isinstance(bounds.type, IntegerType) else 63)
        step = 1 << max(0, (highest - lowest).bit_length() - 3)
        lowest = max(lowest - lowest % step, -limit)
        highest = min(highest - highest % step + step - 1, limit - 1)
    return lowest, highest


def key_value(kind: IcebergType, value: object) -> SparkColumn:
    """Return the value of a bounded key column as a column of exactly its type; dates are days since 1970."""
    return F.expr(key_literal(kind, value)) if isinstance(kind, DateType) else F.lit(value)


def key_literal(kind: IcebergType, value: object) -> str:
    """Return the value of a bounded key column as SQL text; dates are days since 1970."""
    return date_literal(value) if isinstance(kind, DateType) and isinstance(value, int) else literal(value)
