"""Reads a directory of recorded messages: `*.jsonl`, one Kafka message a line (design, "The way in").

The position of each file is an offset like any other (`lakehold.ingest.read.lines.file_partition`), so that what was
read is not read again. It is a low watermark: partitions may be spread over files and lines come in any order, so lines
above it may have been read too, which the offsets of their records tell.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from lakehold.ingest.read.checks import recreated, verify_position
from lakehold.ingest.read.directory import begins_line, directory_of, line_number, reading, recorded_files
from lakehold.ingest.read.file_chunks import chunk_reader, chunks, record_batch
from lakehold.ingest.read.file_plan import plan_batch, plan_to
from lakehold.ingest.read.line_index import FileSpan, LineIndex
from lakehold.ingest.read.lines import LineError, Message, file_of, file_partition, parse
from lakehold.ingest.read.reader import (
    RAW_DDL,
    Available,
    Limits,
    MalformedLine,
    Reader,
    ReadPlan,
)
from lakehold.model.offsets import OffsetRange, Offsets, Watermarks


class FilesReader(Reader):
    """The records in the files of one directory, which only grow and are never replaced.

    Keeps an index of the lines not read yet (`LineIndex`), so that draining a large directory in small batches scans it
    once. Use one reader for one position: another position makes it scan anew.

    Args:
        path: The directory, as a path or `file:` URI.
        parallelism: How many tasks a large read has at least.
    """

    def __init__(self, path: str, *, parallelism: int = 1) -> None:
        self._directory = directory_of(path)
        self._parallelism = parallelism
        self._index = LineIndex(())
        self._identities: Mapping[str, str] = {}
        self._planned: frozenset[OffsetRange] = frozenset()

    def look(self, topics: Collection[str], ordered: str | None = None) -> Available:  # noqa: ARG002 - for Kafka
        """See `Reader.look`: lists the files, once, and reads none of them; no topic is ever missing."""
        files = {file_partition(name): file for name, file in recorded_files(self._directory).items()}
        return Available(
            topics=frozenset(topics),
            partitions={tp: Watermarks(0, file.complete_end) for tp, file in files.items()},
            identities={tp.topic: file.identity for tp, file in files.items() if file.identity is not None},
            where=f'directory "{self._directory}"',
        )

    def plan(self, available: Available, position: Offsets, limits: Limits) -> ReadPlan:
        """See `Reader.plan`."""
        return self._remember(plan_batch(self._index_from(available, position), position, limits))

    def plan_to(self, available: Available, position: Offsets, ends: Offsets) -> ReadPlan:
        """See `Reader.plan_to`."""
        wanted = {tp: end for tp, end in ends.items() if file_of(tp) is None}
        return self._remember(plan_to(self._index_from(available, position), position, wanted))

    def in_driver(self, ranges: Collection[OffsetRange]) -> pa.Table:
        """See `Reader.in_driver`."""
        index = self._index_of(ranges)
        lines = index.select(_of_topics(ranges))
        messages: list[Message | None] = [None] * len(lines)
        for file_id in np.unique(lines.file_ids).tolist():
            path = index.path(file_id)
            with reading(path), path.open("rb") as content:
                rows = np.flatnonzero(lines.file_ids == file_id)
                for row in rows[np.argsort(lines.starts[rows])].tolist():
                    content.seek(int(lines.starts[row]))
                    messages[row] = parse(content.read(int(lines.lengths[row])))
        return pa.Table.from_batches([record_batch([message for message in messages if message is not None])])

    def dataframe(self, spark: SparkSession, ranges: Collection[OffsetRange]) -> DataFrame:
        """See `Reader.dataframe`."""
        index = self._index_of(ranges)
        table = chunks(index.select(_of_topics(ranges)), index.duplicates, index.path, self._parallelism)
        if not table.num_rows:
            return spark.createDataFrame([], RAW_DDL)
        # Spark deals local rows out evenly, which `repartition` does not promise for so few.
        return spark.createDataFrame(table).mapInArrow(chunk_reader(_of_topics(ranges)), RAW_DDL)

    def malformed(self, ranges: Collection[OffsetRange]) -> tuple[MalformedLine, ...]:
        """See `Reader.malformed`: lines that are no message, and those that repeat an offset of the same batch."""
        index = self._index_of(ranges)
        lines = index.rejected(ranges)
        return tuple(
            self._malformed_line(index.path(file_id), start, length)
            for file_id, start, length in zip(
                lines.file_ids.tolist(), lines.starts.tolist(), lines.lengths.tolist(), strict=True
            )
        )

    def _malformed_line(self, path: Path, start: int, length: int) -> MalformedLine:
        with reading(path), path.open("rb") as content:
            content.seek(start)
            raw = content.read(length)
        try:
            message = parse(raw)
        except LineError as error:
            reason = str(error)
        else:
            reason = f"offset {message.offset} of partition {message.partition} was in another line before"
        name = path.relative_to(self._directory).as_posix()
        return MalformedLine(name, line_number(path, start), start, raw, reason)

    def _index_from(self, available: Available, position: Offsets) -> LineIndex:
        """The index of what `available` holds behind `position`."""
        verify_position(available, position)
        spans: dict[str, FileSpan] = {}
        for tp, marks in available.partitions.items():
            name, start = str(file_of(tp)), position.get(tp, 0)
            path = self._directory / name
            if not begins_line(path, start):
                raise recreated(tp.topic, f"It was read up to byte {start}, where no line begins any more.")
            spans[name] = FileSpan(path, start, marks.end_exclusive)
        return self._moved(available, spans)

    def _index_of(self, ranges: Collection[OffsetRange]) -> LineIndex:
        """The index that has the lines of `ranges`: the one they were planned from, or one made for them."""
        if frozenset(ranges) != self._planned:
            # Ranges of an earlier process: a file without a range may hold lines of theirs anywhere.
            available = self.look({r.topic_partition.topic for r in _of_topics(ranges)})
            starts = {r.topic_partition: r.start_inclusive for r in ranges if file_of(r.topic_partition) is not None}
            self._index_from(available, starts)
            self._planned = frozenset(ranges)
        return self._index

    def _moved(self, available: Available, spans: Mapping[str, FileSpan]) -> LineIndex:
        same_files = all(available.identities.get(topic) == known for topic, known in self._identities.items())
        if self._index.topics != available.topics or not same_files or not self._index.can_move(spans):
            self._index = LineIndex(available.topics)
        with reading(self._directory):
            self._index.move(spans)
        self._identities = available.identities
        return self._index

    def _remember(self, plan: ReadPlan) -> ReadPlan:
        self._planned = frozenset(plan.ranges)
        return plan


def _of_topics(ranges: Collection[OffsetRange]) -> list[OffsetRange]:
    return [r for r in ranges if file_of(r.topic_partition) is None]
