"""Texts of a database have the digests of the lake's values that they mean, and others if no value is meant."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest
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
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from lakehold.verify.digest import NULL_DIGEST, column_digests
from lakehold.verify.text_values import TextForm, can_be_text, text_digests

_LAST = 253_402_300_799_999_999
_MICROS = pa.int64()

CASES: list[tuple[IcebergType, TextForm, pa.DataType, list[tuple[str, object]]]] = [
    (BooleanType(), TextForm.PLAIN, pa.bool_(), [("t", True), ("f", False), ("1", True), ("0", False)]),
    (IntegerType(), TextForm.PLAIN, pa.int32(), [("-2147483648", -(2**31)), ("007", 7)]),
    (LongType(), TextForm.PLAIN, pa.int64(), [("-9223372036854775808", -(2**63))]),
    (FloatType(), TextForm.PLAIN, pa.float32(), [("0.1", 0.1), ("3.4028235e+38", 3.4028234663852886e38)]),
    (
        DoubleType(),
        TextForm.PLAIN,
        pa.float64(),
        [("NaN", float("nan")), ("-Infinity", float("-inf")), ("-0", -0.0), ("0", 0.0), ("5e-324", 5e-324)],
    ),
    (DecimalType(12, 2), TextForm.PLAIN, pa.decimal128(12, 2), [("1.10", Decimal("1.1")), ("-0.01", Decimal("-0.01"))]),
    (
        DateType(),
        TextForm.PLAIN,
        pa.int32(),
        [
            ("2026-01-01", 20_454),
            ("infinity", 2_932_896),
            ("-infinity", -719_162),
            ("10000-01-01", 2_932_897),
            ("0001-12-31 BC", -719_163),
            ("0044-03-15 BC", -735_160),
            ("0000-00-00", None),
        ],
    ),
    (
        TimestampType(),
        TextForm.PLAIN,
        _MICROS,
        [("2026-01-01 12:00:00.5", 1_767_268_800_500_000), ("infinity", _LAST)],
    ),
    (
        TimestamptzType(),
        TextForm.PLAIN,
        _MICROS,
        [
            ("2026-01-01 12:00:00+00", 1_767_268_800_000_000),
            ("infinity", _LAST),
            ("-infinity", -62_135_596_800_000_000),
        ],
    ),
    (StringType(), TextForm.PLAIN, pa.string(), [("", ""), ("null", "null"), ("naïve 日本", "naïve 日本")]),
    (BinaryType(), TextForm.HEX, pa.binary(), [("", b""), ("00FF", b"\0\xff"), ("\\x00ff", b"\0\xff")]),
    (
        BinaryType(),
        TextForm.BITS,
        pa.binary(),
        [("10110", b"\x16"), ("0000000100000000", b"\0\x01"), ("1", b"\1"), ("", b"")],
    ),
    (ListType(1, IntegerType(), False), TextForm.PLAIN, pa.list_(pa.int32()), [("[]", []), ('["1",null]', [1, None])]),
    (
        ListType(1, DateType(), False),
        TextForm.PLAIN,
        pa.list_(pa.date32()),
        [('["2026-01-01","infinity"]', [date(2026, 1, 1), date(9999, 12, 31)])],
    ),
    (ListType(1, FloatType(), False), TextForm.PLAIN, pa.list_(pa.float32()), [("[1,2.5]", [1.0, 2.5])]),
]


@pytest.mark.parametrize(("kind", "form", "stored", "cases"), CASES, ids=[f"{c[0]} {c[1]}" for c in CASES])
def test_texts_have_the_digests_of_the_stored_values(
    kind: IcebergType, form: TextForm, stored: pa.DataType, cases: list[tuple[str, object]]
) -> None:
    texts = [text for text, _ in cases]
    wanted = column_digests(pa.array([value for _, value in cases], stored)).tolist()
    assert text_digests(pa.array(texts), kind, form).tolist() == wanted
    assert text_digests(pa.array([None, *texts]), kind, form).tolist() == [NULL_DIGEST, *wanted]
    # Beside a text that is no value, the others are what they were.
    *found, odd = text_digests(pa.array([*texts, "[{}]"]), kind, form).tolist()
    assert found == wanted
    assert odd not in (*wanted, NULL_DIGEST)


def test_texts_that_mean_no_value_differ_from_each_other() -> None:
    nan, infinity, null = text_digests(pa.array(["NaN", "Infinity", None]), DecimalType(12, 2)).tolist()
    assert len({nan, infinity, null}) == 3


def test_types_without_texts_are_known() -> None:
    assert can_be_text(ListType(1, DecimalType(12, 2), False))
    point = StructType(NestedField(1, "x", DoubleType(), required=False))
    assert not can_be_text(point)
    assert not can_be_text(ListType(1, point, False))
