"""One batch of a FILES source, from the index of its lines. Pure."""

from __future__ import annotations

import numpy as np

from lakehold.ingest.read.bounding import fair_shares, record_budget
from lakehold.ingest.read.line_index import Integers, LineIndex, Lines
from lakehold.ingest.read.lines import file_of, file_partition
from lakehold.ingest.read.reader import Limits, ReadPlan
from lakehold.model.offsets import OffsetRange, Offsets, TopicPartition

_PAYLOAD_SHARE = 0.75
"""Bytes of keys and values in a byte of a line, roughly: base64 makes four bytes of three."""


def plan_batch(index: LineIndex, position: Offsets, limits: Limits) -> ReadPlan:
    """The next batch within `limits`, fair over partitions."""
    starts = _starts(index, position)
    record_bytes = limits.record_bytes or index.average_line_bytes * _PAYLOAD_SHARE
    backlogs = {tp: index.count(tp, start) for tp, start in starts.items()}
    shares = fair_shares(backlogs, record_budget(limits, record_bytes))
    ends = {tp: index.offset_after(tp, starts[tp], share) for tp, share in shares.items()}
    return plan_to(index, position, ends, max_rejected=limits.max_records)


def plan_to(index: LineIndex, position: Offsets, ends: Offsets, *, max_rejected: int | None = None) -> ReadPlan:
    """The batch that takes what lies below `ends`.

    Args:
        index: The lines from the files' positions on.
        position: Where the last batch ended.
        ends: For partitions of topics.
        max_rejected: How many malformed lines the batch may give; the files' positions stop before the next one.
    """
    starts = _starts(index, position)
    taken = [OffsetRange(tp, start, ends[tp]) for tp, start in starts.items() if ends.get(tp, start) > start]
    reached = {**starts, **{r.topic_partition: r.end_exclusive for r in taken}}
    file_ends = _file_ends(index, reached)
    passed = _file_ranges(index, file_ends)
    rejected = index.rejected([*taken, *passed])
    if max_rejected is not None and len(rejected) > max_rejected:
        _lower(file_ends, rejected.where(np.arange(max_rejected, len(rejected))))
        passed = _file_ranges(index, file_ends)
        rejected = index.rejected([*taken, *passed])
    selected = index.select(taken)
    before = index.read_before(starts)
    return ReadPlan(
        ranges=tuple(sorted(r for r in (*taken, *passed) if not r.is_empty)),
        position={**position, **reached, **{r.topic_partition: r.end_exclusive for r in passed}},
        records=len(selected),
        size_bytes=int(selected.lengths.sum() * _PAYLOAD_SHARE),
        remaining=sum(index.count(tp, end) for tp, end in reached.items()),
        skipped=int((before.starts >= index.fresh_from[before.file_ids]).sum()),
        malformed=len(rejected),
        ends={tp: max(index.end(tp), position.get(tp, 0)) for tp in {*starts, *_of_topics(position)}},
    )


def _of_topics(position: Offsets) -> list[TopicPartition]:
    return [tp for tp in position if file_of(tp) is None]


def _starts(index: LineIndex, position: Offsets) -> dict[TopicPartition, int]:
    return {tp: position[tp] if tp in position else index.earliest(tp) for tp in index.partitions}


def _file_ends(index: LineIndex, reached: Offsets) -> Integers:
    """Where the first line of each file is that has still to be read."""
    ends = np.array([index.spans[name].end_exclusive for name in index.files], np.int64)
    _lower(ends, index.unread(reached))
    return ends


def _lower(file_ends: Integers, lines: Lines) -> None:
    np.minimum.at(file_ends, lines.file_ids, lines.starts)


def _file_ranges(index: LineIndex, file_ends: Integers) -> list[OffsetRange]:
    return [
        OffsetRange(file_partition(name), index.spans[name].start_inclusive, int(end))
        for name, end in zip(index.files, file_ends, strict=True)
    ]
