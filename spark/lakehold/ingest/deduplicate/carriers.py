"""Carriers: keep the rows of changes while the engine deduplicates their headers, and bring the decisions back to the rows.

*Headers* are the facts about each change that the decisions need, such as its key, offset and log position, without the row.
The decisions say of each change whether it counts (is no repeat and no error), and whether it is applied (is the last of its
key that counts).

Few changes are in the driver as an Arrow table. Many stay in Spark: the decoded records are cached, headers come to the
driver, and the decisions go back as a small table that is joined by broadcast. So records are read and decoded once, even if
the headers show that the batch ends before the last record.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StructField, StructType

from lakehold.arrow_frames import frame_of
from lakehold.ingest.deduplicate.change_headers import INTERNAL, Headers
from lakehold.ingest.deduplicate.engine import Decisions
from lakehold.ingest.deduplicate.positions import Integers
from lakehold.ingest.envelope.change_columns import KEPT, OFFSET, OP, PARTITION, TRANSACTION, Changes, Op
from lakehold.spark_sql import literal, quoted

COUNTS = "_lh_counts"
APPLIED = "_lh_applied"

_ID = (PARTITION, OFFSET, OP)
"""Identifies a change that counts: an update that moves a row to another key is a delete, too (`keys.with_left_keys`)."""

_FLAGS, _TARGET, _NAME, _ROW = "_lh_flags", "_lh_target", "_lh_name", "_lh_row"


class Carrier(ABC):
    """The rows of one batch's changes to one table.

    Args:
        changes: The changes.
    """

    def __init__(self, changes: Changes) -> None:
        self.changes = changes
        self._ends: Mapping[int, int] | None = None

    @property
    @abstractmethod
    def header_rows(self) -> pa.Table:
        """Return the header columns of all records: `INTERNAL`, the key's, and `_lh_transaction` if it exists."""

    def end_at(self, ends: Mapping[int, int]) -> None:
        """Skip changes at or after `ends`, by partition; call it before using the headers or the frame."""
        self._ends = ends

    @cached_property
    def headers(self) -> Headers:
        """Return the headers of all changes."""
        return Headers.of(self._ended(self.header_rows), self.changes)

    def _ended(self, rows: pa.Table) -> pa.Table:
        if self._ends is None:
            return rows
        # A partition that is not named has no records in the batch.
        partitions, ends = pa.array([*self._ends], pa.int32()), pa.array([*self._ends.values()], pa.int64())
        end = ends.take(pc.index_in(rows[PARTITION], value_set=partitions))
        return rows.filter(pc.fill_null(pc.less(rows[OFFSET], end), False))

    @abstractmethod
    def frame(self, decisions: Decisions, givers: Integers) -> DataFrame:
        """Return all changes with the decisions, so that each record that arrived can be accounted for.

        Args:
            decisions: The engine's decisions on `headers`.
            givers: See `Engine.givers`: applied changes get these values, and the other columns they lack stay in `_lh_kept`.

        Returns:
            The frame of `Changes` and `_lh_counts boolean`, `_lh_applied boolean`: see `Decisions`.
        """

    @abstractmethod
    def release(self) -> None:
        """Release the data from which `frame` reads."""


class DriverRows(Carrier):
    """A carrier of rows in the driver, decoded by one Spark job."""

    @cached_property
    def header_rows(self) -> pa.Table:
        """Return the header columns, see `Carrier`."""
        return self.changes.frame.toArrow()

    @cached_property
    def _rows(self) -> pa.Table:
        return self._ended(self.header_rows)

    def frame(self, decisions: Decisions, givers: Integers) -> DataFrame:
        """Return the changes with the decisions, see `Carrier`."""
        rows, frame = self._filled(givers), self.changes.frame
        rows = rows.append_column(COUNTS, pa.array(decisions.counts)).append_column(
            APPLIED, pa.array(decisions.applied)
        )
        schema = StructType([*frame.schema, *(StructField(name, BooleanType()) for name in (COUNTS, APPLIED))])
        return frame_of(rows, frame.sparkSession, schema)

    def release(self) -> None:
        """Release nothing: the rows are in the driver."""

    def _filled(self, givers: Integers) -> pa.Table:
        rows, kept, is_given = self._rows, self.headers.kept, givers >= 0
        if not is_given.any():
            return rows
        for code in np.unique(kept.codes[is_given]):
            of_column = is_given & (kept.codes == code)
            sources = np.arange(rows.num_rows)
            sources[kept.rows[of_column]] = givers[of_column]
            rows = _replaced(rows, kept.names[code], rows[kept.names[code]].take(pa.array(sources)))
        return _replaced(rows, KEPT, kept.lists(~is_given, rows.num_rows))


def before(ends: Mapping[int, int]) -> str:
    """Write the condition that a change lies before `ends` (exclusive), by partition."""
    return (
        " OR ".join([f"({PARTITION} = {partition} AND {OFFSET} < {end})" for partition, end in ends.items()]) or "false"
    )


def _replaced(rows: pa.Table, name: str, column: pa.ChunkedArray | pa.Array) -> pa.Table:
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.field(at), column)


class SparkRows(Carrier):
    """A carrier of rows in Spark, cached from the first use until they are released."""

    def __init__(self, changes: Changes) -> None:
        super().__init__(changes)
        # In one column: Spark's cache takes twice as long for a dozen columns.
        self._cached = changes.frame.select(F.struct("*").alias(_ROW)).persist()

    @cached_property
    def header_rows(self) -> pa.Table:
        """Return the header columns, see `Carrier`."""
        names = (*INTERNAL, *(name for name in (TRANSACTION,) if name in self._names), *self.changes.key)
        return self._cached.select(*(f"{_ROW}.{quoted(name)}" for name in names)).toArrow()

    @cached_property
    def _names(self) -> list[str]:
        return self.changes.frame.columns

    @property
    def _rows(self) -> DataFrame:
        rows = self._cached.select(f"{_ROW}.*")
        return rows if self._ends is None else rows.filter(before(self._ends))

    def frame(self, decisions: Decisions, givers: Integers) -> DataFrame:
        """Return the changes with the decisions, see `Carrier`."""
        return self._flagged(self._filled(givers), decisions)

    def release(self) -> None:
        """Release the cached rows."""
        self._cached.unpersist()

    def _flagged(self, rows: DataFrame, decisions: Decisions) -> DataFrame:
        """Join the decisions; the most frequent decision is not sent."""
        may_count = self.headers.changes_row | self.headers.is_truncate
        flags = decisions.counts + 2 * decisions.applied
        usual = int(np.bincount(flags[may_count], minlength=1).argmax())
        unusual = np.flatnonzero(may_count & (flags != usual))
        found = str(usual)
        if len(unusual):
            sent = pa.table({**self._ids(unusual), _FLAGS: pa.array(flags[unusual], pa.int32())})
            rows = rows.join(F.broadcast(rows.sparkSession.createDataFrame(sent)), [*_ID], "left")
            found = f"coalesce({_FLAGS}, {usual})"
        operations = f"coalesce({OP} IN ('{Op.UPSERT}', '{Op.DELETE}', '{Op.TRUNCATE}'), false)"
        return rows.selectExpr(
            *map(quoted, self._names),
            f"{operations} AND {found} & 1 <> 0 AS {COUNTS}",
            f"{operations} AND {found} & 2 <> 0 AS {APPLIED}",
        )

    def _filled(self, givers: Integers) -> DataFrame:
        """Set the values that applied changes get from other changes."""
        kept, is_given = self.headers.kept, givers >= 0
        if not is_given.any():
            return self._rows
        names = pa.array(kept.names, pa.string()).take(pa.array(kept.codes[is_given]))
        values = {name: f"_lh_given_{index}" for index, name in enumerate(names.unique().to_pylist())}
        targets = pa.StructArray.from_arrays(self._ids(kept.rows[is_given]).values(), names=_ID)
        given = self._given(pa.table({**self._ids(givers[is_given]), _TARGET: targets, _NAME: names}), values)
        found = {name: f"IF({value} IS NULL, {quoted(name)}, {value}.value)" for name, value in values.items()}
        is_kept = " ".join(f"WHEN {literal(name)} THEN {value} IS NULL" for name, value in values.items())
        found[KEPT] = f"filter({KEPT}, name -> CASE name {is_kept} ELSE true END)"
        filled = self._rows.join(given, F.expr(f"struct({', '.join(_ID)}) = {_TARGET}"), "left")
        return filled.selectExpr(*(f"{found.get(n, quoted(n))} AS {quoted(n)}" for n in self._names))

    def _given(self, sent: pa.Table, values: Mapping[str, str]) -> DataFrame:
        """Collect the values that applied changes get, a row for each of these changes.

        Args:
            sent: For each value the change that gives it, the applied change that gets it, and the column's name.
            values: For each column the replacement `struct<value>`; null if the applied change gets none.
        """
        giving = self._rows.join(F.broadcast(self._rows.sparkSession.createDataFrame(sent)), [*_ID])
        return giving.groupBy(_TARGET).agg(
            *(
                F.expr(f"first(IF({_NAME} = {literal(name)}, struct({quoted(name)} AS value), NULL), true) AS {value}")
                for name, value in values.items()
            )
        )

    def _ids(self, rows: Integers) -> dict[str, pa.Array]:
        headers = self.headers
        ops = np.where(headers.is_upsert[rows], Op.UPSERT, np.where(headers.is_delete[rows], Op.DELETE, Op.TRUNCATE))
        columns = (pa.array(headers.partition[rows], pa.int32()), pa.array(headers.offset[rows]), pa.array(ops))
        return dict(zip(_ID, columns, strict=True))
