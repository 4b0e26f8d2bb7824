"""Publishing: a statement's result becomes the table's only on top of the snapshot for which the statement was chosen.

A statement is planned on the table as it is when it runs. A suspended writer may run it long after choosing it, when its
successor has finished this batch and later ones: nothing would keep the old batch from being merged on top of them.
So the statement is staged (Iceberg's write-audit-publish): its snapshot is in the table's metadata, on no branch, until main
is fast-forwarded to it, which fails if main has moved. That is one small commit beside the statement's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from uuid import uuid4

from pyspark.sql import SparkSession

from lakehold.errors import CommitConflict
from lakehold.failpoints import failpoint
from lakehold.iceberg.data_tables import DataTables, SnapshotState, TableState
from lakehold.model.summary_keys import TIMESTAMP_PROPERTY
from lakehold.session import configured

TABLE_PROPERTIES = {"write.wap.enabled": "true"}
"""The table property that lets statements be staged."""

_WAP_ID = "spark.wap.id"
_WAP_BRANCH = "spark.wap.branch"

_BRANCH = "lakehold_batch_"
"""The first part of the names of branches on which statements are staged."""


def unstaged(spark: SparkSession) -> AbstractContextManager[None]:
    """Let the statements inside commit to tables themselves, whatever other threads or the session's owner stage."""
    return configured(spark, _staging())


def _staging(*, wap_id: str | None = None, branch: str | None = None) -> dict[str, str | None]:
    return {_WAP_ID: wap_id, _WAP_BRANCH: branch}


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

    def run_together(
        self,
        writes: Iterable[Callable[[], None]],
        decided_on: TableState,
        properties: Mapping[str, str] | None = None,
    ) -> SnapshotState:
        """Run statements one after the other, and publish their commits as one change of the table.

        They commit to a branch of their own; one that a killed process left goes with the next one.

        Args:
            writes: The statements; they may be made one by one, while earlier ones have run.
            decided_on: The table for which they were chosen; it has a snapshot.
            properties: Properties of the table to set in the commit that publishes.

        Returns:
            The table's snapshot afterwards.

        Raises:
            CommitConflict: See `stage`. Or another writer removed the branch.
        """
        branch = f"{_BRANCH}{uuid4().hex}"
        # A writer that lost its lease while it was suspended would remove its successor's branch.
        self.confirm_lease()
        self.tables.make_branch(decided_on, branch, removed=lambda name: name.startswith(_BRANCH))
        now, head = decided_on, decided_on.current
        assert head is not None, f"{decided_on.full_name} has a snapshot"
        for write in writes:
            with configured(self.spark, _staging(branch=branch)):
                write()
            now = self._unmoved(decided_on)
            head = _head(now, branch, head)
        self.publish(Staged(now, head), branch, properties)
        return head

    def stage(self, write: Callable[[], None], decided_on: TableState, wap_id: str) -> Staged | None:
        """Run `write`, whose commit becomes a snapshot that no reader sees; None if it committed nothing.

        Args:
            write: Runs one statement on the table.
            decided_on: The table for which the statement was chosen.
            wap_id: Names the effect.

        Raises:
            CommitConflict: Another writer committed to the table since.
        """
        with configured(self.spark, _staging(wap_id=wap_id)):
            write()
        now = self._unmoved(decided_on)
        snapshot = now.staged(wap_id)
        return None if snapshot is None else Staged(now, snapshot)

    def _unmoved(self, decided_on: TableState) -> TableState:
        now = self.tables.table_state(decided_on.full_name)
        if now is None or now.snapshot_id != decided_on.snapshot_id:
            raise _changed_first(decided_on)
        return now

    def publish(self, staged: Staged, branch: str | None = None, properties: Mapping[str, str] | None = None) -> None:
        """Make a staged snapshot the table's, with the tag that a hold needs at its timestamp, and remove its branch.

        `properties` of the table are set in the same commit.

        Raises:
            CommitConflict: Another writer moved the table since.
        """
        failpoint("before-publish")
        self.confirm_lease()
        timestamp = staged.snapshot.summary.get(TIMESTAMP_PROPERTY)
        tag = f"mz_{timestamp}" if timestamp is not None and self.is_held(staged.table.full_name) else None
        self.tables.fast_forward(staged.table, staged.snapshot.snapshot_id, tag, branch, properties)


def _head(state: TableState, branch: str, before: SnapshotState) -> SnapshotState:
    """Return the newest snapshot of a branch, whose newest one was `before`.

    If another writer removed the branch, the next statement makes it again from main: without the earlier statements.

    Raises:
        CommitConflict: The branch was removed.
    """
    found = next(state.branch(branch), None)
    if found is None or before not in state.branch(branch):
        raise _changed_first(state)
    return found


def _changed_first(state: TableState) -> CommitConflict:
    return CommitConflict(
        f'another writer changed table "{state.full_name}" first', hint="Ingest again: nothing was published."
    )
