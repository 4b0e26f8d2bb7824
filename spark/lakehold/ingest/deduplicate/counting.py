"""Computes the statistics of a batch from the headers of its changes and the decisions on them (`engine.py`). Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehold.ingest.deduplicate.change_headers import Headers
from lakehold.ingest.deduplicate.engine import Decisions, high_water_ranks
from lakehold.ingest.deduplicate.positions import Booleans, Groups, Integers
from lakehold.ingest.deduplicate.statistics import BatchStatistics, WentBack
from lakehold.model.high_water_marks import HighWaterMarks, Position
from lakehold.tables.bounds import Bounds


def statistics_of(headers: Headers, decisions: Decisions, high_water_marks: HighWaterMarks) -> BatchStatistics:
    """Compute the statistics of a batch.

    Args:
        headers: The changes.
        decisions: The decisions on them.
        high_water_marks: The table's high-water marks before the batch.
    """
    counts, applied, ranks = decisions.counts, decisions.applied, headers.positions.ranks
    lacks_values = np.zeros(len(headers), bool)
    lacks_values[headers.kept.rows] = True
    counting_ranks = ranks[counts & (ranks > 0)]
    return BatchStatistics(
        records=_records(headers),
        reasons=headers.errors,
        upserts=_count(applied & headers.is_upsert),
        deletes=_count(applied & headers.is_delete),
        repeated=_count(headers.changes_row & ~counts),
        null_key_parts=_count(applied & headers.key_has_null),
        kept=_count(applied & lacks_values),
        truncates=_count(counts & headers.is_truncate),
        streamed_position=_highest(headers, counts & headers.is_streamed),
        lowest_position=headers.positions.at(int(counting_ranks.min())) if len(counting_ranks) else None,
        before_missing=_count(headers.before_missing),
        before_missing_offset=_extreme(np.min, headers.offset[headers.before_missing]),
        connectors=headers.connectors,
        highest_positions=_highest_by_partition(headers, counts),
        snapshot_position=_highest(headers, counts & headers.in_snapshot),
        snapshot_ends=_highest_by_partition(headers, counts & headers.ends_snapshot),
        key_bounds=_key_bounds(headers, applied),
        latest_ms=_extreme(np.max, headers.source_ms[(ranks > 0) & headers.has_source_ms]),
        went_back=_went_back(headers, high_water_marks),
        restarted_offset=_restarted_offset(headers, high_water_marks),
    )


def _records(headers: Headers) -> int:
    """Count the messages: an update without a key makes two changes."""
    if not headers.is_multiset:
        return len(headers)
    return len(np.unique(np.stack([headers.partition, headers.offset]), axis=1).T)


def _count(selected: Booleans) -> int:
    return int(np.count_nonzero(selected))


def _extreme(of: Callable[[Integers], np.int64], values: Integers) -> int | None:
    return int(of(values)) if len(values) else None


def _highest(headers: Headers, selected: Booleans) -> Position | None:
    return headers.positions.at(int(headers.positions.ranks[selected].max(initial=0)))


def _highest_by_partition(headers: Headers, selected: Booleans) -> dict[int, Position]:
    partitions, index = np.unique(headers.partition[selected], return_inverse=True)
    highest = np.zeros(len(partitions), np.int64)
    np.maximum.at(highest, index, headers.positions.ranks[selected])
    found = zip(partitions.tolist(), map(headers.positions.at, highest.tolist()), strict=True)
    return {partition: position for partition, position in found if position is not None}


def _key_bounds(headers: Headers, applied: Booleans) -> Mapping[str, Bounds]:
    found = {}
    for name, (kind, values) in headers.bounded.items():
        extremes = pc.min_max(values.filter(pa.array(applied)))
        if extremes["min"].is_valid:
            found[name] = Bounds(kind, extremes["min"].as_py(), extremes["max"].as_py())
    return found


def _went_back(headers: Headers, high_water_marks: HighWaterMarks) -> WentBack | None:
    """Find the first change that shows that the upstream log went back, as after a restore.

    It has a lower position than an earlier change of its partition, or than the high-water mark, but a later commit time than
    every change before it. A repeat also has a lower position, but no later commit time.
    """
    known = np.flatnonzero((headers.positions.ranks > 0) & headers.has_source_ms)
    partition = Groups.by(headers.partition[known], headers.offset[known])
    rows = known[partition.rows]
    ranks, high_water = headers.positions.ranks[rows], high_water_ranks(headers, high_water_marks)[rows]
    highest = partition.highest_before(ranks)
    times, seen = _time_ranks(headers.source_ms[rows], high_water_marks.latest_ms)
    latest = np.maximum(partition.highest_before(times), seen)
    found = np.flatnonzero((ranks < np.maximum(highest, high_water)) & (latest > 0) & (times > latest))
    found = found[_is_comparable(headers, rows[found])]
    if not len(found):
        return None
    first = found[np.lexsort((headers.partition[rows[found]], headers.offset[rows[found]]))[0]]
    of_partition, offset = int(headers.partition[rows[first]]), int(headers.offset[rows[first]])
    position, before = headers.positions.at(int(ranks[first])), headers.positions.at(int(highest[first]))
    if before is None or high_water[first] > highest[first]:
        before = high_water_marks.positions[of_partition]
    return None if position is None else WentBack(of_partition, offset, position, before)


def _restarted_offset(headers: Headers, high_water_marks: HighWaterMarks) -> int | None:
    """Find where rows without a key begin a snapshot again that is not later than the one before at the same log position.

    A connector of MySQL or MariaDB that was restarted within a second, or after the server's clock went back, sends such rows.
    """
    if not headers.is_multiset:
        return None
    known = np.flatnonzero(headers.in_snapshot & (headers.positions.ranks > 0))
    partition = Groups.by(headers.partition[known], headers.offset[known])
    rows = known[partition.rows]
    ranks, starts = headers.positions.ranks[rows], headers.starts_snapshot[rows]
    follows_end = np.zeros(len(rows), bool)
    follows_end[1:] = headers.ends_snapshot[rows[:-1]] & ~partition.begins[1:]
    places = headers.positions.distinct[ranks // 2 - 1, :2]
    highest = partition.highest_before(ranks)
    is_same = (highest > 0) & (places == headers.positions.distinct[highest // 2 - 1, :2]).all(axis=1)
    restarts = is_same & (ranks <= highest) & (starts | follows_end)
    shown = high_water_marks.snapshot
    if shown is not None:
        is_shown = (places == shown.position[:2]).all(axis=1) & (ranks <= headers.positions.rank_of(shown.position))
        restarts |= is_shown & (starts | shown.complete)
    return _extreme(np.min, headers.offset[rows[restarts]])


def _time_ranks(source_ms: Integers, seen_ms: int | None) -> tuple[Integers, int]:
    """Return the ranks of times, from 1, and the rank of `seen_ms` among them; 0 if it is None."""
    seen = np.array([] if seen_ms is None else [seen_ms], np.int64)
    ranks = 1 + np.unique(np.concatenate((source_ms, seen)), return_inverse=True)[1]
    return ranks[: len(source_ms)], int(ranks[len(source_ms) :].max(initial=0))


def _is_comparable(headers: Headers, rows: Integers) -> Booleans:
    """Mark changes whose position is certain.

    In PostgreSQL a position begins with the LSN of the commit before the transaction. In a connector's first transaction that is
    unknown, and the change's own LSN, the second number, replaces it.
    """
    # Known positions have even ranks, from 2 on; a rank in between stands for a position that no change has.
    positions = headers.positions.distinct[headers.positions.ranks[rows] // 2 - 1]
    is_comparable: Booleans = headers.in_snapshot[rows] | (positions[:, 0] != positions[:, 1])
    return is_comparable
