"""Counting what was judged by Spark.

One aggregation of numbers, which Spark hashes in generated code; positions and texts are no numbers, and aggregating them in
the same pass costs more than decoding did. So positions of a snapshot, which all its rows share, are grouped by; the extremes
of streamed ones are looked up among the few changes whose first part is extreme; and bounds of text keys are a pass without
groups. Whether the database's log went back is looked at only if some change is newer than the one that stands highest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from pyiceberg.types import DateType, StringType
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from lakehold.ingest.changes import (
    BEFORE_MISSING,
    CONNECTOR,
    ERROR,
    KEPT,
    KEYLESS,
    OFFSET,
    OP,
    PARTITION,
    PHASE,
    POSITION,
    SOURCE_MS,
    Changes,
    Op,
    Phase,
)
from lakehold.ingest.decode.problems import UNKNOWN_SCHEMA
from lakehold.ingest.decode.types import ColumnType
from lakehold.ingest.judge.arrivals import Arrivals, Bounds, WentBack, bounded
from lakehold.ingest.judge.judging import COUNTS, WINS, in_snapshot
from lakehold.ingest.marks import Marks, Position
from lakehold.ingest.position import position_value
from lakehold.spark_sql import quoted

_COUNTED = (
    "records",
    "errors",
    "unknown_schemas",
    "keyless",
    "upserts",
    "deletes",
    "repeated",
    "null_key_parts",
    "kept",
    "truncates",
    "before_missing",
)
_SHARED = "snapshot_position"


def arrivals_of(judged: DataFrame, changes: Changes, marks: Marks) -> Arrivals:
    """Count `judged`: a row comes back for each partition, phase and snapshot in it. Cache it: it is read up to four times.

    Args:
        judged: The changes as judged.
        changes: The changes.
        marks: Of the table before the batch.
    """
    with_bounds = bounded(changes)
    numbers = [c for c in with_bounds if not isinstance(c.type, StringType)]
    texts = [c for c in with_bounds if isinstance(c.type, StringType)]
    shared = F.when(F.col(COUNTS) & in_snapshot(), F.col(POSITION)).alias(_SHARED)
    groups = judged.groupBy(PARTITION, PHASE, CONNECTOR, shared).agg(*_aggregates(changes), *_bounds(numbers)).collect()
    streamed = _streamed(judged, groups)
    bounds = _bounds_in(groups, numbers)
    if texts:
        bounds |= _bounds_in(judged.agg(*_bounds(texts)).collect(), texts)
    arrived = _combined(groups, streamed, bounds)
    return replace(arrived, went_back=_went_back(judged, groups, streamed, arrived.passed, marks))


def _aggregates(changes: Changes) -> list[SparkColumn]:
    wins, counted = F.col(WINS), F.col(COUNTS)
    null_part = reduce(lambda found, name: found | F.col(quoted(name)).isNull(), changes.key, F.lit(False))
    of_row = F.col(OP).isin(Op.UPSERT.value, Op.DELETE.value)
    counts = {
        "records": F.lit(True),
        "errors": F.col(ERROR).isNotNull(),
        "unknown_schemas": F.col(ERROR) == UNKNOWN_SCHEMA,
        "keyless": F.col(ERROR) == KEYLESS,
        "upserts": wins & (F.col(OP) == Op.UPSERT.value),
        "deletes": wins & (F.col(OP) == Op.DELETE.value),
        "repeated": of_row & ~counted,
        "null_key_parts": wins & null_part,
        "kept": wins & (F.size(KEPT) > 0),
        "truncates": counted & (F.col(OP) == Op.TRUNCATE.value),
        "before_missing": F.col(BEFORE_MISSING),
    }
    first = F.when(counted & ~in_snapshot(), F.col(POSITION).getField("a"))
    return [
        *(F.count_if(condition).alias(name) for name, condition in counts.items()),
        F.min(F.when(F.col(BEFORE_MISSING), F.col(OFFSET))).alias("before_missing_offset"),
        F.min(first).alias("lowest_first"),
        F.max(first).alias("highest_first"),
        F.max(F.when(F.col(POSITION).isNotNull(), F.col(SOURCE_MS))).alias("latest_ms"),
    ]


def _bounds(columns: Iterable[ColumnType]) -> list[SparkColumn]:
    found = []
    for index, column in enumerate(columns):
        stored = F.col(quoted(column.name))
        # Python has no dates before year 1 or after 9999.
        value = F.when(F.col(WINS), F.unix_date(stored) if isinstance(column.type, DateType) else stored)
        found += [F.min(value).alias(f"low_{index}"), F.max(value).alias(f"high_{index}")]
    return found


def _bounds_in(rows: Sequence[Row], columns: Sequence[ColumnType]) -> dict[str, Bounds]:
    found = {}
    for index, column in enumerate(columns):
        lowest = min(_values(rows, f"low_{index}"), default=None)
        if lowest is not None:
            found[column.name] = Bounds(column.type, lowest, max(_values(rows, f"high_{index}")))
    return found


def _streamed(judged: DataFrame, groups: Sequence[Row]) -> Sequence[Row]:
    """Extremes of the positions of streamed changes, by partition: exact, of the changes that may hold them."""
    firsts = [(row[PARTITION], row["highest_first"]) for row in groups if row["highest_first"] is not None]
    if not firsts:
        return []
    first = F.col(POSITION).getField("a")
    extreme = first <= min(_values(groups, "lowest_first"))
    for partition, highest in firsts:
        extreme = extreme | ((F.col(PARTITION) == partition) & (first >= highest))
    truncates = F.col(OP) == Op.TRUNCATE.value
    return (
        judged.filter(F.col(COUNTS) & ~in_snapshot() & (extreme | truncates))
        .groupBy(PARTITION)
        .agg(
            F.max(POSITION).alias("passed"),
            F.max_by(SOURCE_MS, POSITION).alias("passed_ms"),
            F.min(POSITION).alias("lowest"),
            F.max(F.when(F.col(PHASE) == Phase.STREAM.value, F.col(POSITION))).alias("streamed"),
            F.max(F.when(truncates, F.col(POSITION))).alias("truncated"),
        )
        .collect()
    )


def _combined(groups: Sequence[Row], streamed: Sequence[Row], bounds: dict[str, Bounds]) -> Arrivals:
    shared = [(row[PARTITION], row[PHASE], _position(row[_SHARED])) for row in groups if row[_SHARED] is not None]
    passed = [
        *((partition, position) for partition, _, position in shared),
        *((row[PARTITION], _position(row["passed"])) for row in streamed),
    ]
    lowest = [position for _, _, position in shared] + [_position(row["lowest"]) for row in streamed]
    return Arrivals(
        **{name: sum(row[name] for row in groups) for name in _COUNTED},
        truncate_position=max(map(_position, _values(streamed, "truncated")), default=None),
        streamed_position=max(map(_position, _values(streamed, "streamed")), default=None),
        lowest_position=min(lowest, default=None),
        before_missing_offset=min(_values(groups, "before_missing_offset"), default=None),
        connectors=frozenset(_values(groups, CONNECTOR)),
        passed=_highest(passed),
        snapshot_position=max((position for _, _, position in shared), default=None),
        snapshot_ends=_highest(
            (partition, position) for partition, phase, position in shared if phase == Phase.SNAPSHOT_END.value
        ),
        key_bounds=bounds,
        latest_ms=max(_values(groups, "latest_ms"), default=None),
    )


def _went_back(
    judged: DataFrame, groups: Sequence[Row], streamed: Sequence[Row], passed: Mapping[int, Position], marks: Marks
) -> WentBack | None:
    """See `WentBack`. One that goes back and overtakes itself in one batch is not found: the highest change is the newest."""
    suspects: dict[int, tuple[int, Position]] = {}
    for partition in {row[PARTITION] for row in groups}:
        latest_ms = max(_values([row for row in groups if row[PARTITION] == partition], "latest_ms"), default=None)
        highest = max((m[partition] for m in (marks.passed, passed) if partition in m), default=None)
        if highest is None or latest_ms is None or (marks.latest_ms is not None and latest_ms <= marks.latest_ms):
            continue
        at_highest = [
            *(row["latest_ms"] for row in groups if row[PARTITION] == partition and row[_SHARED] == (*highest,)),
            *(row["passed_ms"] for row in streamed if row[PARTITION] == partition and row["passed"] == (*highest,)),
            *([marks.latest_ms] if marks.passed.get(partition) == highest else []),
        ]
        if latest_ms > max((ms for ms in at_highest if ms is not None), default=latest_ms):
            suspects[partition] = (latest_ms, highest)
    return _confirmed(judged, suspects, marks) if suspects else None


def _confirmed(judged: DataFrame, suspects: Mapping[int, tuple[int, Position]], marks: Marks) -> WentBack | None:
    """Whether the newest change of a partition came behind its highest one, and stands before it."""
    position, newest, highest = F.col(POSITION), F.lit(False), F.lit(False)
    for partition, (latest_ms, passed) in suspects.items():
        of_partition = F.col(PARTITION) == partition
        newest = newest | (of_partition & (F.col(SOURCE_MS) == latest_ms) & (position < position_value(passed)))
        highest = highest | (of_partition & (position == position_value(passed)))
    comparable = in_snapshot() | (position.getField("a") != position.getField("b"))
    found = (
        judged.filter(newest | highest)
        .groupBy(PARTITION)
        .agg(
            F.min(F.when(newest & comparable, F.struct(OFFSET, POSITION))).alias("newest"),
            F.min(F.when(highest, F.col(OFFSET))).alias("highest_offset"),
        )
        .orderBy(PARTITION)
        .collect()
    )
    for row in found:
        partition, passed = row[PARTITION], suspects[row[PARTITION]][1]
        was_before = marks.passed.get(partition) == passed
        if row["newest"] is not None and (was_before or row["highest_offset"] < row["newest"][OFFSET]):
            return WentBack(partition, row["newest"][OFFSET], _position(row["newest"][POSITION]), passed)
    return None


def _highest(found: Iterable[tuple[int, Position]]) -> dict[int, Position]:
    by_partition: dict[int, Position] = {}
    for partition, position in found:
        by_partition[partition] = max(position, by_partition.get(partition, position))
    return by_partition


def _values(rows: Iterable[Row], name: str) -> list[Any]:
    return [row[name] for row in rows if row[name] is not None]


def _position(row: Row) -> Position:
    return (row["a"], row["b"], row["c"], row["d"])
