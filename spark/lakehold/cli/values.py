"""Values of rows as JSON and as text, without loss: a value that JSON has no exact form for becomes text."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Protocol, runtime_checkable

JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]


@runtime_checkable
class _Struct(Protocol):
    """The interface of a PySpark `Row`, known by its method: reading rows must not cost the import of Spark."""

    def asDict(self) -> dict[str, Any]:
        """Return the fields by name."""


def as_json(value: object) -> JsonValue:  # noqa: PLR0911 - one a kind of value
    """Convert a value for `json.dumps`.

    Dates and times become ISO 8601, decimals text, bytes base64, structs and maps objects.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case Decimal():
            return format(value, "f")
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return _duration(value)
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode("ascii")
        case _Struct():
            return {name: as_json(v) for name, v in value.asDict().items()}
        case Mapping():
            return {as_text(k): as_json(v) for k, v in value.items()}
        case list() | tuple():
            return [as_json(v) for v in value]
        case _:
            return str(value)


def as_text(value: object) -> str:
    """Convert a value for a cell: as in JSON, but text has no quotes."""
    if isinstance(value, str):
        return value
    plain = as_json(value)
    return plain if isinstance(plain, str) else as_json_text(plain)


as_json_text = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
"""Encode a value as `json.dumps` does, without making an encoder each time."""


def _duration(value: timedelta) -> str:
    """Format a duration as ISO 8601 in days and seconds, with microseconds; a sign precedes the whole."""
    sign, size = ("-", -value) if value < timedelta(0) else ("", value)
    seconds = (
        f"{size.seconds}.{size.microseconds:06d}".rstrip("0").rstrip(".") if size.microseconds else str(size.seconds)
    )
    return f"{sign}P{size.days}DT{seconds}S"
