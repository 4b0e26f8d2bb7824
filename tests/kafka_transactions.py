"""Transactions in the topics of a broker."""

from __future__ import annotations

import json
from pathlib import Path

from confluent_kafka import Producer

from tests.kafka_broker import Broker
from tests.transaction_files import TRANSACTION_TOPIC, Connector

_TIMEOUT_S = 30.0


class KafkaConnector(Connector):
    """Writes to Kafka.

    Attributes:
        producer: What it writes with from now on.
        partition: Of the transaction topic, where it writes to from now on.
    """

    def __init__(self, broker: Broker) -> None:
        super().__init__(Path())
        self.producer = Producer({"bootstrap.servers": broker.address})
        self.partition = 0

    def _write(self, topic: str, key: object, value: object) -> None:
        partition = self.partition if topic == TRANSACTION_TOPIC else 0
        self.producer.produce(topic, json.dumps(value), key=json.dumps(key), partition=partition)
        assert self.producer.flush(_TIMEOUT_S) == 0
