"""Bounds of a column's values, from the statistics that Iceberg keeps of each data file: readers skip files by them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.types import (
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    UUIDType,
)


@dataclass(frozen=True)
class ColumnBounds:
    """The bounds `[lower, upper]` of the values that are not null; both None if there are no such values.

    Values are as Spark returns them in Python, but dates are days and timestamps microseconds since 1970, as Iceberg stores them:
    Python has no years before 1 or after 9999.
    """

    lower: Any = None
    upper: Any = None

    def excludes(self, lowest: Any, highest: Any) -> bool:
        """Return whether the column has no value from `lowest` to `highest` (both inclusive)."""
        return self.lower is None or bool(highest < self.lower or lowest > self.upper)


EMPTY = ColumnBounds()
"""The bounds of an empty set of values."""


def around_all(bounds: Iterable[ColumnBounds | None]) -> ColumnBounds | None:
    """Return the narrowest bounds around all of `bounds`; unknown (None) if any is."""
    lower = upper = None
    for one in bounds:
        if one is None:
            return None
        if one.lower is not None:
            lower = one.lower if lower is None else min(lower, one.lower)
            upper = one.upper if upper is None else max(upper, one.upper)
    return ColumnBounds(lower, upper)


def file_bounds(file: DataFile, field: NestedField) -> ColumnBounds | None:
    """Return the bounds of `field` in `file`; None if the file has no statistics of it."""
    lower = (file.lower_bounds or {}).get(field.field_id)
    upper = (file.upper_bounds or {}).get(field.field_id)
    if lower is not None and upper is not None and isinstance(field.field_type, PrimitiveType):
        return ColumnBounds(_value(field.field_type, lower), _value(field.field_type, upper))
    nulls = (file.null_value_counts or {}).get(field.field_id)
    return EMPTY if nulls == file.record_count else None


def _value(type_: PrimitiveType, data: bytes) -> Any:
    value: Any = from_bytes(_NARROW.get((type(type_), len(data)), type_), data)
    return str(value if isinstance(value, UUID) else UUID(bytes=value)) if isinstance(type_, UUIDType) else value


_NARROW: dict[tuple[type[PrimitiveType], int], PrimitiveType] = {
    (LongType, 4): IntegerType(),  # written before the column was widened
    (DoubleType, 4): FloatType(),
}
