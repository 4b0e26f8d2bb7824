"""Terms of a changed result: the query over the diffs of one table and versions of the others, or over rows that may differ.

The diff of a query is the sum of its terms. docs/internals/incremental.md proves it. A term is a data frame of diffs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, IcebergType, IntegerType, LongType, StringType
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehold.spark_sql import date_literal, literal, quoted
from lakehold.subscribe.incremental_plan import ColumnName, RowQuery
from lakehold.subscribe.on_spark import LargeDiffs, dated, frame_names, frame_of_diffs, uncollated
from lakehold.subscribe.table_diffs import DiffReading
from lakehold.subscribe.version_reads import VersionReads, row_column

TIME, DIFF = "lakehold_t", "lakehold_d"
"""The names of timestamp and diff in the view that a query reads."""

CARRIED = {TIME: "lakehold_time", DIFF: "lakehold_diff"}
"""Their names in the query's result: others, so that copies which `SELECT *` adds can be dropped."""

_KEY = "lakehold_key"
LISTED_KEYS = 1_000
"""Number of keys up to which a condition lists them, so that Iceberg skips files and row groups without any of them."""

WORTH_PRUNING_ROWS = 100_000
"""Size of a table up to which reading it whole takes no longer than to prune it."""

_PRUNED_BY = (IntegerType, LongType, StringType, DateType)
"""Types that have literals, and that a join compares as Iceberg's file statistics do."""


@dataclass(frozen=True)
class Pieces:
    """The diffs of one table at some timestamps, as they were found.

    Attributes:
        schema: The table's columns.
        found: Tables of diffs, or `LargeDiffs` of one timestamp.
    """

    schema: Schema
    found: tuple[pa.Table | LargeDiffs, ...]

    def at(self, times: Sequence[int]) -> Pieces:
        """Select the diffs of `times`."""
        kept: list[pa.Table | LargeDiffs] = []
        for piece in self.found:
            if isinstance(piece, LargeDiffs):
                kept.append(LargeDiffs(piece.frame.filter(F.col(piece.frame.columns[0]).isin(list(times))), piece.rows))
            else:
                rows = piece.filter(pc.is_in(piece.column(0), pa.array(times, pa.int64())))
                kept += [rows] if rows.num_rows else []
        return Pieces(self.schema, tuple(kept))

    def frame(self, reading: DiffReading) -> DataFrame:
        """Return the diffs as a data frame, with `TIME`, `DIFF` and the table's columns."""
        small = [piece for piece in self.found if isinstance(piece, pa.Table)]
        frames = [piece.frame for piece in self.found if isinstance(piece, LargeDiffs)]
        if small:
            frames.append(frame_of_diffs(pa.concat_tables(small), reading.spark.session()))
        return reduce(DataFrame.unionAll, frames).toDF(TIME, DIFF, *(field.name for field in self.schema.fields))

    def values(self, column: str) -> pa.ChunkedArray | None:
        """Return the distinct values of a column; None if there are too many rows to look."""
        place = next(n for n, field in enumerate(self.schema.fields) if field.name == column)
        small = [piece for piece in self.found if isinstance(piece, pa.Table)]
        if len(small) < len(self.found):
            return None
        return pc.unique(pa.chunked_array([chunk for piece in small for chunk in piece.column(2 + place).chunks]))


@dataclass(frozen=True)
class Joining:
    """Columns of two sources that a join compares: one of the source that changes, one of the source that is restricted."""

    changed_column: str
    source: int
    column: str


@dataclass(frozen=True)
class RowTerms:
    """Makes the terms of a row query.

    Args:
        query: The query.
        schemas: Schemas of its tables by full name.
        reading: Reads diffs.
    """

    query: RowQuery
    schemas: Mapping[str, Schema]
    reading: DiffReading

    def linear(self, reads: VersionReads, changed: int, pieces: Pieces, others_ms: Sequence[int]) -> DataFrame:
        """Run the query over diffs of one source.

        Args:
            reads: Names what the query reads.
            changed: The source.
            pieces: Its diffs, while the other sources did not change.
            others_ms: The time at which each of the other sources is read.
        """
        conditions: dict[int, list[str]] = {}
        for joining in self.joinings(changed):
            condition = self._pruning(reads, joining, pieces, others_ms[joining.source])
            conditions.setdefault(joining.source, []).extend([condition] if condition else [])
        relations = []
        for place, source in enumerate(self.query.sources):
            if place == changed:
                relations.append(reads.view(pieces.frame(self.reading)))
            elif self.query.are_added(place, changed):
                relations.append(self._empty(reads, source.full_name))
            else:
                condition = " AND ".join(conditions.get(place, ()))
                relations.append(reads.at(source.full_name, others_ms[place], condition))
        return run_over_diffs(self.query, changed, relations, reads)

    def optional(
        self,
        reads: VersionReads,
        changed: int,
        pieces: Pieces,
        ends_ms: tuple[int, int],
        others_ms: Sequence[int],
    ) -> Iterator[DataFrame]:
        """Run the query at both ends of a change of the right side of a LEFT JOIN, over rows that it may match.

        Args:
            reads: Names what the query reads.
            changed: The right side of the LEFT JOIN.
            pieces: Its diffs.
            ends_ms: The timestamps before and of the change.
            others_ms: The time at which each of the other sources is read.
        """
        joining = self.preserved(changed)
        assert joining is not None
        keys = pieces.frame(self.reading).select(F.col(quoted(joining.changed_column)).alias(_KEY)).distinct()
        view = reads.view(keys)
        matched = f"{row_column(quoted(joining.column))} IN (SELECT {_KEY} FROM {view})"
        pruned = self._pruning(reads, joining, pieces, others_ms[joining.source])
        condition = f"{pruned} AND {matched}" if pruned else matched
        for end_ms, diff in zip(ends_ms, (-1, 1), strict=True):
            relations = []
            for place, source in enumerate(self.query.sources):
                if self.query.are_added(place, changed):
                    relations.append(self._empty(reads, source.full_name))
                elif place == changed:
                    relations.append(reads.at(source.full_name, end_ms))
                else:
                    restricted = condition if place == joining.source else ""
                    relations.append(reads.at(source.full_name, others_ms[place], restricted))
            result = reads.select(self.query.over(relations))
            yield dated(result, ends_ms[1], diff)

    def preserved(self, changed: int) -> Joining | None:
        """Return what the LEFT JOIN with `changed` compares with a table all of whose rows the joins before it keep."""
        found = (j for j in self.joinings(changed) if not self.query.sources[j.source].is_optional)
        return next(found, None)

    def joinings(self, changed: int) -> Iterator[Joining]:
        """Yield the columns that joins compare with columns of `changed`."""
        for equality in self.query.equalities:
            ends = (self.resolved(equality.left), self.resolved(equality.right))
            if None in ends:
                continue
            for (place, column), (other, other_column) in (ends, ends[::-1]):  # type: ignore[misc]
                joins = {None, *self.query.sources[place].left_joins, *self.query.sources[other].left_joins}
                is_in_force = equality.left_join in joins
                if place == changed and other != changed and is_in_force:
                    yield Joining(column, other, other_column)

    def resolved(self, column: ColumnName) -> tuple[int, str] | None:
        """Return the source and the exact name of a column; None if it is ambiguous or none of a table."""
        found = [
            (place, field.name)
            for place, source in enumerate(self.query.sources)
            for field in self.schemas[source.full_name].fields
            if (column.source == place if column.source is not None else column.select == source.select)
            and (column.last is None or place <= column.last)
            and field.name.lower() == column.name.lower()
        ]
        return found[0] if len(found) == 1 else None

    def _pruning(self, reads: VersionReads, joining: Joining, pieces: Pieces, at_ms: int) -> str:
        """Return a condition that rows of a joined table meet if they match a row of `pieces`; empty if it is not worth it."""
        name = self.query.sources[joining.source].full_name
        timeline = reads.timelines[name]
        version = timeline.at(at_ms)
        count = timeline.row_count(version.snapshot_id) if version is not None else 0
        of = self.schemas[name].find_field(joining.column).field_type
        if count is not None and count <= WORTH_PRUNING_ROWS:
            return ""
        if not isinstance(of, _PRUNED_BY) or pieces.schema.find_field(joining.changed_column).field_type != of:
            return ""
        values = pieces.values(joining.changed_column)
        return (
            ""
            if values is None or not _is_utf8(values)
            else _among(row_column(quoted(joining.column)), values.drop_null(), of)
        )

    def _empty(self, reads: VersionReads, name: str) -> str:
        return reads.view(self.reading.spark.empty(self.schemas[name]))


def run_over_diffs(query: RowQuery, changed: int, relations: Sequence[str], reads: VersionReads) -> DataFrame:
    """Run a query over relations of which one has diffs, whose timestamp and diff each SELECT hands to the one around it.

    Args:
        query: The query.
        changed: The source that has diffs, with `TIME` and `DIFF`.
        relations: SQL of a relation for each source.
        reads: Runs the query.
    """
    path = query.path(changed)
    inner: Mapping[str, str] = {TIME: TIME, DIFF: DIFF}
    of_union: dict[int, str] = {}
    copies: list[str] = []
    columns = [""] * len(query.selects)
    for select in path:
        copies += inner.values()
        shown = CARRIED if select == path[-1] else {name: f"{carried}{select}" for name, carried in CARRIED.items()}
        columns[select] = "".join(f"{inner[name]} AS {shown[name]}, " for name in CARRIED)
        of_union[query.selects[select].union] = "".join(f"CAST(NULL AS BIGINT) AS {name}, " for name in shown.values())
        inner = shown
    for place, part in enumerate(query.selects):
        columns[place] = columns[place] or of_union.get(part.union, "")
    return as_diffs(reads.select(query.over(relations, columns)), copies)


def as_diffs(result: DataFrame, copies: Sequence[str] = (TIME, DIFF)) -> DataFrame:
    """Convert a result that begins with timestamp and diff to a frame of diffs.

    Args:
        result: The result.
        copies: Names of further timestamps and diffs, which `SELECT *` adds.
    """
    rows = result.drop(*copies)
    return uncollated(rows, frame_names(len(rows.columns) - len(CARRIED)))


def _is_utf8(values: pa.ChunkedArray) -> bool:
    """Return whether values are no text, or UTF-8: Spark has text of any bytes, which no literal can have."""
    if not pa.types.is_string(values.type):
        return True
    try:
        values.cast(pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _among(column: str, values: pa.ChunkedArray, of: IcebergType) -> str:
    """Return the condition that a column has one of `values`, or for many of them that it is in their range."""
    if not len(values):
        return "false"
    write = date_literal if isinstance(of, DateType) else literal
    plain = values.cast(pa.int32()) if isinstance(of, DateType) else values
    if len(plain) <= LISTED_KEYS:
        return f"{column} IN ({', '.join(write(value) for value in sorted(plain.to_pylist()))})"
    ends = pc.min_max(plain).as_py()
    return f"{column} BETWEEN {write(ends['min'])} AND {write(ends['max'])}"
