"""Reads a line of a FILES source: one Kafka message as JSON.

A line has the fields `topic`, `partition`, `offset`, `timestamp` (epoch milliseconds, -1: none), `key` and `value` (base64 or
null), and may have `headers`: a list of pairs of a name and a value in base64 or null. Others are ignored.
"""

from __future__ import annotations

import binascii
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from lakehold.model.offsets import INTERNAL_PREFIX

_MAX_INT32 = 2**31 - 1
_MAX_INT64 = 2**63 - 1


class Message(NamedTuple):
    """One record, in the order of the raw columns."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None


class Line(NamedTuple):
    """A complete line: its bytes `[start, end)` in the file, and those before its newline."""

    start: int
    end: int
    content: bytes


class LineError(ValueError):
    """A line is not a message; the text is the reason."""


def lines_in(path: Path, start: int, end_exclusive: int = sys.maxsize) -> Iterator[Line]:
    """Read the lines that begin in a part of a file; a last line without a newline is skipped: it is still being written.

    Args:
        path: The file.
        start: The byte position at which the first line begins.
        end_exclusive: The byte position from which on no line is read.
    """
    with path.open("rb") as content:
        content.seek(start)
        for raw in content:
            if start >= end_exclusive or not raw.endswith(b"\n"):
                return
            end = start + len(raw)
            yield Line(start, end, raw.rstrip(b"\r\n"))
            start = end


def parse(line: bytes) -> Message:
    """Parse the message in `line`.

    Raises:
        LineError: It is not a JSON object, lacks a field, or a field is of another kind.
    """
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise LineError(f"not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise LineError("not a JSON object")
    try:
        return Message(
            _topic(fields["topic"]),
            _integer(fields, "partition", _MAX_INT32),
            _integer(fields, "offset", _MAX_INT64 - 1),
            _integer(fields, "timestamp", _MAX_INT64, least=-1),
            _bytes(fields, "key"),
            _bytes(fields, "value"),
            _headers(fields),
        )
    except KeyError as error:
        raise LineError(f"field {error.args[0]} is missing") from error


def _topic(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise LineError("field topic is not text")
    if value.startswith(INTERNAL_PREFIX):
        raise LineError(f"topic names must not begin with {INTERNAL_PREFIX}")
    return value


def _integer(fields: dict[str, Any], name: str, most: int, least: int = 0) -> int:
    value = fields[name]
    if type(value) is not int:  # a bool is an int to isinstance
        raise LineError(f"field {name} is not an integer")
    if not least <= value <= most:
        raise LineError(f"field {name} is out of range: {value}")
    return value


def _headers(fields: dict[str, Any]) -> list[tuple[str, bytes | None]] | None:
    """Return pairs of name and value in the order sent; None if there are none."""
    pairs = fields.get("headers")
    if pairs is None:
        return None
    if not isinstance(pairs, list) or not all(_is_header(pair) for pair in pairs):
        raise LineError("field headers is not a list of [name, value] pairs")
    return [(name, _bytes({"headers": value}, "headers")) for name, value in pairs] or None


def _is_header(pair: Any) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)  # noqa: PLR2004 - a pair


def _bytes(fields: dict[str, Any], name: str) -> bytes | None:
    value = fields[name]
    if value is None:
        return None
    if not isinstance(value, str):
        raise LineError(f"field {name} is neither null nor text in base64")
    try:
        return binascii.a2b_base64(value, strict_mode=True)
    except ValueError as error:
        raise LineError(f"field {name} is not base64: {error}") from error
