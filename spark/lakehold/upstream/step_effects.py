"""Applies one step of a plan upstream. A step that was done before changes nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import assert_never

from lakehold.iceberg.data_tables import DataTables, TableState
from lakehold.ingest.envelope.column_history import NUMBERS
from lakehold.kafka.client import KafkaClient
from lakehold.model.offsets import TopicPartition
from lakehold.upstream.connect.client import ConnectClient
from lakehold.upstream.connect.own_requests import REQUESTED
from lakehold.upstream.connect.signals import (
    new_signal_id,
    recorded_first_snapshot,
    recorded_log,
    recorded_members,
    recorded_missed,
    recorded_shapes,
    recorded_sync_point,
    requested_snapshot,
)
from lakehold.upstream.database import Database
from lakehold.upstream.found.server_log import FoundLog
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
    Repeat,
    RequestSnapshot,
    RestartConnector,
    ResumeConnector,
    Step,
    StopConnector,
)
from lakehold.upstream.plan.failover_steps import CopySlot, TakeLog
from lakehold.upstream.wanted.connector_config import SideTopics

_NOT_FOR_THE_CONNECTOR = "noted"
"""The key of a signal that the connector ignores in the topic: it takes signals whose key is its topic prefix."""


@dataclass(frozen=True)
class Systems:
    """The systems that steps change.

    Attributes:
        connect: Kafka Connect.
        kafka: The brokers.
        database: The database that the source captures.
        tables: The tables of the lake.
    """

    connect: ConnectClient
    kafka: KafkaClient
    database: Database
    tables: DataTables


def apply_step(step: Step, on: Systems) -> None:  # noqa: PLR0912 - one a step
    """Apply a step.

    Raises:
        UpstreamUnavailable: A system does not answer.
        UpstreamError: A system refuses, or the connector fails.
    """
    match step:
        case CreateTopic(topic):
            on.kafka.create_topic(topic.name, topic.partitions, topic.options)
        case DeleteTopics(names):
            on.kafka.delete_topics(names)
        case (
            CreatePublication()
            | ChangePublication()
            | CompletePublication()
            | DropPublication()
            | CreateSignalTable()
            | DropSignalTable()
            | DropSlot()
            | CopySlot()
            | CheckLog()
        ):
            on.database.apply(step)
        case TakeLog(prefix, source_id, found, signal_table, seen_ms):
            if seen_ms is not None:
                on.database.record_seen(signal_table, seen_ms)
            record_log(on.kafka, prefix, source_id, found)
        case CreateConnector(name, config):
            on.connect.create_stopped(name, config)
        case ConfigureConnector(name, config):
            on.connect.put(name, config)
        case StopConnector(name):
            on.connect.stop(name)
        case ResumeConnector(name):
            on.connect.resume(name)
            on.connect.wait_until_running(name)
        case RestartConnector(name):
            on.connect.restart(name)
        case ForgetPosition(name):
            on.connect.forget_position(name)
        case DeleteConnector(name):
            on.connect.forget_position(name)
            on.connect.delete(name)
        case RequestSnapshot(signal_table=str(table)):
            (signal,) = signals = _signals(step, on)
            # Interrupted in between, the next run requests the snapshot again.
            on.database.send_signal(table, signal)
            on.kafka.send(SideTopics(step.prefix).signals, _NOT_FOR_THE_CONNECTOR, signals)
        case RecordShapes(prefix, source_id, shapes):
            on.kafka.send(SideTopics(prefix).signals, prefix, recorded_shapes(source_id, shapes))
        case RecordFirstSnapshot() | RequestSnapshot() | RecordMissed() | RecordMembers() | RecordSyncPoint():
            on.kafka.send(SideTopics(step.prefix).signals, step.prefix, _signals(step, on))
        case other:
            assert_never(other)


def record_log(kafka: KafkaClient, prefix: str, source_id: str, log: FoundLog) -> None:
    """Record the log of PostgreSQL that fills the topics."""
    kafka.send(SideTopics(prefix).signals, prefix, [recorded_log(source_id, log)])


def _signals(
    step: RecordFirstSnapshot | RequestSnapshot | RecordMissed | RecordMembers | RecordSyncPoint, on: Systems
) -> list[str]:
    match step:
        case RecordFirstSnapshot(prefix, tables):
            notifications = TopicPartition(SideTopics(prefix).notifications, 0)
            watermarks = on.kafka.watermarks([notifications]).get(notifications)
            notified_from = watermarks.end_exclusive if watermarks is not None else 0
            altered_until = _altered_until(prefix, on)
            return [
                recorded_first_snapshot(object_id, upstream, notified_from, altered_until)
                for object_id, upstream in tables.items()
            ]
        case RequestSnapshot(prefix, upstream, object_id, repeat, _):
            # Before the signal is written: the connector reads it after the statements that are in the history now.
            altered_until = _altered_until(prefix, on)
            if repeat is None:
                return [requested_snapshot(new_signal_id(object_id), upstream, altered_until=altered_until)]
            # Rows of the snapshot come after the signal, and so have a greater number, whatever is ingested meanwhile.
            states = {each: on.tables.table_state(name) for each, name in repeat.tables.items()}
            through = {each: _sequence_number(state) for each, state in states.items()}
            signal_id = new_signal_id(object_id)
            for state in states.values():
                if state is not None:
                    on.tables.set_property(state.full_name, REQUESTED, signal_id)
                if state is not None and _has_other_numbers(state, upstream, on):
                    # A later rename would take one column for another.
                    on.tables.set_property(state.full_name, NUMBERS, None)
            is_certain = _is_certain(repeat, on.kafka)
            return [
                requested_snapshot(signal_id, upstream, through, is_certain=is_certain, altered_until=altered_until)
            ]
        case RecordMissed(prefix, tables):
            altered_until = _altered_until(prefix, on)
            return [recorded_missed(object_id, upstream, altered_until) for object_id, upstream in tables.items()]
        case RecordMembers(_, source_id, publication, names, shapes):
            members = on.database.members(publication)
            present = {name: members[name] for name in names if name in members}
            return [recorded_members(source_id, publication, present), *recorded_shapes(source_id, shapes)]
        case RecordSyncPoint(_, tables, signal_table):
            sync_point = on.database.write_sync_point(signal_table)
            return [recorded_sync_point(object_id, upstream, sync_point) for object_id, upstream in tables.items()]


def _has_other_numbers(state: TableState, upstream: str, on: Systems) -> bool:
    """Return whether names of a table's columns belong to other columns upstream than when their numbers were stored."""
    stored: dict[str, int] = json.loads(state.properties.get(NUMBERS, "{}"))
    found = on.database.columns([upstream]).get(upstream, ()) if stored else ()
    return any(stored.get(column.name, column.number) != column.number for column in found)


def _altered_until(prefix: str, on: Systems) -> int:
    """Return the end of the schema history; 0: there is none, as for PostgreSQL."""
    history = TopicPartition(SideTopics(prefix).schema_history, 0)
    marks = on.kafka.watermarks([history]).get(history)
    return marks.end_exclusive if marks is not None else 0


def _is_certain(repeat: Repeat, kafka: KafkaClient) -> bool:
    """Return whether no second snapshot is needed: this is it, or the lake has read all that the stopped connector sent."""
    if repeat.confirms or repeat.read is None:
        return repeat.confirms
    return all(
        repeat.read.get(tp, 0) >= end for tp, end in kafka.written_ends(kafka.partitions([repeat.topic])).items()
    )


def _sequence_number(state: TableState | None) -> int:
    """Return the Iceberg sequence number of a table; 0: it has no snapshot."""
    return state.current.sequence_number if state is not None and state.current is not None else 0
