"""Random columns of every Iceberg type as Python values, with Spark's order of them in plain Python."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from lakehold.subscribe.project import arrow_type

_DATES = [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29)]
_TIMES = [
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC),
    dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC),
    dt.datetime(9999, 12, 31, tzinfo=dt.UTC),
]
_FLOATS = [0.0, -0.0, 1.5, -1.5, 2.0**-126, -(2.0**-126), math.inf, -math.inf, math.nan]

# Few values of each type: those at which orders and equalities differ.
FLAT_VALUES: list[tuple[IcebergType, list[Any]]] = [
    (BooleanType(), [False, True]),
    (IntegerType(), [0, 1, -1, 2**31 - 1, -(2**31)]),
    (LongType(), [0, 1, -1, 2**63 - 1, -(2**63)]),
    (FloatType(), _FLOATS),
    (DoubleType(), [*_FLOATS, 5e-324, -5e-324, 1.7976931348623157e308]),
    (DecimalType(5, 2), [Decimal("0.00"), Decimal("-1.10"), Decimal("999.99")]),
    (DecimalType(38, 0), [Decimal(10**37), Decimal(-(10**37)), Decimal(1)]),
    (DateType(), _DATES),
    (TimeType(), [dt.time(0), dt.time(23, 59, 59, 999_999)]),
    (TimestampType(), [time.replace(tzinfo=None) for time in _TIMES]),
    (TimestamptzType(), _TIMES),
    (TimestampNanoType(), [-1, 0, 1, 10**18 + 1]),
    (TimestamptzNanoType(), [-1, 0, 1, 10**18 + 1]),
    (StringType(), ["", "a", "ab", "B", "\u00e9", "\uffff", "\U0001f600"]),
    (UUIDType(), ["00000000-0000-0000-0000-000000000000", "f79c3e09-677c-4bbd-a479-3f349cb785e7"]),
    (BinaryType(), [b"", b"\x00", b"\x7f", b"\x80", b"\xff\x00"]),
    (FixedType(2), [b"\x00\x01", b"\xff\x00"]),
    (UnknownType(), [None]),
]
_VALUES = dict(FLAT_VALUES)

flat_types = st.sampled_from([iceberg for iceberg, _ in FLAT_VALUES])


def struct_of(*of: IcebergType) -> StructType:
    """Return a struct of fields `f0`, `f1` and so on."""
    return StructType(*(NestedField(i, f"f{i}", kind, required=False) for i, kind in enumerate(of)))


def types() -> st.SearchStrategy[IcebergType]:
    """Draw flat types and types that nest them; field ids have no meaning."""

    def nest(inner: st.SearchStrategy[IcebergType]) -> st.SearchStrategy[IcebergType]:
        keys = flat_types.filter(lambda key: not isinstance(key, UnknownType))
        return (
            inner.map(lambda of: ListType(1, of, False))
            | st.lists(inner, min_size=1, max_size=3).map(lambda of: struct_of(*of))
            | st.builds(lambda key, of: MapType(1, key, 2, of, False), keys, inner)
        )

    return st.recursive(flat_types, nest, max_leaves=4)


def values(of: IcebergType, *, nulls: bool = True) -> st.SearchStrategy[Any]:
    """Draw values of a column of a type: a struct is a dict, a map a list of pairs."""
    not_null: st.SearchStrategy[Any]
    if isinstance(of, StructType):
        not_null = st.fixed_dictionaries({field.name: values(field.field_type) for field in of.fields})
    elif isinstance(of, ListType):
        not_null = st.lists(values(of.element_type), max_size=3)
    elif isinstance(of, MapType):
        pair = st.tuples(values(of.key_type, nulls=False), values(of.value_type))
        not_null = st.lists(pair, max_size=3, unique_by=lambda pair: order(of.key_type, pair[0]))
    else:
        not_null = st.sampled_from(_VALUES[of])
    return st.none() | not_null if nulls else not_null


def order(of: IcebergType, value: Any) -> tuple[Any, ...]:
    """Return a tuple that compares as Spark orders values of the type, nulls first; a map is its sorted entries."""
    if value is None:
        return (0,)
    if isinstance(of, StructType):
        return (1, *(order(field.field_type, value[field.name]) for field in of.fields))
    if isinstance(of, ListType):
        return (1, *(order(of.element_type, element) for element in value))
    if isinstance(of, MapType):
        return (1, *sorted((order(of.key_type, k), order(of.value_type, v)) for k, v in value))
    if isinstance(of, FloatType | DoubleType):
        return (1, math.isnan(value), 0.0 if math.isnan(value) else value)
    return (1, value.encode() if isinstance(value, str) else value)


def row_order(of: Sequence[IcebergType]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Return a function of rows whose results compare as Spark orders the rows of these columns."""
    return lambda row: tuple(order(iceberg, value) for iceberg, value in zip(of, row, strict=True))


def table(columns: Sequence[tuple[str, pa.DataType]], rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Convert rows to an Arrow table; names may repeat."""
    arrays = [pa.array([row[i] for row in rows], kind) for i, (_, kind) in enumerate(columns)]
    return pa.Table.from_arrays(arrays, schema=pa.schema([pa.field(name, kind) for name, kind in columns]))


def diff_table(of: Sequence[IcebergType], rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Convert rows of (timestamp, diff, columns) to a table of diffs; all columns have the same name."""
    return table(
        [("mz_timestamp", pa.int64()), ("mz_diff", pa.int64()), *(("c", arrow_type(kind)) for kind in of)], rows
    )


def in_chunks(rows: pa.Table, cuts: Iterable[int]) -> pa.Table:
    """Split a table into several chunks, each a slice that begins somewhere inside an array."""
    edges = [0, *sorted(min(cut, rows.num_rows) for cut in cuts), rows.num_rows]
    return pa.concat_tables([rows.slice(begin, end - begin) for begin, end in itertools.pairwise(edges)])


def exactly(rows: pa.Table) -> tuple[list[str], str]:
    """Return a value that distinguishes tables down to the sign of a zero, with NaN equal to NaN."""
    return rows.column_names, repr([(column.type, column.to_pylist()) for column in rows.columns])
