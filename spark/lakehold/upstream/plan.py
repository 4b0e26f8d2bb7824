"""Wanted and found -> steps. Pure: what is refused is refused here, before anything changes.

The topic of the signals is the first thing made and the last that goes, so that it tells whether the rest is the source's own.
A table that goes leaves the connector first: what it wrote until then is deleted behind it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping

from lakehold.errors import UpstreamError
from lakehold.upstream.connector_config import SideTopics
from lakehold.upstream.found import NO_SNAPSHOT, Found, FoundDatabase, FoundSnapshot
from lakehold.upstream.steps import (
    AskSnapshot,
    ChangePublication,
    ConfigureConnector,
    CreateConnector,
    CreatePublication,
    CreateTopic,
    DeleteConnector,
    DeleteTopics,
    DropPublication,
    DropSlot,
    ForgetPosition,
    NoteFirstSnapshot,
    RestartConnector,
    ResumeConnector,
    Step,
    Steps,
    StopConnector,
)
from lakehold.upstream.wanted import MARK, CapturedTable, Wanted

_SECRET = re.compile(r"password|secret|jaas|user\.info|keystore|ssl\.key")
_NO_KEY = "NO_PRIMARY_KEY"


def plan(wanted: Wanted, found: Found) -> Steps:
    """What leads from what there is to what is wanted; no steps when they are alike.

    Raises:
        UpstreamError: Something upstream is another's, is missing, or has lost changes: the error says what to do.
    """
    _refuse_foreign(wanted, found)
    if not wanted.tables:
        return Steps(tuple(_removal(wanted, found)))
    if found.database is not None:
        _refuse_unfit(wanted, found.database)
        _refuse_lost(wanted, found, found.database)
    if _must_wait(wanted, found):
        hint = f"the tables that are new to connector {wanted.connector} join it when its first snapshot is complete"
        return Steps(hints=(hint, *_hints(wanted, found)))
    steps = (
        *(CreateTopic(topic) for topic in wanted.topics if topic.name not in found.topics),
        *_publication(wanted, found),
        *_connector(wanted, found),
        *_released(wanted, found),
    )
    return Steps(steps, tuple(_hints(wanted, found)))


def plan_anew(wanted: Wanted, found: Found) -> Steps:
    """What has the connector take its first snapshot once more, of all its tables."""
    _refuse_foreign(wanted, found)
    if found.connector is None or not wanted.tables:
        return plan(wanted, found)
    if found.database is not None:
        _refuse_unfit(wanted, found.database)
    slot = wanted.capture.slot
    dropped = (DropSlot(slot),) if slot is not None and found.database is not None and found.database.slot else ()
    tables = {table.object_id: table.upstream for table in wanted.tables}
    return Steps(
        (
            StopConnector(wanted.connector),
            ForgetPosition(wanted.connector),
            *dropped,
            NoteFirstSnapshot(wanted.capture.topic_prefix, tables),
            ResumeConnector(wanted.connector),
        )
    )


def _is_fresh(wanted: Wanted, found: Found) -> bool:
    """Whether nothing of the source was ever made."""
    return found.connector is None and SideTopics(wanted.capture.topic_prefix).signals not in found.topics


def _refuse_foreign(wanted: Wanted, found: Found) -> None:
    if found.connector is not None and found.connector.config.get(MARK) != wanted.source_id:
        raise UpstreamError(
            f'connector "{wanted.connector}" exists and is not of source "{wanted.source}"',
            code="connector-foreign",
            detail="A source has a connector of its own, which is called by its topic prefix.",
            hint="Create the source with another TOPIC PREFIX, or delete the connector if nobody needs it.",
        )
    if not _is_fresh(wanted, found):
        return
    taken = sorted(topic.name for topic in wanted.topics if topic.name in found.topics)
    if taken and wanted.tables:
        raise UpstreamError(
            f'topic "{taken[0]}" exists and is not of source "{wanted.source}"',
            code="topic-foreign",
            detail=f"Topics that begin with {wanted.capture.topic_prefix} are written by somebody else, or were left behind.",
            hint="Create the source with another TOPIC PREFIX, or delete the topics if nobody needs them.",
        )
    if wanted.tables and found.database is not None and found.database.slot is not None:
        raise UpstreamError(
            f'replication slot "{wanted.capture.slot}" exists and is not of source "{wanted.source}"',
            code="slot-foreign",
            hint="Create the source with another SLOT, or drop the slot if nobody needs it.",
        )


def _refuse_unfit(wanted: Wanted, database: FoundDatabase) -> None:
    for name in wanted.upstream_tables:
        if name not in database.tables:
            close = difflib.get_close_matches(name, database.other_tables, n=1)
            raise UpstreamError(
                f'table "{name}" is not in the database of source "{wanted.source}"',
                code="upstream-table-missing",
                detail=f"Its tables: {', '.join(database.other_tables) or 'none'}.",
                hint=f"Did you mean {close[0]}?" if close else "Write schema and table as the database has them.",
            )
    if database.wal_level != "logical":
        raise UpstreamError(
            "the database does not write what logical replication needs",
            code="wal-level",
            detail=f"Its setting wal_level is {database.wal_level}.",
            hint="Set wal_level to logical and restart PostgreSQL.",
        )
    if wanted.passed is not None and database.position < wanted.passed:
        raise UpstreamError(
            f'the database of source "{wanted.source}" has gone back',
            code="database-restored",
            detail=f"Its log stands at {_lsn(database.position)}, and the lake has changes up to {_lsn(wanted.passed)}: "
            "it was restored from a backup, or is another one. New changes would be taken for old ones.",
            hint=f"Load it anew: DROP SOURCE {wanted.source} CASCADE, then create the source and its tables again.",
        )


def _refuse_lost(wanted: Wanted, found: Found, database: FoundDatabase) -> None:
    connector = found.connector
    if connector is not None and connector.has_position and database.slot in (None, "lost"):
        raise UpstreamError(
            f'replication slot "{wanted.capture.slot}" is lost',
            code="slot-lost",
            detail="Changes since the connector last ran are not kept any more: the slot was dropped, or the log outgrew "
            "max_slot_wal_keep_size.",
            hint=f"ALTER SOURCE {wanted.source} RESNAPSHOT brings all of its tables to what the database has.",
        )


def _lsn(position: int) -> str:
    """As PostgreSQL writes it."""
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


def _must_wait(wanted: Wanted, found: Found) -> bool:
    """Whether tables join while the first snapshot runs: the connector would begin it again, as it does when tables go."""
    connector = found.connector
    runs = connector is not None and connector.state == "RUNNING" and not connector.is_failed
    return runs and not found.first_snapshot_complete and not wanted.released and any(_joining(wanted, found))


def _joining(wanted: Wanted, found: Found) -> Iterator[CapturedTable]:
    """The tables of which no snapshot is there or under way."""
    for table in wanted.tables:
        snapshot = found.snapshots.get(table.object_id, NO_SNAPSHOT)
        if not snapshot.is_first and not snapshot.succeeded and not _is_under_way(snapshot):
            yield table


def _is_under_way(snapshot: FoundSnapshot) -> bool:
    """Whether it was asked for and not answered; what cannot be had is not asked for again."""
    return snapshot.asked > len(snapshot.failures) or _NO_KEY in snapshot.failures


def _publication(wanted: Wanted, found: Found) -> Iterator[Step]:
    """Put in what is missing. One that others made is only added to."""
    name = wanted.capture.publication
    if name is None or found.database is None:
        return
    existing = found.database.publication
    if existing is None:
        yield CreatePublication(name, wanted.upstream_tables, wanted.source_id)
    elif not existing.is_for_all:
        added = tuple(sorted(set(wanted.upstream_tables) - existing.tables))
        if added:
            yield ChangePublication(name, added)


def _connector(wanted: Wanted, found: Found) -> Iterator[Step]:
    connector, prefix = found.connector, wanted.capture.topic_prefix
    joining = tuple(_joining(wanted, found))
    if connector is None:
        yield CreateConnector(wanted.connector, wanted.config)
        yield from _snapshots(prefix, joining, first=True)
        yield ResumeConnector(wanted.connector)
        return
    changes = tuple(differences(connector.config, wanted.config))
    if changes or joining:
        if connector.state != "STOPPED":
            yield StopConnector(wanted.connector)
        if changes:
            yield ConfigureConnector(wanted.connector, wanted.config, changes)
        yield from _snapshots(prefix, joining, first=not connector.has_position)
        yield ResumeConnector(wanted.connector)
    elif connector.state == "STOPPED":
        yield ResumeConnector(wanted.connector)
    elif connector.status is not None and connector.status.is_failed:
        yield RestartConnector(wanted.connector, connector.status.reason)


def _snapshots(prefix: str, joining: tuple[CapturedTable, ...], *, first: bool) -> Iterator[Step]:
    if first and joining:
        yield NoteFirstSnapshot(prefix, {table.object_id: table.upstream for table in joining})
    elif not first:
        yield from (AskSnapshot(prefix, table.upstream, table.object_id) for table in joining)


def _released(wanted: Wanted, found: Found) -> Iterator[Step]:
    """What tables that are gone leave behind the connector."""
    existing = found.database.publication if found.database is not None else None
    name = wanted.capture.publication
    if name is not None and existing is not None and existing.is_own and not existing.is_for_all:
        removed = tuple(sorted(existing.listed - set(wanted.upstream_tables)))
        if removed:
            yield ChangePublication(name, (), removed)
    topics = tuple(name for name in wanted.released if name in found.topics)
    if topics:
        yield DeleteTopics(topics)


def _removal(wanted: Wanted, found: Found) -> Iterator[Step]:
    """Everything of the source goes; a publication that others made stays."""
    if found.connector is not None and found.connector.state != "STOPPED":
        yield StopConnector(wanted.connector)
    database = found.database
    if wanted.capture.slot is not None and database is not None and database.slot is not None:
        yield DropSlot(wanted.capture.slot)
    if database is not None and database.publication is not None and database.publication.is_own:
        yield DropPublication(wanted.capture.publication or "")
    if found.connector is not None:
        yield DeleteConnector(wanted.connector)
    signals, *others = (topic.name for topic in wanted.topics)
    topics = tuple(name for name in (*wanted.released, *others, signals) if name in found.topics)
    if topics:
        yield DeleteTopics(topics)


def differences(found: Mapping[str, str], wanted: Mapping[str, str]) -> Iterator[str]:
    """What differs between two configurations, secrets masked."""
    for key in sorted(found.keys() | wanted.keys()):
        have, want = found.get(key), wanted.get(key)
        if have == want:
            continue
        if _SECRET.search(key):
            yield f"{key} changed"
        elif want is None:
            yield f"{key} {have} removed"
        elif have is None:
            yield f"{key} {want} added"
        else:
            yield f"{key} from {have} to {want}"


def _hints(wanted: Wanted, found: Found) -> Iterator[str]:
    """What a person should change in the database, and what cannot be done."""
    if found.connector is not None and found.connector.state == "PAUSED":
        yield f"connector {wanted.connector} was paused by hand, and stays so"
    if not found.writes_transactions:
        yield (
            "the workers of Kafka Connect do not write in Kafka transactions: with their setting exactly.once.source.support"
            " = enabled what a connector sends arrives whole and once, also when it is killed"
        )
    for table in wanted.tables:
        snapshot = found.snapshots.get(table.object_id, NO_SNAPSHOT)
        if _NO_KEY in snapshot.failures:
            yield f"table {table.upstream} has no primary key: no snapshot of it alone can be taken; it has changes from now on"
    if found.database is None:
        return
    for name in wanted.upstream_tables:
        there = found.database.tables[name]
        needs_before = any(table.needs_before for table in wanted.tables if table.upstream == name)
        if there.replica_identity != "f" and (needs_before or not there.has_key):
            yield f"table {name} lacks what updates need: ALTER TABLE {name} REPLICA IDENTITY FULL"
