"""Sorts the rows within one timestamp: by row, by key, or as WITHIN TIMESTAMP ORDER BY says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehold.errors import DefinitionError
from lakehold.subscribe.consolidate import consolidated
from lakehold.subscribe.on_spark import LargeDiffs, frame_names, frame_of_diffs, ordered, renamed, row_column
from lakehold.subscribe.row_order import dense_ranks, order_keys
from lakehold.subscribe.spark_types import spark_schema

_DIFF = "mz_diff"


@dataclass(frozen=True)
class SortItem:
    """One sort key of ORDER BY.

    Attributes:
        place: Position among `mz_diff` (0) and the row's columns (from 1); None if `expression` is more than a column.
        expression: SQL over `mz_diff` and the columns.
        descending: Whether the greatest value comes first.
        nulls_first: Whether nulls come first.
    """

    place: int | None
    expression: str
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class Sorting:
    """The order within a timestamp; ties are broken by the row's columns and `mz_diff`.

    Attributes:
        first: Positions of the key columns in the row, for an envelope.
        items: Sort keys of ORDER BY.
    """

    first: tuple[int, ...] = ()
    items: tuple[SortItem, ...] = ()

    @property
    def reads_diff(self) -> bool:
        """Return whether ORDER BY may read `mz_diff`: equal rows then have to be summed before they are sorted."""
        return any(not item.place for item in self.items)

    def check(self, diffs: pa.Schema, spark: Callable[[], SparkSession]) -> None:
        """Let Spark check the expressions, so that errors are reported even if there is nothing to sort.

        Raises:
            DefinitionError: An expression has no value of its own for each row.
        """
        expressions = self._expressions().values()
        if expressions:
            columns = renamed(diffs, frame_names(len(diffs) - 2))
            empty, names = spark().createDataFrame([], spark_schema(columns)), diffs.names[2:]
            _ = self.on_spark(LargeDiffs(empty, rows=0), names).schema
            for expression in expressions:
                _check_one_value(expression, _visible(empty, names))

    def sort_here(self, diffs: pa.Table, spark: Callable[[], SparkSession]) -> pa.Table:
        """Sum and sort `diffs` in this process; Spark computes the expressions of ORDER BY."""
        return self.sort_consolidated(consolidated(diffs, self.first), spark)

    def sort_consolidated(self, found: pa.Table, spark: Callable[[], SparkSession]) -> pa.Table:
        """Sort diffs by ORDER BY; without it they stay in the order that `consolidated` gave them, by `first` and the row."""
        if not self.items:
            return found
        if all(item.place is not None for item in self.items):
            return found.take(pa.array(_sorted_by_columns(found, self.items)))
        return self._sort_by_spark(found, spark())

    def on_spark(self, diffs: LargeDiffs, names: Sequence[str]) -> DataFrame:
        """Sort diffs on Spark; `names` are the names of the row's columns.

        Diffs that are not summed yet are allowed unless `reads_diff`: equal rows come next to each other.
        """
        frame = diffs.frame
        if not self.items:
            return ordered(diffs, [row_column(place, frame) for place in self.first])
        computed = self._expressions()
        keys = [F.expr(expression).alias(key) for key, expression in computed.items()]
        with_keys = _visible(frame, names).select("*", *keys).toDF(*frame.columns, *computed)
        by = [
            _directed(F.col(f"o{n}") if item.place is None else _column(item.place, frame), item)
            for n, item in enumerate(self.items)
        ]
        return ordered(LargeDiffs(with_keys, diffs.rows), by, row_columns=len(names)).select(*frame.columns)

    def _expressions(self) -> dict[str, str]:
        """Return what is more than a column, by the name of the column that has its value."""
        return {f"o{n}": item.expression for n, item in enumerate(self.items) if item.place is None}

    def _sort_by_spark(self, diffs: pa.Table, spark: SparkSession) -> pa.Table:
        found = self.on_spark(
            LargeDiffs(frame_of_diffs(diffs, spark), diffs.num_rows), diffs.column_names[2:]
        ).toArrow()
        return pa.Table.from_arrays(
            [column.cast(field.type) for column, field in zip(found.columns, diffs.schema, strict=True)],
            schema=diffs.schema,
        )


def _check_one_value(expression: str, diffs: DataFrame) -> None:
    """Refuse what Spark does not sort by, but computes as a column: generators, which repeat and drop rows, and windows."""
    try:
        _ = diffs.orderBy(F.expr(expression)).schema
    except AnalysisException:
        raise DefinitionError(
            f"WITHIN TIMESTAMP ORDER BY cannot sort by {expression}",
            code="order-unfit",
            detail="It has several values for a row, or one that depends on other rows.",
            hint="Order by mz_diff and the columns; a SELECT in place of the table can compute more.",
        ) from None


def _visible(diffs: DataFrame, names: Sequence[str]) -> DataFrame:
    """Give the columns of diffs the names by which expressions refer to them: the timestamp shares none of them."""
    time = "mz_timestamp" if "mz_timestamp" not in map(str.lower, names) else "lakehold_timestamp"
    return diffs.toDF(time, _DIFF, *names)


def _column(place: int, of: DataFrame) -> Column:
    """Return the sort key for `mz_diff` (0) or one of the row's columns (from 1)."""
    return row_column(place - 1, of) if place else F.col(of.columns[1])


def _directed(column: Column, item: SortItem) -> Column:
    if item.descending:
        return column.desc_nulls_first() if item.nulls_first else column.desc_nulls_last()
    return column.asc_nulls_first() if item.nulls_first else column.asc_nulls_last()


def _sorted_by_columns(diffs: pa.Table, items: Sequence[SortItem]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the positions of the rows in sorted order; equal rows keep their order."""
    keys = [diffs.column(0).to_numpy()]
    for item in items:
        assert item.place is not None
        column = diffs.column(1 + item.place)
        ranks = dense_ranks(order_keys(column), len(column))
        nulls = column.is_null().to_numpy()
        keys += [~nulls if item.nulls_first else nulls, -ranks if item.descending else ranks]
    return np.lexsort(keys[::-1])
