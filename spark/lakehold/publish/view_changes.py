"""Merges a chunk of a query's changes into the table of its view: as new rows, by key, or row by row without a key.

Chunks are Arrow tables of SUBSCRIBE's output. A view without a key gets diffs (`mz_timestamp, mz_diff, columns`), one with a key
the rows of each key before and after (`mz_timestamp, mz_state, key, before_*, after_*`): see `subscribe/envelope.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, NullType

from lakehold.arrow_frames import frame_of
from lakehold.errors import LakeholdError
from lakehold.model.summary_keys import TIMESTAMP_PROPERTY
from lakehold.object_names import full_name_text
from lakehold.publish.closest_rows import with_closest
from lakehold.session import snapshot_properties, temp_view
from lakehold.spark_sql import literal, quoted
from lakehold.subscribe.row_values import tuples
from lakehold.subscribe.spark_types import spark_schema
from lakehold.tables import equal_rows
from lakehold.tables.column_types import ColumnType
from lakehold.tables.spark_types import from_spark
from lakehold.tables.unify import cast
from lakehold.times import iso

_STATE = "mz_state"
_CHANGE = 1
"""The place of `mz_diff` or `mz_state`: the query may have columns with these names, too."""

_CHANGES = "lakehold_changes"
_NUMBER, _COPIES = "_lh_number", "_lh_copies"
ROW_STATE = "_lh_state"
"""The column with which MERGE knows the state of a row."""

_VIOLATION = "lakehold: a key exists already: "
_LONGEST_KEY = 200
_KEYS_NAMED = 10


class KeyViolated(LakeholdError):
    """Several rows of a view's query have the same key. That may pass: a later timestamp can be without."""

    default_code = "view-key"
    retryable = True


@dataclass(frozen=True, kw_only=True)
class Changes(ABC):
    """A way to bring the output of one timestamp into a table.

    Args:
        spark: The session.
        full_name: The table's full name.
        name: The same in SQL, quoted.
        columns: The table's columns, in its order.
        key: The names of the key's columns; empty without a key.
        summary: Properties of the snapshots' summaries.
        reading: Opens a context in which statements that may read all of the table run.
    """

    spark: SparkSession
    full_name: str
    name: str
    columns: Sequence[ColumnType]
    key: tuple[str, ...]
    summary: Mapping[str, str]
    reading: Callable[[], AbstractContextManager[None]]

    def begin(self) -> None:
        """Give the table its first snapshot, which has no rows."""
        self._append(self._empty())

    def clear(self) -> None:
        """Remove all rows."""
        with snapshot_properties(self.spark, self.summary):
            self._empty().writeTo(self.name).overwrite(F.lit(True))

    def _empty(self) -> DataFrame:
        nulls = [f"CAST(NULL AS {column.spark_type}) AS {quoted(column.name)}" for column in self.columns]
        return self.spark.range(0).selectExpr(*nulls)

    @property
    def _names(self) -> list[str]:
        return [column.name for column in self.columns]

    def statements(self, chunks: Iterable[pa.Table]) -> Iterator[Callable[[], None]]:
        """Yield the statements that bring all `chunks` into the table, to be run one after the other."""
        for chunk in chunks:
            if chunk.num_rows:
                yield from self.writes(chunk)

    @abstractmethod
    def writes(self, chunk: pa.Table) -> Iterator[Callable[[], None]]:
        """Yield the statements that merge a chunk, to be run one after the other."""

    def counted(self, chunk: pa.Table) -> tuple[pa.Table, DataFrame, str]:
        """Return the rows of a chunk of diffs, also as a frame that has how often each comes or goes, and that column's name."""
        rows = self._rows(chunk)
        return rows, self._frame(rows.append_column(_COPIES, chunk.column(_CHANGE)), _COPIES), _COPIES

    def _rows(self, chunk: pa.Table) -> pa.Table:
        """Take the rows that a chunk adds, with the table's columns in its order."""
        names = chunk.schema.names
        if names[_CHANGE] != _STATE:
            places = dict(zip(names[2:], range(2, len(names)), strict=True))
        else:
            # In an envelope the key's columns come first, then those before, then those after.
            values = len(self.columns) - len(self.key)
            after = [
                *names[2 : 2 + len(self.key)],
                *(name.removeprefix("after_") for name in names[len(names) - values :]),
            ]
            of = [*range(2, 2 + len(self.key)), *range(len(names) - values, len(names))]
            places = dict(zip(after, of, strict=True))
        return chunk.select([places[name] for name in self._names]).rename_columns(self._names)

    def _frame(self, rows: pa.Table, *more: str) -> DataFrame:
        """Make a frame with the table's types; `more` are columns of `rows` to keep as they are."""
        schema = spark_schema(rows.schema)
        typed = [f"{_converted(schema[c.name].dataType, c)} AS {quoted(c.name)}" for c in self.columns]
        return frame_of(rows, self.spark, schema).selectExpr(*typed, *more)

    def _append(self, rows: DataFrame) -> None:
        with snapshot_properties(self.spark, self.summary):
            rows.writeTo(self.name).option("fanout-enabled", "false").append()

    def _refuse_violations(self, chunk: pa.Table) -> None:
        """Refuse a chunk in which more than one row has the same key."""
        violated = chunk.filter(pc.equal(chunk.column(_CHANGE), "key_violation"))
        if violated.num_rows:
            some = violated.select(range(2, 2 + len(self.key))).slice(0, _KEYS_NAMED)
            raise self._violation(list(map(shown_key, tuples(some))), violated.num_rows)

    def _violation(self, keys: Sequence[str], count: int = 1) -> LakeholdError:
        timestamp = int(self.summary[TIMESTAMP_PROPERTY])
        several = "1 key" if count == 1 else f"{count:,} keys"
        named = ", ".join(f"({key})" for key in keys) + (", …" if count > len(keys) else "")
        return KeyViolated(
            f'{several} of materialized view "{self.full_name}" would have more than one row',
            detail=f"At {timestamp} ({iso(timestamp)} UTC) the query has several rows with the key {named}. The view shows what "
            "it showed before.",
            hint="Remove the rows that are too many from the tables that it reads: the next refresh continues. Or keep all rows, "
            f"and count such keys: ALTER MATERIALIZED VIEW {full_name_text(self.full_name)} SET (ON KEY VIOLATION = 'keep').",
        )


def _converted(source: DataType, column: ColumnType) -> str:
    """Write SQL that converts a column of the type `source`; fields inside go by name, as their order may differ."""
    if isinstance(source, NullType):
        return f"CAST(NULL AS {column.spark_type})"
    return cast(quoted(column.name), from_spark(source), column.type)


def shown_key(values: Iterable[object]) -> str:
    """Return a key as people read it in a message."""
    return ", ".join("null" if value is None else str(value) for value in values)[:_LONGEST_KEY]


class Appended(Changes):
    """Rows of the first snapshot: the table has no others."""

    def writes(self, chunk: pa.Table) -> Iterator[Callable[[], None]]:
        """Yield one append."""
        if chunk.schema.names[_CHANGE] == _STATE:
            self._refuse_violations(chunk)
            yield partial(self._append, self._frame(self._rows(chunk)))
        else:
            yield partial(self._append, self._copied(self._rows(chunk), chunk.column(_CHANGE)))

    def _copied(self, rows: pa.Table, copies: pa.ChunkedArray) -> DataFrame:
        """Make a frame that has each row as often as `copies` says."""
        if pc.max(copies).as_py() == 1:
            return self._frame(rows)
        frame = self._frame(rows.append_column(_COPIES, copies), _COPIES)
        names = [quoted(name) for name in self._names]
        return frame.selectExpr(*names, f"explode(sequence(1L, {_COPIES})) AS {_NUMBER}").selectExpr(*names)


class RowChanges(Appended):
    """Changes of a table without a key: rows are added, or removed by all of their values."""

    def writes(self, chunk: pa.Table) -> Iterator[Callable[[], None]]:
        """Yield the removal of rows, and then the addition of others."""
        gone = chunk.filter(pc.less(chunk.column(_CHANGE), 0))
        if gone.num_rows:
            yield partial(self._remove, gone)
        new = chunk.filter(pc.greater(chunk.column(_CHANGE), 0))
        if new.num_rows:
            yield partial(self._append, self._copied(self._rows(new), new.column(_CHANGE)))

    def _remove(self, gone: pa.Table) -> None:
        copies = pc.negate(gone.column(_CHANGE))
        rows = self._rows(gone).append_column(_NUMBER, pa.array(range(gone.num_rows), pa.int64()))
        frame = self._frame(rows.append_column(_COPIES, copies), _NUMBER, _COPIES)
        conditions = [*equal_rows.ranges(self.columns, equal_rows.bounds_in(rows, self.columns))]
        with self.reading():
            found = equal_rows.find(
                self.name, frame, self.columns, conditions, (_NUMBER,), _COPIES, equal_rows.as_in_diffs
            )
            if found.num_rows != pc.sum(copies).as_py():
                found = with_closest(self.name, frame, self.columns, _NUMBER, _COPIES, found)
        if found.num_rows != pc.sum(copies).as_py():
            raise LakeholdError(
                f'materialized view "{self.full_name}" lacks rows that its query had',
                code="view-differs",
                detail=f"{pc.sum(copies).as_py()} rows are to be removed, and the table has {found.num_rows} of them. Either "
                "another program has changed the table, or the query has values that depend on the order in which Spark reads "
                "rows, as those of collect_list do. Nothing was written.",
                hint="Drop the view and create it again. If its query has such values, add KEY (column, …), by which rows are "
                "found whatever their other values are; or compute values that do not depend on the order, such as "
                "sort_array(collect_list(…)).",
            )
        equal_rows.remove(self.spark, self.name, found, self.summary, self.reading)


class KeyedChanges(Changes):
    """Changes of a table with a key: one MERGE, which finds rows by their key."""

    def writes(self, chunk: pa.Table) -> Iterator[Callable[[], None]]:
        """Yield one MERGE."""
        self._refuse_violations(chunk)
        yield partial(self._merge, chunk)

    def _merge(self, chunk: pa.Table) -> None:
        rows = self._rows(chunk).append_column(ROW_STATE, chunk.column(_CHANGE))
        self._run_merge(rows, self._clauses(set(pc.unique(chunk.column(_CHANGE)).to_pylist())))

    def _run_merge(self, rows: pa.Table, clauses: Sequence[str], *conditions: str) -> None:
        """Run the MERGE that finds `rows`, which have a state, by their key and the further `conditions`."""
        frame = self._frame(rows, ROW_STATE)
        keys = [column for column in self.columns if column.name in self.key]
        bounds = equal_rows.bounds_in(rows, keys)
        of_key = {column.name: column.type for column in keys}

        def equal(name: str) -> str:
            # `<=>` shuffles the whole table, `=` does not.
            operator = "<=>" if rows.column(name).null_count else "="
            sides = (equal_rows.as_in_diffs(f"{side}.{quoted(name)}", of_key[name]) for side in ("t", "s"))
            return f" {operator} ".join(sides)

        matched = " AND ".join([*map(equal, self.key), *equal_rows.ranges(keys, bounds, "t."), *conditions])
        statement = f"MERGE INTO {self.name} t USING {_CHANGES} s ON {matched} {' '.join(clauses)}"
        try:
            with self.reading(), temp_view(frame, _CHANGES), snapshot_properties(self.spark, self.summary):
                self.spark.sql(statement)
        except Exception as error:
            _, found, after = str(error).partition(_VIOLATION)
            if not found:
                raise
            raise self._violation([after.partition("\x1f")[0]]) from None

    def _refused(self) -> str:
        """Write the clause that refuses a new key which the table has already."""
        shown = ", ', ', ".join(f"coalesce(CAST(s.{quoted(name)} AS string), 'null')" for name in self.key)
        text = f"concat({literal(_VIOLATION)}, left(concat({shown}), {_LONGEST_KEY}), '\\u001f')"
        first = self.columns[0]
        refused = f"t.{quoted(first.name)} = CAST(raise_error({text}) AS {first.spark_type})"
        return f"WHEN MATCHED AND s.{ROW_STATE} = 'insert' THEN UPDATE SET {refused}"

    def _clauses(self, states: set[str]) -> list[str]:
        names = [quoted(column.name) for column in self.columns]
        clauses = []
        if "insert" in states:
            clauses.append(self._refused())
        if "delete" in states:
            clauses.append(f"WHEN MATCHED AND s.{ROW_STATE} = 'delete' THEN DELETE")
        if "upsert" in states:
            clauses.append(f"WHEN MATCHED THEN UPDATE SET {', '.join(f't.{name} = s.{name}' for name in names)}")
        if states - {"delete"}:
            values = ", ".join(f"s.{name}" for name in names)
            clauses.append(
                f"WHEN NOT MATCHED AND s.{ROW_STATE} <> 'delete' THEN INSERT ({', '.join(names)}) VALUES ({values})"
            )
        return clauses
