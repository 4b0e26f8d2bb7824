"""Small Avro files, many with the same schema, which is parsed once, and some with the same records, which are not decoded again.

fastavro parses the schema of every file anew, which takes longer than decoding the records of a small manifest.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from io import BytesIO
from typing import Any, Generic, NamedTuple, TypeVar

import fastavro
import orjson

Value = TypeVar("Value")

_SCHEMAS_REMEMBERED = 100

_SYNC = {"type": "fixed", "name": "sync", "size": 16}
_HEADER = fastavro.parse_schema(
    {
        "type": "record",
        "name": "header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": _SYNC},
        ],
    }
)
_BLOCK = fastavro.parse_schema(
    {
        "type": "record",
        "name": "block",
        "fields": [
            {"name": "count", "type": "long"},
            {"name": "records", "type": "bytes"},
            {"name": "sync", "type": _SYNC},
        ],
    }
)
"""Header and blocks as in the Avro specification, "Object Container Files"."""

_DECOMPRESSED: dict[bytes, Callable[[bytes], bytes]] = {
    b"null": lambda records: records,
    b"deflate": lambda records: zlib.decompress(records, -zlib.MAX_WBITS),
}
"""By codec; files with others are left to fastavro."""


class _Block(NamedTuple):
    """Records of a file one behind the other, as they are encoded by `schema`."""

    schema: bytes
    records: int
    encoded: bytes


def records(content: bytes) -> Iterator[Any]:
    """The records of a file."""
    blocks = _blocks(content)
    if blocks is None:
        yield from fastavro.reader(BytesIO(content))
        return
    for block in blocks:
        stream, schema = BytesIO(block.encoded), _parsed(block.schema)
        for _ in range(block.records):
            yield _next(stream, schema)


class RepeatedRecords(Generic[Value]):
    """Decodes files that repeat runs of each other's records byte for byte: such records are compared instead.

    How many bytes a record takes and what it says follows from its schema and the bytes from its first on: where bytes stand that
    were a record of the same schema before, they are that record.

    Args:
        value_of: What is kept of a record.
        at_most: Records of a schema that are kept.
    """

    def __init__(self, value_of: Callable[[Any], Value], at_most: int) -> None:
        self._value_of = value_of
        self._at_most = at_most
        self._behind: dict[bytes, dict[bytes, tuple[bytes, Value]]] = {}
        """By schema, and by the encoded record before it (none for the first): what stood there the last time."""

    def of(self, content: bytes) -> list[Value]:
        """The values of a file's records."""
        blocks = _blocks(content)
        if blocks is None:
            return [self._value_of(record) for record in fastavro.reader(BytesIO(content))]
        return [value for block in blocks for value in self._in_block(block)]

    def _in_block(self, block: _Block) -> Iterator[Value]:
        encoded, behind = block.encoded, self._behind.setdefault(block.schema, {})
        stream, begin, last = BytesIO(encoded), 0, b""
        for _ in range(block.records):
            found = behind.get(last)
            if found is None or not encoded.startswith(found[0], begin):
                stream.seek(begin)
                value = self._value_of(_next(stream, _parsed(block.schema)))
                found = encoded[begin : stream.tell()], value
                if len(behind) >= self._at_most:
                    behind.clear()
                behind[last] = found
            last = found[0]
            begin += len(last)
            yield found[1]


def _blocks(content: bytes) -> Iterator[_Block] | None:
    """The blocks of a file; None: only fastavro can decompress them."""
    file = BytesIO(content)
    meta = _next(file, _HEADER)["meta"]
    decompressed = _DECOMPRESSED.get(meta.get("avro.codec", b"null"))
    return None if decompressed is None else _decompressed(file, meta["avro.schema"], decompressed, len(content))


def _decompressed(
    file: BytesIO, schema: bytes, decompressed: Callable[[bytes], bytes], size_bytes: int
) -> Iterator[_Block]:
    while file.tell() < size_bytes:
        block = _next(file, _BLOCK)
        yield _Block(schema, block["count"], decompressed(block["records"]))


@lru_cache(_SCHEMAS_REMEMBERED)
def _parsed(schema: bytes) -> Any:
    return fastavro.parse_schema(orjson.loads(schema))


def _next(stream: BytesIO, schema: Any) -> Any:
    return fastavro.schemaless_reader(stream, schema, None)
