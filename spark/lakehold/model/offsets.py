"""Offsets: which records of which partitions, in the JSON form of Spark's Kafka source."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

INTERNAL_PREFIX = "$files/"
"""How names of internal topics begin; no broker has such topics."""


@dataclass(frozen=True, order=True)
class TopicPartition:
    """One partition of a topic."""

    topic: str
    partition: int

    @property
    def is_internal(self) -> bool:
        """Return whether the partition is only for a reader's own use: it is in positions, but feeds no table."""
        return self.topic.startswith(INTERNAL_PREFIX)


@dataclass(frozen=True, order=True)
class OffsetRange:
    """Contiguous records of one partition: `[start_inclusive, end_exclusive)`. Offsets in it may have gaps."""

    topic_partition: TopicPartition
    start_inclusive: int
    end_exclusive: int

    @property
    def is_empty(self) -> bool:
        """Return whether the range can hold no record."""
        return self.end_exclusive <= self.start_inclusive

    @property
    def width(self) -> int:
        """Return the number of offsets, an upper bound of the number of records."""
        return max(0, self.end_exclusive - self.start_inclusive)


@dataclass(frozen=True)
class Watermarks:
    """The offsets that one partition holds: `[earliest, end_exclusive)`. Offsets in it may have gaps.

    `end_exclusive` is the last stable offset: records of open transactions lie at or above it.
    """

    earliest: int
    end_exclusive: int


Offsets = Mapping[TopicPartition, int]
"""An offset for each partition: that of the next record to read, or the one after the last record."""


def to_json(offsets: Offsets) -> str:
    """Convert offsets to `{"topic": {"0": 12}}`, keys sorted, as Spark's `startingOffsets` takes it."""
    nested: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets):
        nested.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return json.dumps(nested, separators=(",", ":"))


def from_json(text: str) -> dict[TopicPartition, int]:
    """Read the text of `to_json`."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in json.loads(text).items()
        for partition, offset in partitions.items()
    }


def ranges(start: Offsets, end: Offsets) -> tuple[OffsetRange, ...]:
    """Return the non-empty ranges between `start` and `end`; a partition that `start` lacks begins at 0."""
    found = (OffsetRange(tp, start.get(tp, 0), end[tp]) for tp in sorted(end))
    return tuple(r for r in found if not r.is_empty)


def starts(of: Iterable[OffsetRange]) -> dict[TopicPartition, int]:
    """Return the start of each range (inclusive)."""
    return {r.topic_partition: r.start_inclusive for r in of}


def ends(of: Iterable[OffsetRange]) -> dict[TopicPartition, int]:
    """Return the end of each range (exclusive)."""
    return {r.topic_partition: r.end_exclusive for r in of}
