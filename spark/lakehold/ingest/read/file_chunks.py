"""Reads parts of recorded files in Spark's Python workers, with the same code as in the driver.

Spark's own JSON source knows neither the byte position of a line nor which base64 it should refuse, so it could not
tell a malformed line or a duplicate from a record in the way that planning did. Workers need lakehold and the files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lakehold.ingest.read.line_index import FileSpan, Lines, lines_in
from lakehold.ingest.read.lines import LineError, Message, parse
from lakehold.ingest.read.reader import RAW_SCHEMA
from lakehold.model.offsets import OffsetRange, TopicPartition

_CHUNK_LINES = 50_000
_ROWS_PER_BATCH = 10_000


def chunks(selected: Lines, duplicates: Lines, path_of: Callable[[int], Path], parallelism: int) -> pa.Table:
    """Which part of which file each task reads.

    Args:
        selected: The lines to read.
        duplicates: Lines not to read, though their offsets are in the ranges.
        path_of: The file of each file id.
        parallelism: At least this many chunks, if there are as many lines.

    Returns:
        `path string, start bigint, end_exclusive bigint, left_out list<bigint>`: positions of duplicates.
    """
    rows: list[dict[str, object]] = []
    lines_per_chunk = max(1, min(_CHUNK_LINES, len(selected) // parallelism))
    for file_id in np.unique(selected.file_ids).tolist():
        lines = selected.where(selected.file_ids == file_id)
        order = np.argsort(lines.starts)
        starts, ends = lines.starts[order], (lines.starts + lines.lengths)[order] + 1
        again = np.sort(duplicates.starts[duplicates.file_ids == file_id])
        parts = min(len(starts), -(-len(starts) // lines_per_chunk))
        for part in np.array_split(np.arange(len(starts)), parts):
            begin, end = int(starts[part[0]]), int(ends[part[-1]])
            left_out = again[(again >= begin) & (again < end)].tolist()
            rows.append({"path": str(path_of(file_id)), "start": begin, "end_exclusive": end, "left_out": left_out})
    return pa.Table.from_pylist(rows, schema=CHUNK_SCHEMA)


CHUNK_SCHEMA = pa.schema(
    [("path", pa.string()), ("start", pa.int64()), ("end_exclusive", pa.int64()), ("left_out", pa.list_(pa.int64()))]
)
"""The columns of `chunks`."""


def chunk_reader(
    ranges: Collection[OffsetRange],
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """The function for `mapInArrow` that turns chunks into the records of `ranges`."""
    wanted = {r.topic_partition: (r.start_inclusive, r.end_exclusive) for r in ranges}

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for chunk in batch.to_pylist():
                yield from _batches(_messages(chunk, wanted))

    return read


def _messages(chunk: dict[str, Any], wanted: dict[TopicPartition, tuple[int, int]]) -> Iterator[Message]:
    left_out = set(chunk["left_out"])
    for start, line in lines_in(FileSpan(Path(chunk["path"]), chunk["start"], chunk["end_exclusive"])):
        if start in left_out:
            continue
        try:
            message = parse(line)
        except LineError:
            continue  # given out by `Reader.malformed`
        first, end_exclusive = wanted.get(TopicPartition(message.topic, message.partition), (0, 0))
        if first <= message.offset < end_exclusive:
            yield message


def _batches(messages: Iterator[Message]) -> Iterator[pa.RecordBatch]:
    rows: list[Message] = []
    for message in messages:
        rows.append(message)
        if len(rows) == _ROWS_PER_BATCH:
            yield record_batch(rows)
            rows = []
    if rows:
        yield record_batch(rows)


def record_batch(messages: Collection[Message]) -> pa.RecordBatch:
    """Messages as raw records (`RAW_SCHEMA`)."""
    columns = zip(*messages, strict=True) if messages else ((),) * len(RAW_SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, RAW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RAW_SCHEMA)
