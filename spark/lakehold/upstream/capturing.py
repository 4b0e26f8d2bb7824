"""Reconciles what exists upstream of one source with the definitions: inspects, plans and applies steps until no step is left.

Upstream are the connector in Kafka Connect, topics in Kafka, and in the database for example a slot and a publication.
Statements and ingests call it through `CapturedSources`. The *journal* is what the source's signal and notification topics
say: requests to the connector, its reports, and what lakehold recorded at earlier inspections.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from pyiceberg.types import IcebergType

from lakehold.errors import ConnectorError
from lakehold.failpoints import failpoint
from lakehold.iceberg.data_tables import DataTables
from lakehold.ingest.envelope.upstream_columns import InitialValues, UpstreamColumns
from lakehold.ingest.write.repeats import RepeatedSnapshot, Snapshots
from lakehold.kafka.client import KafkaClient, shared_client
from lakehold.model.log_positions import LogPosition
from lakehold.tables.stored_key import is_keyless
from lakehold.times import next_timestamp, now_ms
from lakehold.upstream.connect.client import ConnectClient
from lakehold.upstream.connect.journal import Journal
from lakehold.upstream.connect.own_requests import with_others_failed
from lakehold.upstream.database import Names
from lakehold.upstream.databases import database_of
from lakehold.upstream.differences.failover import is_on_other_timeline
from lakehold.upstream.differences.fitting import fitted
from lakehold.upstream.differences.gaps import is_in_lake, repairs, tables_to_snapshot, tables_with_deferrable_key
from lakehold.upstream.differences.lost_values import lossy_columns
from lakehold.upstream.differences.silent_changes import filled_columns
from lakehold.upstream.found.connector_status import ConnectorStatus
from lakehold.upstream.found.found import PLAIN, Found, FoundConnector, FoundRelation
from lakehold.upstream.found.server_log import FoundLog
from lakehold.upstream.found.values import LostValues
from lakehold.upstream.plan.capture_plan import plan, plan_resnapshot, plan_snapshot
from lakehold.upstream.plan.capture_steps import CreateConnector, RestartConnector, Step, Steps
from lakehold.upstream.report.hints import fault_hints
from lakehold.upstream.report.relations import declared
from lakehold.upstream.report.stops import Stops, stops_of
from lakehold.upstream.step_effects import Systems, apply_step, record_log
from lakehold.upstream.types.captured_columns import Columns, columns_of
from lakehold.upstream.types.field_names import as_written, field_name
from lakehold.upstream.wanted.connector_config import SideTopics
from lakehold.upstream.wanted.targets import Target
from lakehold.upstream.wanted.wanted import Wanted

log = logging.getLogger(__name__)

_ROUNDS = 5
"""How many times one call plans at most, so that it ends even if others keep changing what exists upstream."""


class Capturing:
    """A reconciler of connectors, and of what these need in the database and in Kafka, with what the definitions say.

    Args:
        timeout_s: How long the database, Kafka or Kafka Connect may take to answer.
        tables: The tables of the lake.
    """

    def __init__(self, timeout_s: float, tables: DataTables) -> None:
        self._timeout_s = timeout_s
        self._tables = tables
        self._journals: dict[tuple[str, str, frozenset[tuple[str, str]]], Journal] = {}
        self._writes_transactions: dict[str, bool] = {}
        self._lost: dict[str, tuple[frozenset[str], Mapping[str, LostValues]]] = {}
        self._applied_positions: dict[str, int | None] = {}
        self._logs: dict[str, FoundLog | None] = {}
        self._stops: dict[str, Stops] = {}

    def plan(self, target: Target, *, resnapshot: bool = False, with_backoff: bool = False) -> Steps:
        """Compute the steps that `reconcile` would apply now; its arguments are described there.

        Raises:
            UpstreamUnavailable: The database, Kafka or Kafka Connect does not answer.
            UpstreamError: What exists upstream cannot be brought to what is wanted.
        """
        with self._systems(target) as systems:
            return self._inspect_and_plan(target, systems, resnapshot=resnapshot, with_backoff=with_backoff)

    def reconcile(
        self, target: Target, confirm: Callable[[], None], *, resnapshot: bool = False, with_backoff: bool = False
    ) -> Steps:
        """Bring what exists upstream to what is wanted. Raises as `plan` does.

        Args:
            target: What is wanted.
            confirm: Called before each step; raises if another process may be changing the source by now.
            resnapshot: Have the connector snapshot all tables again.
            with_backoff: Wait for some time before a failed snapshot is requested again; otherwise request it at once.

        Returns:
            The steps that were applied, and hints.
        """
        done: list[Step] = []
        hints: dict[str, None] = {}
        with self._systems(target) as systems:
            planned = self._inspect_and_plan(target, systems, resnapshot=resnapshot, with_backoff=with_backoff)
            stops = self._stops[target.wanted.source_id]
            for _ in range(_ROUNDS):
                hints |= dict.fromkeys(planned.hints)
                for step in planned.steps:
                    confirm()
                    log.info("source %s: %s", target.wanted.source, step.description)
                    apply_step(step, systems)
                    failpoint("after-step")
                    done.append(step)
                    if isinstance(step, RestartConnector):
                        # For a moment longer its status shows the failure: a new plan would restart it again.
                        return Steps(tuple(done), tuple(hints))
                    if isinstance(step, CreateConnector):
                        # Plan again: if Connect remembers the position of an earlier connector of this name, no snapshot begins.
                        break
                if not planned.steps:
                    break
                planned = self._inspect_and_plan(target, systems, resnapshot=False, with_backoff=True)
                # Also a table that these steps let the connector capture again: it lacks the snapshot that begins now.
                self._stops[target.wanted.source_id] = self._stops[target.wanted.source_id].with_earlier(stops)
        return Steps(tuple(done), tuple(hints))

    def status(self, target: Target) -> ConnectorStatus | None:
        """Fetch the status of the connector; None: there is no connector."""
        name = target.wanted.connector
        with self._systems(target) as systems:
            # Connect reports the status of a deleted connector for a moment longer.
            return systems.connect.status_if_known(name) if systems.connect.config(name) is not None else None

    def record_seen(self, target: Target) -> int | None:
        """Record in the database that lakehold inspects it now: a database that is restored from a backup has an earlier time.

        The connector's journal gets the database's log, if it is another one than the journal has.

        Returns:
            The recorded time, epoch milliseconds; None: the database keeps none.

        Raises:
            UpstreamUnavailable: The database does not answer.
            UpstreamRefused: It refuses.
        """
        wanted = target.wanted
        with self._systems(target) as systems:
            seen_ms = systems.database.record_seen(wanted.signal_table, next_timestamp(wanted.seen_upstream_ms))
            # Last: until the log is recorded, an earlier time on a promoted standby is not taken for a restored database.
            recorded, found = self._journal(target, systems.kafka).log, self._logs.get(wanted.source_id)
            if found is not None and found != recorded:
                if recorded is not None and not found.is_same(recorded):
                    log.info("source %s: its database failed over to timeline %d", wanted.source, found.timeline)
                record_log(systems.kafka, wanted.capture.topic_prefix, wanted.source_id, found)
        return seen_ms

    def faults(self, target: Target) -> tuple[Steps, tuple[str, ...]]:
        """Return what `plan` returns, and a sentence about each fault of captured tables."""
        with self._systems(target) as systems:
            found = self._inspect(target, systems, with_backoff=True)
            found = replace(found, acting_keys=systems.database.acting_keys(target.wanted.upstream_tables))
        return plan(target.wanted, found), tuple(fault_hints(target.wanted, found))

    def snapshots(self, target: Target) -> Snapshots:
        """Return which tables' snapshots are complete, requested or repeated, and their sync points, as the journal has them."""
        kafka = shared_client(target.connections.kafka, self._timeout_s)
        journal = self._journal(target, kafka)
        journal.refresh()
        tables = {table.object_id: table.topic for table in target.wanted.tables}
        own = with_others_failed(journal.repeats, target.wanted, self._tables)
        repeats = {
            object_id: repeat
            for object_id, repeat in own.items()
            if object_id in tables and repeat.is_complete and not is_in_lake(object_id, repeat, target.wanted)
        }
        # The connector has reported these snapshots as complete, so their rows, and changes in place of rows, lie below the ends
        # that are fetched now.
        ends = kafka.written_ends(kafka.partitions({tables[object_id] for object_id in repeats}))
        joined = _joined(target.wanted, journal)
        stops = self._stops.get(target.wanted.source_id)
        without_sync_point = {object_id for object_id, sync_point in joined.items() if sync_point is None}
        return Snapshots(
            frozenset((tables.keys() - journal.complete) | without_sync_point),
            frozenset(tables.keys() - journal.snapshots.keys()),
            {
                object_id: RepeatedSnapshot(
                    repeat.signal_id,
                    repeat.replaces_through,
                    {tp: end for tp, end in ends.items() if tp.topic == tables[object_id]},
                )
                for object_id, repeat in repeats.items()
            },
            {object_id: sync_point for object_id, sync_point in joined.items() if sync_point is not None},
            are_reported=True,
            stops=stops.tables if stops is not None else None,
            returned=stops.returned if stops is not None else {},
            repairs=repairs(own, target.wanted),
        )

    def columns_of(self, target: Target, upstream: str) -> UpstreamColumns:
        """Return the columns that messages of a table `upstream` will have, derived from its current columns in the database."""
        config = target.wanted.config
        with self._systems(target) as systems:
            columns = systems.database.columns([upstream]).get(upstream, ())
            initial = systems.database.initial_values(upstream, columns)
            filled = filled_columns(self._journal(target, systems.kafka).shapes.get(upstream))
        hidden = {each.name for each in columns if str(each.number) in filled} - initial.known.keys()
        found = as_written(columns, config)
        sent = columns_of(found, target.wanted.capture.database)
        key = tuple(column.name for column in found if column.is_key)
        known = {field_name(name, config): value for name, value in initial.known.items()}
        unknown = frozenset(field_name(name, config) for name in initial.unknown | hidden)
        numbers = {column.name: column.number for column in found if column.number}
        return UpstreamColumns(sent, key, InitialValues(known, unknown), numbers)

    def snapshot_again(self, target: Target, upstream: str, confirm: Callable[[], None]) -> None:
        """Have the connector snapshot one table again. Raises as `plan` does; `confirm` is called as by `reconcile`."""
        with self._systems(target) as systems:
            found = self._inspect(target, systems, with_backoff=False)
            found = replace(found, multisets=found.multisets | self._multisets(target.wanted, [upstream]))
            planned = plan_snapshot(target.wanted, found, upstream)
            for step in planned.steps:
                confirm()
                log.info("source %s: %s", target.wanted.source, step.description)
                apply_step(step, systems)

    def _inspect_and_plan(self, target: Target, systems: Systems, *, resnapshot: bool, with_backoff: bool) -> Steps:
        found = self._inspect(target, systems, with_backoff=with_backoff)
        planned = plan_resnapshot(target.wanted, found) if resnapshot else plan(target.wanted, found)
        # The log that the plan accepts, though the database fails over before `record_seen`.
        has_slot = found.database is not None and found.database.slot is not None
        self._logs[target.wanted.source_id] = found.database.failover.log if found.database and has_slot else None
        return planned

    def _inspect(self, target: Target, systems: Systems, *, with_backoff: bool) -> Found:
        wanted = target.wanted
        journal = self._journal(target, systems.kafka)
        journal.refresh()
        names = [topic.name for topic in wanted.topics]
        capture = wanted.capture
        database, signals = systems.database.inspect(
            Names(capture.publication or "", capture.slot or "", wanted.signal_table),
            wanted.source_id,
            wanted.upstream_tables,
        )
        connector = _connector(systems.connect, wanted.connector)
        relations = systems.database.relations(sorted({table.upstream for table in declared(wanted)}))
        columns = systems.database.columns(wanted.upstream_tables)
        found = Found(
            connector,
            systems.kafka.existing([*names, *wanted.released]),
            journal.snapshots,
            with_others_failed(journal.repeats, wanted, self._tables),
            journal.members,
            journal.first_snapshot_notification is not None,
            database,
            self._has_transactions(target, systems, is_new=connector is None),
            systems.connect.plugin_version(wanted.config["connector.class"]),
            signals=signals,
            relations=systems.database.kinds(wanted.upstream_tables) | relations,
            columns=columns,
            lost=self._lost_values(wanted, relations, columns, systems),
            lake_types=_lake_types(wanted, systems) if connector is None else {},
            now_ms=now_ms() if with_backoff else None,
            log=journal.log,
            altered=journal.schema_history.altered,
            acting_keys=systems.database.acting_keys([table.upstream for table in declared(wanted)]),
            shapes=journal.shapes,
            log_settings=systems.database.log_settings(),
            undefined=frozenset(journal.schema_history.undefined),
            registry_level=self._registry_level(target) if connector is None else "",
        )
        if not is_on_other_timeline(found):
            self._applied_positions[wanted.source_id] = wanted.applied_position
        # Not what the lake has applied of the new timeline since: the connector reconnects by itself.
        found = replace(found, applied_position=self._applied_positions.get(wanted.source_id, wanted.applied_position))
        inspected = {*tables_to_snapshot(wanted, found), *tables_with_deferrable_key(wanted, found)}
        found = replace(found, multisets=self._multisets(wanted, inspected))
        self._stops[wanted.source_id] = stops_of(wanted, found)
        return replace(found, objections=self._objections(fitted(wanted, found), connector, systems))

    def _multisets(self, wanted: Wanted, upstream: Collection[str]) -> frozenset[str]:
        """Return those of some tables upstream that a table of the lake has without a key."""
        return frozenset(
            table.upstream
            for table in wanted.tables
            if table.upstream in upstream
            and table.object_id in wanted.lake
            and is_keyless(self._tables.table_state(table.full_name))
        )

    def _lost_values(
        self, wanted: Wanted, relations: Mapping[str, FoundRelation], columns: Columns, systems: Systems
    ) -> Mapping[str, LostValues]:
        """Find values that Debezium does not send unchanged, in the tables that a statement declares.

        A statement plans several times, so what was found is kept until another statement comes.
        """
        if not wanted.declared:
            return {}
        declared_before, lost = self._lost.get(wanted.source_id, (None, {}))
        if declared_before != wanted.declared:
            readable = [name for name, found in relations.items() if found.kind == PLAIN and found.may_read]
            lossy = lossy_columns(readable, columns, wanted.capture.database)
            lost = systems.database.lost_values(lossy) if lossy else {}
            self._lost[wanted.source_id] = wanted.declared, lost
        return lost

    def _objections(self, wanted: Wanted, connector: FoundConnector | None, systems: Systems) -> tuple[str, ...]:
        if not wanted.tables or (connector is not None and connector.config == wanted.config):
            return ()
        return systems.connect.objections(wanted.connector, wanted.config)

    def _has_transactions(self, target: Target, systems: Systems, *, is_new: bool) -> bool:
        """Return whether connectors write in Kafka transactions; True if not known.

        This asks Connect, which answers slowly, only once and only for a connector that does not exist yet.
        """
        url, connector_class = target.connections.connect.url, target.wanted.config["connector.class"]
        if is_new and target.wanted.tables and url not in self._writes_transactions:
            self._writes_transactions[url] = systems.connect.writes_transactions(connector_class)
        return self._writes_transactions.get(url, True)

    def _registry_level(self, target: Target) -> str:
        registry = target.connections.open_registry(self._timeout_s)
        return registry.compatibility() if registry is not None else ""

    def _journal(self, target: Target, kafka: KafkaClient) -> Journal:
        """Return the journal of a connector; the process keeps it, so that each refresh reads only new messages."""
        connections = target.connections
        side = SideTopics(target.wanted.capture.topic_prefix)
        # Another login or registry, by ALTER CONNECTION, reads with other clients.
        options = {**connections.kafka.librdkafka, **(connections.registry or {})}
        key = (connections.kafka.brokers, side.prefix, frozenset(options.items()))
        if key not in self._journals:
            registry = connections.open_registry(self._timeout_s)
            self._journals[key] = Journal(kafka, side, registry.schema_text if registry is not None else None)
        return self._journals[key]

    @contextmanager
    def _systems(self, target: Target) -> Iterator[Systems]:
        connections = target.connections
        with ConnectClient(**vars(connections.connect), timeout_s=self._timeout_s) as connect:
            database = database_of(target.wanted.capture.database, connections.login, self._timeout_s)
            kafka = shared_client(connections.kafka, self._timeout_s)
            yield Systems(connect, kafka, database, self._tables)


def _joined(wanted: Wanted, journal: Journal) -> dict[str, LogPosition | None]:
    """Return the sync points of tables that joined a running source, by object id; None: the point is not known yet."""
    found = ((table.object_id, journal.snapshots.get(table.object_id)) for table in wanted.tables)
    return {object_id: snapshot.sync_point for object_id, snapshot in found if snapshot and snapshot.has_joined}


def _connector(connect: ConnectClient, name: str) -> FoundConnector | None:
    config = connect.config(name)
    if config is None:
        return None
    try:
        return FoundConnector(config, connect.status_if_known(name), connect.has_position(name))
    except ConnectorError as error:
        if error.code == "connector-missing":  # it was deleted after its configuration was read
            return None
        raise


def _lake_types(wanted: Wanted, systems: Systems) -> dict[str, dict[str, IcebergType]]:
    """Return the types of the lake's columns, by object id and column name, for the tables that have one."""
    states = [
        (table.object_id, systems.tables.table_state(table.full_name))
        for table in wanted.tables
        if table.object_id in wanted.lake
    ]
    return {
        object_id: {column.name: column.field_type for column in state.schema.fields}
        for object_id, state in states
        if state is not None
    }
