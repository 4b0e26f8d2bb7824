"""Transactions in the topics of a Kafka broker."""

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
    """A connector that writes transactions to Kafka.

    Attributes:
        producer: Writes all later messages.
        sent_ms: Timestamp of all later messages, by default long ago.
        lags: Later messages stay in flight until `arrive` is called.
    """

    def __init__(self, broker: Broker) -> None:
        super().__init__(Path())
        self.producer = Producer({"bootstrap.servers": broker.address})
        self.sent_ms = 1_000
        self.lags = False
        self._in_flight: list[_Message] = []

    def arrive(self) -> None:
        """Write all messages in flight to Kafka."""
        while self._in_flight:
            self._send(self._in_flight.pop(0))

    def _write(self, topic: str, key: object, value: object) -> None:
        message = _Message(topic, json.dumps(value), json.dumps(key), self.sent_ms)
        if self.lags:
            self._in_flight.append(message)
        else:
            self._send(message)

    def _send(self, message: _Message) -> None:
        self.producer.produce(**message._asdict())
        assert self.producer.flush(_TIMEOUT_S) == 0
