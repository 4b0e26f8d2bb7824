"""Writes tables without a key: their rows are a multiset, and a change adds a row or removes one of the equal rows.

Rows are equal if their columns hold the same values, as the database's log has them: NULL is the same as NULL and NaN as NaN;
-0.0 and 0.0 differ. The table has the columns of the messages and no other: Iceberg's `_row_id` identifies its rows.

    cancel    changes of equal rows within the batch cancel out; what remains adds rows or removes rows of the table
    find      the rows to remove: files that can hold them by their statistics are read, and compared by a hash of the row
    write     one commit removes the rows by `_row_id`, one adds the new rows; both are published as one change

A batch that only adds rows is appended, without these steps. If the batch goes on after a DROP COLUMN, its rows are compared
without that column: later removals do not know its values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehold.definitions import Table
from lakehold.errors import TableStopped
from lakehold.iceberg.data_tables import TableState
from lakehold.ingest.deduplicate.carriers import APPLIED
from lakehold.ingest.deduplicate.deduplication import Deduplicated
from lakehold.ingest.envelope.change_columns import (
    DETAIL,
    ERROR,
    LACKS,
    OFFSET,
    OP,
    PARTITION,
    ROW_MISSING,
    Changes,
    Op,
)
from lakehold.ingest.write import merge
from lakehold.ingest.write.batch_effects import BatchIdentity
from lakehold.spark_sql import literal, quoted
from lakehold.tables import equal_rows, vectorized
from lakehold.tables.column_types import ColumnType
from lakehold.tables.write_audit_publish import Publishing, unstaged

_NET, _NTH, _FIRST, _FOUND = "_lh_net", "_lh_nth", "_lh_first", "_lh_found"


@dataclass(frozen=True)
class KeylessBatch:
    """The changes of a batch to a table without a key, some of which remove rows.

    Args:
        table: The definition.
        changes: The changes.
        columns: The table's columns, in its order.
        found: The changes with the decisions on them.
        identity: The batch.
        report_missing: Takes the changes that remove a row which the table lacks (partition, offset, error and detail), and may
            raise. None: the table shows no connector snapshot, so that it may lack rows.
    """

    table: Table
    changes: Changes
    columns: Sequence[ColumnType]
    found: Deduplicated
    identity: BatchIdentity
    report_missing: Callable[[DataFrame], None] | None

    @property
    def compared(self) -> list[ColumnType]:
        """Return the columns that make rows equal: those of the table that the messages still have."""
        return [column for column in self.columns if column.name in (self.changes.compared or ())]

    def properties(self, step: int) -> dict[str, str]:
        """Return the snapshot's properties for a step of the batch."""
        return self.identity.properties(self.found.high_water_marks, step)


def write(batch: KeylessBatch, publishing: Publishing, name: str, state: TableState) -> None:
    """Bring the changes into the table.

    Args:
        batch: The changes.
        publishing: Stages and publishes.
        name: The table's full name in SQL, quoted.
        state: The table.

    Raises:
        TableStopped: The table lacks a row that upstream removed.
        CommitConflict: Another writer committed to the table since `state` was read.
    """
    batch = replace(batch, changes=without_dropped(batch.found.frame, batch.changes))
    net = cancelled(batch.found.frame, batch.changes).persist()
    try:
        _write(batch, publishing, name, state, net)
    finally:
        net.unpersist()


def _write(batch: KeylessBatch, publishing: Publishing, name: str, state: TableState, net: DataFrame) -> None:
    spark, totals = publishing.spark, _totals(batch, net)
    adds, removes = totals["adds"], totals["removes"]
    is_emptied = batch.found.replaces_all or state.row_count == 0
    reading = vectorized.reading(spark, state)
    found = _NOTHING_FOUND
    if removes and not is_emptied:
        with reading():
            found = _find(batch, name, net, [*equal_rows.ranges(batch.compared, totals)])
    if found.num_rows < removes and batch.report_missing is not None:
        batch.report_missing(_missing(net, found))
    if is_emptied:
        if adds or batch.found.replaces_all:
            path = merge.Append(
                name, state.snapshot_id, F.lit(True), keeps_values=False, distribution=merge.distribution_of(state)
            )
            with unstaged(spark):
                merge.append(path, batch.changes, net, batch.columns, batch.properties(1))
        return
    writes = []
    if found.num_rows:
        # The effect of the batch is its last commit.
        properties = batch.properties(0 if adds else 1)
        writes.append(partial(equal_rows.remove, spark, name, found, properties, reading))
    if adds:
        rows = net.filter(f"{OP} = '{Op.UPSERT}'")
        insert = merge.Merge(
            name,
            key=(),
            null_safe=False,
            bounds={},
            has_deletes=False,
            has_upserts=True,
            keeps_values=False,
            replaces_all=False,
        )
        writes.append(partial(merge.merge, spark, insert, batch.changes, rows, batch.columns, batch.properties(1)))
    if writes:
        publishing.run_together(writes, state)


def without_dropped(deduplicated: DataFrame, changes: Changes) -> Changes:
    """Return the changes, compared without each column that is dropped within the batch.

    A removal lacks the column, and each change with the column comes before that removal. An old removal that lacks a new
    column is compared with the value that older rows have in it.
    """
    if LACKS not in deduplicated.columns:
        return changes
    names = changes.compared or ()
    totals = []
    for number, name in enumerate(names):
        lacks = f"array_contains({LACKS}, {literal(name)})"
        totals.append(f"max({OFFSET}) FILTER (WHERE NOT {lacks}) AS last{number}")
        totals.append(f"min({OFFSET}) FILTER (WHERE {lacks} AND {OP} = '{Op.DELETE}') AS first{number}")
    rows = deduplicated.filter(f"{APPLIED} AND {OP} IN ('{Op.UPSERT}', '{Op.DELETE}')")
    (found,) = rows.selectExpr(*totals).toArrow().to_pylist()
    return replace(changes, compared=tuple(n for i, n in enumerate(names) if not _is_dropped(found, i)))


def _is_dropped(found: Mapping[str, Any], number: int) -> bool:
    last, first = found[f"last{number}"], found[f"first{number}"]
    return first is not None and (last is None or last < first)


def cancelled(deduplicated: DataFrame, changes: Changes) -> DataFrame:
    """Return the applied changes without those that cancel out: equal rows of the batch that are added and removed.

    The result has the columns of `deduplicated` and three more. `_lh_net` is the number of such rows that the table gains,
    negative if it loses rows. `_lh_nth` numbers the changes of equal rows from 1. `_lh_first` is the offset of the first of them.
    """
    types = {column.name: column.type for column in changes.columns}
    row = ", ".join(equal_rows.exactly(quoted(name), types[name]) for name in changes.compared or ())
    net = f"sum(IF({OP} = '{Op.UPSERT}', 1, -1)) OVER (PARTITION BY {row})"
    nth = f"row_number() OVER (PARTITION BY {row}, {OP} ORDER BY {PARTITION}, {OFFSET})"
    rows = deduplicated.filter(f"{APPLIED} AND {OP} IN ('{Op.UPSERT}', '{Op.DELETE}')")
    first = f"min({OFFSET}) OVER (PARTITION BY {row}, {OP})"
    rows = rows.selectExpr("*", f"{net} AS {_NET}", f"{nth} AS {_NTH}", f"{first} AS {_FIRST}")
    return rows.filter(f"{_NTH} <= IF({OP} = '{Op.UPSERT}', {_NET}, -{_NET})")


def _totals(batch: KeylessBatch, net: DataFrame) -> dict[str, Any]:
    """Count added and removed rows, and find the bounds of the removed rows' columns."""
    is_removed = f"{OP} = '{Op.DELETE}'"
    stored = net.selectExpr(OP, *merge.as_stored(batch.changes, batch.compared, keeps_values=False))
    totals = [f"count_if(NOT {is_removed}) AS adds", f"count_if({is_removed}) AS removes"]
    totals += equal_rows.bounds_of(batch.compared, is_removed)
    ((values),) = stored.selectExpr(*totals).toArrow().to_pylist()
    return dict(values)


_NOTHING_FOUND = pa.table({"row_id": pa.array([], pa.int64()), OFFSET: pa.array([], pa.int64())})


def _find(batch: KeylessBatch, name: str, net: DataFrame, conditions: Sequence[str]) -> pa.Table:
    """Find the rows of the table to remove: one of the equal rows for each change, or fewer if the table has fewer."""
    gone = net.filter(f"{OP} = '{Op.DELETE}' AND {_NTH} = 1").selectExpr(
        PARTITION, OFFSET, f"-{_NET} AS {_NET}", *merge.as_stored(batch.changes, batch.compared, keeps_values=False)
    )
    return equal_rows.find(name, gone, batch.compared, conditions, (PARTITION, OFFSET), _NET, equal_rows.exactly)


def _missing(net: DataFrame, found: pa.Table) -> DataFrame:
    """Return the changes that remove a row which the table lacks, with their error."""
    of_offset = found.group_by(OFFSET).aggregate([("row_id", "count")])
    gone = net.filter(f"{OP} = '{Op.DELETE}'")
    if of_offset.num_rows:
        have = net.sparkSession.createDataFrame(of_offset).withColumnRenamed(OFFSET, _FOUND)
        gone = gone.join(have, gone[_FIRST] == have[_FOUND], "left").filter(f"{_NTH} > coalesce(row_id_count, 0)")
    detail = literal("It removes a row, and no row of the table has these values.")
    return gone.selectExpr(PARTITION, OFFSET, f"'{ROW_MISSING}' AS {ERROR}", f"{detail} AS {DETAIL}")


def row_missing(table: Table, missing: DataFrame) -> TableStopped:
    """Return the error of a table that lacks a row which upstream removed."""
    first = missing.agg(F.min(OFFSET)).toArrow().column(0)[0].as_py()
    return TableStopped(
        f'table "{table.full_name}" lacks a row that was removed upstream',
        table=table.full_name,
        code="row-missing",
        detail=f"The change at offset {first} of topic {table.topic} removes a row, and no row of the table has these values. "
        "A column with a DEFAULT that was added, or a column that was renamed, changes rows upstream without a message. "
        "Connectors of MySQL and MariaDB send FLOAT, JSON and UUID in a snapshot in another form than in changes. "
        "Nothing of this batch was written to the table.",
        hint="Load the table again: drop it, create it again, and have the connector snapshot all of its tables "
        "(of a captured database ALTER SOURCE … RESNAPSHOT); delete the topic of any other source first. "
        "KEY (column, …) over columns that distinguish all rows finds them whatever the others hold.",
    )
