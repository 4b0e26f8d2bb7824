"""Projection of random files into random later schemas, against a model that converts one value after the other."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
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
)

from lakehold.subscribe.project import arrow_schema, arrow_type, project
from tests.iceberg_values import exactly, in_chunks, table, types, values

_LARGER: dict[IcebergType, IcebergType] = {IntegerType(): LongType(), FloatType(): DoubleType()}


@st.composite
def structs(draw: st.DrawFn) -> StructType:
    """Draw a file's columns; every field id is used once."""
    ids = itertools.count(1)

    def with_own_ids(of: IcebergType) -> IcebergType:
        if isinstance(of, StructType):
            return StructType(
                *(NestedField(next(ids), f.name, with_own_ids(f.field_type), required=False) for f in of.fields)
            )
        if isinstance(of, ListType):
            return ListType(next(ids), with_own_ids(of.element_type), False)
        if isinstance(of, MapType):
            return MapType(next(ids), with_own_ids(of.key_type), next(ids), with_own_ids(of.value_type), False)
        return of

    columns = draw(st.lists(types(), min_size=1, max_size=3))
    of = with_own_ids(StructType(*(NestedField(0, f"c{i}", c, required=False) for i, c in enumerate(columns))))
    assert isinstance(of, StructType)
    return of


def evolved(draw: st.DrawFn, of: IcebergType, new_ids: itertools.count[int]) -> IcebergType:
    """Draw the type after drops, additions, renames, moves and promotions."""
    if isinstance(of, StructType):
        kept = draw(st.lists(st.sampled_from(of.fields), unique_by=lambda field: field.field_id, min_size=1))
        fields = [
            NestedField(f.field_id, f"{f.name}_later", evolved(draw, f.field_type, new_ids), required=False)
            for f in kept
        ]
        name = draw(st.sampled_from([field.name for field in of.fields]))  # taken over from an old field
        added = NestedField(
            next(new_ids), name, StringType(), required=False, initial_default=draw(st.sampled_from([None, "d"]))
        )
        return StructType(*fields, added) if draw(st.booleans()) else StructType(*fields)
    if isinstance(of, ListType):
        return ListType(of.element_id, evolved(draw, of.element_type, new_ids), False)
    if isinstance(of, MapType):
        return MapType(of.key_id, of.key_type, of.value_id, evolved(draw, of.value_type, new_ids), False)
    return _LARGER.get(of, of) if draw(st.booleans()) else of


def model(value: Any, source: IcebergType, target: IcebergType) -> Any:
    """Convert a value of the file to the table's value."""
    if value is None:
        return None
    if isinstance(source, StructType) and isinstance(target, StructType):
        old = {field.field_id: field for field in source.fields}
        return {
            new.name: model(value[old[new.field_id].name], old[new.field_id].field_type, new.field_type)
            if new.field_id in old
            else new.initial_default
            for new in target.fields
        }
    if isinstance(source, ListType) and isinstance(target, ListType):
        return [model(element, source.element_type, target.element_type) for element in value]
    if isinstance(source, MapType) and isinstance(target, MapType):
        return [
            (model(k, source.key_type, target.key_type), model(v, source.value_type, target.value_type))
            for k, v in value
        ]
    return value


@settings(deadline=None)
@given(st.data(), structs())
def test_every_value_is_found_by_its_id(data: st.DataObject, source: StructType) -> None:
    draw: Any = data.draw
    target = evolved(draw, source, itertools.count(1000))
    assert isinstance(target, StructType)
    rows = data.draw(st.lists(values(source, nulls=False), max_size=5))
    cuts = data.draw(st.lists(st.integers(0, len(rows)), max_size=3))

    file = in_chunks(
        table(
            [(f.name, arrow_type(f.field_type)) for f in source.fields],
            [[row[f.name] for f in source.fields] for row in rows],
        ),
        cuts,
    )
    result = project(file, Schema(*source.fields), Schema(*target.fields), {})

    expected = [list(model(row, source, target).values()) for row in rows]
    result.validate(full=True)
    assert result.schema == arrow_schema(Schema(*target.fields))
    assert exactly(result) == exactly(table([(f.name, arrow_type(f.field_type)) for f in target.fields], expected))
