"""Publishing: a statement's result becomes the table's only on top of the snapshot for which the statement was chosen.

A statement is planned on the table as it is when it runs. A suspended writer may run it long after choosing it, when its
successor has finished this batch and later ones: nothing would keep the old batch from being merged on top of them.
So the statement is staged (Iceberg's write-audit-publish): its snapshot is in the table's metadata, on no branch, until main
is fast-forwarded to it, which fails if main has moved. That is one small commit beside the statement's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import SparkSession

from lakehold.errors import CommitConflict
from lakehold.failpoints import failpoint
from lakehold.iceberg.data_tables import TIMESTAMP_PROPERTY, DataTables, SnapshotState, TableState
from lakehold.session import configured

TABLE_PROPERTIES = {"write.wap.enabled": "true"}
"""The table property that lets statements be staged."""

_WAP_ID = "spark.wap.id"


@dataclass(frozen=True)
class Staged:
    """A snapshot that is on no branch, and the table whose current one it can become."""

    table: TableState
    snapshot: SnapshotState


@dataclass(frozen=True)
class Publishing:
    """A session that stages snapshots of one table, and the means to publish them.

    Args:
        spark: The session.
        tables: Reads the table's metadata, and fast-forwards it.
        confirm_lease: Raises `LeaseLost` if another process owns the source.
        is_held: Whether some hold is on the table of this name.
    """

    spark: SparkSession
    tables: DataTables
    confirm_lease: Callable[[], None]
    is_held: Callable[[str], bool]

    def run(self, write: Callable[[], None], decided_on: TableState, wap_id: str) -> None:
        """Stage the commit of `write`, and publish it; a statement that changed nothing leaves the table as it is.

        Raises:
            CommitConflict: See `stage`.
        """
        staged = self.stage(write, decided_on, wap_id)
        if staged is not None and staged.snapshot.summary.get("changed-partition-count") != "0":
            self.publish(staged)

    def stage(self, write: Callable[[], None], decided_on: TableState, wap_id: str) -> Staged | None:
        """Run `write`, whose commit becomes a snapshot that no reader sees; None if it committed nothing.

        Args:
            write: Runs one statement on the table.
            decided_on: The table for which the statement was chosen.
            wap_id: Names the effect.

        Raises:
            CommitConflict: Another writer committed to the table since.
        """
        with configured(self.spark, {_WAP_ID: wap_id}):
            write()
        now = self.tables.table_state(decided_on.full_name)
        if now is None or now.snapshot_id != decided_on.snapshot_id:
            raise CommitConflict(
                f'another writer changed table "{decided_on.full_name}" first',
                hint="Ingest again: nothing was published.",
            )
        snapshot = now.staged(wap_id)
        return None if snapshot is None else Staged(now, snapshot)

    def publish(self, staged: Staged) -> None:
        """Make a staged snapshot the table's, with the tag that a hold on the table needs on it.

        Raises:
            CommitConflict: Another writer moved the table since.
        """
        failpoint("before-publish")
        self.confirm_lease()
        tag = f"mz_{staged.snapshot.summary[TIMESTAMP_PROPERTY]}" if self.is_held(staged.table.full_name) else None
        self.tables.fast_forward(staged.table, staged.snapshot.snapshot_id, tag)
