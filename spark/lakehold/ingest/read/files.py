"""Reads a directory of recorded messages: `*.jsonl`, one Kafka message a line.

Topics have partitions with offsets, as in Kafka: each line names its own. In addition, each file has an internal topic with one
partition. Its offset in the reader's position is the byte up to which the file was scanned, its identity a digest of the file's
first line. Its records are the unusable lines: those that are no message, or repeat the offset of another line. So each unusable
line is in exactly one batch, and a file that was replaced after it was read is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from lakehold.errors import UpstreamError
from lakehold.executor_python import map_in_arrow
from lakehold.ingest.read.bounding import Backlog, plan_batch, plan_to, sampled_record_bytes
from lakehold.ingest.read.file_chunks import CHUNK_SCHEMA, chunk_reader, messages_in, record_batch, wanted_of
from lakehold.ingest.read.line_index import LineIndex, shared_index
from lakehold.ingest.read.lines import LineError, parse
from lakehold.ingest.read.offset_checks import faults
from lakehold.ingest.read.reader import RAW_DDL, FetchedOffsets, Limits, MalformedLine, Reader, ReadPlan, fetch_in_order
from lakehold.ingest.read.source_directory import begins_line, directory_of, line_number, reading
from lakehold.model.offsets import INTERNAL_PREFIX, OffsetRange, Offsets, TopicPartition, Watermarks, starts
from lakehold.times import now_ms

_LOAD_AGAIN = "drop the source's tables and create them again, so that they are loaded again"


class FilesReader(Reader):
    """A reader of the records in the files of one directory, which only grow and are never replaced.

    A process reads the lines of a directory once for their offsets, and then only new lines at each fetch.

    Args:
        path: The directory, as a path or `file:` URI.
        parallelism: How many tasks a large read has at least, unless these would get only some hundred lines each.
    """

    def __init__(self, path: str, *, parallelism: int = 1) -> None:
        self._directory = directory_of(path)
        self._parallelism = parallelism
        self._index = shared_index(self._directory.absolute())

    def fetch_offsets(self, topics: Collection[str], ordered: str | None = None) -> FetchedOffsets:
        """Fetch where topics begin and end now, see `Reader.fetch_offsets`; no topic is ever missing."""
        return fetch_in_order(self._fetch, self.written_ends, topics, ordered)

    def _fetch(self, topics: Collection[str]) -> FetchedOffsets:
        fetched_ms = now_ms()
        self._index.grow()
        files = self._index.files()
        return FetchedOffsets(
            topics=frozenset(topics),
            partitions={
                **self._index.watermarks(topics),
                **{_internal(name): Watermarks(0, file.end) for name, file in files.items() if file.end},
            },
            identities={_internal(name).topic: file.identity for name, file in files.items() if file.identity},
            where=f'directory "{self._directory}"',
            fetched_ms=fetched_ms,
        )

    def written_ends(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Return the present ends of partitions, see `Reader.written_ends`: files have no uncommitted records."""
        self._index.grow()
        found = self._index.watermarks({tp.topic for tp in partitions})
        return {tp: found[tp].end_exclusive for tp in partitions if tp in found}

    def faults(
        self, fetched: FetchedOffsets, position: Offsets, identities: Mapping[str, str] | None = None
    ) -> dict[str, UpstreamError]:
        """Find errors, see `Reader.faults`; those of files that are gone or replaced hide others: any topic may be in them."""
        of_files = dict(self._file_faults(position, identities or {}))
        return of_files or faults(fetched, position, identities)

    def plan(self, fetched: FetchedOffsets, position: Offsets, limits: Limits) -> ReadPlan:
        """Plan ranges, see `Reader.plan`."""
        self.verify(fetched, position)
        return plan_batch(fetched, position, limits, self._backlog(fetched, position))

    def plan_to(self, fetched: FetchedOffsets, position: Offsets, ends: Offsets) -> ReadPlan:
        """Plan ranges to given ends, see `Reader.plan_to`."""
        self.verify(fetched, position)
        return plan_to(fetched, position, ends, self._backlog(fetched, position))

    def in_driver(self, ranges: Collection[OffsetRange]) -> pa.Table:
        """Read records in the driver, see `Reader.in_driver`."""
        wanted = wanted_of(ranges)
        with reading(self._directory):
            found = [message for chunk in self._index.chunks(ranges) for message in messages_in(chunk, wanted)]
        return pa.Table.from_batches([record_batch(sorted(found, key=lambda message: message[:3]))])

    def dataframe(self, spark: SparkSession, ranges: Collection[OffsetRange]) -> DataFrame:
        """Return a frame of records, see `Reader.dataframe`."""
        chunks = [chunk._asdict() for chunk in self._index.chunks(ranges, self._parallelism)]
        if not chunks:
            return spark.createDataFrame([], RAW_DDL)
        # Spark deals local rows out evenly, which `repartition` does not promise for so few.
        table = pa.Table.from_pylist(chunks, schema=CHUNK_SCHEMA)
        return map_in_arrow(spark.createDataFrame(table), chunk_reader(wanted_of(ranges)), RAW_DDL)

    def malformed(self, plan: ReadPlan) -> tuple[MalformedLine, ...]:
        """Return lines that are no messages, or repeat an offset that was not read before; see `Reader.malformed`."""
        position = {**plan.position, **starts(plan.ranges)}
        return tuple(
            self._malformed_line(name, start)
            for r in plan.ranges
            if (name := _named(r.topic_partition)) is not None
            for start in self._index.rejected(name, r.start_inclusive, r.end_exclusive, position).tolist()
        )

    def _malformed_line(self, name: str, start: int) -> MalformedLine:
        path = self._directory / name
        with reading(path), path.open("rb") as content:
            content.seek(start)
            raw = content.readline().rstrip(b"\r\n")
        try:
            message = parse(raw)
        except LineError as error:
            reason = str(error)
        else:
            reason = f"offset {message.offset} of partition {message.partition} was in another line before"
        return MalformedLine(name, line_number(path, start), start, raw, reason)

    def _backlog(self, fetched: FetchedOffsets, position: Offsets) -> Backlog:
        begins = {tp: position.get(tp, watermarks.earliest) for tp, watermarks in fetched.partitions.items()}
        return _Unread(self._index, begins, self.in_driver)

    def _file_faults(self, position: Offsets, identities: Mapping[str, str]) -> Iterator[tuple[str, UpstreamError]]:
        files = self._index.files()
        for tp, at in sorted(position.items()):
            if (name := _named(tp)) is None:
                continue
            file, recorded = files.get(name), identities.get(tp.topic)
            if file is None:
                yield tp.topic, _gone(name, at)
            elif file.end < at:
                detail = f"The bytes below {at} were read before, but it now ends at {file.end}."
                yield tp.topic, _replaced(name, detail)
            elif recorded not in (None, file.identity):
                yield tp.topic, _replaced(name, "Its first line is not the one that it had when it was first read.")
            elif not begins_line(file.path, at):
                yield tp.topic, _replaced(name, f"It was read up to byte {at}, where no line begins any more.")


@dataclass(frozen=True)
class _Unread(Backlog):
    """The unread part of a directory: records, and unusable lines.

    Args:
        index: The index of its lines.
        position: The first unread offset of each partition that is read; a repeat of an offset below it does not count.
        read: Reads the records of ranges.
    """

    index: LineIndex
    position: Offsets
    read: Callable[[Collection[OffsetRange]], pa.Table]

    def count(self, r: OffsetRange) -> int:
        name = _named(r.topic_partition)
        return self.index.count(r) if name is None else len(self._rejected(name, r))

    def end_after(self, r: OffsetRange, records: int) -> int:
        name = _named(r.topic_partition)
        if name is None:
            return self.index.end_after(r, records)
        return next(iter(self._rejected(name, r)[records:]), r.end_exclusive)

    def record_bytes(self, ranges: Collection[OffsetRange]) -> float:
        return sampled_record_bytes(self.read, [r for r in ranges if not r.topic_partition.is_internal])

    def _rejected(self, name: str, r: OffsetRange) -> list[int]:
        found: list[int] = self.index.rejected(name, r.start_inclusive, r.end_exclusive, self.position).tolist()
        return found


def _internal(name: str) -> TopicPartition:
    """Return the partition whose offsets are byte positions in a file and whose records are unusable lines."""
    return TopicPartition(f"{INTERNAL_PREFIX}{name}", 0)


def _named(tp: TopicPartition) -> str | None:
    return tp.topic.removeprefix(INTERNAL_PREFIX) if tp.is_internal else None


def _gone(name: str, position: int) -> UpstreamError:
    return UpstreamError(
        f'file "{name}" is gone',
        code="offsets-lost",
        detail=f"It was read up to byte {position}; what came after that is lost.",
        hint=f"Put the file back, or {_LOAD_AGAIN}.",
    )


def _replaced(name: str, detail: str) -> UpstreamError:
    return UpstreamError(
        f'file "{name}" is not the one that was read before',
        code="topic-recreated",
        detail=detail,
        hint=f"Files may only grow. Put the former content back, or {_LOAD_AGAIN}.",
    )
