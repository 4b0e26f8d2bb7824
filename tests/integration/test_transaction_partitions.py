"""A transaction topic of several partitions in a real broker: one may show what was written later than what another lacks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.conftest import LakeFactory
from tests.kafka_broker import Broker
from tests.kafka_broker import broker as broker  # noqa: PLC0414 - pytest finds fixtures by name
from tests.transaction_files import TRANSACTION_TOPIC, Connector, define_table, states

pytestmark = [pytest.mark.stack, pytest.mark.spark]

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


def test_a_transaction_waits_untold_while_an_earlier_one_may_be_missing(make_lake: LakeFactory, broker: Broker) -> None:
    tables = ("a", "b")
    broker.create_topic(name=TRANSACTION_TOPIC, partitions=2)
    topics = [broker.create_topic(name=f"shop.public.{table}") for table in tables]
    lake, connector = make_lake(transaction_timeout_ms=0), KafkaConnector(broker)
    lake.sql(
        f"CREATE CONNECTION kafka TO KAFKA (BROKER '{broker.address}');"
        f"CREATE SOURCE shop FROM KAFKA CONNECTION kafka (TOPICS ({', '.join(map(repr, topics))})) FORMAT JSON "
        f"TRANSACTION METADATA TOPIC '{TRANSACTION_TOPIC}'"
    )
    for table in tables:
        define_table(lake, table, "DEBEZIUM UPSERT")
    connector.transaction(("a", 1, 10), ("b", 1, 10))
    lake.ingest("shop")

    plain = connector.producer
    connector.producer, connector.partition = broker.begin_transaction(TRANSACTION_TOPIC, [], partition=1), 1
    connector.transaction(("a", 1, 20))
    uncommitted = connector.producer
    connector.producer, connector.partition = plain, 0
    connector.transaction(("b", 1, 20))
    # An error would come at once, if it were one that does not come.
    assert not any(report.waiting for report in lake.ingest("shop"))
    uncommitted.commit_transaction(_TIMEOUT_S)
    for topic, partition in ((TRANSACTION_TOPIC, 1), (topics[0], 0)):
        broker.wait_until_stable(topic, partition)
    lake.ingest("shop")

    before, after = ({("public.a", 1): a, ("public.b", 1): b} for a, b in ((10, 10), (20, 20)))
    seen = list(states(lake, tables))
    assert all(state in (before, after) for state in seen), seen
    assert seen[-1] == after
