"""Steps that prepare for a failover of PostgreSQL or follow one. Each can be repeated; EXPLAIN shows its `description`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lakehold.upstream.differences.failover import is_on_other_timeline
from lakehold.upstream.found.found import Found
from lakehold.upstream.found.server_log import FoundLog
from lakehold.upstream.wanted.connector_config import has_failover_slot
from lakehold.upstream.wanted.wanted import Wanted


@dataclass(frozen=True)
class CopySlot:
    """A step that makes standbys copy a replication slot. If the server refuses, the connector reads the slot as before."""

    name: str

    @property
    def description(self) -> str:
        """Describe the step for EXPLAIN."""
        return f"have standbys copy replication slot {self.name}"


@dataclass(frozen=True)
class TakeLog:
    """A step that records the database's new timeline as the one that fills the topics, before all tables are snapshotted.

    Args:
        prefix: First part of the topics' names.
        source_id: Object id of the source.
        log: The log.
        signal_table: The signal table, which keeps the time of the last inspection.
        seen_ms: The time of the last inspection, epoch milliseconds; None: the signal table keeps none.
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


def slot_to_copy(wanted: Wanted, found: Found) -> Iterator[CopySlot]:
    """Yield the step for a slot that an earlier lakehold created. Once done or refused, it is not yielded again."""
    connector, database = found.connector, found.database
    if connector is not None and database is not None and database.slot is not None:
        is_new = not has_failover_slot(connector.config) and has_failover_slot(wanted.config)
        if is_new and not database.failover.is_copied:
            yield CopySlot(wanted.capture.slot or "")


def other_timeline(wanted: Wanted, found: Found) -> Iterator[TakeLog]:
    """Yield the step that continues with the database's present timeline, if it is not the recorded one."""
    log = found.database.failover.log if found.database is not None else None
    if log is not None and is_on_other_timeline(found):
        yield TakeLog(wanted.capture.topic_prefix, wanted.source_id, log, wanted.signal_table, wanted.seen_upstream_ms)
