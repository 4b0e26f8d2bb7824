"""Converts a file's rows to the table's current schema. Columns are matched by field id, whatever their names are."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
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

from lakehold.errors import DefinitionError

_FLAT: dict[type[IcebergType], pa.DataType] = {
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    DateType: pa.date32(),
    TimeType: pa.time64("us"),
    TimestampType: pa.timestamp("us"),
    TimestamptzType: pa.timestamp("us", "UTC"),
    TimestampNanoType: pa.timestamp("ns"),
    TimestamptzNanoType: pa.timestamp("ns", "UTC"),
    StringType: pa.string(),
    UUIDType: pa.string(),  # Spark reads it as text
    BinaryType: pa.binary(),
    FixedType: pa.binary(),
    UnknownType: pa.null(),
}


def arrow_type(iceberg: IcebergType) -> pa.DataType:
    """Return the Arrow type that Spark uses for `iceberg`; everything inside is nullable except map keys.

    Raises:
        DefinitionError: Spark has no such type.
    """
    if isinstance(iceberg, StructType):
        return pa.struct(_arrow_fields(iceberg))
    if isinstance(iceberg, ListType):
        return pa.list_(pa.field("element", arrow_type(iceberg.element_type)))
    if isinstance(iceberg, MapType):
        return pa.map_(arrow_type(iceberg.key_type), arrow_type(iceberg.value_type))
    if isinstance(iceberg, DecimalType):
        return pa.decimal128(iceberg.precision, iceberg.scale)
    if (flat := _FLAT.get(type(iceberg))) is not None:
        return flat
    raise DefinitionError(
        f"columns of type {iceberg} cannot be read",
        code="unsupported-type",
        detail="Spark has no type that holds such values.",
        hint="Read a table without that column.",
    )


def arrow_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema of a table's rows, in the order of its columns.

    Raises:
        DefinitionError: Some column has a type that cannot be read.
    """
    for field in schema.fields:
        if not is_readable(field.field_type):
            raise unsupported_type(field.name, field.field_type)
    return pa.schema(_arrow_fields(schema.as_struct()))


def readable_columns(schema: Schema) -> Schema:
    """Return the schema without the columns that cannot be read, because Spark has no type for them; its id stays."""
    readable = [field for field in schema.fields if is_readable(field.field_type)]
    return schema if len(readable) == len(schema.fields) else Schema(*readable, schema_id=schema.schema_id)


def unsupported_type(column: str, of: object) -> DefinitionError:
    """Build the error for a column whose type cannot be read."""
    return DefinitionError(
        f'column "{column}" cannot be read',
        code="unsupported-type",
        detail=f"SUBSCRIBE does not support values of type {of}.",
        hint="Leave the column out or CAST it: SUBSCRIBE (SELECT …).",
    )


def is_readable(of: IcebergType) -> bool:
    """Return whether `arrow_type` supports `of`."""
    try:
        arrow_type(of)
    except DefinitionError:
        return False
    return True


def _arrow_fields(struct: StructType) -> list[pa.Field]:
    return [pa.field(field.name, arrow_type(field.field_type)) for field in struct.fields]


def project(rows: pa.Table, file_schema: Schema, target: Schema, constants: Mapping[int, Any]) -> pa.Table:
    """Convert a file's rows to rows of the table (Iceberg spec, "Column Projection").

    Args:
        rows: Rows as Arrow reads them from the file; its columns, and the children of its structs, are those of `file_schema` by
            position.
        file_schema: The file's columns, with the table's field ids.
        target: The table's schema.
        constants: Values of identity partitions by field id, for columns that the file omits; in Iceberg's own
            representation (days, microseconds) or as Python values.

    Returns:
        Columns of `arrow_schema(target)`. A field that the file lacks gets its constant, else its initial default, else null.
    """
    source, wanted, schema = file_schema.as_struct(), target.as_struct(), arrow_schema(target)
    batches = [
        pa.RecordBatch.from_arrays(_fields(batch.columns, batch.num_rows, source, wanted, constants), schema=schema)
        for batch in rows.to_batches()
    ]
    return pa.Table.from_batches(batches, schema=schema)


def _fields(
    arrays: Sequence[pa.Array], length: int, source: StructType, target: StructType, constants: Mapping[int, Any]
) -> list[pa.Array]:
    present = {field.field_id: (field, array) for field, array in zip(source.fields, arrays, strict=True)}
    result = []
    for wanted in target.fields:
        if wanted.field_id in present:
            field, array = present[wanted.field_id]
            result.append(_array(array, field.field_type, wanted.field_type, constants))
        else:
            result.append(_absent(wanted, length, constants))
    return result


def _absent(field: NestedField, length: int, constants: Mapping[int, Any]) -> pa.Array:
    value = constants.get(field.field_id, field.initial_default)
    wanted = arrow_type(field.field_type)
    if value is None:
        return pa.nulls(length, wanted)
    if isinstance(field.field_type, UUIDType):
        value = str(uuid.UUID(bytes=value) if isinstance(value, bytes) else value)
    return pa.repeat(pa.scalar(value, wanted), length)


def _array(array: pa.Array, source: IcebergType, target: IcebergType, constants: Mapping[int, Any]) -> pa.Array:
    """Convert a column, struct field, element, key or value to `arrow_type(target)`; slices and nulls are preserved."""
    wanted = arrow_type(target)
    if source == target and array.type == wanted:
        return array
    if isinstance(source, StructType) and isinstance(target, StructType):
        children = _fields(array.flatten(), len(array), source, target, constants)
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=array.is_null())
    if isinstance(source, ListType) and isinstance(target, ListType):
        elements = _array(array.flatten(), source.element_type, target.element_type, constants)
        return pa.ListArray.from_arrays(offsets(array), elements, type=wanted, mask=array.is_null())
    if isinstance(source, MapType) and isinstance(target, MapType):
        pairs = as_list_of_entries(array)
        keys, values = pairs.flatten().flatten()
        return pa.MapArray.from_arrays(
            offsets(pairs),
            _array(keys, source.key_type, target.key_type, constants),
            _array(values, source.value_type, target.value_type, constants),
            type=wanted,
            mask=array.is_null(),
        )
    return _flat(array, target)


def as_list_of_entries(maps: pa.MapArray) -> pa.ListArray:
    """Convert maps to lists of (key, value) structs.

    Arrow's list functions do not take maps, and its cast truncates lists of nulls.
    """
    fields = [maps.type.key_field, maps.type.item_field]
    entries = pa.StructArray.from_arrays([maps.keys, maps.items], fields=fields)
    return pa.Array.from_buffers(
        pa.list_(entries.type), len(maps), maps.buffers()[:2], offset=maps.offset, children=[entries]
    )


def offsets(lists: pa.Array) -> pa.Array:
    """Return where each list begins in `lists.flatten()`, and where the last one ends (int32); slices and nulls are skipped."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    return pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())


def _flat(array: pa.Array, target: IcebergType) -> pa.Array:
    if isinstance(array.type, pa.BaseExtensionType):  # a UUID that the file's Arrow schema declares
        array = array.storage
    wanted = arrow_type(target)
    if isinstance(target, UUIDType) and pa.types.is_fixed_size_binary(array.type):
        return _uuid_text(array)
    if (
        pa.types.is_timestamp(array.type)
        and array.type.unit == "ns"
        and isinstance(target, TimestampType | TimestamptzType)
    ):
        # Rounded down, as Spark does, also before 1970.
        array = pc.floor_temporal(array, unit="microsecond")
    return array.cast(wanted)


def _uuid_text(array: pa.Array) -> pa.Array:
    """Format 16-byte values as canonical UUID text."""
    octets = np.frombuffer(array.buffers()[1], np.uint8)[array.offset * 16 :][: len(array) * 16]
    digits = np.frombuffer(octets.tobytes().hex().encode(), np.uint8).reshape(len(array), 32)
    text = np.insert(digits, (8, 12, 16, 20), ord("-"), axis=1)
    begins = pa.array(np.arange(len(array) + 1) * text.shape[1], pa.int32())
    data = [array.is_valid().buffers()[1], begins.buffers()[1], pa.py_buffer(text.tobytes())]
    return pa.Array.from_buffers(pa.string(), len(array), data)
