"""Commits to the tables of a source. Each step of a batch is committed once, also if a crash makes the batch run again."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import SparkSession

from lakehold.definitions import Table
from lakehold.iceberg.data_tables import DataTables, TableState
from lakehold.ingest.write import merge
from lakehold.ingest.write.batch_effects import BatchIdentity
from lakehold.ingest.write.commit import committed
from lakehold.ingest.write.error_records import ErrorRecords
from lakehold.ingest.write.write_audit_publish import Publishing
from lakehold.model.high_water_marks import HighWaterMarks
from lakehold.spark_sql import quoted_table


class HeldHistory(Protocol):
    """The interface of holds to a writer, which tags the snapshots they need, and begins those that wait."""

    def is_held(self, full_name: str) -> bool:
        """Return whether some hold is on a table."""

    def keep(self, full_name: str) -> None:
        """Tag the snapshots of a table that holds need; does nothing for a table without holds."""

    def begin(self, full_names: Collection[str]) -> None:
        """Give a time to holds that wait for one of these tables, which are readable now."""


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
        snapshot_again: Has the connector snapshot one table again, which shows values that the table's messages do not.
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
        """Return the publishing of snapshots that a session's statements commit."""
        return Publishing(spark, self.tables, self.confirm_lease, self.held.is_held)

    def commit(
        self, batch: BatchIdentity, full_name: str, step: int, commit: Callable[[TableState], None]
    ) -> TableState | None:
        """Commit a step of a batch to a table, unless it is committed. Returns the committed table; None if nothing was to do."""
        self.held.keep(full_name)
        found = committed(self.tables, self.confirm_lease, batch, full_name, step, commit)
        self.held.keep(full_name)
        return found

    def remove_stale(
        self, batch: BatchIdentity, full_name: str, through: int, high_water_marks: HighWaterMarks, step: int
    ) -> TableState | None:
        """Delete the rows that were last changed at or before a sequence number of the table.

        Args:
            batch: The batch.
            full_name: The table.
            through: The sequence number.
            high_water_marks: The table's high-water marks afterwards.
            step: The step of the batch.

        Returns:
            The committed table; None if nothing was to do.
        """
        name, properties = self.name(full_name), batch.properties(high_water_marks, step)

        def delete(state: TableState) -> None:
            spark = self.spark()
            self.publishing(spark).run(
                lambda: merge.delete_stale(spark, name, through, properties), state, batch.effect(step)
            )

        return self.commit(batch, full_name, step, delete)
