"""Digests values that a database wrote as texts: equal to the digests of the same values in the lake's column. Pure.

A text that the column's type cannot hold, such as `NaN` for a decimal, has a digest of its own: no stored value is equal to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from enum import StrEnum
from itertools import accumulate

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
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
    StringType,
    TimestampType,
    TimestamptzType,
)

from lakehold.ingest.decode.temporal import FIRST, LAST
from lakehold.verify.digest import NULL_DIGEST, Numbers, column_digests, list_digests


class TextForm(StrEnum):
    """The form in which a database writes a value."""

    PLAIN = "plain"
    HEX = "hex"
    """Bytes as hexadecimal digits."""
    BITS = "bits"
    """A string of zeros and ones, which Debezium sends as bytes, the last one first."""


_TRUE, _FALSE = ("t", "true", "1"), ("f", "false", "0")
_DAY_US = 86_400_000_000
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_DAYS_OF_400_YEARS = 146_097
_BC = " BC"
_MOMENT = re.compile(r"(\d{4,})-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?(?:\+00)?")
_ORDINARY_MOMENT = r"^\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d{1,6})?)?(\+00)?$"
_ORDINARY_NUMBER = r"^-?\d+(\.\d+)?$"


def can_be_text(kind: IcebergType) -> bool:
    """Return whether values of a type can be compared with a database's texts."""
    if isinstance(kind, ListType):
        return can_be_text(kind.element_type)
    return isinstance(kind, DecimalType) or type(kind) in _CONVERSIONS


def text_digests(texts: pa.Array, kind: IcebergType, form: TextForm = TextForm.PLAIN) -> Numbers:
    """Return the digests of the values of a column of the lake that the texts mean.

    Args:
        texts: A list is a JSON array of texts.
        kind: Type of the lake's column.
        form: How the database writes the values, or a list's elements.
    """
    if isinstance(kind, ListType):
        return _lists(texts, kind, form)
    try:
        return column_digests(_converted(texts, kind, form))
    except (pa.ArrowInvalid, ValueError, OverflowError):
        return _with_odd_ones(texts, kind, form)


def _converted(texts: pa.Array, kind: IcebergType, form: TextForm) -> pa.Array:
    if isinstance(kind, DecimalType):
        return texts.cast(pa.decimal128(kind.precision, kind.scale))
    if isinstance(kind, BinaryType):
        convert = _bits if form is TextForm.BITS else _hex
        return pa.array([None if text is None else convert(text) for text in texts.to_pylist()], pa.binary())
    return _CONVERSIONS[type(kind)](texts)


def _with_odd_ones(texts: pa.Array, kind: IcebergType, form: TextForm) -> Numbers:
    """Digest texts that Arrow cannot convert together: the ordinary ones at once, then each distinct other one alone."""
    found = np.full(len(texts), np.uint64(NULL_DIGEST))
    is_number = isinstance(kind, DecimalType | IntegerType | LongType)
    ordinary = pc.match_substring_regex(texts, _ORDINARY_NUMBER if is_number else _ORDINARY_MOMENT)
    together = np.flatnonzero(pc.fill_null(ordinary, False).to_numpy(zero_copy_only=False))
    try:
        found[together] = column_digests(_converted(texts.take(pa.array(together)), kind, form))
    except (pa.ArrowInvalid, ValueError, OverflowError):
        together = together[:0]
    is_left = texts.is_valid().to_numpy(zero_copy_only=False).copy()
    is_left[together] = False
    left = np.flatnonzero(is_left)
    encoded = texts.take(pa.array(left)).dictionary_encode()
    digests = [_digest_of(text, kind, form) for text in encoded.dictionary.to_pylist()]
    found[left] = np.array(digests, np.uint64)[encoded.indices.to_numpy()]
    return found


def _digest_of(text: str, kind: IcebergType, form: TextForm) -> int:
    try:
        if isinstance(kind, DateType | TimestampType | TimestamptzType):
            value = _moment(text, is_day=isinstance(kind, DateType))
            return int(column_digests(pa.array([value], pa.int64()))[0])
        return int(column_digests(_converted(pa.array([text]), kind, form))[0])
    except (pa.ArrowInvalid, ValueError, OverflowError):
        return int(column_digests(pa.array([f"not a value of {kind}: {text}"]))[0])


def _lists(texts: pa.Array, kind: ListType, form: TextForm) -> Numbers:
    lists = [None if text is None else orjson.loads(text) for text in texts.to_pylist()]
    whole = [each or () for each in lists]
    items = pa.array([_item(item) for each in whole for item in each], pa.string())
    offsets = np.array([0, *accumulate(map(len, whole))], np.int64)
    found = list_digests(text_digests(items, kind.element_type, form), offsets)
    found[[place for place, each in enumerate(lists) if each is None]] = np.uint64(NULL_DIGEST)
    return found


def _item(item: object) -> str | None:
    """Return the text of an element; of one that is a list, in an array of several dimensions, a text that no value has."""
    return item if item is None or isinstance(item, str) else str(item)


def _moment(text: str, *, is_day: bool) -> int | None:
    """Return the days or microseconds since 1970 of a text that Arrow does not read; None for one without a month or a day."""
    if text in ("infinity", "-infinity"):
        micros = LAST if text == "infinity" else FIRST
        return micros // _DAY_US if is_day else micros
    found = _MOMENT.fullmatch(text.removesuffix(_BC))
    if found is None:
        raise ValueError(text)
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    if not month or not day:
        return None
    year = 1 - year if text.endswith(_BC) else year
    cycles, year_of_cycle = divmod(year - 1, 400)
    days = date(year_of_cycle + 1, month, day).toordinal() - _EPOCH_DAY + cycles * _DAYS_OF_400_YEARS
    if is_day:
        return days
    return days * _DAY_US + ((hour * 60 + minute) * 60 + second) * 1_000_000 + int((found[7] or "").ljust(6, "0"))


def _hex(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("\\x"))


def _bits(text: str) -> bytes:
    return int(text or "0", 2).to_bytes((len(text) + 7) // 8, "little")


def _booleans(texts: pa.Array) -> pa.Array:
    is_true, is_false = (pc.is_in(texts, value_set=pa.array(names)) for names in (_TRUE, _FALSE))
    if not pc.all(pc.or_kleene(pc.or_(is_true, is_false), texts.is_null())).as_py():
        raise ValueError("a text that is not a boolean")
    return pc.if_else(texts.is_null(), None, is_true)


def _cast(to: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    return lambda texts: texts.cast(to)


_CONVERSIONS: dict[type[IcebergType], Callable[[pa.Array], pa.Array]] = {
    BooleanType: _booleans,
    IntegerType: _cast(pa.int64()),
    LongType: _cast(pa.int64()),
    FloatType: _cast(pa.float32()),
    DoubleType: _cast(pa.float64()),
    DateType: _cast(pa.date32()),
    TimestampType: _cast(pa.timestamp("us")),
    TimestamptzType: _cast(pa.timestamp("us", "UTC")),
    StringType: _cast(pa.string()),
    BinaryType: _cast(pa.binary()),
}
