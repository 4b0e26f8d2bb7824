"""Finds the rows that a view without a key has to remove although its table has them with other last digits.

Sums of FLOAT and DOUBLE depend on the order in which Spark adds, and so on how files are laid out. A row that was computed again
after a compaction may equal no row of the table. It is found by its other values, as a key would find it; among several such
rows the one with the closest numbers is taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
from pyiceberg.types import DoubleType, FloatType
from pyspark.sql import DataFrame

from lakehold.session import temp_view
from lakehold.spark_sql import quoted
from lakehold.tables.column_types import ColumnType
from lakehold.tables.equal_rows import as_in_diffs, bounds_of, ranges, row_hash

_GONE = "lakehold_gone"
_PAIRS = 1_000_000
"""Most pairs of a row to remove and a row of the table that are compared: the closest ones."""


def with_closest(  # noqa: PLR0913 - a table, the rows to remove, and those that were found
    name: str, gone: DataFrame, columns: Sequence[ColumnType], number: str, copies: str, found: pa.Table
) -> pa.Table:
    """Add rows to those that were found by all of their values; there may still be fewer than there are to remove.

    Args:
        name: The table's full name in SQL, quoted.
        gone: The rows to remove, each once.
        columns: The columns of the rows.
        number: The column of `gone` that tells its rows apart.
        copies: The column of `gone` with how often each is to be removed.
        found: The rows that were found: their `row_id`, and the number of the row that they equal.
    """
    added = [column for column in columns if isinstance(column.type, FloatType | DoubleType)]
    others = [column for column in columns if column not in added]
    if not added:
        return found
    (totals,) = gone.selectExpr("count(*) AS _lh_rows", *bounds_of(others)).toArrow().to_pylist()
    same = ["true", "true", *(" <=> ".join(as_in_diffs(f"{s}.{quoted(c.name)}", c.type) for s in "ts") for c in others)]
    statement = f"""
        SELECT t._row_id AS row_id, s.{number}, s.{copies} FROM (
            SELECT {", ".join(quoted(column.name) for column in columns)}, _row_id FROM {name}
            WHERE {" AND ".join(ranges(others, totals)) or "true"}
        ) t JOIN {_GONE} s ON {row_hash("t", others)} = {row_hash("s", others)} AND least({", ".join(same)})
        ORDER BY {" + ".join(_distance(quoted(column.name)) for column in added)}, row_id LIMIT {_PAIRS}"""
    with temp_view(gone, _GONE):
        pairs = gone.sparkSession.sql(statement).toArrow().to_pylist()
    of_row: dict[int, int] = dict(
        zip(found.column("row_id").to_pylist(), found.column(number).to_pylist(), strict=True)
    )
    count = Counter(of_row.values())
    for pair in pairs:
        if pair["row_id"] not in of_row and count[pair[number]] < pair[copies]:
            of_row[pair["row_id"]] = pair[number]
            count[pair[number]] += 1
    return pa.table([pa.array(of_row.keys()), pa.array(of_row.values())], schema=found.schema)


def _distance(column: str) -> str:
    """Write how far two numbers are apart, from 0 to 2; more if only one is a number."""
    apart = f"abs(t.{column} - s.{column}) / greatest(abs(t.{column}), abs(s.{column}))"
    return f"CASE WHEN t.{column} <=> s.{column} THEN 0D ELSE coalesce({apart}, 3D) END"
