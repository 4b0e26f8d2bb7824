"""Reads parts of recorded files: in the driver, and on Spark's executors with the same code.

The index of a directory's lines (`line_index.py`) says which chunks of files contain the records of an offset range. Spark's own
JSON source knows neither the byte position of a line nor which base64 to refuse, so it could not distinguish a malformed line or
a repeat from a record as the index does. Executors need access to the files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from lakehold.ingest.read.lines import LineError, Message, lines_in, parse
from lakehold.ingest.read.reader import RAW_SCHEMA
from lakehold.model.offsets import OffsetRange

_ROWS_PER_BATCH = 10_000

Key = tuple[str, int]
"""Topic and partition as a tuple: cheaper to make for each line than a `TopicPartition`."""

Wanted = Mapping[Key, tuple[int, int]]
"""The offsets to read of each partition, `[start, end)`."""


class Chunk(NamedTuple):
    """A part of a file, `[start, end_exclusive)` in bytes, with the starts of those of its lines that repeat an offset."""

    path: str
    start: int
    end_exclusive: int
    repeats: list[int]


CHUNK_SCHEMA = pa.schema(
    [("path", pa.string()), ("start", pa.int64()), ("end_exclusive", pa.int64()), ("repeats", pa.list_(pa.int64()))]
)
"""The columns of chunks as rows."""


def wanted_of(ranges: Collection[OffsetRange]) -> Wanted:
    """Return offset ranges by partition; `ranges` has at most one of each."""
    return {
        (r.topic_partition.topic, r.topic_partition.partition): (r.start_inclusive, r.end_exclusive) for r in ranges
    }


def messages_in(chunk: Chunk, wanted: Wanted) -> Iterator[Message]:
    """Read the messages of a chunk that have wanted offsets, without malformed lines and repeats."""
    repeats = set(chunk.repeats)
    for line in lines_in(Path(chunk.path), chunk.start, chunk.end_exclusive):
        if line.start in repeats:
            continue
        try:
            message = parse(line.content)
        except LineError:
            continue  # reported by `Reader.malformed`
        start, end_exclusive = wanted.get(message[:2], (0, 0))
        if start <= message.offset < end_exclusive:
            yield message


def chunk_reader(wanted: Wanted) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """Return the function for `map_in_arrow` that turns rows of `CHUNK_SCHEMA` into the wanted raw records."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for chunk in batch.to_pylist():
                messages = messages_in(Chunk(**chunk), wanted)
                while some := list(islice(messages, _ROWS_PER_BATCH)):
                    yield record_batch(some)

    return read


def record_batch(messages: Collection[Message]) -> pa.RecordBatch:
    """Convert messages to raw records (`RAW_SCHEMA`)."""
    columns = zip(*messages, strict=True) if messages else ((),) * len(RAW_SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, RAW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RAW_SCHEMA)
