"""Small Avro files, many with the same schema: it is parsed once.

fastavro parses the schema of every file anew, which takes longer than decoding the records of a small manifest.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from io import BytesIO
from typing import Any

import fastavro
import orjson

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


def records(content: bytes) -> Iterator[Any]:
    """The records of a file."""
    file = BytesIO(content)
    meta = _next(file, _HEADER)["meta"]
    decompressed = _DECOMPRESSED.get(meta.get("avro.codec", b"null"))
    if decompressed is None:
        yield from fastavro.reader(BytesIO(content))
        return
    schema = _parsed(meta["avro.schema"])
    while file.tell() < len(content):
        block = _next(file, _BLOCK)
        encoded = BytesIO(decompressed(block["records"]))
        for _ in range(block["count"]):
            yield _next(encoded, schema)


@lru_cache(_SCHEMAS_REMEMBERED)
def _parsed(schema: bytes) -> Any:
    return fastavro.parse_schema(orjson.loads(schema))


def _next(stream: BytesIO, schema: Any) -> Any:
    return fastavro.schemaless_reader(stream, schema, None)
