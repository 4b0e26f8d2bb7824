"""Counts the keys of a view that have several rows, for views that keep such rows.

The count follows the changes: of the keys in a chunk of changes, the table says how many rows they have, and the chunk how many
they get. So a refresh does not read the whole table for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame

from lakehold.session import temp_view
from lakehold.spark_sql import quoted
from lakehold.tables import equal_rows
from lakehold.tables.column_types import ColumnType

KEY_VIOLATIONS = "lakehold.key-violations"
"""Table property of a view: the number of keys that have several rows."""

_CHANGED = "lakehold_changed_keys"
_BEFORE, _ADDED = "_lh_before", "_lh_added"


@dataclass
class KeyViolations:
    """The number of keys that have several rows.

    Args:
        name: The table's full name in SQL, quoted.
        key: The key's columns.
        count: The number before the changes.
        reading: Opens a context in which statements that may read all of the table run.
    """

    name: str
    key: Sequence[ColumnType]
    count: int
    reading: Callable[[], AbstractContextManager[None]] = field(repr=False)

    def add(self, rows: pa.Table, changes: DataFrame, diff: str) -> None:
        """Count changes that are about to be written.

        Args:
            rows: The rows that come and go, with the columns of the table.
            changes: The same rows, in the types of the table.
            diff: The column of `changes` that says how often a row comes, or, below zero, goes.
        """
        keys = [equal_rows.as_in_diffs(quoted(column.name), column.type) for column in self.key]
        named = [f"{sql} AS k{place}" for place, sql in enumerate(keys)]
        names = [f"k{place}" for place in range(len(keys))]
        conditions = " AND ".join(equal_rows.ranges(self.key, equal_rows.bounds_in(rows, self.key))) or "true"
        same = " AND ".join(f"t.{name} <=> s.{name}" for name in names)
        statement = f"""
            SELECT count_if({_BEFORE} + {_ADDED} > 1) - count_if({_BEFORE} > 1) AS more FROM (
                SELECT s.{_ADDED}, coalesce(t.{_BEFORE}, 0) AS {_BEFORE}
                FROM (SELECT {", ".join(names)}, sum({diff}) AS {_ADDED}
                      FROM (SELECT {", ".join(named)}, {diff} FROM {_CHANGED}) GROUP BY {", ".join(names)}) s
                LEFT JOIN (SELECT {", ".join(names)}, count(*) AS {_BEFORE}
                      FROM (SELECT {", ".join(named)} FROM {self.name} WHERE {conditions}) GROUP BY {", ".join(names)}) t
                ON {same})"""
        with self.reading(), temp_view(changes, _CHANGED):
            self.count += int(changes.sparkSession.sql(statement).toArrow()["more"][0].as_py() or 0)
