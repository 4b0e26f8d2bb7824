"""Steps for and after a failover of PostgreSQL. Each is safe to repeat; its `description` is what EXPLAIN shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lakehold.upstream.connector_config import has_failover_slot
from lakehold.upstream.failover import is_on_other_timeline
from lakehold.upstream.found import Found
from lakehold.upstream.found_log import FoundLog
from lakehold.upstream.wanted import Wanted


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


def copied_slot(wanted: Wanted, found: Found) -> Iterator[CopySlot]:
    """Have standbys copy a slot that an earlier lakehold's connector created; once, as the server may refuse."""
    connector, database = found.connector, found.database
    if connector is not None and database is not None and database.slot is not None:
        is_new = not has_failover_slot(connector.config) and has_failover_slot(wanted.config)
        if is_new and not database.failover.is_copied:
            yield CopySlot(wanted.capture.slot or "")


def other_timeline(wanted: Wanted, found: Found) -> Iterator[TakeLog]:
    """Continue with the timeline that the database has now, before it is snapshotted again."""
    log = found.database.failover.log if found.database is not None else None
    if log is not None and is_on_other_timeline(found):
        yield TakeLog(wanted.capture.topic_prefix, wanted.source_id, log, wanted.signal_table, wanted.seen_upstream_ms)
