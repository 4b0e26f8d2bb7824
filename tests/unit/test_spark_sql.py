"""Values and names as text of Spark SQL; `tests/spark/test_plain_text.py` has Spark read them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from lakehold.spark_sql import literal, map_of, quoted, quoted_table, struct_of, struct_type, table_properties


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"),
        (True, "TRUE"),
        (5, "5"),
        (-5, "-5"),
        (1.5, "1.5D"),
        (float("-inf"), "CAST('-Infinity' AS DOUBLE)"),
        (Decimal("1.50"), "1.50BD"),
        (Decimal("1E+2"), "100BD"),
        (date(2026, 2, 1), "DATE'2026-02-01'"),
        (datetime.fromisoformat("2026-02-01T03:00"), "TIMESTAMP_NTZ'2026-02-01 03:00:00'"),
        (datetime(2026, 2, 1, 3, tzinfo=UTC), "TIMESTAMP_LTZ'2026-02-01 03:00:00+00:00'"),
        (b"\x00'\xff", "X'0027FF'"),
        ("it's", r"'it\'s'"),
        ("a\\b", r"'a\\b'"),
        ("${env:HOME}", r"'\u0024{env:HOME}'"),
        ("$5", "'$5'"),
    ],
)
def test_a_value_is_a_literal_of_its_type(value: object, text: str) -> None:
    assert literal(value) == text


def test_a_value_without_a_literal_is_refused() -> None:
    with pytest.raises(TypeError, match="no literal for list"):
        literal([1])


def test_names_are_identifiers_whatever_they_contain() -> None:
    assert quoted("a`b.c") == "`a``b.c`"
    assert quoted_table("lake", "shop.or`ders") == "`lake`.`shop`.`or``ders`"


def test_parts_are_composed_of_texts_and_names() -> None:
    assert struct_of({"it's": "1 + 1"}) == r"named_struct('it\'s', 1 + 1)"
    assert struct_type([("a`b", "int")]) == "struct<`a``b`:int>"
    assert map_of({"mode": "it's", "n": 5}) == r"map('mode', 'it\'s', 'n', '5')"
    assert table_properties({"key": "a,it's"}) == r"('key' = 'a,it\'s')"
