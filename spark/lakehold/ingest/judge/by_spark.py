"""Judging by Spark: the rules of `lakehold.ingest.judge` as window functions."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from lakehold.definitions import Envelope
from lakehold.ingest.changes import KEPT, OFFSET, OP, PARTITION, POSITION, POSITION_TYPE, Changes, Op
from lakehold.ingest.judge.arrivals import Arrivals
from lakehold.ingest.judge.count_by_spark import arrivals_of
from lakehold.ingest.judge.judging import COUNTS, WINS, Judging, in_snapshot
from lakehold.ingest.marks import Marks, Position
from lakehold.ingest.position import position_value
from lakehold.spark_sql import quoted

_ORDER = (OFFSET, PARTITION)
"""Messages of one key are in one partition, where the offset orders them; should they not be, it is at least one order."""

_PLACE = "_lh_place"
"""Where a change stands among those of its key in other partitions; null where they are all in one."""


class BySpark(Judging):
    """Judges any number of changes; what was judged is cached.

    Args:
        changes: The changes.
        envelope: The table's envelope.
        marks: Of the table before the batch.
    """

    def __init__(self, changes: Changes, envelope: Envelope, marks: Marks) -> None:
        self._changes = changes
        self._envelope = envelope
        self._marks = marks
        self._frame = changes.frame

    def judge(self, *, after: Position | None = None, not_below: Position | None = None) -> Arrivals:
        """See `Judging`."""
        self.release()
        self._frame = self._judged(after, not_below).persist()
        return arrivals_of(self._frame, self._changes, self._marks)

    def fill(self) -> None:
        """See `Judging`."""
        unfilled, self._frame = self._frame, _filled(self._frame, self._changes).persist()
        self._frame.count()
        unfilled.unpersist()

    def frame(self) -> DataFrame:
        """See `Judging`."""
        return self._frame

    def release(self) -> None:
        """See `Judging`."""
        self._frame.unpersist()

    def _judged(self, after: Position | None, not_below: Position | None) -> DataFrame:
        of_row = F.coalesce(F.col(OP).isin(Op.UPSERT.value, Op.DELETE.value), F.lit(False))
        candidate = of_row | F.coalesce(F.col(OP) == Op.TRUNCATE.value, F.lit(False))
        if after is not None:
            candidate = candidate & F.coalesce(F.col(POSITION) > position_value(after), F.lit(True))
        if not_below is not None:
            candidate = candidate & F.coalesce(F.col(POSITION) >= position_value(not_below), F.lit(True))
        of_key = _of_key(self._changes)
        frame, order = _placed(self._changes), _order(self._changes)
        if self._envelope is not Envelope.DEBEZIUM:
            last = of_key.orderBy((candidate & of_row).desc(), *(F.col(name).desc() for name in order))
            wins = candidate & of_row & (F.row_number().over(last) == 1)
            return frame.withColumns({COUNTS: candidate, WINS: wins})
        earlier = of_key.orderBy(*order).rowsBetween(Window.unboundedPreceding, -1)
        unpassed = candidate & _unpassed(self._marks)
        before = F.max(F.when(unpassed, F.col(POSITION))).over(earlier)
        counted = frame.withColumn(COUNTS, unpassed & _above(before))
        deciding, place = F.col(COUNTS) & of_row, F.struct(*order)
        return counted.withColumn(WINS, deciding & place.eqNullSafe(F.max(F.when(deciding, place)).over(of_key)))


def _of_key(changes: Changes) -> WindowSpec:
    # Without a key all are errors, each of its own.
    return Window.partitionBy(*[F.col(quoted(name)) for name in changes.key or (PARTITION, OFFSET)])


def _order(changes: Changes) -> tuple[str, ...]:
    return (_PLACE, *_ORDER) if changes.by_position else _ORDER


def _placed(changes: Changes) -> DataFrame:
    """The changes, with `_lh_place` if positions order them: one without a position stands where its neighbour before it does."""
    if not changes.by_position:
        return changes.frame
    of_key = _of_key(changes)
    of_partition = Window.partitionBy(*[F.col(quoted(name)) for name in (*changes.key, PARTITION)])
    before = of_partition.orderBy(OFFSET).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    several = F.min(PARTITION).over(of_key) != F.max(PARTITION).over(of_key)
    return changes.frame.withColumn(_PLACE, F.when(several, F.last(POSITION, ignorenulls=True).over(before)))


def _above(mark: SparkColumn) -> SparkColumn:
    """Whether a change lies above `mark`, or on it as a row of the same snapshot; true where either is not known."""
    position = F.col(POSITION)
    return F.coalesce((position > mark) | (in_snapshot() & (position == mark)), F.lit(True))


def _unpassed(marks: Marks) -> SparkColumn:
    """Whether a change lies above its partition's mark, and is not of a snapshot older than the one the table shows."""
    mark = F.lit(None).cast(POSITION_TYPE)
    for partition, position in marks.passed.items():
        mark = F.when(F.col(PARTITION) == partition, position_value(position)).otherwise(mark)
    unpassed = _above(mark)
    if marks.snapshot is not None:
        older = in_snapshot() & (F.col(POSITION) < position_value(marks.snapshot.position))
        unpassed = unpassed & ~F.coalesce(older, F.lit(False))
    return unpassed


def _filled(frame: DataFrame, changes: Changes) -> DataFrame:
    earlier = _of_key(changes).orderBy(*_order(changes)).rowsBetween(Window.unboundedPreceding, Window.currentRow)
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
