"""Where the unread lines of a FILES source are: about 30 bytes a line, whatever the lines hold."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from lakehold.ingest.read.lines import LineError, file_partition, parse
from lakehold.model.offsets import OffsetRange, Offsets, TopicPartition

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Lines:
    """Lines as columns of equal length.

    Attributes:
        partition_ids: Index into a list of partitions; -1 where the line is no message.
        offsets: The record's offset; 0 where the line is no message.
        file_ids: Index into a list of files.
        starts: Byte position of the line in its file.
        lengths: Bytes of the line without its newline.
    """

    partition_ids: NDArray[np.int32]
    offsets: Integers
    file_ids: NDArray[np.int32]
    starts: Integers
    lengths: Integers

    def __len__(self) -> int:
        return len(self.starts)

    def where(self, chosen: Mask | Integers) -> Lines:
        """The chosen lines, by mask or by position."""
        return Lines(
            self.partition_ids[chosen],
            self.offsets[chosen],
            self.file_ids[chosen],
            self.starts[chosen],
            self.lengths[chosen],
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Lines]) -> Lines:
        """The lines of all parts, at least one, in their order."""
        return cls(
            np.concatenate([part.partition_ids for part in parts]),
            np.concatenate([part.offsets for part in parts]),
            np.concatenate([part.file_ids for part in parts]),
            np.concatenate([part.starts for part in parts]),
            np.concatenate([part.lengths for part in parts]),
        )


NO_LINES = Lines(
    np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64)
)


@dataclass(frozen=True)
class FileSpan:
    """The part `[start_inclusive, end_exclusive)` of a file that an index covers; both ends are line starts."""

    path: Path
    start_inclusive: int
    end_exclusive: int


class LineIndex:
    """The lines of some topics in parts of files; grows at the files' ends, shrinks at their beginnings.

    Of several lines with the same topic, partition and offset the first counts, in the order of file names and then of
    positions; the others are *duplicates*. Lines of other topics are not kept.

    Attributes:
        topics: Whose lines it keeps.
        partitions: Their partitions in the order found; `Lines.partition_ids` points into it.
        files: Names of the files; `Lines.file_ids` points into it.
        spans: Which part of each file it covers.
        fresh_from: For each file where the bytes begin that the last `move` scanned.
        duplicates: Lines whose record another line has brought.
        malformed: Lines that are no message.
    """

    def __init__(self, topics: Collection[str]) -> None:
        self.topics = frozenset(topics)
        self.partitions: list[TopicPartition] = []
        self.files: list[str] = []
        self.spans: dict[str, FileSpan] = {}
        self.fresh_from: Integers = np.zeros(0, np.int64)
        self.duplicates = NO_LINES
        self.malformed = NO_LINES
        self._lines = NO_LINES
        self._partition_ids: dict[TopicPartition, int] = {}
        self._bounds: Integers = np.zeros(1, np.int64)

    def move(self, spans: Mapping[str, FileSpan]) -> None:
        """Scan what is new behind the index; lines before the spans may be forgotten.

        Raises:
            ValueError: A span begins before what the index covers, or ends before its end.
        """
        if not self.can_move(spans):
            raise ValueError("an index cannot go back")
        scanned: list[Lines] = []
        self.fresh_from = np.array([self.spans[name].end_exclusive for name in self.files], np.int64)
        for name, span in spans.items():
            covered = self.spans.get(name)
            start = span.start_inclusive if covered is None else max(covered.end_exclusive, span.start_inclusive)
            if covered is None:
                self.files.append(name)
                self.fresh_from = np.append(self.fresh_from, start)
            if start < span.end_exclusive:
                scanned.append(self._scan(FileSpan(span.path, start, span.end_exclusive), name))
        self.spans = dict(spans)
        if scanned:
            firsts = np.array([self.spans[name].start_inclusive for name in self.files], np.int64)
            kept = Lines.concatenate([self._lines, self.duplicates, self.malformed])
            kept = kept.where(kept.starts >= firsts[kept.file_ids])
            self._arrange(Lines.concatenate([kept, *scanned]))

    def can_move(self, spans: Mapping[str, FileSpan]) -> bool:
        """Whether `move` can reach these spans without reading again what it has forgotten."""
        return self.spans.keys() <= spans.keys() and all(
            spans[file].start_inclusive >= covered.start_inclusive
            and spans[file].end_exclusive >= covered.end_exclusive
            for file, covered in self.spans.items()
        )

    def count(self, tp: TopicPartition, start_inclusive: int, end_exclusive: int | None = None) -> int:
        """How many records of one partition lie in a range, by default in all from its start."""
        first, last = self._slice(tp, start_inclusive, end_exclusive)
        return last - first

    def earliest(self, tp: TopicPartition) -> int:
        """The first offset of a partition; 0 if the index has none."""
        first, last = self._slice(tp, 0, None)
        return int(self._lines.offsets[first]) if first < last else 0

    def end(self, tp: TopicPartition) -> int:
        """Return the offset after the last one of a partition; 0 if the index has none."""
        first, last = self._slice(tp, 0, None)
        return int(self._lines.offsets[last - 1]) + 1 if first < last else 0

    def offset_after(self, tp: TopicPartition, start_inclusive: int, records: int) -> int:
        """The offset behind that many records of one partition, which has at least as many from `start_inclusive`."""
        first, _ = self._slice(tp, start_inclusive, None)
        return int(self._lines.offsets[first + records - 1]) + 1

    def select(self, ranges: Collection[OffsetRange]) -> Lines:
        """The lines whose records are in `ranges`, by partition and offset."""
        slices = (self._slice(r.topic_partition, r.start_inclusive, r.end_exclusive) for r in sorted(ranges))
        chosen = [np.arange(first, last) for first, last in slices]
        return self._lines.where(np.concatenate(chosen)) if chosen else NO_LINES

    def unread(self, ends: Offsets) -> Lines:
        """The lines whose records lie at or above the end of their partition, duplicates included; without one all."""
        return self._where_offset(lambda offsets, bounds: offsets >= bounds, ends)

    def read_before(self, position: Offsets) -> Lines:
        """The lines whose records lie below the position of their partition, duplicates included."""
        return self._where_offset(lambda offsets, bounds: offsets < bounds, position)

    def rejected(self, ranges: Collection[OffsetRange]) -> Lines:
        """The lines that no record of `ranges` stands for though it ought to, by file and position.

        They are the malformed lines in the ranges of the files, and the duplicates there of records in the others.
        """
        bounds = {r.topic_partition: r for r in ranges}
        lowest = self._per_partition({tp: r.start_inclusive for tp, r in bounds.items()})
        highest = self._per_partition({tp: r.end_exclusive for tp, r in bounds.items()})
        again = self.duplicates
        again = again.where(
            (again.offsets >= lowest[again.partition_ids]) & (again.offsets < highest[again.partition_ids])
        )
        starts = np.zeros(len(self.files), np.int64)
        ends = np.zeros(len(self.files), np.int64)
        for file_id, name in enumerate(self.files):
            if (tp := file_partition(name)) in bounds:
                starts[file_id], ends[file_id] = bounds[tp].start_inclusive, bounds[tp].end_exclusive
        found = Lines.concatenate([self.malformed, again])
        found = found.where((found.starts >= starts[found.file_ids]) & (found.starts < ends[found.file_ids]))
        return found.where(np.lexsort((found.starts, found.file_ids)))

    def path(self, file_id: int) -> Path:
        """Where the file with an id is."""
        return self.spans[self.files[file_id]].path

    @property
    def average_line_bytes(self) -> float:
        """Average length of the lines that are messages."""
        return float(self._lines.lengths.mean()) if len(self._lines) else 0.0

    def _where_offset(self, compare: Callable[[Integers, Integers], Mask], bounds: Offsets) -> Lines:
        by_partition = self._per_partition(bounds)
        chosen = [
            lines.where(compare(lines.offsets, by_partition[lines.partition_ids]))
            for lines in (self._lines, self.duplicates)
        ]
        return Lines.concatenate(chosen)

    def _per_partition(self, offsets: Offsets) -> Integers:
        return np.array([offsets.get(tp, 0) for tp in self.partitions], np.int64)

    def _slice(self, tp: TopicPartition, start_inclusive: int, end_exclusive: int | None) -> tuple[int, int]:
        if tp not in self._partition_ids:
            return 0, 0
        partition_id = self._partition_ids[tp]
        begin, end = int(self._bounds[partition_id]), int(self._bounds[partition_id + 1])
        offsets = self._lines.offsets[begin:end]
        first = begin + int(np.searchsorted(offsets, start_inclusive))
        last = end if end_exclusive is None else begin + int(np.searchsorted(offsets, end_exclusive))
        return first, max(first, last)

    def _arrange(self, lines: Lines) -> None:
        """Sort by partition and offset, and tell first lines from duplicates."""
        by_name = np.argsort(sorted(range(len(self.files)), key=self.files.__getitem__))
        order = np.lexsort((lines.starts, by_name[lines.file_ids], lines.offsets, lines.partition_ids))
        lines = lines.where(order)
        self.malformed = lines.where(lines.partition_ids < 0)
        lines = lines.where(lines.partition_ids >= 0)
        again = np.zeros(len(lines), np.bool_)
        again[1:] = (lines.offsets[1:] == lines.offsets[:-1]) & (lines.partition_ids[1:] == lines.partition_ids[:-1])
        self.duplicates = lines.where(again)
        self._lines = lines.where(~again)
        self._bounds = np.searchsorted(self._lines.partition_ids, np.arange(len(self.partitions) + 1))

    def _scan(self, span: FileSpan, name: str) -> Lines:
        partition_ids, offsets, starts, lengths = array("i"), array("q"), array("q"), array("q")
        ids: dict[tuple[str, int], int] = {}  # found again without making a TopicPartition for each line
        for start, line in lines_in(span):
            try:
                message = parse(line)
            except LineError:
                partition_id, offset = -1, 0
            else:
                if message.topic not in self.topics:
                    continue
                name_and_number = message[:2]
                if name_and_number not in ids:
                    ids[name_and_number] = self._partition_id(TopicPartition(*name_and_number))
                partition_id = ids[name_and_number]
                offset = message.offset
            partition_ids.append(partition_id)
            offsets.append(offset)
            starts.append(start)
            lengths.append(len(line))
        return Lines(
            np.array(partition_ids, np.int32),
            np.array(offsets, np.int64),
            np.full(len(starts), self.files.index(name), np.int32),
            np.array(starts, np.int64),
            np.array(lengths, np.int64),
        )

    def _partition_id(self, tp: TopicPartition) -> int:
        if tp not in self._partition_ids:
            self._partition_ids[tp] = len(self.partitions)
            self.partitions.append(tp)
        return self._partition_ids[tp]


def lines_in(span: FileSpan) -> Iterator[tuple[int, bytes]]:
    """Position and bytes (without the newline) of each line that is not blank."""
    with span.path.open("rb") as content:
        content.seek(span.start_inclusive)
        yield from _lines_until(content, span.start_inclusive, span.end_exclusive)


def _lines_until(content: BinaryIO, start: int, end_exclusive: int) -> Iterator[tuple[int, bytes]]:
    for line in content:
        if start >= end_exclusive:
            return
        if not line.isspace():
            yield start, line.rstrip(b"\r\n")
        start += len(line)
