"""The log of a PostgreSQL server with its timelines, and what decides whether a failover loses changes. Data classes only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FoundLog:
    """The log of a PostgreSQL server. A promoted standby continues its primary's log on a new timeline.

    Attributes:
        system: Identifier of the log's first server. Its standbys, and servers restored from its backups, have the same.
        timeline: Number of the timeline that the server writes now.
        branches: Each earlier timeline, and the position in bytes at which the log left it for the next one; the oldest first.
        is_awaited: The server sends the source only changes that its standbys have: those of synchronized_standby_slots.
    """

    system: str
    timeline: int
    branches: tuple[tuple[int, int], ...] = ()
    is_awaited: bool = False

    def is_same(self, other: FoundLog) -> bool:
        """Return whether both are one timeline of one log."""
        return (self.system, self.timeline, self.branches) == (other.system, other.timeline, other.branches)

    def branched_from(self, earlier: FoundLog) -> int | None:
        """Return the position at which this log left the timeline of an earlier one; None: it does not continue that timeline."""
        count = len(earlier.branches)
        if self.system != earlier.system or self.branches[:count] != earlier.branches:
            return None
        left = self.branches[count : count + 1]
        return left[0][1] if left and left[0][0] == earlier.timeline else None


@dataclass(frozen=True)
class FoundFailover:
    """A server's settings and slots that decide what a failover loses.

    Attributes:
        log: The server's log; None: the source's user may not ask for it.
        has_failover_slots: Standbys can copy slots in this version of PostgreSQL.
        has_standbys: A physical replication slot exists: that of a standby.
        is_copied: Standbys copy the source's slot.
        was_copied: The server copied the source's slot while it was a standby.
        may_ask: The source's user may ask for the log's timelines; checked if there are standbys.
    """

    log: FoundLog | None = None
    has_failover_slots: bool = False
    has_standbys: bool = False
    is_copied: bool = False
    was_copied: bool = False
    may_ask: bool = True
