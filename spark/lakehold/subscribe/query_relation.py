"""Changes of a query's result: over diffs when the query works row by row, else its results at both ends subtracted."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import pyarrow as pa
from pyiceberg.schema import Schema
from pyspark.sql import DataFrame

from lakehold.session import quoted, quoted_table
from lakehold.subscribe.consolidate import merged
from lakehold.subscribe.on_spark import (
    Many,
    dated,
    dated_between,
    frame_names,
    frame_of,
    snapshot_schema,
    streamed,
    summed,
    view_name,
)
from lakehold.subscribe.relation import Lines, Relation, steps
from lakehold.subscribe.sorting import Sorting
from lakehold.subscribe.statement import Query
from lakehold.subscribe.table_diffs import DiffReading, TableDiffs

TIMESTAMPS_A_JOB = 8
"""Results of a query that Spark computes together: a plan holds the query once for each."""

_TIME, _DIFF = "lakehold_t", "lakehold_d"
_KEPT = {"lakehold_time": _TIME, "lakehold_diff": _DIFF}


@dataclass(frozen=True)
class QueryRelation(Relation):
    """Any query.

    Args:
        query: The query.
        schemas: The columns of its tables, for all of the output.
        reading: How diffs are read.
        result: The columns of its result.
    """

    query: Query
    schemas: Mapping[str, Schema]
    reading: DiffReading
    result: pa.Schema = field(compare=False)

    @property
    def columns(self) -> pa.Schema:
        """The columns of the query's result."""
        return self.result

    def rows(self, lines: Lines, at_ms: int, sorting: Sorting) -> Iterator[pa.Table]:
        """The query's result at a time."""
        found = dated(self._result_at(lines, at_ms), at_ms, 1)
        here = self._here(lines, [at_ms], found, sorting)
        if here is not None:
            yield here
            return
        many = Many(found, rows=0)
        yield from merged(self._streamed(summed(many) if sorting.reads_diff else many, sorting))

    def changes(
        self, lines: Lines, after_exclusive_ms: int, until_exclusive_ms: int, sorting: Sorting
    ) -> Iterator[pa.Table]:
        """The result at each timestamp less the one before; each is computed once for both, several in a job."""
        times = sorted(
            {
                version.mz_timestamp
                for line in lines.values()
                for version in line.between(after_exclusive_ms, until_exclusive_ms)
            }
        )
        before = after_exclusive_ms
        for start in range(0, len(times), TIMESTAMPS_A_JOB):
            some = times[start : start + TIMESTAMPS_A_JOB]
            found = self._differences(lines, before, some)
            here = self._here(lines, [before, *some], found, sorting)
            if here is not None:
                yield here
            else:
                yield from self._streamed(summed(Many(found, rows=0)), sorting)
            before = some[-1]

    def _here(self, lines: Lines, times: Sequence[int], found: DataFrame, sorting: Sorting) -> pa.Table | None:
        """Diffs of a query over small tables, in this process; None: they are, or may be, too many for that.

        Summing and sorting them by Spark, and fetching them in pieces, takes a while however few there are.
        """
        at_most = self.reading.driver_rows
        versions = [(line, line.at(at_ms)) for line in lines.values() for at_ms in times]
        counts = [line.row_count(version.snapshot_id) for line, version in versions if version is not None]
        if not all(count is not None and count <= at_most for count in counts):
            return None
        rows = found.limit(at_most + 1).toArrow()
        if rows.num_rows > at_most:
            return None
        return sorting.here(typed(rows, with_diff(self.result)), self.reading.spark.session)

    def _differences(self, lines: Lines, before_ms: int, times: Sequence[int]) -> DataFrame:
        ends: list[tuple[int, int | None, int | None]] = [(before_ms, None, times[0])]
        ends += [(at, at, went) for at, went in itertools.zip_longest(times, times[1:])]
        frames = [dated_between(self._result_at(lines, at), came, went) for at, came, went in ends]
        return reduce(DataFrame.unionAll, frames)

    def _result_at(self, lines: Lines, at_ms: int) -> DataFrame:
        """The query with each table at a time, in the columns of the output."""
        spark = self.reading.spark
        tables: dict[str, str] = {}
        views: dict[str, str] = {}
        frames: dict[str, DataFrame] = {}
        for name, line in lines.items():
            version, schema = line.at(at_ms), self.schemas[name]
            snapshot_id = version.snapshot_id if version is not None else None
            if snapshot_id is not None and snapshot_schema(line, snapshot_id).as_struct() == schema.as_struct():
                tables[name] = f"{quoted_table(spark.catalog_name, name)} VERSION AS OF {snapshot_id}"
            else:
                views[name] = view_name()
                frames[views[name]] = spark.state(line, snapshot_id, schema)
        return spark.select(self.query.over(tables, views), frames)

    def _streamed(self, diffs: Many, sorting: Sorting) -> Iterator[pa.Table]:
        return streamed(sorting.on_spark(diffs, self.names), with_diff(self.result))


@dataclass(frozen=True)
class RowByRow(Relation):
    """A query over one table that filters and computes row by row: it means the same over the table's diffs.

    Args:
        query: The query; it has `columns_at`.
        name: The table's full name.
        schema: The table's columns, for all of the output.
        reading: How diffs are read.
        result: The columns of its result.
    """

    query: Query
    name: str
    schema: Schema
    reading: DiffReading
    result: pa.Schema = field(compare=False)

    @property
    def columns(self) -> pa.Schema:
        """The columns of the query's result."""
        return self.result

    def rows(self, lines: Lines, at_ms: int, sorting: Sorting) -> Iterator[pa.Table]:
        """The query over the table's rows at a time."""
        return self._over(TableDiffs(lines[self.name], self.schema, self.reading).rows_at(at_ms), sorting)

    def changes(
        self, lines: Lines, after_exclusive_ms: int, until_exclusive_ms: int, sorting: Sorting
    ) -> Iterator[pa.Table]:
        """The query over the table's diffs."""
        line = lines[self.name]
        diffs = TableDiffs(line, self.schema, self.reading)
        return self._over(diffs.along(steps(line, after_exclusive_ms, until_exclusive_ms)), sorting)

    def _over(self, found: Iterable[pa.Table | Many], sorting: Sorting) -> Iterator[pa.Table]:
        session = self.reading.spark.session
        for diffs in found:
            if isinstance(diffs, Many):
                result = summed(Many(self._applied(diffs.frame), diffs.rows))
                yield from streamed(sorting.on_spark(result, self.names), with_diff(self.result))
                continue
            rows = self._applied(frame_of(diffs, session())).toArrow()
            yield sorting.here(typed(rows, with_diff(self.result)), session)

    def _applied(self, diffs: DataFrame) -> DataFrame:
        """The query over a frame of diffs, which it carries along behind names that `*` may bring as well."""
        visible = diffs.toDF(_TIME, _DIFF, *(column.name for column in self.schema.fields))
        carried = "".join(f" {quoted(name)} AS {quoted(kept)}," for kept, name in _KEPT.items())
        view = view_name()
        result = self.reading.spark.select(self.query.over({}, {self.name: view}, carried), {view: visible})
        row = result.drop(_TIME, _DIFF)
        return row.toDF(*frame_names(len(row.columns) - len(_KEPT)))


def with_diff(row: pa.Schema) -> pa.Schema:
    """The columns of diffs of rows that have the columns `row`."""
    return pa.schema([pa.field("mz_timestamp", pa.int64()), pa.field("mz_diff", pa.int64()), *row])


def typed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """`table` under the names and types of `schema`, column by column."""
    return pa.Table.from_arrays(
        [column.cast(field.type) for column, field in zip(table.columns, schema, strict=True)], schema=schema
    )
