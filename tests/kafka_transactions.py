"""Transactions in the topics of a broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer

from tests.kafka_broker import Broker
from tests.transaction_files import Connector

_TIMEOUT_S = 30.0


class _Message(NamedTuple):
    topic: str
    value: str
    key: str
    timestamp: int


class KafkaConnector(Connector):
    """Writes to Kafka.

    Attributes:
        producer: What it writes with from now on.
        sent_ms: When it says that it sent what it writes from now on: long ago.
        lags: What it writes from now on is under way until it arrives.
    """

    def __init__(self, broker: Broker) -> None:
        super().__init__(Path())
        self.producer = Producer({"bootstrap.servers": broker.address})
        self.sent_ms = 1_000
        self.lags = False
        self._under_way: list[_Message] = []

    def arrive(self) -> None:
        """What is under way is written."""
        while self._under_way:
            self._send(self._under_way.pop(0))

    def _write(self, topic: str, key: object, value: object) -> None:
        message = _Message(topic, json.dumps(value), json.dumps(key), self.sent_ms)
        if self.lags:
            self._under_way.append(message)
        else:
            self._send(message)

    def _send(self, message: _Message) -> None:
        self.producer.produce(**message._asdict())
        assert self.producer.flush(_TIMEOUT_S) == 0
