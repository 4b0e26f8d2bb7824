"""Plans the upstream objects of a source: the steps from what exists (`Found`) to what the definitions want (`Wanted`). Pure.

`Capturing` inspects, calls this module, applies the steps and repeats. A plan refuses what lakehold cannot do, before anything
changes. The first step creates the signal topic, which holds requests to the connector and lakehold's own records
(`journal.py`). The last step deletes it, so that this topic shows whether the other objects are the source's own. A dropped
table leaves the connector first, and lakehold deletes afterwards what the connector wrote until then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lakehold.upstream.differences.failover import refuse_restored
from lakehold.upstream.differences.fitting import fitted
from lakehold.upstream.differences.gaps import (
    cannot_snapshot_alone,
    existing_tables,
    is_keyless,
    is_recreated,
    is_unpublishable,
    joining_tables,
    tables_missing_changes,
    unordered_key,
    unread_tables,
    unrecorded_members,
    unrecorded_shapes,
)
from lakehold.upstream.differences.heirs import refuse_parents
from lakehold.upstream.differences.log_settings import refuse_lossy_log
from lakehold.upstream.differences.partitions import refuse_partitions, refuse_unlogged_leaves
from lakehold.upstream.differences.publication_gaps import changed_unrecorded, is_completed, narrowed, partly_published
from lakehold.upstream.differences.unsent_values import refuse_unsent
from lakehold.upstream.found.found import Found, FoundConnector, FoundDatabase
from lakehold.upstream.found.snapshots import NO_SNAPSHOT
from lakehold.upstream.plan.capture_steps import (
    ChangePublication,
    CheckLog,
    CompletePublication,
    ConfigureConnector,
    CreateConnector,
    CreatePublication,
    CreateSignalTable,
    CreateTopic,
    DeleteConnector,
    DeleteTopics,
    DropPublication,
    DropSignalTable,
    DropSlot,
    ForgetPosition,
    RecordFirstSnapshot,
    RecordMembers,
    RecordMissed,
    RecordShapes,
    RecordSyncPoint,
    RequestSnapshot,
    RestartConnector,
    ResumeConnector,
    Step,
    Steps,
    StopConnector,
)
from lakehold.upstream.plan.config_differences import differences
from lakehold.upstream.plan.failover_steps import other_timeline, slot_to_copy
from lakehold.upstream.plan.snapshot_requests import again, missed, requested, snapshot_request
from lakehold.upstream.report.hints import hints, replaced_hints, returned_hints
from lakehold.upstream.report.refusals import (
    is_fresh,
    left_hints,
    refuse_denied,
    refuse_foreign,
    refuse_lost,
    refuse_misidentified,
    refuse_partial,
    refuse_partial_rows,
    refuse_unfit,
    refuse_unpublishable,
    refuse_without_signal_table,
)
from lakehold.upstream.report.relations import refuse_uncapturable, refuse_unseen
from lakehold.upstream.wanted.signal_table import lacks_signals
from lakehold.upstream.wanted.wanted import CapturedTable, Wanted


def plan(wanted: Wanted, found: Found) -> Steps:
    """Compute the steps from what exists to what is wanted, with hints for people; no steps when they are alike.

    Raises:
        UpstreamError: Something upstream belongs to somebody else, is missing, or has lost changes: the error says what to do.
    """
    wanted = fitted(wanted, found)
    refuse_foreign(wanted, found)
    refuse_uncapturable(wanted, found)
    if not wanted.tables:
        return Steps(tuple(_removal(wanted, found)), tuple(left_hints(wanted, found)))
    refuse_lossy_log(wanted, found)
    refuse_partial_rows(wanted, found)
    refuse_restored(wanted, found)
    forgotten = tuple(_forgotten(wanted, found))
    if forgotten and found.connector is not None:
        found = replace(found, connector=replace(found.connector, has_position=False))
    if found.database is not None:
        refuse_unfit(wanted, found.database)
        refuse_unpublishable(wanted, found)
        refuse_misidentified(wanted, found)
        refuse_unsent(wanted, found)
        refuse_partitions(wanted, found.database)
        refuse_unlogged_leaves(wanted, found.database)
        refuse_parents(wanted, found.database)
        refuse_lost(wanted, found, found.database)
        if not is_completed(wanted, found) and (names := changed_unrecorded(wanted, found)):
            publication = wanted.capture.publication or ""
            return Steps((RecordMembers(wanted.capture.topic_prefix, wanted.source_id, publication, names),))
        refuse_partial(wanted, found)
    refuse_denied(wanted, found)
    if _must_wait(wanted, found):
        refuse_without_signal_table(wanted, found)
        hint = f"the tables that are new to connector {wanted.connector} join it when its first snapshot is complete"
        return Steps(hints=(hint, *hints(wanted, found)))
    if reasons := (*replaced_hints(unread_tables(wanted, found), wanted), *returned_hints(wanted, found)):
        return replace(plan_resnapshot(wanted, found), hints=reasons)
    out = tuple(tables_missing_changes(wanted, found))
    # A connector that starts continues a snapshot whose marks did not arrive.
    signals = tuple(_signal_table(wanted, found))
    copied = tuple(slot_to_copy(wanted, found))
    is_stopped = (
        bool(signals or copied)
        or is_recreated(wanted, found)
        or any(not cannot_snapshot_alone(table, found) for table in out)
    )
    is_published = found.database is None or found.database.publication is not None
    steps = (
        *_topics(wanted, found),
        *forgotten,
        *_stopped(wanted, found, is_stopped=is_stopped),
        *copied,
        # The connector misses signals in a table that is not published yet.
        *(signals if is_published else ()),
        *missed(wanted, found, out),
        *_publication(wanted, found, out),
        *(() if is_published else signals),
        *_connector(wanted, found, is_stopped=is_stopped),
        *_released(wanted, found),
        *_sync_points(wanted, found),
    )
    if any(isinstance(step, RequestSnapshot | RecordSyncPoint) for step in steps):
        refuse_without_signal_table(wanted, found)
    return Steps(steps, hints(wanted, found))


def plan_resnapshot(wanted: Wanted, found: Found) -> Steps:
    """Compute the steps with which the connector takes its first snapshot again, of all its tables. Raises as `plan` does."""
    wanted = fitted(wanted, found)
    refuse_foreign(wanted, found)
    refuse_uncapturable(wanted, found)
    if found.connector is None or not wanted.tables:
        return plan(wanted, found)
    refuse_restored(wanted, found, resnapshot=True)
    refuse_unseen(wanted, found)
    if found.database is not None:
        refuse_unfit(wanted, found.database)
        refuse_partial(wanted, found)
    refuse_denied(wanted, found)
    slot = wanted.capture.slot
    dropped = (DropSlot(slot),) if slot is not None and found.database is not None and found.database.slot else ()
    present = existing_tables(wanted, found)
    tables = {table.object_id: table.upstream for table in wanted.tables if table.upstream in present}
    return Steps(
        (
            *_topics(wanted, found),
            StopConnector(wanted.connector),
            ForgetPosition(wanted.connector),
            *dropped,
            *_publication(wanted, found, wanted.tables),
            *_signal_table(wanted, found),
            *_configuration(wanted, found.connector),
            *other_timeline(wanted, found),
            RecordFirstSnapshot(wanted.capture.topic_prefix, tables),
            ResumeConnector(wanted.connector),
        )
    )


def plan_snapshot(wanted: Wanted, found: Found, upstream: str) -> Steps:
    """Compute the steps with which the connector snapshots one table again, because its rows have values that no message shows.

    `upstream` is the table in the database. There are no steps if it is not captured or its first snapshot is still to come.
    """
    wanted = fitted(wanted, found)
    refuse_foreign(wanted, found)
    table = next((each for each in wanted.tables if each.upstream == upstream), None)
    if table is None or found.connector is None or table in joining_tables(wanted, found):
        # Its first snapshot is still to come.
        return Steps()
    return Steps(tuple(requested(table, wanted, found)))


def _forgotten(wanted: Wanted, found: Found) -> Iterator[Step]:
    """Delete the position that Connect keeps of a removed connector of this name, if its slot or schema history is gone too."""
    connector = found.connector
    if connector is None or connector.state != "STOPPED" or not connector.has_position:
        return
    has_slot = found.database is not None and found.database.slot is not None
    if not has_slot and not any(table.object_id in found.snapshots for table in wanted.tables):
        yield ForgetPosition(wanted.connector)


def _must_wait(wanted: Wanted, found: Found) -> bool:
    """Return whether tables want to join during the first snapshot. They must wait: the connector would begin it again."""
    connector = found.connector
    runs = connector is not None and connector.state == "RUNNING" and not connector.is_failed
    return runs and not found.first_snapshot_complete and not wanted.released and any(joining_tables(wanted, found))


def _topics(wanted: Wanted, found: Found) -> Iterator[Step]:
    """Create missing topics. A repeated message without a key is recognised by the order of one partition."""
    keyless = {table.topic for table in wanted.tables if not table.key and is_keyless(table.upstream, found)}
    for topic in wanted.topics:
        if topic.name not in found.topics:
            yield CreateTopic(replace(topic, partitions=1) if topic.name in keyless else topic)


def _stopped(wanted: Wanted, found: Found, *, is_stopped: bool) -> Iterator[Step]:
    """Stop the connector while its publication or signal table is repaired."""
    connector = found.connector
    if is_stopped and connector is not None and connector.state != "STOPPED":
        yield StopConnector(wanted.connector)
    if is_recreated(wanted, found):
        yield CheckLog(wanted.capture.slot or "", wanted.capture.publication or "", wanted.source)


def _publication(wanted: Wanted, found: Found, out: tuple[CapturedTable, ...]) -> Iterator[Step]:
    """Create or complete the publication, and record the memberships of tables that came in or were `out`.

    `out` are the tables whose changes were missed since the last inspection. A membership shows by its text whether a table left
    the publication meanwhile (`FoundPublication.members`). To a publication of somebody else lakehold only adds missing tables.
    """
    name = wanted.capture.publication
    tables = tuple(table for table in existing_tables(wanted, found) if not is_unpublishable(table, found))
    if name is None or found.database is None:
        return
    existing, added, is_partial = found.database.publication, tables, bool(partly_published(wanted, found))
    if not _is_published(wanted, found, found.database):
        return
    if existing is None and tables:
        yield CreatePublication(name, tables, wanted.source_id)
    elif existing is not None:
        if is_partial:
            whole = tuple(table for table in narrowed(wanted, found) if table in existing.listed)
            yield CompletePublication(name, whole)
        added = () if existing.is_for_all else tuple(sorted(set(tables) - existing.tables))
        if added:
            yield ChangePublication(name, added)
    # After the signals that request snapshots: interrupted in between, the next run requests them again.
    new = {*added, *unrecorded_members(wanted, found), *(table.upstream for table in out)}
    recorded = tuple(sorted(set(tables) if is_partial else new & set(tables)))
    prefix, shapes = wanted.capture.topic_prefix, unrecorded_shapes(wanted, found)
    if recorded:
        yield RecordMembers(
            prefix, wanted.source_id, name, recorded, {n: s for n, s in shapes.items() if n in recorded}
        )
    others = {n: s for n, s in shapes.items() if n not in recorded and n in tables}
    if others:
        yield RecordShapes(prefix, wanted.source_id, others)


def _signal_table(wanted: Wanted, found: Found) -> Iterator[Step]:
    """Create the signal table; on PostgreSQL only with a publication, because it becomes a member."""
    database = found.database
    if lacks_signals(wanted, found.signals) and (database is None or _is_published(wanted, found, database)):
        is_for_all = database is not None and database.publication is not None and database.publication.is_for_all
        yield CreateSignalTable(wanted.signal_table, None if is_for_all else wanted.capture.publication)


def _is_published(wanted: Wanted, found: Found, database: FoundDatabase) -> bool:
    """Return whether a publication exists or this plan creates one, which it does only for existing tables."""
    # With a slot and without a connector, only a new connector shows whether changes are lost.
    is_unknown = found.connector is None and database.slot is not None
    return database.publication is not None or (bool(existing_tables(wanted, found)) and not is_unknown)


def _connector(wanted: Wanted, found: Found, *, is_stopped: bool) -> Iterator[Step]:
    """Create, change or start the connector; `is_stopped`: an earlier step stops it."""
    connector = found.connector
    new = tuple(joining_tables(wanted, found))
    if connector is None:
        yield CreateConnector(wanted.connector, wanted.config)
        yield from _snapshots(wanted, found, new, first=True)
        yield ResumeConnector(wanted.connector)
        return
    is_stopped = is_stopped or connector.state == "STOPPED"
    configuration = tuple(_configuration(wanted, connector))
    if configuration or new:
        if not is_stopped:
            yield StopConnector(wanted.connector)
        yield from configuration
        yield from _snapshots(wanted, found, new, first=not connector.has_position)
        yield ResumeConnector(wanted.connector)
    elif is_stopped:
        yield ResumeConnector(wanted.connector)
    elif connector.status is not None and connector.status.is_failed:
        yield RestartConnector(wanted.connector, connector.status.reason)


def _configuration(wanted: Wanted, connector: FoundConnector) -> Iterator[Step]:
    changes = tuple(differences(connector.config, wanted.config))
    if changes:
        yield ConfigureConnector(wanted.connector, wanted.config, changes)


def _snapshots(wanted: Wanted, found: Found, tables: tuple[CapturedTable, ...], *, first: bool) -> Iterator[Step]:
    prefix = wanted.capture.topic_prefix
    if first and tables:
        yield RecordFirstSnapshot(prefix, {table.object_id: table.upstream for table in tables})
    elif not first:
        # The topic of a table whose changes were missed has rows that are deleted upstream.
        has_gaps = {repeat.upstream for repeat in found.repeats.values()}
        for table in tables:
            if unordered_key(table.upstream, found):
                # Unlike that of a table without a key, Debezium would not refuse the request.
                yield RecordMissed(prefix, {table.object_id: table.upstream})
            else:
                yield again(table, wanted) if table.upstream in has_gaps else snapshot_request(table, wanted)


def _released(wanted: Wanted, found: Found) -> Iterator[Step]:
    """Remove dropped tables from the publication, and delete their topics, after they left the connector's configuration."""
    existing = found.database.publication if found.database is not None else None
    name = wanted.capture.publication
    if name is not None and existing is not None and existing.is_own and not existing.is_for_all:
        removed = tuple(sorted(existing.listed - {*wanted.upstream_tables, wanted.signal_table}))
        if removed:
            yield ChangePublication(name, (), removed)
    topics = tuple(name for name in wanted.released if name in found.topics)
    if topics:
        yield DeleteTopics(topics)


def _sync_points(wanted: Wanted, found: Found) -> Iterator[Step]:
    """Write the sync point of tables that joined to the log: their rows may have come before older changes of other tables."""
    snapshots = {table: found.snapshots.get(table.object_id, NO_SNAPSHOT) for table in wanted.tables}
    joined = {
        table.object_id: table.upstream
        for table, snapshot in snapshots.items()
        if snapshot.has_joined and snapshot.sync_point is None
    }
    if joined:
        yield RecordSyncPoint(wanted.capture.topic_prefix, joined, wanted.signal_table)


def _removal(wanted: Wanted, found: Found) -> Iterator[Step]:
    """Remove everything that the source made; objects of others stay."""
    if found.connector is not None and found.connector.state != "STOPPED":
        yield StopConnector(wanted.connector)
    database, is_own = found.database, not is_fresh(wanted, found)
    if is_own and wanted.capture.slot is not None and database is not None and database.slot is not None:
        yield DropSlot(wanted.capture.slot)
    if database is not None and database.publication is not None and database.publication.is_own:
        yield DropPublication(wanted.capture.publication or "")
    if is_own and found.signals.table is not None and found.signals.table.is_owned:
        yield DropSignalTable(wanted.signal_table)
    if found.connector is not None:
        yield DeleteConnector(wanted.connector)
    signals, *others = (topic.name for topic in wanted.topics)
    topics = tuple(name for name in (*wanted.released, *others, signals) if name in found.topics)
    if is_own and topics:
        yield DeleteTopics(topics)
