"""Columns of a captured table, known from its database before any message arrives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakehold.definitions import ConnectionType
from lakehold.upstream.found.columns import FoundColumn, FoundType, TypeKind
from lakehold.upstream.types.captured_columns import columns_of, lost_hints, unsent_columns

_POSTGRES, _MARIADB = ConnectionType.POSTGRES, ConnectionType.MARIADB


def _column(name: str, text: str, kind: TypeKind = TypeKind.PLAIN, *, is_array: bool = False) -> FoundColumn:
    return FoundColumn("c", text, FoundType(name, text, kind), is_array, int(is_array))


@pytest.mark.parametrize(
    ("column", "database", "expected"),
    [
        (_column("numeric", "numeric(12,2)"), _POSTGRES, "decimal(12,2)"),
        (_column("numeric", "numeric"), _POSTGRES, "string"),
        (_column("numeric", "numeric(50,10)"), _POSTGRES, "string"),
        (_column("numeric", "numeric(12,2)", is_array=True), _POSTGRES, "array<decimal(12,2)>"),
        (_column("timestamp", "timestamp(3) without time zone"), _POSTGRES, "timestamp_ntz"),
        (_column("bit", "bit(1)"), _POSTGRES, "boolean"),
        (_column("mood", "mood", TypeKind.ENUM), _POSTGRES, "string"),
        (_column("pair", "pair", TypeKind.COMPOSITE), _POSTGRES, "string"),
        (_column("int4", "pair", TypeKind.COMPOSITE), _POSTGRES, "string"),
        (_column("price", "price", TypeKind.DOMAIN, is_array=True), _POSTGRES, "array<string>"),
        (_column("bigint", "bigint(20) unsigned"), _MARIADB, "decimal(20,0)"),
        (_column("bigint", "bigint(20)"), _MARIADB, "bigint"),
        (_column("int", "int(10) unsigned zerofill"), _MARIADB, "bigint"),
        (_column("tinyint", "tinyint(1)"), _MARIADB, "int"),
        (_column("float", "float(7,2)"), _MARIADB, "double"),
        (_column("decimal", "decimal(65,30)"), _MARIADB, "string"),
    ],
)
def test_a_column_is_known_before_any_value_arrives(
    column: FoundColumn, database: ConnectionType, expected: str
) -> None:
    (found,) = columns_of([column], database)
    assert (found.name, found.spark_type, found.required) == ("c", expected, False)


def test_a_column_that_is_never_sent_is_skipped_with_a_reason() -> None:
    money, text = _column("money", "money", is_array=True), _column("text", "text")
    assert [c.spark_type for c in columns_of([money, text], _POSTGRES)] == ["string"]
    assert list(unsent_columns([money, text], _POSTGRES)) == [(money, "Debezium sends no arrays of this type")]


def test_values_that_a_key_always_loses_are_reported() -> None:
    (hint,) = lost_hints(["s.t"], {"s.t": (_column("varbit", "bit varying"),)}, _POSTGRES)
    assert hint == "column s.t.c (bit varying): leading zeros are lost, and so is the length"
    clock = _column("timetz", "time with time zone")
    assert list(lost_hints(["s.t"], {"s.t": (clock,)}, _POSTGRES)) == []
    (hint,) = lost_hints(["s.t"], {"s.t": (replace(clock, is_key=True),)}, _POSTGRES)
    assert hint == "column s.t.c (time with time zone): the time is shifted to UTC"


def test_values_that_a_query_finds_are_not_reported_by_type_alone() -> None:
    day, bare = replace(_column("date", "date"), is_key=True), _column("numeric", "numeric")
    assert list(lost_hints(["s.t"], {"s.t": (day, bare)}, _POSTGRES)) == []
