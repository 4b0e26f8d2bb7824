"""Wanted and found -> steps. Pure: what is refused is refused before anything changes.

The topic of the signals is the first thing made and the last that goes, so that it tells whether the rest is the source's own.
A table that goes leaves the connector first: what it wrote until then is deleted behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from lakehold.upstream.found import Found, FoundConnector
from lakehold.upstream.gaps import has_no_key, joining, missed, there
from lakehold.upstream.hints import hints
from lakehold.upstream.refusals import refuse_foreign, refuse_lost, refuse_unfit
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
from lakehold.upstream.wanted import CapturedTable, Wanted

_SECRET = re.compile(r"password|secret|jaas|user\.info|keystore|ssl\.key")


def plan(wanted: Wanted, found: Found) -> Steps:
    """What leads from what there is to what is wanted; no steps when they are alike.

    Raises:
        UpstreamError: Something upstream is another's, is missing, or has lost changes: the error says what to do.
    """
    refuse_foreign(wanted, found)
    if not wanted.tables:
        return Steps(tuple(_removal(wanted, found)))
    if found.database is not None:
        refuse_unfit(wanted, found.database)
        refuse_lost(wanted, found, found.database)
    if _must_wait(wanted, found):
        hint = f"the tables that are new to connector {wanted.connector} join it when its first snapshot is complete"
        return Steps(hints=(hint, *hints(wanted, found)))
    again = tuple(table for table in missed(wanted, found) if not has_no_key(table, found))
    steps = (
        *_topics(wanted, found),
        *_snapshots_again(wanted, found, again),
        *_publication(wanted, found),
        *_connector(wanted, found, is_stopped=bool(again)),
        *_released(wanted, found),
    )
    return Steps(steps, hints(wanted, found))


def plan_anew(wanted: Wanted, found: Found) -> Steps:
    """What has the connector take its first snapshot once more, of all its tables."""
    refuse_foreign(wanted, found)
    if found.connector is None or not wanted.tables:
        return plan(wanted, found)
    if found.database is not None:
        refuse_unfit(wanted, found.database)
    slot = wanted.capture.slot
    dropped = (DropSlot(slot),) if slot is not None and found.database is not None and found.database.slot else ()
    present = there(wanted, found)
    tables = {table.object_id: table.upstream for table in wanted.tables if table.upstream in present}
    return Steps(
        (
            *_topics(wanted, found),
            StopConnector(wanted.connector),
            ForgetPosition(wanted.connector),
            *dropped,
            *_publication(wanted, found),
            *_configuration(wanted, found.connector),
            NoteFirstSnapshot(wanted.capture.topic_prefix, tables),
            ResumeConnector(wanted.connector),
        )
    )


def _must_wait(wanted: Wanted, found: Found) -> bool:
    """Whether tables join while the first snapshot runs: the connector would begin it again, as it does when tables go."""
    connector = found.connector
    runs = connector is not None and connector.state == "RUNNING" and not connector.is_failed
    return runs and not found.first_snapshot_complete and not wanted.released and any(joining(wanted, found))


def _topics(wanted: Wanted, found: Found) -> Iterator[Step]:
    yield from (CreateTopic(topic) for topic in wanted.topics if topic.name not in found.topics)


def _snapshots_again(wanted: Wanted, found: Found, tables: tuple[CapturedTable, ...]) -> Iterator[Step]:
    """Asked before the tables are put back, and answered behind that: cut short in between, it is seen that they are out."""
    connector = found.connector
    if tables and connector is not None and connector.state != "STOPPED":
        yield StopConnector(wanted.connector)
    yield from _snapshots(wanted.capture.topic_prefix, tables, first=False)


def _publication(wanted: Wanted, found: Found) -> Iterator[Step]:
    """Put in what is missing. One that others made is only added to."""
    name, tables = wanted.capture.publication, there(wanted, found)
    if name is None or found.database is None:
        return
    existing = found.database.publication
    if existing is None:
        # With a slot and without a connector it is the connector that tells, once made, whether changes are lost.
        if tables and (found.connector is not None or found.database.slot is None):
            yield CreatePublication(name, tables, wanted.source_id)
    elif not existing.is_for_all:
        added = tuple(sorted(set(tables) - existing.tables))
        if added:
            yield ChangePublication(name, added)


def _connector(wanted: Wanted, found: Found, *, is_stopped: bool) -> Iterator[Step]:
    """Make, change, or start it; `is_stopped` by a step before."""
    connector, prefix = found.connector, wanted.capture.topic_prefix
    new = tuple(joining(wanted, found))
    if connector is None:
        yield CreateConnector(wanted.connector, wanted.config)
        yield from _snapshots(prefix, new, first=True)
        yield ResumeConnector(wanted.connector)
        return
    is_stopped = is_stopped or connector.state == "STOPPED"
    configuration = tuple(_configuration(wanted, connector))
    if configuration or new:
        if not is_stopped:
            yield StopConnector(wanted.connector)
        yield from configuration
        yield from _snapshots(prefix, new, first=not connector.has_position)
        yield ResumeConnector(wanted.connector)
    elif is_stopped:
        yield ResumeConnector(wanted.connector)
    elif connector.status is not None and connector.status.is_failed:
        yield RestartConnector(wanted.connector, connector.status.reason)


def _configuration(wanted: Wanted, connector: FoundConnector) -> Iterator[Step]:
    changes = tuple(differences(connector.config, wanted.config))
    if changes:
        yield ConfigureConnector(wanted.connector, wanted.config, changes)


def _snapshots(prefix: str, tables: tuple[CapturedTable, ...], *, first: bool) -> Iterator[Step]:
    if first and tables:
        yield NoteFirstSnapshot(prefix, {table.object_id: table.upstream for table in tables})
    elif not first:
        yield from (AskSnapshot(prefix, table.upstream, table.object_id) for table in tables)


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
