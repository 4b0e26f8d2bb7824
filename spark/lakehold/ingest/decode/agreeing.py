"""A value in the type of another one, where both are equal: of a key that stands in the message key and in the row."""

from __future__ import annotations

from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from lakehold.ingest.decode.types import spark_text

_NUMBERS = (IntegerType, LongType, FloatType, DoubleType, DecimalType)
_WITH_TEXTS = (*_NUMBERS, BooleanType, DateType, TimestampType, TimestamptzType)


def equal_value(value: str, source: IcebergType, target: IcebergType) -> str | None:
    """SQL of `value` in the type `target`, null where that has no equal one; None where none of its values has."""
    if spark_text(source) == spark_text(target):
        return value
    if not _is_comparable(source, target):
        return None
    found = f"try_cast({value} AS {spark_text(target)})"
    # There and back again: `5.5` is no whole number, `05` is another text than `5`.
    return f"CASE WHEN try_cast({found} AS {spark_text(source)}) = {value} THEN {found} END"


def _is_comparable(source: IcebergType, target: IcebergType) -> bool:
    if isinstance(source, _NUMBERS) and isinstance(target, _NUMBERS):
        return True
    texts = [isinstance(each, StringType) for each in (source, target)]
    return any(texts) and all(isinstance(each, (StringType, *_WITH_TEXTS)) for each in (source, target))
