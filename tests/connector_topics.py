"""What a connector of Debezium that a lake made has sent, and a hand on it."""

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
    """The connector of a topic prefix, whose messages are JSON; topics are named without it."""

    addresses: StackAddresses
    prefix: str

    def events(self, topic: str) -> Counter[str]:
        """How many messages of each kind the topic of a table has."""
        payloads = [value["payload"] for value in self.values(topic)]
        return Counter("ad hoc" if each["source"]["snapshot"] == "incremental" else each["op"] for each in payloads)

    def said(self) -> list[str]:
        """What the connector has said of snapshots."""
        return [value["payload"]["type"] for value in self.values("notification")]

    def asked_snapshots(self) -> int:
        """How often the connector was asked for a snapshot of a table."""
        return sum(signal["type"] == "execute-snapshot" for signal in self.values("signal"))

    def sent_ms(self, topic: str) -> list[int]:
        """When the connector sent each message that a topic has, in order."""
        return [message.timestamp()[1] for message in self._messages(topic)]

    def pause(self) -> None:
        """Pause the connector, as somebody does by hand."""
        self._put("pause")

    def go_on(self) -> None:
        """Resume it."""
        self._put("resume")

    def _put(self, what: str) -> None:
        httpx.put(f"{self.addresses.connect}/connectors/{self.prefix}/{what}").raise_for_status()

    def values(self, topic: str) -> Iterator[Any]:
        """What the messages hold that a topic has now."""
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
