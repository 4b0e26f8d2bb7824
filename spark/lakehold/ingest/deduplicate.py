"""At most one change per key and batch: which of the changes of a key decides its state.

UPSERT and DEBEZIUM UPSERT take the last message. DEBEZIUM takes the last that the high-water mark has not passed
(`envelopes.md`, "Description"): a change counts if it lies above everything applied before it, whether in an earlier batch (the
marks of its partition) or earlier in this one (of the same key). Rows of one snapshot share a position, so an equal one counts
again; a resent one lies below. Rows of an incremental snapshot have no position and Debezium places them in the stream itself:
they count where they stand.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from lakehold.definitions import Envelope
from lakehold.ingest.changes import KEPT, OFFSET, OP, PARTITION, PHASE, POSITION, POSITION_TYPE, Changes, Op, Phase
from lakehold.ingest.marks import Marks, Position
from lakehold.session import quoted

WINS = "_lh_wins"
COUNTS = "_lh_counts"
SNAPSHOT_PHASES = (Phase.SNAPSHOT.value, Phase.SNAPSHOT_END.value)


def judged(
    changes: Changes,
    envelope: Envelope,
    marks: Marks,
    *,
    after: Position | None = None,
    not_below: Position | None = None,
) -> DataFrame:
    """`changes.frame` with what decides: nothing is dropped, so that everything that arrived can be counted.

    Args:
        changes: The changes of one batch to one table.
        envelope: The table's envelope.
        marks: What the table has passed.
        after: Changes at or below it do not count: a TRUNCATE there took them.
        not_below: Changes below it do not count: a snapshot taken anew stands there.

    Returns:
        The frame and `_lh_counts boolean` (the change is not a repetition), `_lh_wins boolean` (it decides its key's state).
    """
    of_row = F.coalesce(F.col(OP).isin(Op.UPSERT.value, Op.DELETE.value), F.lit(False))
    candidate = of_row | F.coalesce(F.col(OP) == Op.TRUNCATE.value, F.lit(False))
    if after is not None:
        candidate = candidate & F.coalesce(F.col(POSITION) > literal(after), F.lit(True))
    if not_below is not None:
        candidate = candidate & F.coalesce(F.col(POSITION) >= literal(not_below), F.lit(True))
    of_key = Window.partitionBy(*[F.col(quoted(name)) for name in changes.key])
    if envelope is not Envelope.DEBEZIUM:
        last = of_key.orderBy((candidate & of_row).desc(), F.col(OFFSET).desc())
        wins = candidate & of_row & (F.row_number().over(last) == 1)
        return changes.frame.withColumns({COUNTS: candidate, WINS: wins})
    earlier = of_key.orderBy(OFFSET).rowsBetween(Window.unboundedPreceding, -1)
    unpassed = candidate & _unpassed(marks)
    before = F.max(F.when(unpassed, F.col(POSITION))).over(earlier)
    counted = changes.frame.withColumn(COUNTS, unpassed & _above(before))
    deciding = F.col(COUNTS) & of_row
    return counted.withColumn(WINS, deciding & (F.col(OFFSET) == F.max(F.when(deciding, F.col(OFFSET))).over(of_key)))


def _above(mark: SparkColumn) -> SparkColumn:
    """Whether a change lies above `mark`, or on it as a row of the same snapshot; true where either is not known."""
    position = F.col(POSITION)
    return F.coalesce((position > mark) | (_in_snapshot() & (position == mark)), F.lit(True))


def _unpassed(marks: Marks) -> SparkColumn:
    """Whether a change lies above its partition's mark, and is not of a snapshot older than the one the table shows."""
    mark = F.lit(None).cast(POSITION_TYPE)
    for partition, position in marks.passed.items():
        mark = F.when(F.col(PARTITION) == partition, literal(position)).otherwise(mark)
    unpassed = _above(mark)
    if marks.snapshot is not None:
        older = _in_snapshot() & (F.col(POSITION) < literal(marks.snapshot.position))
        unpassed = unpassed & ~F.coalesce(older, F.lit(False))
    return unpassed


def _in_snapshot() -> SparkColumn:
    return F.col(PHASE).isin(*SNAPSHOT_PHASES)


def literal(position: Position) -> SparkColumn:
    """`position` as a column."""
    return F.struct(
        *[F.lit(part).cast("bigint").alias(name) for part, name in zip(position, "abcd", strict=True)]
    ).cast(POSITION_TYPE)


def filled(frame: DataFrame, changes: Changes) -> DataFrame:
    """The judged `frame` with unavailable values filled from the newest earlier change of the key in this batch.

    What no change of this batch knows stays named in `_lh_kept`: the stored value is kept.
    """
    earlier = (
        Window.partitionBy(*[F.col(quoted(name)) for name in changes.key])
        .orderBy(OFFSET)
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    value_columns = [c.name for c in changes.columns if c.name not in changes.key]
    known: Mapping[str, SparkColumn] = {
        name: F.last(
            F.when(
                F.col(COUNTS) & ~F.coalesce(F.array_contains(KEPT, name), F.lit(False)),
                F.struct(F.col(quoted(name)).alias("value")),
            ),
            ignorenulls=True,
        ).over(earlier)
        for name in value_columns
    }
    is_kept = {name: F.coalesce(F.array_contains(KEPT, name), F.lit(False)) for name in value_columns}
    still_kept = F.filter(
        F.array(*[F.when(is_kept[name] & known[name].isNull(), F.lit(name)) for name in value_columns]),
        lambda name: name.isNotNull(),
    )
    taken = {
        name: F.when(is_kept[name], known[name].getField("value")).otherwise(F.col(quoted(name)))
        for name in value_columns
    }
    return frame.withColumns({**taken, KEPT: still_kept})
