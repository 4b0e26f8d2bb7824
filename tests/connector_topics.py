"""The topics of a Debezium connector that a lake created, and ways to pause and resume the connector."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from lakehold.stack import StackAddresses

_ARRIVES_WITHIN_S = 60.0


@dataclass(frozen=True)
class ConnectorTopics:
    """The topics of a connector whose messages are JSON; they are named without the connector's topic prefix."""

    addresses: StackAddresses
    prefix: str

    def events(self, topic: str) -> Counter[str]:
        """Count the messages of each kind in the topic of a table."""
        payloads = [value["payload"] for value in self.values(topic)]
        return Counter("ad hoc" if each["source"]["snapshot"] == "incremental" else each["op"] for each in payloads)

    def notifications(self) -> list[str]:
        """Return the types of the connector's notifications about snapshots."""
        return [value["payload"]["type"] for value in self.values("notification")]

    def requested_snapshots(self) -> int:
        """Count the signals that requested a snapshot of a table."""
        return sum(signal["type"] == "execute-snapshot" for signal in self.values("signal"))

    def has_messages(self, topic: str) -> bool:
        """Return whether anything was written to a topic, committed or not; it asks for offsets alone."""
        consumer = Consumer({"bootstrap.servers": self.addresses.kafka, "group.id": uuid.uuid4().hex, "log_level": 0})
        try:
            _, end = consumer.get_watermark_offsets(
                TopicPartition(f"{self.prefix}.{topic}", 0), timeout=_ARRIVES_WITHIN_S
            )
        finally:
            consumer.close()
        return bool(end)

    def sent_ms(self, topic: str) -> list[int]:
        """Return the time at which the connector sent each message of a topic, in order."""
        return [message.timestamp()[1] for message in self._messages(topic)]

    def pause(self) -> None:
        """Pause the connector, as a person does by hand."""
        self._put("pause")

    def go_on(self) -> None:
        """Resume the connector."""
        self._put("resume")

    def _put(self, action: str) -> None:
        httpx.put(f"{self.addresses.connect}/connectors/{self.prefix}/{action}").raise_for_status()

    def values(self, topic: str) -> Iterator[Any]:
        """Yield the values of the messages in a topic, without tombstones."""
        for message in self._messages(topic):
            value = json.loads(message.value() or b"null")
            if value is not None:
                yield value

    def _messages(self, topic: str) -> Iterator[Message]:
        settings = {"bootstrap.servers": self.addresses.kafka, "group.id": uuid.uuid4().hex, "log_level": 0}
        consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": True})
        consumer.assign([TopicPartition(f"{self.prefix}.{topic}", 0, OFFSET_BEGINNING)])
        try:
            while True:
                message = consumer.poll(_ARRIVES_WITHIN_S)
                assert message is not None
                if message.error() is not None:
                    return
                yield message
        finally:
            consumer.close()
