"""Divides the output of a SUBSCRIBE into the parts that one commit takes: whole timestamps, up to a number of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, groupby

import pyarrow as pa

from lakehold.subscribe.output_batches import Complete, OutputChunk


@dataclass(frozen=True)
class Part:
    """The output of one commit.

    Attributes:
        last_ms: Its last timestamp.
        timestamps: Number of its timestamps.
        chunks: Its rows in the order of the output, to be read once.
    """

    last_ms: int
    timestamps: int
    chunks: Iterator[pa.Table]


def parts(output: Iterator[OutputChunk | Complete], most_rows: int) -> Iterator[Part | Complete]:
    """Divide `output` into parts; each `Complete` comes after the part that it completes.

    A part has several timestamps while their rows are at most `most_rows`; these are kept in memory. A larger timestamp is a part
    of its own, and its rows are read as the part is.
    """
    waiting: list[pa.Table] = []
    timestamps = rows = last_ms = 0
    for timestamp, outputs in groupby(output, key=_timestamp):
        if timestamp is None:
            if waiting:
                yield Part(last_ms, timestamps, iter(waiting))
            yield from (each for each in outputs if isinstance(each, Complete))
            waiting, timestamps, rows = [], 0, 0
            continue
        chunks = (each.rows for each in outputs if isinstance(each, OutputChunk))
        read: list[pa.Table] = []
        for chunk in chunks:
            read.append(chunk)
            rows += chunk.num_rows
            if rows > most_rows:
                break
        else:
            waiting += read
            timestamps, last_ms = timestamps + 1, timestamp
            continue
        if waiting:
            yield Part(last_ms, timestamps, iter(waiting))
        yield Part(timestamp, 1, chain(read, chunks))
        waiting, timestamps, rows = [], 0, 0


def _timestamp(each: OutputChunk | Complete) -> int | None:
    return each.mz_timestamp if isinstance(each, OutputChunk) else None
