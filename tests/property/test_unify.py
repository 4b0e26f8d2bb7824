"""`unify` is a lattice as far as Iceberg allows: idempotent, never narrower than the table, and stable under repetition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.types import (
    BinaryType,
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
)

from lakehold.tables.column_types import ColumnType, spark_text
from lakehold.tables.unify import TypeConflict, cast, same, unify, unify_versions

PLAIN = (
    BooleanType(),
    IntegerType(),
    LongType(),
    FloatType(),
    DoubleType(),
    DateType(),
    TimestampType(),
    TimestamptzType(),
    StringType(),
    BinaryType(),
)
decimals = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: DecimalType(p, s)))
names = st.sampled_from("abcd")


def struct(fields: dict[str, IcebergType]) -> StructType:
    return StructType(*(NestedField(i, n, t, required=False) for i, (n, t) in enumerate(fields.items(), 1)))


types = st.recursive(
    st.sampled_from(PLAIN) | decimals,
    lambda inner: (
        inner.map(lambda t: ListType(1, t, False))
        | inner.map(lambda t: MapType(1, StringType(), 2, t, False))
        | st.dictionaries(names, inner, min_size=1, max_size=3).map(struct)
    ),
    max_leaves=6,
)


def unified(old: IcebergType, new: IcebergType) -> IcebergType | None:
    try:
        return unify(old, new, "c")
    except TypeConflict:
        return None


@given(types)
def test_a_type_unified_with_itself_is_itself(of: IcebergType) -> None:
    assert same(unify(of, of), of)


@given(types, types)
def test_a_unified_type_takes_both_and_stays(old: IcebergType, new: IcebergType) -> None:
    both = unified(old, new)
    if both is not None:
        assert same(unify(both, new), both)
        assert same(unify(both, old), both)


@given(types, types, types)
def test_a_table_that_took_a_type_once_takes_it_again(old: IcebergType, new: IcebergType, newer: IcebergType) -> None:
    both = unified(old, new)
    further = both and unified(both, newer)
    if further:
        assert same(unify(further, new), further)


@given(types, types)
def test_only_a_type_that_differs_is_cast(old: IcebergType, new: IcebergType) -> None:
    both = unified(old, new)
    if both is not None:
        assert (cast("x", new, both) == "x") == (spark_text(new) == spark_text(both))


@pytest.mark.parametrize(
    ("old", "new", "both"),
    [
        (IntegerType(), LongType(), LongType()),
        (LongType(), IntegerType(), LongType()),
        (FloatType(), DoubleType(), DoubleType()),
        (DoubleType(), IntegerType(), DoubleType()),
        (DecimalType(10, 2), DecimalType(12, 2), DecimalType(12, 2)),
        (DecimalType(12, 2), DecimalType(10, 2), DecimalType(12, 2)),
        (DecimalType(12, 2), DecimalType(10, 1), DecimalType(12, 2)),
        (DecimalType(12, 2), IntegerType(), DecimalType(12, 2)),
        (
            struct({"a": IntegerType()}),
            struct({"b": DateType(), "a": LongType()}),
            struct({"a": LongType(), "b": DateType()}),
        ),
        (ListType(1, IntegerType(), False), ListType(7, LongType(), True), ListType(1, LongType(), False)),
    ],
)
def test_compatible_types_unify(old: IcebergType, new: IcebergType, both: IcebergType) -> None:
    assert same(unify(old, new), both)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (IntegerType(), StringType()),
        (StringType(), IntegerType()),
        (IntegerType(), DoubleType()),
        (DoubleType(), LongType()),
        (FloatType(), IntegerType()),
        (DecimalType(12, 2), DecimalType(12, 3)),
        (DecimalType(12, 2), DecimalType(12, 1)),
        (DecimalType(11, 2), IntegerType()),
        (TimestampType(), TimestamptzType()),
        (TimestampType(), DateType()),
        (ListType(1, IntegerType(), False), IntegerType()),
    ],
)
def test_incompatible_types_conflict(old: IcebergType, new: IcebergType) -> None:
    with pytest.raises(TypeConflict) as caught:
        unify(old, new, "c")
    assert caught.value.code == "incompatible-type"
    assert str(caught.value).startswith(f'column "c" cannot change from {spark_text(old)} to {spark_text(new)}\n')


def test_a_conflict_names_the_nested_field() -> None:
    old, new = (ListType(1, struct({"a": t}), False) for t in (IntegerType(), StringType()))
    with pytest.raises(TypeConflict, match=r'column "c\.element\.a" cannot change'):
        unify(old, new, "c")


def test_columns_of_versions_have_the_newest_order_with_dropped_ones_last() -> None:
    old = [
        ColumnType("id", IntegerType(), True),
        ColumnType("gone", StringType(), True),
        ColumnType("v", StringType(), True),
    ]
    new = [ColumnType("v", StringType()), ColumnType("added", DateType(), True), ColumnType("id", LongType(), True)]
    assert unify_versions([old, new]) == (
        ColumnType("v", StringType(), False),
        ColumnType("added", DateType(), False),
        ColumnType("id", LongType(), True),
        ColumnType("gone", StringType(), False),
    )


def columns_after(batch: list[IcebergType], stored: tuple[ColumnType, ...]) -> tuple[ColumnType, ...]:
    """Return the columns of a table after a batch whose versions have these types of a column, as an ingest does."""
    versions = [[ColumnType("c", each)] for each in batch]
    try:
        found = unify_versions(versions)
    except TypeConflict:
        found = unify_versions(versions, stored)
    return unify_versions([stored, found]) if stored else found


numbers: st.SearchStrategy[IcebergType] = st.sampled_from(
    [IntegerType(), LongType(), FloatType(), DoubleType()]
) | st.builds(DecimalType, st.integers(8, 12), st.integers(0, 2))
alike = numbers | st.dictionaries(st.sampled_from("ab"), numbers, min_size=1).map(struct)


@given(st.lists(alike, min_size=2, max_size=4).map(lambda each: each * 2), st.integers(1, 7))
def test_the_type_of_a_column_does_not_depend_on_where_a_batch_begins(versions: list[IcebergType], cut: int) -> None:
    try:
        whole = columns_after(versions, ())
    except TypeConflict:
        with pytest.raises(TypeConflict):
            columns_after(versions[cut:], columns_after(versions[:cut], ()))
        return
    (cut_in_two,) = columns_after(versions[cut:], columns_after(versions[:cut], ()))
    assert same(cut_in_two.type, whole[0].type)
