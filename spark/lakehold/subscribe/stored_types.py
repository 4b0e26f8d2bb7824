"""Storage types in data files that Arrow and Spark read alike.

Files that no Iceberg writer wrote, added to a table with `add_files`, may store other types, such as milliseconds or unsigned
numbers. Spark reads these in its own way or refuses them. In a diff one reader may read the row that went (-1) and the other
the row that came (+1), which cancel only if both read equal values. So lakehold leaves such files to Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
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
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

_IsKind = Callable[[pa.DataType], bool]

_INTEGERS: tuple[_IsKind, ...] = (pa.types.is_int8, pa.types.is_int16, pa.types.is_int32)

_STORED: Mapping[type[IcebergType], tuple[_IsKind, ...]] = {
    BooleanType: (pa.types.is_boolean,),
    IntegerType: _INTEGERS,
    LongType: (*_INTEGERS, pa.types.is_int64),
    FloatType: (pa.types.is_float32,),
    DoubleType: (pa.types.is_float32, pa.types.is_float64),
    DateType: (pa.types.is_date,),
    TimeType: (lambda stored: stored == pa.time64("us"),),
    StringType: (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    UUIDType: (pa.types.is_fixed_size_binary, lambda stored: isinstance(stored, pa.UuidType)),
    BinaryType: (
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_binary_view,
        pa.types.is_fixed_size_binary,
    ),
    FixedType: (pa.types.is_fixed_size_binary,),
}

_UNITS: Mapping[type[IcebergType], str] = {
    TimestampType: "us",
    TimestamptzType: "us",
    TimestampNanoType: "ns",
    TimestamptzNanoType: "ns",
}


def reads_alike(stored: pa.DataType, source: IcebergType, target: IcebergType) -> bool:
    """Return whether Arrow reads the same values from a stored column as Spark does.

    Args:
        stored: Arrow's type of the column.
        source: The Iceberg type of the stored column, whose field ids say which field is which; its structs match those of
            `stored` by position. A leaf is compared with `target` alone.
        target: The table's type of the column.
    """
    match source, target:
        case StructType(), StructType():
            wanted = {field.field_id: field.field_type for field in target.fields}
            pairs = zip(stored, source.fields, strict=True)
            return all(reads_alike(s.type, f.field_type, wanted[f.field_id]) for s, f in pairs if f.field_id in wanted)
        case ListType(), ListType():
            return reads_alike(stored.value_type, source.element_type, target.element_type)
        case MapType(), MapType():
            keys = reads_alike(stored.key_type, source.key_type, target.key_type)
            return keys and reads_alike(stored.item_type, source.value_type, target.value_type)
        case _:
            return _is_stored_as(stored.value_type if pa.types.is_dictionary(stored) else stored, target)


def _is_stored_as(stored: pa.DataType, target: IcebergType) -> bool:
    if type(target) in _UNITS:
        # A date becomes a timestamp by schema evolution (Iceberg spec, format 3). It cannot become one with a zone. Whether a
        # timestamp has a zone is part of the table's type, so only the unit can differ here.
        return bool(pa.types.is_date(stored) or (pa.types.is_timestamp(stored) and stored.unit == _UNITS[type(target)]))
    if isinstance(target, DecimalType):
        # Spark reads the digits of another scale as if they had the table's scale.
        fits = pa.types.is_decimal128(stored) and stored.scale == target.scale
        return bool(fits and stored.precision <= target.precision)
    return any(is_kind(stored) for is_kind in _STORED.get(type(target), ()))
