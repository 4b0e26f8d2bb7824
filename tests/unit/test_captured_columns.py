"""Columns of a captured table are known from what its database says of them, before any message came."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakehold.definitions import ConnectionType
from lakehold.upstream.captured_columns import columns_of, left_out, lost_hints
from lakehold.upstream.found_columns import FoundColumn, FoundType, TypeKind

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
def test_a_column_is_known_before_any_value_came(column: FoundColumn, database: ConnectionType, expected: str) -> None:
    (found,) = columns_of([column], database)
    assert (found.name, found.spark_type, found.required) == ("c", expected, False)


def test_what_never_comes_is_no_column_and_has_a_reason() -> None:
    money, text = _column("money", "money", is_array=True), _column("text", "text")
    assert [c.spark_type for c in columns_of([money, text], _POSTGRES)] == ["string"]
    assert list(left_out([money, text], _POSTGRES)) == [(money, "Debezium sends no arrays of this type")]


def test_a_date_that_a_snapshot_changes_is_reported_of_a_key() -> None:
    day = _column("date", "date")
    assert list(lost_hints(["s.t"], {"s.t": (day,)}, _POSTGRES)) == []
    (hint,) = lost_hints(["s.t"], {"s.t": (replace(day, is_key=True),)}, _POSTGRES)
    assert hint.startswith("column s.t.c (date): in a snapshot dates before year 1")
