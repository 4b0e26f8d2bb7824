"""Chooses the path of deduplicated changes into a table: the cheapest correct one of those in `merge.py`."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from lakehold.iceberg.column_bounds import ColumnBounds
from lakehold.iceberg.data_tables import DataTables, TableState
from lakehold.ingest.deduplicate.deduplication import Deduplicated
from lakehold.ingest.envelope.change_columns import Changes
from lakehold.ingest.write import merge
from lakehold.spark_sql import quoted
from lakehold.tables.bounds import Bounds, key_value


def path_of(
    name: str, changes: Changes, found: Deduplicated, state: TableState, tables: DataTables
) -> merge.Append | merge.Merge | None:
    """Choose the cheapest correct path; None if no row can change.

    Args:
        name: The table's full name in SQL, quoted.
        changes: The changes of the batch.
        found: The same, deduplicated.
        state: The table.
        tables: Reads the bounds of its keys.
    """
    statistics = found.statistics
    if state.row_count == 0 and statistics.upserts == 0:
        return None
    if state.row_count == 0 or (changes.is_multiset and found.replaces_all):
        return merge.Append(
            name,
            state.snapshot_id,
            F.lit(True),
            keeps_values=statistics.kept > 0,
            distribution=merge.distribution_of(state),
        )
    if not (statistics.deletes or statistics.null_key_parts or found.replaces_all):
        disjoint = _disjoint(statistics.key_bounds, state, tables)
        if disjoint is not None:
            return merge.Append(
                name,
                state.snapshot_id,
                disjoint,
                keeps_values=statistics.kept > 0,
                distribution=merge.distribution_of(state),
            )
    return merge.Merge(
        name,
        changes.key,
        null_safe=statistics.null_key_parts > 0,
        bounds=statistics.key_bounds,
        has_deletes=statistics.deletes > 0,
        has_upserts=statistics.upserts > 0,
        keeps_values=statistics.kept > 0,
        replaces_all=found.replaces_all,
    )


def _disjoint(bounds: Mapping[str, Bounds], state: TableState, tables: DataTables) -> SparkColumn | None:
    """Return a key column's range that contains the batch and no row of the table.

    If the batch overlaps what the table had before, it most likely overlaps what the table has now: then MERGE, which is correct
    in any case, needs no bounds.
    """
    before = tables.last_column_bounds(state, bounds)
    if before is not None and _outside(bounds, before) is None:
        return None
    return _outside(bounds, tables.column_bounds(state, bounds))


def _outside(bounds: Mapping[str, Bounds], stored: Mapping[str, ColumnBounds | None]) -> SparkColumn | None:
    """Return a key column's range that contains the batch and lies outside of the stored bounds."""
    for name, b in bounds.items():
        known = stored[name]
        if known is not None and known.excludes(b.lowest, b.highest):
            lowest, highest = (key_value(b.type, value) for value in (b.lowest, b.highest))
            return F.col(quoted(name)).between(lowest, highest)
    return None
