"""Snapshots of captured tables as the journal has them, and statements that changed rows without messages. Data classes only."""

from __future__ import annotations

from dataclasses import dataclass

from lakehold.model.log_positions import LogPosition


@dataclass(frozen=True)
class FoundSnapshot:
    """The journal's record of the connector snapshot of one table.

    Attributes:
        is_first: The table is in the connector's first snapshot.
        notified_from: Notifications before this offset are not about that first snapshot.
        requested: How often a snapshot of the table was requested.
        succeeded: The connector reported that the snapshot is complete.
        failures: Reasons of failures, one for each that the connector reported.
        missed: Changes of the table were missed since, and no snapshot of it alone could be taken.
        sync_point: The log position from which a table that joined is consistent with the others; None: none was recorded.
        failed_in_row: Failures since the last success or first snapshot; those of a table without a key do not count.
        again_ms: When to request a snapshot again after such a failure, epoch milliseconds; 0: there was none.
        altered_until: The last snapshot has the effect of statements before this offset of the schema history.
    """

    is_first: bool = False
    notified_from: int = 0
    requested: int = 0
    succeeded: bool = False
    failures: tuple[str, ...] = ()
    missed: bool = False
    sync_point: LogPosition | None = None
    failed_in_row: int = 0
    again_ms: int = 0
    altered_until: int = 0

    @property
    def has_joined(self) -> bool:
        """Return whether the snapshot was taken while other tables streamed, so that its rows may be newer than their changes."""
        return self.succeeded and not self.is_first

    def is_complete(self, first_notification: int | None) -> bool:
        """Return whether the topic has the whole snapshot.

        Args:
            first_notification: Offset of the notification that the connector's first snapshot is complete; None: there is none.
        """
        return self.succeeded or (
            self.is_first and first_notification is not None and first_notification >= self.notified_from
        )


NO_SNAPSHOT = FoundSnapshot()


@dataclass(frozen=True)
class FoundRepeat:
    """The last repeated snapshot of one table, requested because changes had been missed.

    Attributes:
        signal_id: Id of the signal that requested it.
        upstream: The table in the database.
        replaces_through: Iceberg's sequence number of the lake's table when the snapshot was requested. A row that was last
            changed at or before it, and is not in the snapshot, no longer exists upstream.
        is_certain: Whether the lake then had everything that the database had logged before. Otherwise a second snapshot
            follows, to find deleted rows.
        succeeded: Whether the last scan of the table succeeded; None: there was none.
        is_done: Whether the connector reported that it has scanned all tables that this signal and earlier ones requested.
    """

    signal_id: str
    upstream: str
    replaces_through: int
    is_certain: bool
    succeeded: bool | None = None
    is_done: bool = False

    @property
    def is_complete(self) -> bool:
        """Return whether the topic has the whole snapshot.

        A scan alone is no proof: it may have begun before the signal that it answers. The last scan before `is_done` did not.
        """
        return self.is_done and self.succeeded is True

    @property
    def is_failed(self) -> bool:
        """Return whether the snapshot ended without bringing all rows."""
        return self.is_done and not self.succeeded


@dataclass(frozen=True)
class FoundAlteration:
    """The last statements that may have changed rows of a table without messages, as offsets in the schema history.

    Attributes:
        changed_at: The last such statement.
        removed_at: The last one that may have removed rows; -1: none did.
        unread_at: The last one that Debezium did not understand, such as CREATE OR REPLACE TABLE: it reads rows after it by the
            old columns; -1: none was.
    """

    changed_at: int
    removed_at: int = -1
    unread_at: int = -1
