"""The columns of a table that both sides have are compared; others are skipped with a reason."""

from __future__ import annotations

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DoubleType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
)

from lakehold.definitions import ConnectionType
from lakehold.errors import DefinitionError
from lakehold.upstream.found.columns import FoundColumn, FoundType
from lakehold.upstream.types.field_names import field_name
from lakehold.verify.compared_columns import ComparedColumns, compared_columns

_AVRO = {"value.converter": "io.confluent.connect.avro.AvroConverter"}
_POINT = StructType(NestedField(1, "x", DoubleType(), required=False))


def _column(name: str, kind: str, text: str, *, is_key: bool = False, is_generated: bool = False) -> FoundColumn:
    return FoundColumn(name, text, FoundType(kind, text), is_key=is_key, is_generated=is_generated)


_FOUND = (
    _column("note", "text", "text"),
    _column("id", "int4", "integer", is_key=True),
    _column("a-b", "int4", "integer"),
    _column("a_b", "int8", "bigint"),
    _column("place", "point", "point"),
    _column("twice", "int4", "integer", is_generated=True),
    _column("new", "int4", "integer"),
)
_SCHEMA = Schema(
    NestedField(1, "id", IntegerType(), required=False),
    NestedField(2, "note", StringType(), required=False),
    NestedField(3, "a_b", LongType(), required=False),
    NestedField(4, "place", _POINT, required=False),
    NestedField(5, "old", IntegerType(), required=False),
    NestedField(6, "offset", LongType(), required=False),
)


def _compared(key: tuple[str, ...], *, is_captured: bool = True, is_whole: bool = False) -> ComparedColumns:
    return compared_columns(
        "shop.orders",
        _FOUND,
        lambda name: field_name(name, _AVRO),
        _SCHEMA,
        key,
        ["offset"],
        ConnectionType.POSTGRES,
        is_captured=is_captured,
        is_whole=is_whole,
    )


def test_columns_of_both_sides_are_compared_and_others_have_a_reason() -> None:
    found = _compared(("id",))
    assert [(column.name, column.text.sql) for column in found.all] == [
        ("id", '"id"'),
        ("note", '"note"'),
        ("a_b", '"a-b"'),
    ]
    assert [column.text.sought_as for column in found.all] == ["bigint", "text", "bigint"]
    assert {column.name: column.reason for column in found.skipped} == {
        "a_b": "the connector gives another column the same name",
        "place": "values of point cannot be compared",
        "twice": "PostgreSQL publishes no generated columns",
        "new": "the lake's table does not have it",
        "old": "the database does not have it",
    }


def test_a_column_that_the_lake_should_have_is_compared_with_nulls() -> None:
    found = _compared(("id",), is_whole=True)
    assert {column.name: column.is_missing for column in found.all} == {
        "id": False,
        "note": False,
        "a_b": False,
        "new": True,
    }
    assert found.others[-1].type == IntegerType()
    assert {column.name for column in found.skipped} == {"a_b", "place", "twice", "old"}


@pytest.mark.parametrize(
    ("key", "code", "detail"),
    [
        (("id", "place"), "not-comparable", 'Its column "place" is skipped: values of point cannot be compared.'),
        (("old",), "not-comparable", 'Its column "old" is skipped: the database does not have it.'),
    ],
)
def test_a_key_must_be_there_and_compared(key: tuple[str, ...], code: str, detail: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        _compared(key)
    assert (refused.value.code, refused.value.detail) == (code, detail)


def test_all_columns_identify_the_equal_rows_of_a_captured_table_without_a_key() -> None:
    found = _compared(())
    assert ([column.name for column in found.key], found.others) == (["id", "note", "a_b"], ())
    whole = _compared((), is_whole=True)
    assert whole.key == found.key
    assert [(column.name, column.is_missing) for column in whole.others] == [("new", True)]
    with pytest.raises(DefinitionError) as refused:
        _compared((), is_captured=False)
    assert refused.value.code == "key-missing"


def test_a_copy_by_other_means_may_have_columns_that_no_connector_sends() -> None:
    found = {column.name: column.reason for column in _compared(("id",), is_captured=False).skipped}
    assert found["twice"] == "the lake's table does not have it"


@pytest.mark.parametrize(
    ("column", "lake", "database"),
    [
        (_column("seal", "bytea", "bytea"), StringType(), ConnectionType.POSTGRES),
        (
            FoundColumn("seal", "bytea[]", FoundType("bytea", "bytea"), is_array=True, dimensions=1),
            ListType(9, StringType(), element_required=False),
            ConnectionType.POSTGRES,
        ),
        (_column("seal", "longblob", "longblob"), StringType(), ConnectionType.MARIADB),
        (_column("seal", "binary", "binary(4)"), StringType(), ConnectionType.MYSQL),
    ],
)
def test_bytes_that_the_lake_has_as_texts_are_not_compared(
    column: FoundColumn, lake: IcebergType, database: ConnectionType
) -> None:
    columns = (_column("id", "int4", "integer", is_key=True), column)
    schema = Schema(NestedField(1, "id", IntegerType()), NestedField(2, "seal", lake))
    found = compared_columns("shop.t", columns, str, schema, ("id",), (), database, is_captured=False)
    assert [each.name for each in found.all] == ["id"]
    assert {each.name: each.reason for each in found.skipped} == {
        "seal": f"the lake's table has values of {column.text} as texts, which may be hex or base64"
    }


@pytest.mark.parametrize(
    ("kind", "text", "lake"),
    [
        ("interval", "interval", LongType()),
        ("timestamp", "timestamp without time zone", LongType()),
        ("date", "date", IntegerType()),
        ("time", "time without time zone", ListType(9, LongType(), element_required=False)),
    ],
)
def test_times_that_the_lake_has_as_numbers_are_not_compared(kind: str, text: str, lake: IcebergType) -> None:
    columns = (_column("id", "int4", "integer", is_key=True), _column("took", kind, text))
    schema = Schema(NestedField(1, "id", IntegerType()), NestedField(2, "took", lake))
    found = compared_columns("shop.t", columns, str, schema, ("id",), (), ConnectionType.POSTGRES)
    assert [column.name for column in found.all] == ["id"]
    assert {column.name: column.reason for column in found.skipped} == {
        "took": f"the lake's table has values of {text} as numbers"
    }
