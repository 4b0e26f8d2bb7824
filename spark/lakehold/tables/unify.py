"""Unifies two types: of versions of a schema in a batch, and of a batch and its table.

The first type, `old`, is that of the table, or of the older version: what it becomes, Iceberg must be able to turn it into.
Types that Iceberg can promote are promoted (int to long, float to double, decimal to more digits of the same scale). A type
that is narrower than the table's becomes the table's, if that has an equal for every value; structures are unified field by
field. Anything else is a `TypeConflict`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from lakehold.errors import UpstreamError
from lakehold.spark_sql import quoted, struct_of
from lakehold.tables.column_types import ColumnType, spark_text

_WHOLE_DIGITS: dict[type[IcebergType], int] = {IntegerType: 10, LongType: 19}

_HOLDS_TOO: frozenset[tuple[type[IcebergType], type[IcebergType]]] = frozenset(
    {(LongType, IntegerType), (DoubleType, FloatType), (DoubleType, IntegerType), (UUIDType, StringType)}
)
"""(wider, narrower) pairs: a column of the wider type stays and takes values of the narrower one.

Spark has no type for UUIDs: it reads a column of UUIDs as texts, and writes texts into it.
"""

_PROMOTED: frozenset[tuple[type[IcebergType], type[IcebergType]]] = frozenset(
    {(IntegerType, LongType), (FloatType, DoubleType)}
)
"""(old, new) pairs that Iceberg promotes in place."""


class TypeConflict(UpstreamError):
    """A column's new type cannot follow its old one: no type that Iceberg can turn the old one into holds every value of both."""

    default_code = "incompatible-type"

    def __init__(self, column: str, old: IcebergType, new: IcebergType) -> None:
        super().__init__(
            f'column "{column}" cannot change from {spark_text(old)} to {spark_text(new)}',
            detail=f"Iceberg cannot turn {spark_text(old)} into a type that holds every value of both.",
            hint="Messages of both types are in the topic: drop the table, delete its topic, have the connector snapshot the "
            "table again, and create the table again. Of a captured database dropping and creating it is enough.",
        )
        self.column = column
        self.old = old
        self.new = new


def unify(old: IcebergType, new: IcebergType, column: str = "") -> IcebergType:  # noqa: PLR0911 - one for each rule
    """Return the type that holds every value of both and that Iceberg can turn `old` into.

    Raises:
        TypeConflict: There is no such type. Its message names `column`.
    """
    match old, new:
        case DecimalType(), DecimalType():
            return _unify_decimals(old, new, column)
        case ListType(), ListType():
            return ListType(1, unify(old.element_type, new.element_type, f"{column}.element"), False)
        case MapType(), MapType() if same(old.key_type, new.key_type):
            return MapType(1, old.key_type, 2, unify(old.value_type, new.value_type, f"{column}.value"), False)
        case StructType(), StructType():
            return _unify_structs(old, new, column)
        case DecimalType(), IntegerType() | LongType() if old.precision - old.scale >= _WHOLE_DIGITS[type(new)]:
            return old
        case _ if same(old, new) or (type(old), type(new)) in _HOLDS_TOO:
            return old
        case _ if (type(old), type(new)) in _PROMOTED:
            return new
        case _:
            raise TypeConflict(column, old, new)


def _unify_decimals(old: DecimalType, new: DecimalType, column: str) -> IcebergType:
    if new.scale <= old.scale and new.precision - new.scale <= old.precision - old.scale:
        return old
    if new.scale == old.scale:
        return new
    raise TypeConflict(column, old, new)


def _unify_structs(old: StructType, new: StructType, column: str) -> StructType:
    """Return the fields of `old` in their order, unified with those of `new` of the same name, then the fields only `new` has.

    All are optional, as a message of either version may lack one. The ids are placeholders: a table gives its own.
    """
    incoming = {f.name: f.field_type for f in new.fields}
    kept = {
        f.name: unify(f.field_type, incoming[f.name], f"{column}.{f.name}") if f.name in incoming else f.field_type
        for f in old.fields
    }
    ids = count(1)
    return StructType(
        *(NestedField(next(ids), n, t, required=False) for n, t in (kept | _added(incoming, kept)).items())
    )


def _added(incoming: dict[str, IcebergType], kept: dict[str, IcebergType]) -> dict[str, IcebergType]:
    return {n: t for n, t in incoming.items() if n not in kept}


def unify_versions(
    versions: Sequence[Sequence[ColumnType]], stored: Sequence[ColumnType] = ()
) -> tuple[ColumnType, ...]:
    """Return the columns of several versions of a schema, oldest first: in the newest one's order, then dropped ones.

    A column is required if every version has and requires it.

    Args:
        versions: The columns of each version.
        stored: Columns of the table, whose types come before those of the versions.

    Raises:
        TypeConflict: Two versions contradict each other, or the table.
    """
    types = {c.name: c.type for c in stored}
    for columns in versions:
        for c in columns:
            types[c.name] = unify(types[c.name], c.type, c.name) if c.name in types else c.type
    newest_first = [c.name for columns in reversed(versions) for c in columns]
    required = [{c.name for c in columns if c.required} for columns in versions]
    return tuple(ColumnType(n, types[n], all(n in r for r in required)) for n in dict.fromkeys(newest_first))


def same(a: IcebergType, b: IcebergType) -> bool:
    """Return whether two types are equal, whatever ids their fields have and whether fields are required."""
    return type(a) is type(b) and spark_text(a) == spark_text(b)


def cast(expression: str, source: IcebergType, target: IcebergType) -> str:
    """Write SQL that converts a value of `source` exactly to `target`, which a `unify` with `source` returned.

    Missing fields become null.
    """
    if spark_text(source) == spark_text(target):
        return expression
    match source, target:
        case StructType(), StructType():
            present = {f.name: f.field_type for f in source.fields}
            fields = {
                f.name: cast(f"{expression}.{quoted(f.name)}", present[f.name], f.field_type)
                if f.name in present
                else f"CAST(NULL AS {spark_text(f.field_type)})"
                for f in target.fields
            }
            return f"CASE WHEN {expression} IS NOT NULL THEN {struct_of(fields)} END"
        case ListType(), ListType():
            return f"transform({expression}, e -> {cast('e', source.element_type, target.element_type)})"
        case MapType(), MapType():
            return f"transform_values({expression}, (k, v) -> {cast('v', source.value_type, target.value_type)})"
        case _:
            return f"CAST({expression} AS {spark_text(target)})"


_NUMBERS = (IntegerType, LongType, FloatType, DoubleType, DecimalType)
_WITH_TEXTS = (*_NUMBERS, StringType, BooleanType, DateType, TimestampType, TimestamptzType)


def equal_value(value: str, source: IcebergType, target: IcebergType) -> str | None:
    """Write SQL that converts `value` to an equal value of the type `target`, or to NULL if `target` has no equal value.

    Return None if no value of `source` has an equal one in `target`. A key's column may be in the message key and in the row,
    in different types.
    """
    if spark_text(source) == spark_text(target):
        return value
    both = (source, target)
    is_text = any(isinstance(each, StringType) for each in both)
    if not all(isinstance(each, _WITH_TEXTS if is_text else _NUMBERS) for each in both):
        return None
    found = f"try_cast({value} AS {spark_text(target)})"
    # There and back again: `5.5` is no whole number, `05` is another text than `5`.
    return f"CASE WHEN try_cast({found} AS {spark_text(source)}) = {value} THEN {found} END"
