"""The time at which lakehold requests a failed snapshot again, by the connector's reports and their times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lakehold.kafka.client import KafkaClient
from lakehold.model.offsets import TopicPartition
from lakehold.upstream.connect.journal import Journal
from lakehold.upstream.connect.signals import new_signal_id, recorded_first_snapshot, requested_snapshot
from lakehold.upstream.wanted.connector_config import SideTopics

_TOPICS = SideTopics("shop")


@dataclass
class Conversation:
    """The signals and notifications of a connector, each with the second in which it was written."""

    written: dict[str, list[tuple[int, bytes]]] = field(
        default_factory=lambda: {_TOPICS.signals: [], _TOPICS.notifications: [], _TOPICS.schema_history: []}
    )

    def signal(self, text: str) -> str:
        self.written[_TOPICS.signals].append((0, text.encode()))
        return str(json.loads(text)["id"])

    def scanned(self, status: str, second: int) -> None:
        """Answer a new signal as the connector does."""
        last = self.signal(requested_snapshot(new_signal_id("a1"), "public.a"))
        data = {"scanned_collection": "public.a", "status": status}
        written = {"id": last, "aggregate_type": "Incremental", "type": "TABLE_SCAN_COMPLETED", "additional_data": data}
        self.written[_TOPICS.notifications].append((second, json.dumps(written).encode()))

    def again_s(self) -> float:
        """Return the second in which the snapshot is requested again."""
        journal = Journal(cast("KafkaClient", self), _TOPICS, None)
        journal.refresh()
        return journal.snapshots["a1"].again_ms / 1000

    def describe(self, topics: list[str]) -> dict[str, Any]:
        return {name: SimpleNamespace(topic_id=name) for name in topics}

    def watermarks(self, partitions: list[TopicPartition]) -> dict[TopicPartition, Any]:
        return {tp: SimpleNamespace(earliest=0, end_exclusive=len(self.written[tp.topic])) for tp in partitions}

    def records(self, ranges: list[Any]) -> Iterator[Any]:
        for each in ranges:
            for offset, (second, value) in enumerate(self.written[each.topic_partition.topic]):
                at = (1, second * 1000)
                yield SimpleNamespace(
                    value=lambda value=value: value, offset=lambda offset=offset: offset, timestamp=lambda at=at: at
                )


@pytest.fixture
def conversation() -> Conversation:
    return Conversation()


def test_a_failing_snapshot_is_requested_after_growing_pauses_up_to_an_hour(conversation: Conversation) -> None:
    pauses = []
    for second in range(0, 100_000, 10_000):
        conversation.scanned("SQL_EXCEPTION", second)
        pauses.append(conversation.again_s() - second)
    assert pauses == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]


def test_a_success_resets_the_pause(conversation: Conversation) -> None:
    for second, status in enumerate(["SQL_EXCEPTION", "SQL_EXCEPTION", "SUCCEEDED"]):
        conversation.scanned(status, second)
    assert conversation.again_s() == 0
    conversation.scanned("UNKNOWN_SCHEMA", 50)
    assert conversation.again_s() == 80


def test_a_first_snapshot_includes_tables_whose_snapshots_failed(conversation: Conversation) -> None:
    conversation.scanned("SQL_EXCEPTION", 1)
    conversation.signal(recorded_first_snapshot("a1", "public.a", 1))
    assert conversation.again_s() == 0


def test_a_table_without_a_key_waits_for_its_key_alone(conversation: Conversation) -> None:
    conversation.scanned("NO_PRIMARY_KEY", 1)
    assert conversation.again_s() == 0
