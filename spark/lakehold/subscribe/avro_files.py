"""Reader of small Avro files: Iceberg's manifests and manifest lists, which `live_files` reads by the hundred.

Many share a schema, which is parsed once; many repeat records of others, which are not decoded again.

fastavro parses the schema of every file again, which takes longer than decoding the records of a small manifest.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from io import BytesIO
from typing import Any, Generic, NamedTuple, TypeVar

import fastavro
import orjson
import pyarrow as pa

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

_LOGICAL_TYPES_OF_TIME = ("date", "time-", "timestamp-", "local-timestamp-")


def _snappy(block: bytes) -> bytes:
    """Decode a Snappy block: its size as a varint, the data, then a checksum (Avro specification, "snappy")."""
    size_bytes = 0
    for place, octet in enumerate(block):
        size_bytes |= (octet & 0x7F) << 7 * place
        if octet < 0x80:  # noqa: PLR2004 - the highest bit says that more follow
            break
    return bytes(pa.decompress(block[:-4], size_bytes, codec="snappy", asbytes=True))


def _zstandard(block: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(block), "zstd") as stream:
        return bytes(stream.read())


_DECOMPRESSED: dict[bytes, Callable[[bytes], bytes]] = {
    b"null": lambda block: block,
    b"deflate": lambda block: zlib.decompress(block, -zlib.MAX_WBITS),
    b"bzip2": bz2.decompress,
    b"xz": lzma.decompress,
    b"snappy": _snappy,
    b"zstandard": _zstandard,
}
"""Decompressors by codec: all codecs of the Avro specification."""


class _Block(NamedTuple):
    """Consecutive records of a file, encoded by `schema`."""

    schema: bytes
    records: int
    encoded: bytes


def records(content: bytes) -> Iterator[Any]:
    """Decode the records of a file."""
    for block in _blocks(content):
        stream, schema = BytesIO(block.encoded), _parsed(block.schema)
        for _ in range(block.records):
            yield _next(stream, schema)


class RepeatedRecords(Generic[Value]):
    """A decoder that recognizes repeated records by their bytes instead of decoding them again.

    A record's length and content follow from its schema and its bytes. So where the bytes equal those of an earlier record of the
    same schema, the record is that one.

    Args:
        value_of: Converts a record to the value that is kept.
        at_most: Records kept per schema; when there are so many, all of the schema are forgotten.
    """

    def __init__(self, value_of: Callable[[Any], Value], at_most: int) -> None:
        self._value_of = value_of
        self._at_most = at_most
        self._known: dict[bytes, dict[bytes, tuple[bytes, Value]]] = {}
        """By schema, then by the encoded previous record (empty for the first): the record that followed it last time."""

    def of(self, content: bytes) -> list[Value]:
        """Return the values of a file's records."""
        return [value for block in _blocks(content) for value in self._in_block(block)]

    def _in_block(self, block: _Block) -> Iterator[Value]:
        encoded, known = block.encoded, self._known.setdefault(block.schema, {})
        stream, begin, last = BytesIO(encoded), 0, b""
        for _ in range(block.records):
            found = known.get(last)
            if found is None or not encoded.startswith(found[0], begin):
                stream.seek(begin)
                value = self._value_of(_next(stream, _parsed(block.schema)))
                found = encoded[begin : stream.tell()], value
                if len(known) >= self._at_most:
                    known.clear()
                known[last] = found
            last = found[0]
            begin += len(last)
            yield found[1]


def _blocks(content: bytes) -> Iterator[_Block]:
    file = BytesIO(content)
    meta = _next(file, _HEADER)["meta"]
    decompressed = _DECOMPRESSED[meta.get("avro.codec", b"null")]
    while file.tell() < len(content):
        block = _next(file, _BLOCK)
        yield _Block(meta["avro.schema"], block["count"], decompressed(block["records"]))


@lru_cache(_SCHEMAS_REMEMBERED)
def _parsed(schema: bytes) -> Any:
    return fastavro.parse_schema(_with_times_as_numbers(orjson.loads(schema)))


def _with_times_as_numbers(schema: Any) -> Any:
    """Remove the logical types of dates and times from a schema.

    fastavro would read them as Python's dates and times, which end at the years 1 and 9999.
    """
    match schema:
        case list():
            return [_with_times_as_numbers(part) for part in schema]
        case dict():
            parts = {name: _with_times_as_numbers(part) for name, part in schema.items()}
            if str(parts.get("logicalType")).startswith(_LOGICAL_TYPES_OF_TIME):
                del parts["logicalType"]
            return parts
        case _:
            return schema


def _next(stream: BytesIO, schema: Any) -> Any:
    return fastavro.schemaless_reader(stream, schema, None)
