"""Distinguishes a database that failed over to a standby from one that was restored from a backup or replaced. Pure.

A promoted standby continues its primary's log on a new timeline. Two questions decide whether lakehold may continue:

    does it have all that the lake has applied?   yes, if it left the old timeline at or after the last commit in the lake
    does it have all that the connector sent?     yes, if the old primary waited for it (`FoundLog.is_awaited`)

Nothing else answers the second question, because the connector reconnects by itself and then sends from the new timeline.
"""

from __future__ import annotations

from collections.abc import Iterator

from lakehold.errors import UpstreamError
from lakehold.object_names import object_text
from lakehold.times import iso
from lakehold.upstream.found.found import Found, FoundDatabase
from lakehold.upstream.found.server_log import FoundLog
from lakehold.upstream.types.identifier_quoting import identifier_text
from lakehold.upstream.wanted.wanted import Wanted

RESNAPSHOT_HINT = "ALTER SOURCE {} RESNAPSHOT snapshots all of its tables again, so that they equal the database."


def is_on_other_timeline(found: Found) -> bool:
    """Return whether the server writes another timeline, of the same log, than the one that filled the topics."""
    log = _log(found)
    return log is not None and found.log is not None and log.system == found.log.system and not log.is_same(found.log)


def refuse_restored(wanted: Wanted, found: Found, *, resnapshot: bool = False) -> None:
    """Refuse a database that was restored: it lacks what the lake has applied, or has an older time of the last inspection.

    lakehold keeps the time of its last inspection in the lake and in the database, as the comment on the signal table.
    With `resnapshot` a database on another timeline is accepted once its log is longer than what the lake has applied.
    """
    database = found.database
    if database is not None and is_on_other_timeline(found):
        if not (resnapshot and _has_overtaken(wanted, database)):
            _refuse_lost_branch(wanted, found, database)
        return
    if database is not None and wanted.applied_position is not None and database.position < wanted.applied_position:
        raise _restored(
            wanted,
            f"Its log ends at {_lsn(database.position)}, and the lake has changes up to {_lsn(wanted.applied_position)}",
        )
    signal_table, recorded_ms = found.signals.table, wanted.seen_upstream_ms
    kept_ms = signal_table.seen_ms if signal_table is not None else None
    if recorded_ms is not None and kept_ms is not None and kept_ms < recorded_ms:
        raise _restored(
            wanted,
            f"It says that lakehold last inspected it at {iso(kept_ms)} UTC, but lakehold recorded {iso(recorded_ms)} UTC in it",
        )


def refuse_uncertain_failover(wanted: Wanted, found: Found, database: FoundDatabase) -> None:
    """Refuse a promoted standby that may lack what the connector had sent, or that had not copied the source's slot."""
    log, earlier = _log(found), found.log
    if log is None or earlier is None or not is_on_other_timeline(found):
        return
    # `refuse_restored` has refused a log that does not continue the earlier one.
    branch = _lsn(log.branched_from(earlier) or 0)
    where = f"A standby was promoted: timeline {log.timeline} left timeline {earlier.timeline} at {branch}."
    if not earlier.is_awaited:
        raise UpstreamError(
            f'the database of source "{wanted.source}" failed over, perhaps without changes that were sent',
            code="failover-uncertain",
            detail=f"{where} The old primary sent changes without waiting for a standby to have them.",
            hint=f"{RESNAPSHOT_HINT.format(object_text(wanted.source))} To survive the next failover, set "
            "synchronized_standby_slots (PostgreSQL 17 and later).",
        )
    if not database.failover.was_copied:
        raise slot_lost(wanted, f"{where} It had not copied the slot: set sync_replication_slots on standbys.")


def failover_hints(wanted: Wanted, database: FoundDatabase | None) -> Iterator[str]:
    """Yield a sentence if a failover to a standby would need a re-snapshot, or if lakehold might not notice the failover.

    A physical slot counts as a standby. It may be that of a tool which archives the log: nothing that every user may read
    distinguishes the two, and a sentence too many is better than a failover that loses changes.
    """
    if database is None or database.slot is None or not database.failover.has_standbys:
        return
    failover, slot = database.failover, wanted.capture.slot
    if not failover.may_ask:
        user = identifier_text(wanted.config["database.user"], wanted.capture.database)
        yield (
            "lakehold may not ask the database for the timelines of its log, so a failover to one of its standbys that loses "
            "changes could pass unnoticed (a physical replication slot counts as a standby): ALTER ROLE "
            f"{user} REPLICATION, and GRANT EXECUTE ON FUNCTION pg_control_system() TO {user}"
        )
    if failover.has_failover_slots and not failover.is_copied:
        yield (
            f"standbys do not copy replication slot {slot}: a failover would lose it. While connector {wanted.connector} is "
            f'stopped, send ALTER_REPLICATION_SLOT "{slot}" (FAILOVER) on a replication connection; or '
            f"ALTER SOURCE {object_text(wanted.source)} RESNAPSHOT, which creates the slot again"
        )
    elif failover.has_failover_slots and failover.log is not None and not failover.log.is_awaited:
        yield (
            "the database does not wait for its standbys: one that is promoted may lack changes that were sent, and a failover "
            "needs a RESNAPSHOT. Set synchronized_standby_slots to the slots of the standbys, which docs/operate/failover.md "
            "explains"
        )


def slot_lost(wanted: Wanted, detail: str) -> UpstreamError:
    """Return the error of a lost replication slot: the database no longer keeps all changes after the connector's position."""
    return UpstreamError(
        f'replication slot "{wanted.capture.slot}" is lost',
        code="slot-lost",
        detail=detail,
        hint=RESNAPSHOT_HINT.format(object_text(wanted.source)),
    )


def _refuse_lost_branch(wanted: Wanted, found: Found, database: FoundDatabase) -> None:
    log, earlier = _log(found), found.log
    if log is None or earlier is None:
        return
    branch = log.branched_from(earlier)
    if branch is None:
        lost = (
            f"It is on timeline {log.timeline} of its log{_branched(log)}, which does not continue timeline "
            f"{earlier.timeline}{_branched(earlier)}, from which the lake has changes"
        )
    # What the lake had applied of the earlier timeline; `wanted.applied_position` may already be of the new one.
    elif found.applied_position is not None and found.applied_position > branch:
        lost = (
            f"Its log left timeline {earlier.timeline} at {_lsn(branch)} for timeline {log.timeline}, and the lake has changes "
            f"up to {_lsn(found.applied_position)} of timeline {earlier.timeline}"
        )
    else:
        return
    raise _restored(wanted, lost, has_overtaken=_has_overtaken(wanted, database))


def _restored(wanted: Wanted, seen: str, *, has_overtaken: bool = False) -> UpstreamError:
    source = object_text(wanted.source)
    return UpstreamError(
        f'the database of source "{wanted.source}" went back to an earlier state',
        code="database-restored",
        detail=f"{seen}: it was restored from a backup, is a standby that was behind, or is another one. lakehold would "
        "skip new changes as repeats.",
        hint=RESNAPSHOT_HINT.format(source)
        if has_overtaken
        else f"Load it again: DROP SOURCE {source} CASCADE, then create the source and its tables again.",
    )


def _has_overtaken(wanted: Wanted, database: FoundDatabase) -> bool:
    """Return whether the position of a connector snapshot taken now is above all that the lake has applied."""
    return wanted.applied_position is None or database.position > wanted.applied_position


def _log(found: Found) -> FoundLog | None:
    return found.database.failover.log if found.database is not None else None


def _branched(log: FoundLog) -> str:
    return f" (from {_lsn(log.branches[-1][1])} on)" if log.branches else ""


def _lsn(position: int) -> str:
    """Format a log position as PostgreSQL does."""
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"
