"""Performs one step. What was done before is left as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from lakehold.ingest.offsets import TopicPartition
from lakehold.ingest.read.kafka_client import KafkaClient
from lakehold.upstream.connect import ConnectClient
from lakehold.upstream.connector_config import SideTopics
from lakehold.upstream.journal import asked_snapshot, noted_first_snapshot
from lakehold.upstream.postgres import PostgresUpstream
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
    StopConnector,
)


@dataclass(frozen=True)
class Systems:
    """What steps are performed on; `database` is asked only by steps of PostgreSQL."""

    connect: ConnectClient
    kafka: KafkaClient
    database: PostgresUpstream


def perform(step: Step, on: Systems) -> None:  # noqa: PLR0912 - one a step
    """Do what `step` says.

    Raises:
        UpstreamUnavailable: A system does not answer.
        UpstreamError: It refuses, or the connector fails.
    """
    match step:
        case CreateTopic(topic):
            on.kafka.create_topic(topic.name, topic.partitions, topic.options)
        case DeleteTopics(names):
            on.kafka.delete_topics(names)
        case CreatePublication():
            on.database.create_publication(step)
        case ChangePublication():
            on.database.change_publication(step)
        case DropPublication(name):
            on.database.drop_publication(name)
        case DropSlot(name):
            on.database.drop_slot(name)
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
        case NoteFirstSnapshot(prefix, tables):
            said = TopicPartition(SideTopics(prefix).notifications, 0)
            marks = on.kafka.watermarks([said]).get(said)
            said_until = marks.end_exclusive if marks is not None else 0
            notes = [noted_first_snapshot(object_id, upstream, said_until) for object_id, upstream in tables.items()]
            on.kafka.send(SideTopics(prefix).signals, prefix, notes)
        case AskSnapshot(prefix, upstream, object_id):
            on.kafka.send(SideTopics(prefix).signals, prefix, [asked_snapshot(object_id, upstream)])
        case other:
            assert_never(other)
