"""Which way changes take into a table: the cheapest that is right."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from lakehold.catalog.column_bounds import ColumnBounds
from lakehold.catalog.data_tables import DataTables, TableState
from lakehold.ingest import merge
from lakehold.ingest.changes import Changes
from lakehold.ingest.judge.arrivals import Bounds
from lakehold.ingest.judge.judgement import Judgement
from lakehold.spark_sql import quoted


def path_of(
    name: str, changes: Changes, judgement: Judgement, state: TableState, tables: DataTables
) -> merge.Append | merge.Merge | None:
    """The cheapest path that is right; None when no row can change."""
    arrived = judgement.arrived
    if state.row_count == 0:
        if arrived.upserts == 0:
            return None
        return merge.Append(name, state.snapshot_id, F.lit(True), keeps_values=arrived.kept > 0)
    if not (arrived.deletes or arrived.null_key_parts or judgement.replaces_all):
        disjoint = _disjoint(arrived.key_bounds, tables.column_bounds(state, arrived.key_bounds))
        if disjoint is not None:
            return merge.Append(name, state.snapshot_id, disjoint, keeps_values=arrived.kept > 0)
    return merge.Merge(
        name,
        changes.key,
        null_safe=arrived.null_key_parts > 0,
        bounds=arrived.key_bounds,
        has_deletes=arrived.deletes > 0,
        has_upserts=arrived.upserts > 0,
        keeps_values=arrived.kept > 0,
        replaces_all=judgement.replaces_all,
    )


def _disjoint(bounds: Mapping[str, Bounds], stored: Mapping[str, ColumnBounds | None]) -> SparkColumn | None:
    """The range of a key column in which the batch lies and no row of the table does."""
    for name, b in bounds.items():
        held = stored[name]
        if held is not None and held.excludes(b.lowest, b.highest):
            lowest, highest = (merge.key_value(b.type, value) for value in (b.lowest, b.highest))
            return F.col(quoted(name)).between(lowest, highest)
    return None
