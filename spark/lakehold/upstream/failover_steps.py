"""Steps for and after a failover of PostgreSQL. Each is safe to repeat; its `description` is what EXPLAIN shows."""

from __future__ import annotations

from dataclasses import dataclass

from lakehold.upstream.found_log import FoundLog


@dataclass(frozen=True)
class CopySlot:
    """A step that has standbys copy a replication slot, which a promoted one then has. A server may refuse: nothing changes."""

    name: str

    @property
    def description(self) -> str:
        """Describe the step for EXPLAIN."""
        return f"have standbys copy replication slot {self.name}"


@dataclass(frozen=True)
class TakeLog:
    """A step that continues with another timeline of the database's log, before all tables are snapshotted from it.

    Args:
        prefix: First part of the topics' names.
        source_id: Object id of the source.
        log: The log.
        signal_table: The signal table, which keeps the time of the last inspection.
        seen_ms: That time, epoch milliseconds; None: the database was given none.
    """

    prefix: str
    source_id: str
    log: FoundLog
    signal_table: str
    seen_ms: int | None

    @property
    def description(self) -> str:
        """Describe the step for EXPLAIN."""
        return f"continue with timeline {self.log.timeline} of the database's log"
