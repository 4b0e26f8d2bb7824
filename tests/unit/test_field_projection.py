"""A file's rows in the table's schema: the id of a field decides, at every level."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import pyarrow_to_schema, schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeometryType,
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
from lakehold.subscribe.project import arrow_schema, arrow_type, project

UUID = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")


def field(field_id: int, name: str, of: IcebergType, default: Any = None) -> NestedField:
    return NestedField(field_id, name, of, required=False, initial_default=default)


def projected(
    rows: pa.Table, source: list[NestedField], target: list[NestedField], constants: Mapping[int, Any] | None = None
) -> list[dict[str, Any]]:
    """Return the rows after projection, which must have the target's types."""
    result = project(rows, Schema(*source), Schema(*target), constants or {})
    assert result.schema == arrow_schema(Schema(*target))
    result.validate(full=True)
    values: list[dict[str, Any]] = result.to_pylist()
    return values


def one_column(array: pa.Array, source: IcebergType, target: IcebergType) -> list[Any]:
    rows = pa.Table.from_arrays([array], names=["old"])
    return [row["new"] for row in projected(rows, [field(1, "old", source)], [field(1, "new", target)])]


@pytest.mark.parametrize(
    ("iceberg", "arrow"),
    [
        (BooleanType(), pa.bool_()),
        (IntegerType(), pa.int32()),
        (LongType(), pa.int64()),
        (FloatType(), pa.float32()),
        (DoubleType(), pa.float64()),
        (DecimalType(9, 2), pa.decimal128(9, 2)),
        (DateType(), pa.date32()),
        (TimeType(), pa.time64("us")),
        (TimestampType(), pa.timestamp("us")),
        (TimestamptzType(), pa.timestamp("us", "UTC")),
        (TimestampNanoType(), pa.timestamp("ns")),
        (TimestamptzNanoType(), pa.timestamp("ns", "UTC")),
        (StringType(), pa.string()),
        (UUIDType(), pa.string()),
        (BinaryType(), pa.binary()),
        (FixedType(3), pa.binary()),
        (UnknownType(), pa.null()),
        (ListType(1, UUIDType(), True), pa.list_(pa.field("element", pa.string()))),
        (MapType(1, StringType(), 2, FixedType(1), True), pa.map_(pa.string(), pa.binary())),
        (StructType(NestedField(1, "a", LongType(), required=True)), pa.struct([pa.field("a", pa.int64())])),
    ],
    ids=str,
)
def test_types_are_those_that_spark_gives(iceberg: IcebergType, arrow: pa.DataType) -> None:
    assert arrow_type(iceberg) == arrow


def test_a_type_that_spark_lacks_is_refused() -> None:
    with pytest.raises(DefinitionError, match="columns of type geometry"):
        arrow_type(ListType(1, GeometryType(), False))


def test_columns_are_found_by_id() -> None:
    source = [field(1, "id", LongType()), field(2, "name", StringType()), field(3, "gone", StringType())]
    target = [field(2, "title", StringType()), field(1, "id", LongType()), field(4, "gone", StringType())]
    rows = pa.table({"id": [1, 2], "name": ["a", None], "gone": ["x", "y"]})
    assert projected(rows, source, target) == [
        {"title": "a", "id": 1, "gone": None},  # dropped and added again: another column
        {"title": None, "id": 2, "gone": None},
    ]


def test_columns_of_the_file_count_by_position() -> None:
    source = [field(1, "v", LongType()), field(2, "v2", LongType())]
    rows = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["same", "same"])
    assert projected(rows, source, [field(2, "b", LongType()), field(1, "a", LongType())]) == [{"b": 2, "a": 1}]


def test_a_column_that_the_file_lacks_has_its_constant_or_else_its_default() -> None:
    rows = pa.table({"id": [1, 2]})
    target = [
        field(1, "id", LongType(), 9),
        field(2, "partition", StringType(), "default"),
        field(3, "null_partition", StringType(), "default"),
        field(4, "added", StringType(), "default"),
        field(5, "new", StringType()),
    ]
    constants = {1: 7, 2: "p", 3: None}
    for row, number in zip(projected(rows, [field(1, "id", LongType())], target, constants), (1, 2), strict=True):
        assert row == {"id": number, "partition": "p", "null_partition": None, "added": "default", "new": None}


@pytest.mark.parametrize(
    ("of", "value", "expected"),
    [
        (BooleanType(), True, True),
        (IntegerType(), 7, 7),
        (FloatType(), 1.5, 1.5),
        (DecimalType(5, 2), Decimal("1.10"), Decimal("1.10")),
        (DateType(), -1, dt.date(1969, 12, 31)),
        (DateType(), dt.date(2024, 2, 29), dt.date(2024, 2, 29)),
        (TimeType(), 1, dt.time(0, 0, 0, 1)),
        (TimestampType(), -1, dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)),  # noqa: DTZ001 - has no zone
        (TimestamptzType(), 0, dt.datetime(1970, 1, 1, tzinfo=dt.UTC)),
        (StringType(), "\u00e9", "\u00e9"),
        (UUIDType(), UUID, str(UUID)),
        (UUIDType(), UUID.bytes, str(UUID)),
        (BinaryType(), b"\x00", b"\x00"),
        (FixedType(2), b"\x00\x01", b"\x00\x01"),
    ],
    ids=str,
)
def test_constants_are_of_every_type_a_table_is_partitioned_by(of: IcebergType, value: Any, expected: Any) -> None:
    rows = pa.table({"id": [1]})
    assert projected(rows, [field(1, "id", LongType())], [field(2, "c", of)], {2: value}) == [{"c": expected}]


def test_a_file_none_of_whose_columns_are_left_has_its_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "file.parquet")
    rows = pq.read_table(tmp_path / "file.parquet", columns=[])
    assert projected(rows, [], [field(2, "new", LongType())]) == [{"new": None}] * 2


@pytest.mark.parametrize(
    ("array", "source", "target", "expected"),
    [
        (pa.array([1, None], pa.int32()), IntegerType(), LongType(), [1, None]),
        (pa.array([1.5, None], pa.float32()), FloatType(), DoubleType(), [1.5, None]),
        (
            pa.array([Decimal("1.10"), None], pa.decimal128(3, 2)),
            DecimalType(3, 2),
            DecimalType(38, 2),
            [Decimal("1.10"), None],
        ),
        (
            pa.array([dt.date(1969, 12, 31), None]),
            DateType(),
            TimestampType(),
            [dt.datetime(1969, 12, 31), None],  # noqa: DTZ001 - has no zone
        ),
    ],
    ids=str,
)
def test_promoted_types_keep_their_values(array: pa.Array, source: Any, target: Any, expected: list[Any]) -> None:
    assert one_column(array, source, target) == expected


@pytest.mark.parametrize("arrow", [pa.binary(16), pa.uuid()], ids=str)
def test_uuids_become_text(arrow: pa.DataType) -> None:
    array = pa.array([b"?" * 16, UUID.bytes, None, bytes(16)], arrow)
    for part in (array, array[1:], array[3:], array[:0], pa.array([], arrow), pa.nulls(2, arrow)):
        expected = [
            None if value is None else str(uuid.UUID(bytes=value)) for value in part.cast(pa.binary(16)).to_pylist()
        ]
        assert one_column(part, UUIDType(), UUIDType()) == expected


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_nanoseconds_of_a_file_are_rounded_down_where_the_table_has_microseconds(zone: str | None) -> None:
    array = pa.array([-1, 1999, None, 2000], pa.timestamp("ns", zone))
    result = project(
        pa.Table.from_arrays([array], names=["t"]),
        Schema(field(1, "t", TimestamptzType())),
        Schema(field(1, "t", TimestamptzType())),
        {},
    )
    assert result.column(0).cast(pa.int64()).to_pylist() == [-1, 1, None, 2]


def test_texts_of_other_arrow_types_become_plain_ones() -> None:
    for arrow in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        assert one_column(pa.array(["a", None, "a"], arrow), StringType(), StringType()) == ["a", None, "a"]


PERSON = StructType(field(10, "name", StringType()), field(11, "age", IntegerType()), field(12, "note", StringType()))
PERSON_LATER = StructType(
    field(11, "years", LongType()), field(13, "note", StringType(), "new"), field(10, "name", StringType())
)


def person(name: str | None, age: int | None) -> dict[str, Any]:
    return {"name": name, "age": age, "note": "old"}


def later(name: str | None, age: int | None) -> dict[str, Any]:
    return {"years": age, "note": "new", "name": name}


PEOPLE_ARROW = pa.struct([pa.field("name", pa.string()), pa.field("age", pa.int32()), pa.field("note", pa.string())])


def every_slice(array: pa.Array) -> list[pa.Array]:
    return [array[begin:end] for begin in range(len(array) + 1) for end in range(begin, len(array) + 1)]


def test_structs_change_inside_and_null_ones_stay_null() -> None:
    array = pa.array([person("a", 1), None, person(None, None), person("b", 2)], PEOPLE_ARROW)
    expected = [later("a", 1), None, later(None, None), later("b", 2)]
    for i, part in enumerate(every_slice(array)):
        assert one_column(part, PERSON, PERSON_LATER) == every_slice(pa.array(expected))[i].to_pylist()


@pytest.mark.parametrize("make", [pa.list_, pa.large_list], ids=["list", "large_list"])
def test_elements_change_and_null_lists_stay_null(make: Any) -> None:
    values = [[person("a", 1), None], None, [], [person("b", 2)]]
    expected = [[later("a", 1), None], None, [], [later("b", 2)]]
    array = pa.array(values, make(PEOPLE_ARROW))
    for begin in range(len(values)):
        assert (
            one_column(array[begin:], ListType(5, PERSON, False), ListType(5, PERSON_LATER, False)) == expected[begin:]
        )


def test_keys_and_values_change_and_null_maps_stay_null() -> None:
    source, target = MapType(5, IntegerType(), 6, PERSON, False), MapType(5, LongType(), 6, PERSON_LATER, False)
    values = [[(1, person("a", 1)), (2, None)], None, [], [(3, person("b", 2))]]
    expected = [[(1, later("a", 1)), (2, None)], None, [], [(3, later("b", 2))]]
    array = pa.array(values, pa.map_(pa.int32(), PEOPLE_ARROW))
    for begin in range(len(values)):
        assert one_column(array[begin:], source, target) == expected[begin:]


def test_values_under_nulls_stay_hidden() -> None:
    hidden = pa.ListArray.from_arrays(
        pa.array([0, 2, 3], pa.int32()), pa.array([1, 2, 3], pa.int32()), mask=pa.array([True, False])
    )
    assert one_column(hidden, ListType(5, IntegerType(), False), ListType(5, LongType(), False)) == [None, [3]]
    maps = pa.MapArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()),
        pa.array(["a", "b"]),
        pa.array([1, 2], pa.int32()),
        mask=pa.array([True, False]),
    )
    source_map, target_map = (MapType(5, StringType(), 6, of, False) for of in (IntegerType(), LongType()))
    assert one_column(maps, source_map, target_map) == [None, [("b", 2)]]
    struct = pa.StructArray.from_arrays([pa.array([1, 2], pa.int32())], names=["a"], mask=pa.array([True, False]))
    source, target = StructType(field(5, "a", IntegerType())), StructType(field(5, "b", LongType()))
    assert one_column(struct, source, target) == [None, {"b": 2}]


def test_a_field_with_the_name_of_a_dropped_one_reads_null_also_inside() -> None:
    array = pa.array([{"a": 1}], pa.struct([pa.field("a", pa.int64())]))
    assert one_column(array, StructType(field(5, "a", LongType())), StructType(field(6, "a", LongType()))) == [
        {"a": None}
    ]


def test_chunks_that_do_not_align_are_one_table() -> None:
    source = [field(1, "a", IntegerType()), field(2, "b", ListType(3, IntegerType(), False))]
    target = [field(2, "b", ListType(3, LongType(), False)), field(1, "a", LongType())]
    a = pa.chunked_array([[1], [2, 3]], pa.int32())
    b = pa.chunked_array([[[1], None], [[3, 4]]], pa.list_(pa.int32()))
    rows = pa.Table.from_arrays([a, b], names=["a", "b"])
    assert projected(rows, source, target) == [{"b": [1], "a": 1}, {"b": None, "a": 2}, {"b": [3, 4], "a": 3}]


def test_a_parquet_file_of_every_type_reads_as_it_was_written(tmp_path: Path) -> None:
    schema = Schema(
        field(1, "uuid", UUIDType()),
        field(2, "fixed", FixedType(2)),
        field(3, "time", TimeType()),
        field(4, "instant", TimestamptzType()),
        field(5, "decimal", DecimalType(20, 3)),
        field(6, "people", MapType(7, StringType(), 8, ListType(9, PERSON, False), False)),
    )
    row = {
        "uuid": UUID.bytes,
        "fixed": b"\x00\xff",
        "time": dt.time(1, 2, 3, 4),
        "instant": dt.datetime(2024, 2, 29, tzinfo=dt.UTC),
        "decimal": Decimal("-1.001"),
        "people": [("k", [person("a", 1)])],
    }
    pq.write_table(
        pa.Table.from_pylist([row, dict.fromkeys(row)], schema_to_pyarrow(schema)), tmp_path / "file.parquet"
    )
    rows = pq.read_table(tmp_path / "file.parquet")
    result = project(rows, pyarrow_to_schema(rows.schema), schema, {})
    assert result.schema == arrow_schema(schema)
    assert result.to_pylist() == [{**row, "uuid": str(UUID)}, dict.fromkeys(row)]
