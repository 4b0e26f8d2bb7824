"""Carriers: keep the rows of changes while headers are decided on, and bring the decisions back to them.

Few changes are in the driver as an Arrow table. Many stay in Spark: what was decoded is cached, headers come to the driver, and
the decisions go back as a small table that is joined by broadcast. So the records are read and decoded once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehold.ingest.changes import KEPT, OFFSET, OP, PARTITION, Changes, Op
from lakehold.ingest.deduplicate.engine import Decisions
from lakehold.ingest.deduplicate.headers import INTERNAL, Headers, KeptColumns
from lakehold.ingest.deduplicate.positions import Integers
from lakehold.spark_sql import literal, quoted

COUNTS = "_lh_counts"
WINS = "_lh_wins"

_FLAGS, _TARGET, _GIVES, _STAYS = "_lh_flags", "_lh_target", "_lh_gives", "_lh_stays"
_COUNTS_FLAG, _WINS_FLAG, _FILLED_FLAG = 1, 2, 4

_ID = (PARTITION, OFFSET, OP)
"""Identifies a change that counts: an update that moves a row to another key is a delete too (`keys.with_left_keys`)."""


class Carrier(ABC):
    """The rows of one batch's changes to one table."""

    @property
    @abstractmethod
    def headers(self) -> Headers:
        """The headers of all changes."""

    @abstractmethod
    def frame(self, decisions: Decisions, givers: Integers) -> DataFrame:
        """Return the changes with the decisions. None is dropped, so that everything that arrived can be accounted for.

        Args:
            decisions: What the engine decided of `headers`.
            givers: See `Engine.givers`: winners get these values; columns that stay without remain in `_lh_kept`.

        Returns:
            The frame of `Changes` and `_lh_counts boolean` (the change is neither a repeat nor an error), `_lh_wins boolean`
            (it decides its key's state).
        """

    @abstractmethod
    def release(self) -> None:
        """Let go of what `frame` reads from."""


class DriverRows(Carrier):
    """Rows in the driver, decoded by one Spark job."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    @cached_property
    def _rows(self) -> pa.Table:
        return self._changes.frame.toArrow()

    @cached_property
    def headers(self) -> Headers:
        """See `Carrier`."""
        return Headers.of(self._rows, self._changes)

    def frame(self, decisions: Decisions, givers: Integers) -> DataFrame:
        """See `Carrier`."""
        rows = self._filled(givers) if (givers >= 0).any() else self._rows
        rows = rows.append_column(COUNTS, pa.array(decisions.counts)).append_column(WINS, pa.array(decisions.wins))
        frame = self._changes.frame
        return frame.sparkSession.createDataFrame(rows, frame.schema.add(COUNTS, "boolean").add(WINS, "boolean"))

    def release(self) -> None:
        """Nothing is held."""

    def _filled(self, givers: Integers) -> pa.Table:
        rows, kept = self._rows, self.headers.kept
        every = np.arange(rows.num_rows)
        for code in np.unique(kept.codes[givers >= 0]).tolist():
            name, given = kept.names[code], (givers >= 0) & (kept.codes == code)
            taken = every.copy()
            taken[kept.rows[given]] = givers[given]
            rows = _replaced(rows, name, rows[name].take(pa.array(taken)))
        return _replaced(rows, KEPT, kept.lists(givers < 0, every))


def _replaced(rows: pa.Table, name: str, column: pa.ChunkedArray | pa.Array) -> pa.Table:
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.field(at), column)


class SparkRows(Carrier):
    """Rows in Spark, cached from the first use until they are released."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._rows = changes.frame.persist()

    @cached_property
    def headers(self) -> Headers:
        """See `Carrier`."""
        return Headers.of(self._rows.select(*INTERNAL, *map(quoted, self._changes.key)).toArrow(), self._changes)

    def frame(self, decisions: Decisions, givers: Integers) -> DataFrame:
        """See `Carrier`."""
        is_given = givers >= 0
        flags = decisions.counts * _COUNTS_FLAG + decisions.wins * _WINS_FLAG
        if not is_given.any():
            return self._flagged(flags)
        targets = np.unique(self.headers.kept.rows[is_given])
        flags[targets] |= _FILLED_FLAG
        flagged = self._flagged(flags, _FLAGS)
        rest = flagged.filter(f"{_FLAGS} & {_FILLED_FLAG} = 0").drop(_FLAGS)
        return rest.unionByName(self._filled(self._links(targets, givers)))

    def release(self) -> None:
        """See `Carrier`."""
        self._rows.unpersist()

    def _flagged(self, flags: Integers, *also: str) -> DataFrame:
        """The rows with their flags; those that most of them have are not sent."""
        headers = self.headers
        may_count = headers.changes_row | headers.is_truncate
        usual = int(np.bincount(flags[may_count], minlength=1).argmax())
        unusual = np.flatnonzero(may_count & (flags != usual))
        rows = self._rows
        flag = str(usual)
        if len(unusual):
            rows = rows.join(
                F.broadcast(self._sent(unusual, {_FLAGS: pa.array(flags[unusual], pa.int32())})), [*_ID], "left"
            )
            flag = f"coalesce({_FLAGS}, {usual})"
        can_count = f"coalesce({OP} IN ('{Op.UPSERT}', '{Op.DELETE}', '{Op.TRUNCATE}'), false)"
        return rows.selectExpr(
            *map(quoted, self._changes.frame.columns),
            f"{can_count} AND {flag} & {_COUNTS_FLAG} <> 0 AS {COUNTS}",
            f"{can_count} AND {flag} & {_WINS_FLAG} <> 0 AS {WINS}",
            *(f"IF({can_count}, {flag}, 0) AS {name}" for name in also),
        )

    def _links(self, targets: Integers, givers: Integers) -> DataFrame:
        """Name the changes that each filled winner is made of: itself, with what stays kept, and those that give it values."""
        kept, is_given = self.headers.kept, givers >= 0
        pairs, number = np.unique(np.stack([kept.rows[is_given], givers[is_given]]), axis=1, return_inverse=True)
        order = np.argsort(number, kind="stable")
        given = KeptColumns(number[order], kept.codes[is_given][order], kept.names)
        gives = given.lists(np.ones(len(order), bool), np.arange(pairs.shape[1]))
        stays = kept.lists(~is_given, targets)
        columns = {
            _TARGET: pa.array(np.concatenate([targets, pairs[0]])),
            _GIVES: pa.concat_arrays([pa.nulls(len(stays), stays.type), gives]),
            _STAYS: pa.concat_arrays([stays, pa.nulls(len(gives), gives.type)]),
        }
        return self._sent(np.concatenate([targets, pairs[1]]), columns)

    def _filled(self, links: DataFrame) -> DataFrame:
        """Put winners together out of their own columns and those that other changes give them."""

        def first(condition: str, value: str) -> str:
            return f"first(IF({condition}, named_struct('value', {value}), NULL), true)"

        def value(name: str) -> str:
            own = first(f"{_GIVES} IS NULL", _STAYS if name == KEPT else quoted(name))
            given = first(f"array_contains({_GIVES}, {literal(name)})", quoted(name))
            found = f"coalesce({given}, {own})" if name in self.headers.kept.names else own
            return f"{found}.value AS {quoted(name)}"

        names = self._changes.frame.columns
        filled = self._rows.join(F.broadcast(links), [*_ID]).groupBy(_TARGET).agg(*(F.expr(value(n)) for n in names))
        return filled.selectExpr(*map(quoted, names), f"true AS {COUNTS}", f"true AS {WINS}")

    def _sent(self, rows: Integers, columns: Mapping[str, pa.Array]) -> DataFrame:
        """Send a small table about some changes to Spark."""
        headers = self.headers
        ops = np.where(
            headers.is_upsert, Op.UPSERT.value, np.where(headers.is_delete, Op.DELETE.value, Op.TRUNCATE.value)
        )
        ids = (pa.array(headers.partition[rows], pa.int32()), pa.array(headers.offset[rows]), pa.array(ops[rows]))
        return self._rows.sparkSession.createDataFrame(pa.table({**dict(zip(_ID, ids, strict=True)), **columns}))
