"""Direct: rows that are all new are written as they are read, in one pass over the records.

Deduplication takes the header of each change to the driver, and for that caches all that was decoded. The first load of a table
needs none of it: every row is new and comes once. Whether that is so is known when all was read. So it is expected, from the
first and the last records of each partition; the rows are written to a staged snapshot; and the snapshot is published only if
its files tell that all was as expected. If not, nobody has seen it, and the changes are deduplicated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehold.definitions import Envelope
from lakehold.iceberg.data_tables import DataTables, TableState
from lakehold.ingest.decode.types import ColumnType
from lakehold.ingest.deduplicate.carriers import WINS
from lakehold.ingest.deduplicate.deduplication import statistics_of_few
from lakehold.ingest.deduplicate.engine import Rule
from lakehold.ingest.deduplicate.headers import bounded
from lakehold.ingest.deduplicate.snapshots import Reach, advanced
from lakehold.ingest.deduplicate.statistics import BOUNDED_TYPES, BatchStatistics
from lakehold.ingest.envelope.changes import (
    BEFORE_MISSING,
    CONNECTOR,
    ERROR,
    KEPT,
    OP,
    PARTITION,
    PHASE,
    POSITION,
    SNAPSHOT_PHASES,
    Changes,
    Op,
    Phase,
)
from lakehold.ingest.envelope.position import position_value
from lakehold.ingest.write import merge
from lakehold.ingest.write.effects import BatchIdentity
from lakehold.ingest.write.publish import Publishing, Staged
from lakehold.model.marks import Marks
from lakehold.spark_sql import quoted

_PLAIN = "_lh_plain"


class Unexpected(Exception):
    """The batch was not what its edges let expect; nothing was published."""


@dataclass(frozen=True)
class Expected:
    """A batch that only adds rows of new keys, each once.

    Args:
        edges: What the first and last records of the batch amount to.
        marks: Of the table after the batch.
        snapshot_id: What the table was when this was found; None before its first snapshot.
        guard: A key column and the highest value that the table has there, as in `Bounds`; None for a table without rows.
    """

    edges: BatchStatistics
    marks: Marks
    snapshot_id: int | None
    guard: tuple[ColumnType, Any] | None


def may_be_new(envelope: Envelope, marks: Marks, row_count: int | None) -> bool:
    """Return whether a batch's edges are worth a look: the table has no rows, or the connector's snapshot goes on."""
    goes_on = envelope.has_positions and marks.snapshot is not None and not marks.snapshot.complete
    return row_count == 0 or goes_on


def expected(
    edges: Changes, rule: Rule, state: TableState | None, tables: DataTables, *, reach: Reach
) -> Expected | None:
    """Return what the first and last records of a batch let expect of it; None when it is not all new rows.

    Args:
        edges: Changes of the batch's first and last records.
        rule: How changes of the table are deduplicated.
        state: The table; None before the first batch.
        tables: Reads what it holds.
        reach: How far the batch reads the table's topic.
    """
    found, marks = statistics_of_few(edges, rule), rule.marks
    if not (found.records and found.went_back is None and _is_plain(found) and _stands_at_once(found)):
        return None
    if marks.snapshot is not None and marks.snapshot.position != found.snapshot_position:
        return None
    guard = None
    if state is not None and state.row_count != 0:
        columns = bounded(edges)
        stored = tables.column_bounds(state, [c.name for c in columns])
        uppers = ((c, b.upper) for c in columns if (b := stored[c.name]) is not None)
        guard = next(((column, upper) for column, upper in uppers if upper is not None), None)
        if guard is None:
            return None
    after = advanced(marks, found, reach=reach, sequence_number=None)
    return Expected(found, after, None if state is None else state.snapshot_id, guard)


def _is_plain(statistics: BatchStatistics) -> bool:
    odd = (
        statistics.errors
        + statistics.repeated
        + statistics.null_key_parts
        + statistics.kept
        + statistics.before_missing
    )
    return statistics.upserts == statistics.records and odd == 0 and len(statistics.connectors) <= 1


def _stands_at_once(statistics: BatchStatistics) -> bool:
    """Return whether all positions are one: the snapshot's, or none."""
    if statistics.streamed_position is not None:
        return False
    return statistics.snapshot_position == statistics.lowest_position and len(set(statistics.passed.values())) <= 1


def load(  # noqa: PLR0913 - a batch, a table, and where to write
    publishing: Publishing,
    how: Expected,
    name: str,
    changes: Changes,
    columns: Sequence[ColumnType],
    batch: BatchIdentity,
    properties: Mapping[str, str],
    state: TableState,
) -> BatchStatistics:
    """Write the rows of `changes` and publish them. Returns what arrived.

    Args:
        publishing: Stages and publishes.
        how: What is expected of the changes.
        name: The table's full name in SQL, quoted.
        changes: The changes.
        columns: The table's columns, in its order.
        batch: The batch.
        properties: Of the snapshot.
        state: The table.

    Raises:
        Unexpected: The changes are not as expected; the table is as it was.
    """
    if state.snapshot_id != how.snapshot_id:
        # What somebody else wrote meanwhile may fulfil the guard, and would be overwritten.
        raise Unexpected
    guard = F.lit(True)
    if how.guard is not None:
        column, upper = how.guard
        guard = F.col(quoted(column.name)) > merge.key_value(column.type, upper)
    path = merge.Append(name, state.snapshot_id, guard, keeps_values=False)
    rows = _marked(changes, how.edges)
    staged = publishing.stage(
        lambda: merge.append(path, changes, rows, columns, properties), state, f"{batch.effect(1)}:direct"
    )
    if staged is None:
        raise Unexpected
    if publishing.tables.nulls_added(staged.table, changes.key[0], staged.snapshot.snapshot_id) != 0:
        raise Unexpected
    _require_new(publishing, how, name, changes.key, staged)
    publishing.publish(staged)
    records = int(staged.snapshot.summary["added-records"])
    return replace(how.edges, records=records, upserts=records)


def _marked(changes: Changes, edges: BatchStatistics) -> DataFrame:
    """Mark all changes as winners; those that are not like the batch's edges are left without a key.

    Nothing else would tell of them that costs as little: counting breaks the code that Spark generates for a row in two.
    """
    plain = F.col(ERROR).isNull() & (F.col(OP) == Op.UPSERT.value) & (F.coalesce(F.size(KEPT), F.lit(0)) <= 0)
    plain = plain & ~F.col(BEFORE_MISSING) & F.col(CONNECTOR).eqNullSafe(F.lit(next(iter(edges.connectors), None)))
    for column in changes.key:
        plain = plain & F.col(quoted(column)).isNotNull()
    if edges.snapshot_position is None:
        plain = plain & F.col(POSITION).isNull()
    else:
        # Whether a snapshot has ended is in the marks, which are written before all is read.
        phases = SNAPSHOT_PHASES if edges.snapshot_ends else (Phase.SNAPSHOT.value,)
        plain = plain & F.col(PHASE).isin(*phases) & (F.col(POSITION) == position_value(edges.snapshot_position))
        plain = plain & F.col(PARTITION).isin(*edges.passed)
    keys = {column: F.when(F.col(_PLAIN), F.col(quoted(column))) for column in changes.key}
    decided = {**keys, WINS: F.lit(True), OP: F.lit(Op.UPSERT.value)}
    return changes.frame.withColumn(_PLAIN, plain).withColumns(decided)


def _require_new(publishing: Publishing, how: Expected, name: str, key: Sequence[str], staged: Staged) -> None:
    """Raise `Unexpected` when a key of the staged rows comes twice, among them or with those of the table."""
    if how.guard is None and all(isinstance(staged.table.schema.find_type(c), BOUNDED_TYPES) for c in key):
        # The keys of one batch, read from its files: here they are compared before Spark has planned it.
        keys = staged.table.table.scan(snapshot_id=staged.snapshot.snapshot_id, selected_fields=tuple(key)).to_arrow()
        if keys.group_by(list(key)).aggregate([]).num_rows != keys.num_rows:
            raise Unexpected
        return
    quoted_key = ", ".join(quoted(column) for column in key)
    among = f"{name} VERSION AS OF {staged.snapshot.snapshot_id}"
    if how.guard is not None:
        name_, kind = how.guard[0].name, how.guard[0].type
        added = publishing.tables.column_bounds(staged.table, [name_], added_by=staged.snapshot.snapshot_id)[name_]
        if added is not None:
            lower, upper = (merge.key_literal(kind, value) for value in (added.lower, added.upper))
            among += f" WHERE {quoted(name_)} BETWEEN {lower} AND {upper}"
    twice = f"SELECT {quoted_key} FROM {among} GROUP BY {quoted_key} HAVING count(*) > 1 LIMIT 1"
    if publishing.spark.sql(twice).collect():
        raise Unexpected
