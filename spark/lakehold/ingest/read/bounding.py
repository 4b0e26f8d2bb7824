"""Plans one batch: how much each partition contributes to it."""

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
"""The size for a plan without records: the sample contained only transaction markers."""


class Backlog(Protocol):
    """The interface to records that a reader has not read."""

    def count(self, r: OffsetRange, /) -> int:
        """Return the number of records in a range; an upper bound."""

    def end_after(self, r: OffsetRange, records: int, /) -> int:
        """Return the end of the first so many records of a range, at least one and no more than it has."""

    def record_bytes(self, ranges: Collection[OffsetRange], /) -> float:
        """Estimate the average size of the records in some ranges."""


def plan_batch(fetched: FetchedOffsets, position: Offsets, limits: Limits, backlog: Backlog) -> ReadPlan:
    """Plan ranges that begin at `position`, within `limits` and fair over partitions.

    When a topic gets more partitions, the changes of a key may continue in another one once the producer knows that, at the
    latest with its first record in a new partition. Until a batch contains such a record, the batch takes all records of the
    topic, so that the changes can be put into the order of their positions.
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
    """Plan ranges from `position` to `ends`; partitions that `ends` does not name are skipped."""
    wanted = [r for r in _ranges(fetched, position, ends) if r.topic_partition in ends]
    return _plan(fetched, position, wanted, backlog, backlog.record_bytes(wanted) if wanted else 0)


def sampled_record_bytes(read: Callable[[Collection[OffsetRange]], pa.Table], ranges: Collection[OffsetRange]) -> float:
    """Return the average size of the first records of some ranges."""
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
    """Return how many records of `record_bytes` on average both limits allow, at least one."""
    return max(1, min(limits.max_records, int(limits.max_bytes / max(record_bytes, 1.0))))


def fair_shares(backlogs: Mapping[TopicPartition, int], budget: int) -> dict[TopicPartition, int]:
    """Split `budget` over partitions: small backlogs whole, large ones equally (max-min fairness).

    Every partition with a backlog gets at least one, whatever the budget: otherwise a partition could wait for ever for
    busier ones.

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
