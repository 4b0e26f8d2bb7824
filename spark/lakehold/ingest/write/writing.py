"""Commits to the tables of a source. Each step of a batch is committed once, also if a crash makes the batch run again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from lakehold.definitions import Table
from lakehold.iceberg.data_tables import DataTables, TableState
from lakehold.ingest.write import merge
from lakehold.ingest.write.batch_effects import BatchIdentity
from lakehold.ingest.write.commit import committed
from lakehold.ingest.write.error_records import ErrorRecords
from lakehold.model.high_water_marks import HighWaterMarks
from lakehold.spark_sql import quoted_table
from lakehold.tables import equal_rows, vectorized
from lakehold.tables.column_types import ColumnType
from lakehold.tables.write_audit_publish import Publishing


class HeldHistory(Protocol):
    """The interface of holds to a writer, which tags the snapshots they need, and begins those that wait."""

    def is_held(self, full_name: str) -> bool:
        """Return whether some hold is on a table."""

    def keep(self, full_name: str) -> None:
        """Tag the snapshots of a table that holds need; does nothing for a table without holds."""

    def begin(self, full_names: Collection[str]) -> None:
        """Let holds begin that were created before one of these tables was readable, and that had no time until now."""


@dataclass(frozen=True)
class Writing:
    """The means to commit to the tables of a source.

    Args:
        spark: Returns the session; called only when something is written, because starting one takes seconds.
        catalog_name: Spark's name of the lake's catalog.
        buckets: Buckets of a table created without `WITH (BUCKETS = n)`.
        tables: Reads a table's metadata.
        confirm_lease: Raises `LeaseLost` if another process owns the source; called before each commit.
        held: Keeps the history that holds need.
        errors: Records bad messages.
        snapshot_again: Has the connector snapshot one table again, because rows have values that no message brings, such as a new
            column's default. Without a captured database it does nothing.
    """

    spark: Callable[[], SparkSession]
    catalog_name: str
    buckets: int
    tables: DataTables
    confirm_lease: Callable[[], None]
    held: HeldHistory
    errors: ErrorRecords
    snapshot_again: Callable[[Table], None] = lambda _: None

    def name(self, full_name: str) -> str:
        """Return a table's name in SQL, quoted."""
        return quoted_table(self.catalog_name, full_name)

    def publishing(self, spark: SparkSession) -> Publishing:
        """Return what stages the statements of a session and publishes their snapshots (`write_audit_publish.py`)."""
        return Publishing(spark, self.tables, self.confirm_lease, self.held.is_held)

    def commit(
        self, batch: BatchIdentity, full_name: str, step: int, commit: Callable[[TableState], None]
    ) -> TableState | None:
        """Commit a step of a batch to a table, unless the table's history has the step already.

        Args:
            batch: The batch.
            full_name: The table.
            step: Number of the commit among those of the batch to this table.
            commit: Writes the step to the table in the state that it is given; may run again after a conflict.

        Returns:
            The table with the step, whichever attempt or process committed it. None if `commit` had nothing to change.
        """
        # Before: other writers may have added snapshots that a hold needs. After: so may this step have.
        self.held.keep(full_name)
        found = committed(self.tables, self.confirm_lease, batch, full_name, step, commit)
        self.held.keep(full_name)
        return found

    def rewrite(  # noqa: PLR0913 - a batch, a table, its rows, and the effect to record
        self,
        batch: BatchIdentity,
        full_name: str,
        key: Sequence[ColumnType],
        rows: DataFrame,
        high_water_marks: HighWaterMarks,
        step: int,
    ) -> TableState | None:
        """Write the rows with some keys again, as they are, so that `remove_stale` takes them for rows of the new snapshot.

        Args:
            batch: The batch.
            full_name: The table.
            key: The columns of its key.
            rows: The keys.
            high_water_marks: The table's high-water marks after the batch.
            step: The step of the batch.

        Returns:
            The table with the step; None if it has no such row.
        """
        name, properties = self.name(full_name), batch.properties(high_water_marks, step)
        (totals,) = rows.selectExpr("count(*) AS found", *equal_rows.bounds_of(key)).toArrow().to_pylist()
        if not totals["found"]:
            return None
        where = [*equal_rows.ranges(key, totals, "t.")]

        def write(state: TableState) -> None:
            # The keys are in the session that decoded them.
            spark = rows.sparkSession
            reading = vectorized.reading(spark, state)

            def rewriting() -> None:
                with reading():
                    merge.rewrite(spark, name, [column.name for column in key], rows, properties, where)

            self.publishing(spark).run(rewriting, state, batch.effect(step))

        return self.commit(batch, full_name, step, write)

    def remove_stale(
        self, batch: BatchIdentity, full_name: str, through: int, high_water_marks: HighWaterMarks, step: int
    ) -> TableState | None:
        """Delete the rows that a complete connector snapshot did not bring: they do not exist upstream any more.

        Such rows were last changed before the snapshot began. Everything that it brought was written later.

        Args:
            batch: The batch.
            full_name: The table.
            through: The table's Iceberg sequence number when the snapshot began. Rows whose `_last_updated_sequence_number` is at
                or below it are deleted.
            high_water_marks: The table's high-water marks afterwards.
            step: The step of the batch.

        Returns:
            The table with the step; None if there was no such row.
        """
        name, properties = self.name(full_name), batch.properties(high_water_marks, step)

        def delete(state: TableState) -> None:
            spark = self.spark()
            self.publishing(spark).run(
                lambda: merge.delete_stale(spark, name, through, properties), state, batch.effect(step)
            )

        return self.commit(batch, full_name, step, delete)
