"""An index of the lines of a FILES source's directory: which offsets they have, and where to read them. It grows with the files.

Each line is a message that names its topic, partition and offset, in any order. So only an index can say where the records of an
offset range are. It keeps one entry for a few hundred lines, and single entries only for unusable lines: those that are no
message, or repeat the offset of another line.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from threading import RLock

import numpy as np
from numpy.typing import NDArray

from lakehold.ingest.read.file_chunks import Chunk, Key, Wanted, wanted_of
from lakehold.ingest.read.lines import LineError, lines_in, parse
from lakehold.ingest.read.source_directory import begins_line, identity_of, reading, recorded_files
from lakehold.model.offsets import OffsetRange, Offsets, TopicPartition, Watermarks

_RANGE_LINES = 500
_CHUNK_LINES = 50_000
_NO_MESSAGE = 0
"""Stands for the partition of a line that is not a message."""


class _Spans:
    """The offsets of one partition, as ordered ranges that neither overlap nor touch: one, if there are no gaps.

    Args:
        number: The number that stands for the partition in `IndexedFile.numbers`.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.firsts = array("q")
        self.ends = array("q")

    def add(self, offset: int) -> bool:
        """Add an offset; return whether it is new."""
        at = bisect_right(self.firsts, offset)
        if at and offset < self.ends[at - 1]:
            return False
        follows = at > 0 and self.ends[at - 1] == offset
        precedes = at < len(self.firsts) and self.firsts[at] == offset + 1
        if follows and precedes:
            self.firsts.pop(at)
            self.ends[at - 1] = self.ends.pop(at)
        elif follows:
            self.ends[at - 1] = offset + 1
        elif precedes:
            self.firsts[at] = offset
        else:
            self.firsts.insert(at, offset)
            self.ends.insert(at, offset + 1)
        return True

    def count(self, start: int, end: int) -> int:
        """Return how many offsets are in a range."""
        return int(self._widths(start, end).sum())

    def end_after(self, start: int, records: int) -> int:
        """Return the end (exclusive) of the range from `start` that has `records` offsets: at least 1, and no more than exist."""
        reached = np.cumsum(self._widths(start, self.ends[-1]))
        at = int(np.searchsorted(reached, records))
        return self.ends[at] - int(reached[at] - records)

    def _widths(self, start: int, end: int) -> NDArray[np.int64]:
        firsts, ends = np.array(self.firsts, np.int64), np.array(self.ends, np.int64)
        widths: NDArray[np.int64] = np.minimum(ends, end) - np.maximum(firsts, start)
        return np.maximum(widths, 0)


@dataclass(slots=True)
class _LineRange:
    """A range of consecutive lines of a file: bytes `[start, end)`, and each partition's lowest and highest offset."""

    start: int
    end: int
    lines: int = 0
    offsets: dict[Key, tuple[int, int]] = field(default_factory=dict)

    def add(self, key: Key, offset: int) -> None:
        lowest, highest = self.offsets.get(key, (offset, offset))
        self.offsets[key] = min(lowest, offset), max(highest, offset)

    def has(self, wanted: Wanted) -> bool:
        """Return whether the lines may contain records of some ranges."""
        return any(
            key in wanted and lowest < wanted[key][1] and highest >= wanted[key][0]
            for key, (lowest, highest) in self.offsets.items()
        )


class IndexedFile:
    """One file as far as it is indexed.

    Attributes:
        path: Its path.
        identity: Distinguishes it from a later file of its name; None while it has no line.
        end: Byte position up to which it is indexed.
        line_ranges: Its lines, in ranges of up to `_RANGE_LINES`.
        starts: Byte positions of unusable lines, ascending.
        numbers: For each unusable line the number of the partition whose offset it repeats; `_NO_MESSAGE` if it is no message.
        offsets: For each unusable line the offset that it repeats; 0 if it is no message.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.identity: str | None = None
        self.end = 0
        self.line_ranges: list[_LineRange] = []
        self.starts = array("q")
        self.numbers = array("i")
        self.offsets = array("q")

    def is_same(self) -> bool:
        """Return whether the file still contains the indexed part, judging by its first line and the last byte."""
        if self.identity is None:
            return True
        has_all = self.path.stat().st_size >= self.end and begins_line(self.path, self.end)
        return has_all and self.identity == identity_of(self.path)

    def last_range_for(self, start: int) -> _LineRange:
        """Return the line range to which a line belongs that begins at `start`, after all others: the last one, or a new one."""
        if not self.line_ranges or self.line_ranges[-1].lines >= _RANGE_LINES:
            self.line_ranges.append(_LineRange(start, start))
        return self.line_ranges[-1]

    def reject(self, start: int, number: int, offset: int) -> None:
        """Record an unusable line, see the attributes `starts`, `numbers` and `offsets`."""
        self.starts.append(start)
        self.numbers.append(number)
        self.offsets.append(offset)


class LineIndex:
    """The lines of all `*.jsonl` files in and below a directory. Thread-safe.

    Among several lines with the same topic, partition and offset, the one found first counts: by fetches, then in the order
    of file names and positions. The others are *repeats*.

    Args:
        directory: The directory.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = RLock()
        self._files: dict[str, IndexedFile] = {}
        self._partitions: dict[Key, _Spans] = {}

    def grow(self) -> None:
        """Add new lines. Everything is read again if a file is gone, has shrunk or was replaced.

        Raises:
            UpstreamError: The directory does not exist.
            UpstreamUnavailable: Something in it cannot be read.
        """
        with self._lock:
            paths = recorded_files(self._directory)
            with reading(self._directory):
                if not all(name in paths and file.is_same() for name, file in self._files.items()):
                    self._files, self._partitions = {}, {}
                for name, path in paths.items():
                    self._scan(self._files.setdefault(name, IndexedFile(path)))

    def files(self) -> Mapping[str, IndexedFile]:
        """Return the files by path relative to the directory."""
        with self._lock:
            return dict(self._files)

    def watermarks(self, topics: Collection[str]) -> dict[TopicPartition, Watermarks]:
        """Return the first offset and the end (exclusive) of each partition of some topics."""
        with self._lock:
            return {
                TopicPartition(*key): Watermarks(spans.firsts[0], spans.ends[-1])
                for key, spans in self._partitions.items()
                if key[0] in topics
            }

    def count(self, r: OffsetRange) -> int:
        """Return how many records a range has."""
        with self._lock:
            spans = self._partitions.get(_key(r.topic_partition))
            return 0 if spans is None else spans.count(r.start_inclusive, r.end_exclusive)

    def end_after(self, r: OffsetRange, records: int) -> int:
        """Return the end offset (exclusive) of the first `records` records of `r`: at least 1, and no more than it has."""
        with self._lock:
            return self._partitions[_key(r.topic_partition)].end_after(r.start_inclusive, records)

    def rejected(self, name: str, start: int, end_exclusive: int, position: Offsets) -> NDArray[np.int64]:
        """Return the byte positions at which unusable lines begin, in a part of a file.

        Args:
            name: The file, by its path relative to the directory.
            start: Where the part begins, in bytes.
            end_exclusive: Where it ends.
            position: A repeat counts if it repeats an offset at or above its partition's offset here: the first line with this
                offset was not read before. Repeats in partitions that are not named do not count.
        """
        with self._lock:
            if (file := self._files.get(name)) is None:
                return np.array([], np.int64)
            least = np.full(len(self._partitions) + 1, np.iinfo(np.int64).max)
            least[_NO_MESSAGE] = 0
            for tp, at in position.items():
                if (spans := self._partitions.get(_key(tp))) is not None:
                    least[spans.number] = at
            starts: NDArray[np.int64] = np.array(file.starts, np.int64)
            is_counted = np.array(file.offsets, np.int64) >= least[np.array(file.numbers, np.int32)]
        return starts[(starts >= start) & (starts < end_exclusive) & is_counted]

    def chunks(self, ranges: Collection[OffsetRange], parallelism: int = 1) -> list[Chunk]:
        """Return the parts of files that may have records of ranges: at least `parallelism`, if each gets some hundred lines."""
        with self._lock:
            found = list(self._line_ranges(wanted_of(ranges)))
            most_lines = min(_CHUNK_LINES, sum(line_range.lines for _, line_range in found) // parallelism)
            parts: list[tuple[IndexedFile, _LineRange]] = []
            for file, line_range in found:
                last = parts[-1][1] if parts and parts[-1][0] is file else None
                if last is not None and last.end == line_range.start and last.lines + line_range.lines <= most_lines:
                    last.end, last.lines = line_range.end, last.lines + line_range.lines
                else:
                    parts.append((file, _LineRange(line_range.start, line_range.end, line_range.lines)))
            return [Chunk(str(file.path), part.start, part.end, _repeats(file, part)) for file, part in parts]

    def _line_ranges(self, wanted: Wanted) -> Iterator[tuple[IndexedFile, _LineRange]]:
        for file in self._files.values():
            yield from ((file, line_range) for line_range in file.line_ranges if line_range.has(wanted))

    def _scan(self, file: IndexedFile) -> None:
        for start, end, line in lines_in(file.path, file.end):
            file.identity = file.identity or identity_of(file.path)
            file.end = end
            if not line.strip():
                continue
            line_range = file.last_range_for(start)
            line_range.end = end
            line_range.lines += 1
            try:
                topic, partition, offset, *_ = parse(line)
            except LineError:
                file.reject(start, _NO_MESSAGE, 0)
                continue
            key = topic, partition
            if (spans := self._partitions.get(key)) is None:
                spans = self._partitions[key] = _Spans(len(self._partitions) + 1)
            if spans.add(offset):
                line_range.add(key, offset)
            else:
                file.reject(start, spans.number, offset)


@lru_cache(maxsize=64)
def shared_index(directory: Path) -> LineIndex:
    """Return the process's index of a directory, which all its readers share."""
    return LineIndex(directory)


def _repeats(file: IndexedFile, part: _LineRange) -> list[int]:
    first, last = (int(at) for at in np.searchsorted(np.array(file.starts), (part.start, part.end)))
    return [file.starts[at] for at in range(first, last) if file.numbers[at] != _NO_MESSAGE]


def _key(tp: TopicPartition) -> Key:
    return tp.topic, tp.partition
