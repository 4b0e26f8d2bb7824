"""Avro files whose schema is parsed once, with the records that fastavro's own reader returns."""

from __future__ import annotations

import json
import lzma
import zlib
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehold.subscribe import avro_files

LISTED: dict[str, Any] = {
    "type": "record",
    "name": "listed",
    "fields": [
        {"name": "path", "type": "string"},
        {"name": "rows", "type": ["null", "long"]},
        {"name": "bounds", "type": {"type": "array", "items": "bytes"}},
    ],
}
COUNTED: dict[str, Any] = {
    "type": "record",
    "name": "counted",
    "fields": [{"name": "path", "type": "string"}, {"name": "n", "type": "long"}],
}

listed = st.fixed_dictionaries(
    {
        "path": st.text("ab", max_size=3),
        "rows": st.none() | st.integers(-(2**63), 2**63 - 1),
        "bounds": st.lists(st.binary(max_size=3), max_size=2),
    }
)
counted = st.fixed_dictionaries({"path": st.text("ab", max_size=3), "n": st.integers(0, 300)})
files = st.one_of(st.tuples(st.just(LISTED), st.lists(listed)), st.tuples(st.just(COUNTED), st.lists(counted)))


@given(history=st.lists(files, max_size=6), codec=st.sampled_from(["null", "deflate", "bzip2"]))
def test_files_of_several_schemas_are_read(history: Sequence[tuple[dict[str, Any], Sequence[Any]]], codec: str) -> None:
    for schema, records in history:
        content = written(schema, records, codec, block_bytes=20)
        assert list(avro_files.records(content)) == list(fastavro.reader(BytesIO(content))) == records


@given(
    history=st.lists(files, max_size=6),
    repeated=st.lists(listed),
    codec=st.sampled_from(["null", "deflate", "bzip2"]),
    at_most=st.integers(1, 10),
)
def test_records_that_many_files_share_are_read(
    history: Sequence[tuple[dict[str, Any], Sequence[Any]]], repeated: list[Any], codec: str, at_most: int
) -> None:
    known: avro_files.RepeatedRecords[Any] = avro_files.RepeatedRecords(dict, at_most)
    for schema, records in [
        *history,
        *((LISTED, [*records, *repeated]) for schema, records in history if schema is LISTED),
    ]:
        content = written(schema, records, codec, block_bytes=20)
        assert known.of(content) == records


def test_records_that_follow_each_other_as_before_are_not_converted_again() -> None:
    assert converted(10, ["a", "b", "c", "d"], ["new", "a", "b", "c", "d"]) == ["a", "b", "c", "d", "new", "a"]
    assert converted(10, ["a", "b", "c", "d"], ["a", "c", "d"]) == ["a", "b", "c", "d", "c"]


def test_records_make_room_for_others() -> None:
    assert converted(1, ["a", "b"], ["a", "b"]) == ["a", "b", "a", "b"]


def converted(at_most: int, *files: Sequence[str]) -> list[str]:
    """Return the paths in `files` that were converted when the files were read one after the other."""
    seen: list[str] = []
    known = avro_files.RepeatedRecords(lambda record: seen.append(record["path"]), at_most)
    for paths in files:
        known.of(written(COUNTED, [{"path": path, "n": 300} for path in paths]))
    return seen


def test_a_file_that_ends_early_is_an_error() -> None:
    content = written(COUNTED, [{"path": "a", "n": 1}])
    with pytest.raises(EOFError):
        list(avro_files.records(content[:-20]))


def written(schema: dict[str, Any], records: Sequence[Any], codec: str = "deflate", block_bytes: int = 16_000) -> bytes:
    """Encode an Avro file."""
    file = BytesIO()
    fastavro.writer(file, schema, records, codec=codec, sync_interval=block_bytes)
    return file.getvalue()


DATED: dict[str, Any] = {
    "type": "record",
    "name": "dated",
    "fields": [
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "path", "type": "string"},
    ],
}


@pytest.mark.parametrize("codec", ["snappy", "zstandard", "xz"])
def test_codecs_of_other_writers_and_dates_of_any_year_are_read(codec: str) -> None:
    """Read manifests of tables partitioned by days, of which Python has none before year 1 and after 9999."""
    days = [6_670_384, -735_160, 19_000, None]
    records = [{"day": day, "path": "x" * 300} for day in days]
    schema = {**DATED, "fields": [{"name": "day", "type": ["null", "int"]}, DATED["fields"][1]]}
    content = written(schema, records, "null", block_bytes=100_000)
    assert list(avro_files.records(compressed(content, codec, DATED))) == records


def compressed(content: bytes, codec: str, schema: dict[str, Any]) -> bytes:
    """Encode a file of one block as another writer compresses it."""
    (block,) = avro_files._blocks(content)
    encoded = block.encoded
    match codec:
        case "snappy":
            data = pa.compress(encoded, "snappy", asbytes=True) + zlib.crc32(encoded).to_bytes(4, "big")
        case "zstandard":
            data = pa.compress(encoded, "zstd", asbytes=True)
        case _:
            data = lzma.compress(encoded)
    sink = BytesIO()
    meta = {"avro.codec": codec.encode(), "avro.schema": json.dumps(schema).encode()}
    header = {"magic": b"Obj\x01", "meta": meta, "sync": b"s" * 16}
    fastavro.schemaless_writer(sink, avro_files._HEADER, header)
    fastavro.schemaless_writer(sink, avro_files._BLOCK, {"count": block.records, "records": data, "sync": b"s" * 16})
    return sink.getvalue()
