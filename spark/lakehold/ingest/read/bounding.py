"""Plans one batch: which offset range of each partition it reads. Both readers (`kafka.py`, `files.py`) plan with it.

A plan starts at the reader's position, the offset of the next record of each partition, and keeps to the limits of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lakehold.ingest.read.offset_checks import added_partitions
from lakehold.ingest.read.reader import FetchedOffsets, Limits, ReadPlan
from lakehold.model.offsets import OffsetRange, Offsets, TopicPartition, ends

_SAMPLED_PARTITIONS = 8
_SAMPLED_RECORDS = 25
_ASSUMED_RECORD_BYTES = 1_000.0
"""The record size in bytes that is assumed if a sample has no record: its offsets were Kafka's transaction markers."""


class Backlog(Protocol):
    """The records that a reader has not read yet, as planning needs them: counted, not read.

    `KafkaReader` counts offsets; files have an index of their lines.
    """

    def count(self, r: OffsetRange, /) -> int:
        """Return the number of records in a range, or more: Kafka's offsets without a record count, too."""

    def end_after(self, r: OffsetRange, records: int, /) -> int:
        """Return the end offset (exclusive) of the part of a range that has its first `records` records.

        `records` is at least 1 and at most `count` of the range.
        """

    def record_bytes(self, ranges: Collection[OffsetRange], /) -> float:
        """Estimate the average size of the records in some ranges: bytes of key and value together."""


def plan_batch(fetched: FetchedOffsets, position: Offsets, limits: Limits, backlog: Backlog) -> ReadPlan:
    """Plan ranges that begin at `position`, within `limits` and fair over partitions (`fair_shares`).

    When a topic gets more partitions, the changes of a key may continue in another one once the producer knows that, at the
    latest with its first record in a new partition. Up to the batch with such a record, each batch takes all records of the
    topic, whatever the limits, so that the changes can be put into the order of their positions in the upstream's log.

    Args:
        fetched: Where the partitions begin and end.
        position: The offset of the next record of each partition; one that is not named starts at its earliest offset.
        limits: The size of the batch.
        backlog: Counts records.
    """
    unread = _ranges(fetched, position, {})
    counts = {r.topic_partition: backlog.count(r) for r in unread}
    waiting = [r for r in unread if counts[r.topic_partition]]
    record_bytes = (limits.record_bytes or backlog.record_bytes(waiting)) if waiting else 0
    shares = fair_shares(counts, record_budget(limits, record_bytes))
    grown = {tp.topic for tp in added_partitions(fetched, position)}
    reached = {
        r.topic_partition: backlog.end_after(r, shares[r.topic_partition])
        for r in waiting
        if r.topic_partition.topic not in grown
    }
    return _plan(fetched, position, _ranges(fetched, position, reached), backlog, record_bytes)


def plan_to(fetched: FetchedOffsets, position: Offsets, ends: Offsets, backlog: Backlog) -> ReadPlan:
    """Plan ranges from `position` to `ends` (exclusive), of any size; partitions that `ends` does not name are skipped."""
    wanted = [r for r in _ranges(fetched, position, ends) if r.topic_partition in ends]
    return _plan(fetched, position, wanted, backlog, backlog.record_bytes(wanted) if wanted else 0)


def sampled_record_bytes(read: Callable[[Collection[OffsetRange]], pa.Table], ranges: Collection[OffsetRange]) -> float:
    """Return the average size of records (bytes of key and value), from the first ones of the longest ranges.

    Args:
        read: Reads the records of ranges, with the columns `key` and `value`.
        ranges: At most one range of each partition.
    """
    sample = [
        replace(r, end_exclusive=min(r.end_exclusive, r.start_inclusive + _SAMPLED_RECORDS))
        for r in sorted(ranges, key=lambda r: r.width, reverse=True)[:_SAMPLED_PARTITIONS]
    ]
    records = read(sample)
    sizes = [pc.sum(pc.binary_length(records[name])).as_py() or 0 for name in ("key", "value")]
    return sum(sizes) / records.num_rows if records.num_rows else _ASSUMED_RECORD_BYTES


def _ranges(fetched: FetchedOffsets, position: Offsets, ends: Offsets) -> list[OffsetRange]:
    """Return ranges from the position of each partition to its end in `ends`, or else to its fetched end; no empty ones."""
    found = (
        OffsetRange(
            tp,
            position.get(tp, watermarks.earliest),
            min(watermarks.end_exclusive, ends.get(tp, watermarks.end_exclusive)),
        )
        for tp, watermarks in sorted(fetched.partitions.items())
    )
    return [r for r in found if not r.is_empty]


def _plan(
    fetched: FetchedOffsets, position: Offsets, chosen: list[OffsetRange], backlog: Backlog, record_bytes: float
) -> ReadPlan:
    """Return the plan that takes some ranges; ranges without records are skipped."""
    counts = {r: backlog.count(r) for r in chosen}
    known = fetched.partitions.keys() - _without_first_record(fetched, position)
    reached = {tp: position.get(tp, fetched.partitions[tp].earliest) for tp in known} | ends(chosen)
    left = (OffsetRange(tp, at, fetched.partitions[tp].end_exclusive) for tp, at in reached.items())
    records = sum(counts.values())
    return ReadPlan(
        ranges=tuple(r for r, count in counts.items() if count),
        position={**position, **reached},
        records=records,
        size_bytes=int(records * record_bytes),
        remaining=sum(map(backlog.count, left)),
    )


def _without_first_record(fetched: FetchedOffsets, position: Offsets) -> frozenset[TopicPartition]:
    """Return new partitions of topics without a record in any new one: that they are new must stay known until then."""
    added = added_partitions(fetched, position)
    with_records = {tp.topic for tp in added if fetched.partitions[tp].end_exclusive > 0}
    return frozenset(tp for tp in added if tp.topic not in with_records)


def record_budget(limits: Limits, record_bytes: float) -> int:
    """Return how many records both limits allow if a record has `record_bytes` on average; at least one."""
    return max(1, min(limits.max_records, int(limits.max_bytes / max(record_bytes, 1.0))))


def fair_shares(backlogs: Mapping[TopicPartition, int], budget: int) -> dict[TopicPartition, int]:
    """Split `budget`, a number of records, over partitions: small backlogs whole, large ones equally (max-min fairness).

    Every partition with a backlog gets at least one, whatever the budget: otherwise a partition could wait for ever for
    busier ones.

    Args:
        backlogs: The number of unread records of each partition.
        budget: The number of records to split.

    Returns:
        The share of each partition with a backlog, never more than the backlog.
    """
    shares: dict[TopicPartition, int] = {}
    waiting = sorted(((backlog, tp) for tp, backlog in backlogs.items() if backlog > 0))
    left = budget
    for done, (backlog, tp) in enumerate(waiting):
        equal_share = left // (len(waiting) - done)
        shares[tp] = max(1, min(backlog, equal_share))
        left = max(0, left - shares[tp])
    return shares
