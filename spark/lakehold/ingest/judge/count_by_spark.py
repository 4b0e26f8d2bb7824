"""Counting what was judged by Spark, in one job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from lakehold.ingest.changes import (
    BEFORE_MISSING,
    CONNECTOR,
    ERROR,
    KEPT,
    OFFSET,
    OP,
    PARTITION,
    PHASE,
    POSITION,
    Changes,
    Op,
    Phase,
)
from lakehold.ingest.decode.types import ColumnType
from lakehold.ingest.judge.arrivals import Arrivals, Bounds, bounded
from lakehold.ingest.judge.judging import COUNTS, SNAPSHOT_PHASES, WINS
from lakehold.ingest.marks import Position
from lakehold.session import quoted


def arrivals_of(judged: DataFrame, changes: Changes) -> Arrivals:
    """Run the one Spark job that counts `judged` (at most one row per partition comes back)."""
    with_bounds = bounded(changes)
    rows = judged.groupBy(PARTITION).agg(*_aggregates(changes), *_bounds(with_bounds)).collect()
    return _combined(rows, with_bounds)


def _aggregates(changes: Changes) -> list[SparkColumn]:
    wins = F.col(WINS)
    null_part = F.lit(False)
    for name in changes.key:
        null_part = null_part | F.col(quoted(name)).isNull()
    counted = F.col(COUNTS)
    in_snapshot = counted & F.col(PHASE).isin(*SNAPSHOT_PHASES)
    touches = F.col(OP).isin(Op.UPSERT.value, Op.DELETE.value)
    return [
        F.count(F.lit(1)).alias("records"),
        F.count_if(F.col(ERROR).isNotNull()).alias("errors"),
        F.count_if(wins & (F.col(OP) == Op.UPSERT.value)).alias("upserts"),
        F.count_if(wins & (F.col(OP) == Op.DELETE.value)).alias("deletes"),
        F.count_if(touches & ~counted).alias("repeated"),
        F.count_if(wins & null_part).alias("null_key_parts"),
        F.count_if(wins & (F.size(KEPT) > 0)).alias("kept"),
        F.count_if(counted & (F.col(OP) == Op.TRUNCATE.value)).alias("truncates"),
        F.max(F.when(counted & (F.col(OP) == Op.TRUNCATE.value), F.col(POSITION))).alias("truncate_position"),
        F.max(F.when(counted & (F.col(PHASE) == Phase.STREAM.value), F.col(POSITION))).alias("streamed_position"),
        F.min(F.when(counted, F.col(POSITION))).alias("lowest_position"),
        F.count_if(F.col(BEFORE_MISSING)).alias("before_missing"),
        F.min(F.when(F.col(BEFORE_MISSING), F.col(OFFSET))).alias("before_missing_offset"),
        F.collect_set(CONNECTOR).alias("connectors"),
        F.max(F.when(counted, F.col(POSITION))).alias("passed"),
        F.max(F.when(in_snapshot, F.col(POSITION))).alias("snapshot_position"),
        F.max(F.when(in_snapshot & (F.col(PHASE) == Phase.SNAPSHOT_END.value), F.col(POSITION))).alias(
            "snapshot_end_position"
        ),
    ]


def _bounds(columns: Iterable[ColumnType]) -> list[SparkColumn]:
    found = []
    for index, column in enumerate(columns):
        value = F.when(F.col(WINS), F.col(quoted(column.name)))
        found += [F.min(value).alias(f"low_{index}"), F.max(value).alias(f"high_{index}")]
    return found


def _combined(rows: Sequence[Row], with_bounds: Sequence[ColumnType]) -> Arrivals:
    def total(name: str) -> int:
        return sum(row[name] for row in rows)

    def highest(name: str) -> Position | None:
        return max((_position(row[name]) for row in rows if row[name] is not None), default=None)

    bounds = {}
    for index, column in enumerate(with_bounds):
        lows = [row[f"low_{index}"] for row in rows if row[f"low_{index}"] is not None]
        highs = [row[f"high_{index}"] for row in rows if row[f"high_{index}"] is not None]
        if lows:
            bounds[column.name] = Bounds(column.type, min(lows), max(highs))
    return Arrivals(
        records=total("records"),
        errors=total("errors"),
        upserts=total("upserts"),
        deletes=total("deletes"),
        repeated=total("repeated"),
        null_key_parts=total("null_key_parts"),
        kept=total("kept"),
        truncates=total("truncates"),
        truncate_position=highest("truncate_position"),
        streamed_position=highest("streamed_position"),
        lowest_position=min(
            (_position(row["lowest_position"]) for row in rows if row["lowest_position"] is not None), default=None
        ),
        before_missing=total("before_missing"),
        before_missing_offset=min(
            (row["before_missing_offset"] for row in rows if row["before_missing_offset"] is not None), default=None
        ),
        connectors=frozenset(name for row in rows for name in row["connectors"]),
        passed={row[PARTITION]: _position(row["passed"]) for row in rows if row["passed"] is not None},
        snapshot_position=highest("snapshot_position"),
        snapshot_end_position=highest("snapshot_end_position"),
        key_bounds=bounds,
    )


def _position(row: Row) -> Position:
    return (row["a"], row["b"], row["c"], row["d"])
