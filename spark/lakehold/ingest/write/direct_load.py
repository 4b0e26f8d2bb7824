"""Loads directly: writes rows that are all new as they are read, in one pass over the records, without deduplicating them.

Deduplication brings the header of each change to the driver, and caches all decoded records for that. The first load of a table
does not need it, because every row is new and occurs once. But that is known only after everything was read. So lakehold looks
at the first and last records of each partition. If these are all new rows, it expects the same of the others, and writes all
rows to a staged snapshot. It publishes the snapshot only if the files confirm the expectation. Otherwise no reader has seen the
snapshot, and the changes are deduplicated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehold.definitions import Envelope
from lakehold.iceberg.data_tables import DataTables, TableState
from lakehold.ingest.deduplicate.carriers import APPLIED
from lakehold.ingest.deduplicate.change_headers import bounded
from lakehold.ingest.deduplicate.deduplication import statistics_of_few
from lakehold.ingest.deduplicate.engine import Rule
from lakehold.ingest.deduplicate.snapshots import SnapshotReadEnds, advanced
from lakehold.ingest.deduplicate.statistics import BatchStatistics
from lakehold.ingest.envelope.change_columns import (
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
from lakehold.ingest.write.batch_effects import BatchIdentity
from lakehold.model.high_water_marks import HighWaterMarks
from lakehold.spark_sql import quoted
from lakehold.tables.bounds import BOUNDED_TYPES, key_literal, key_value
from lakehold.tables.column_types import ColumnType
from lakehold.tables.write_audit_publish import Publishing, Staged

_PLAIN = "_lh_plain"


class Unexpected(Exception):
    """The batch contradicts the expectation from its first and last records; nothing was published."""


@dataclass(frozen=True)
class Expected:
    """The expectation that a batch only adds rows of new keys, each once.

    Args:
        edges: Statistics of the batch's first and last records.
        high_water_marks: The table's high-water marks after the batch.
        snapshot_id: The table's snapshot when the expectation was made; None before its first one.
        guard: A key column and the highest value that the table has in it. No row lies above: the append replaces that empty
            range, so that a row which another writer adds there is a conflict. None: the table has no rows.
    """

    edges: BatchStatistics
    high_water_marks: HighWaterMarks
    snapshot_id: int | None
    guard: tuple[ColumnType, Any] | None


def may_be_new(envelope: Envelope, high_water_marks: HighWaterMarks, row_count: int | None) -> bool:
    """Return whether a batch's edges are worth reading: the table has no rows, or the connector's snapshot continues."""
    goes_on = (
        envelope.has_positions and high_water_marks.snapshot is not None and not high_water_marks.snapshot.complete
    )
    return row_count == 0 or goes_on


def expected(
    edges: Changes, rule: Rule, state: TableState | None, tables: DataTables, *, read_ends: SnapshotReadEnds
) -> Expected | None:
    """Return what the first and last records let expect of a batch; None if not all of it can be new rows.

    Args:
        edges: Changes of the batch's first and last records.
        rule: The rule by which changes of the table are deduplicated.
        state: The table; None before the first batch.
        tables: Reads the bounds of its values.
        read_ends: The offsets up to which the batch reads the table's topic.
    """
    found, high_water_marks = statistics_of_few(edges, rule), rule.high_water_marks
    # A database log that went back, as after a restore, stops the table: deduplication finds the first change that shows it.
    log_went_back = found.went_back is not None
    if not found.records or log_went_back or not (_is_plain(found) and _is_of_one_snapshot(found)):
        return None
    if high_water_marks.snapshot is not None and high_water_marks.snapshot.position != found.snapshot_position:
        return None
    guard = None
    if state is not None and state.row_count != 0:
        columns = bounded(edges)
        stored = tables.column_bounds(state, [c.name for c in columns])
        uppers = ((c, b.upper) for c in columns if (b := stored[c.name]) is not None)
        guard = next(((column, upper) for column, upper in uppers if upper is not None), None)
        if guard is None:
            return None
    after = advanced(high_water_marks, found, read_ends=read_ends, sequence_number=None)
    return Expected(found, after, None if state is None else state.snapshot_id, guard)


def _is_plain(statistics: BatchStatistics) -> bool:
    """Return whether all changes are upserts of whole rows with a key, from one kind of connector, without errors and repeats."""
    odd = (
        statistics.errors
        + statistics.repeated
        + statistics.null_key_parts
        + statistics.kept
        + statistics.before_missing
    )
    return statistics.upserts == statistics.records and odd == 0 and len(statistics.connectors) <= 1


def _is_of_one_snapshot(statistics: BatchStatistics) -> bool:
    """Return whether all changes have the position of one connector snapshot, or none has a position."""
    if statistics.streamed_position is not None:
        return False
    return (
        statistics.snapshot_position == statistics.lowest_position
        and len(set(statistics.highest_positions.values())) <= 1
    )


def load(  # noqa: PLR0913 - a batch, a table, and where to write
    publishing: Publishing,
    expectation: Expected,
    name: str,
    changes: Changes,
    columns: Sequence[ColumnType],
    batch: BatchIdentity,
    properties: Mapping[str, str],
    state: TableState,
) -> BatchStatistics:
    """Write the rows of `changes` and publish them. Returns the statistics of all changes.

    Args:
        publishing: Stages and publishes.
        expectation: The expectation.
        name: The table's full name in SQL, quoted.
        changes: The changes.
        columns: The table's columns, in its order.
        batch: The batch.
        properties: Entries of the snapshot's summary.
        state: The table.

    Raises:
        Unexpected: The changes are not as expected; the table is unchanged.
    """
    if state.snapshot_id != expectation.snapshot_id:
        # Rows that another writer added meanwhile may fulfil the guard, and would be overwritten.
        raise Unexpected
    guard = F.lit(True)
    if expectation.guard is not None:
        column, upper = expectation.guard
        guard = F.col(quoted(column.name)) > key_value(column.type, upper)
    path = merge.Append(name, state.snapshot_id, guard, keeps_values=False, distribution=merge.distribution_of(state))
    rows = _as_applied(changes, expectation.edges)
    staged = publishing.stage(
        lambda: merge.append(path, changes, rows, columns, properties), state, f"{batch.effect(1)}:direct"
    )
    if staged is None:
        # The append wrote no row.
        raise Unexpected
    # `_as_applied` gave a null key to each change that is not as expected.
    if publishing.tables.nulls_added(staged.table, changes.key[0], staged.snapshot.snapshot_id) != 0:
        raise Unexpected
    _require_new(publishing, expectation, name, changes.key, staged)
    publishing.publish(staged)
    records = int(staged.snapshot.summary["added-records"])
    return replace(expectation.edges, records=records, upserts=records)


def _as_applied(changes: Changes, edges: BatchStatistics) -> DataFrame:
    """Mark all changes as applied, and set the key of those that contradict the expectation to null.

    `load` finds these nulls in the statistics of the files. That is cheaper than counting the changes while they are written:
    counting splits the code that Spark generates for a row.
    """
    plain = F.col(ERROR).isNull() & (F.col(OP) == Op.UPSERT.value) & (F.coalesce(F.size(KEPT), F.lit(0)) <= 0)
    plain = plain & ~F.col(BEFORE_MISSING) & F.col(CONNECTOR).eqNullSafe(F.lit(next(iter(edges.connectors), None)))
    for column in changes.key:
        plain = plain & F.col(quoted(column)).isNotNull()
    if edges.snapshot_position is None:
        plain = plain & F.col(POSITION).isNull()
    else:
        # `Expected.high_water_marks` says whether the connector snapshot ends in this batch. The edges decided that, so no other
        # record may contradict it.
        phases = [phase for phase in SNAPSHOT_PHASES if edges.snapshot_ends or phase != Phase.SNAPSHOT_END]
        plain = plain & F.col(PHASE).isin(*phases) & (F.col(POSITION) == position_value(edges.snapshot_position))
        plain = plain & F.col(PARTITION).isin(*edges.highest_positions)
    keys = {column: F.when(F.col(_PLAIN), F.col(quoted(column))) for column in changes.key}
    decisions = {**keys, APPLIED: F.lit(True), OP: F.lit(Op.UPSERT.value)}
    return changes.frame.withColumn(_PLAIN, plain).withColumns(decisions)


def _require_new(publishing: Publishing, expectation: Expected, name: str, key: Sequence[str], staged: Staged) -> None:
    """Raise `Unexpected` if a key of the staged rows occurs twice: in the staged rows, or in these and the table."""
    if expectation.guard is None and all(isinstance(staged.table.schema.find_type(c), BOUNDED_TYPES) for c in key):
        # Read the keys of one batch from its files: comparing them here takes less time than Spark's planning.
        keys = staged.table.table.scan(snapshot_id=staged.snapshot.snapshot_id, selected_fields=tuple(key)).to_arrow()
        if keys.group_by(list(key)).aggregate([]).num_rows != keys.num_rows:
            raise Unexpected
        return
    quoted_key = ", ".join(quoted(column) for column in key)
    among = f"{name} VERSION AS OF {staged.snapshot.snapshot_id}"
    if expectation.guard is not None:
        name_, kind = expectation.guard[0].name, expectation.guard[0].type
        added = publishing.tables.column_bounds(staged.table, [name_], added_by=staged.snapshot.snapshot_id)[name_]
        if added is not None:
            lower, upper = (key_literal(kind, value) for value in (added.lower, added.upper))
            among += f" WHERE {quoted(name_)} BETWEEN {lower} AND {upper}"
    twice = f"SELECT {quoted_key} FROM {among} GROUP BY {quoted_key} HAVING count(*) > 1 LIMIT 1"
    if publishing.spark.sql(twice).collect():
        raise Unexpected
