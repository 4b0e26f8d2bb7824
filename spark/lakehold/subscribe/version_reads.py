"""Relations that one query on Spark reads: versions of tables, and data frames under names of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.schema import Schema
from pyspark.sql import DataFrame

from lakehold.spark_sql import quoted_table
from lakehold.subscribe.on_spark import OnSpark, misses_filtered_columns, snapshot_schema, view_name
from lakehold.timeline.table_timeline import Timeline

_ROW = "lakehold_row"
"""The name of a table inside the conditions of `VersionReads.at`."""


@dataclass(frozen=True)
class VersionReads:
    """Names what a query reads, and runs the query.

    Args:
        spark: Runs it.
        schemas: The columns in which tables are read, by full name; fixed for a whole output.
        timelines: The tables' timelines by full name.
    """

    spark: OnSpark
    schemas: Mapping[str, Schema]
    timelines: Mapping[str, Timeline]
    _frames: dict[str, DataFrame] = field(default_factory=dict)

    def view(self, frame: DataFrame) -> str:
        """Return a name by which the query can read a data frame."""
        name = view_name()
        self._frames[name] = frame
        return name

    def at(self, name: str, at_ms: int, condition: str = "") -> str:
        """Return SQL that reads a table as it was at `at_ms`.

        A snapshot with the wanted schema is read as it is; one with another schema through a view that converts it. A table
        without a version at `at_ms` is an empty view.

        Args:
            name: The table's full name.
            at_ms: The time.
            condition: SQL that selects rows, over columns of `lakehold_row`; empty selects all.
        """
        timeline, schema = self.timelines[name], self.schemas[name]
        version = timeline.at(at_ms)
        snapshot_id = version.snapshot_id if version is not None else None
        if (
            snapshot_id is not None
            and snapshot_schema(timeline, snapshot_id).as_struct() == schema.as_struct()
            and not misses_filtered_columns(timeline, snapshot_id)
        ):
            table = f"{quoted_table(self.spark.catalog_name, name)} VERSION AS OF {snapshot_id}"
        else:
            table = self.view(self.spark.state(timeline, snapshot_id, schema))
        return f"(SELECT * FROM {table} AS {_ROW} WHERE {condition})" if condition else table

    def select(self, text: str) -> DataFrame:
        """Run a query over what was named."""
        return self.spark.select(text, self._frames)


def row_column(quoted_name: str) -> str:
    """Return SQL of a column in a condition of `VersionReads.at`."""
    return f"{_ROW}.{quoted_name}"
