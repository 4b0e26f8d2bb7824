"""A snapshot in a topic in which more arrives than is read: its table is whole when the rows were read that were there."""

from __future__ import annotations

import base64
import json

import pytest
from confluent_kafka import Producer

from lakehold.lake import Lake
from tests.conftest import LakeFactory
from tests.debezium_messages import Topic
from tests.kafka_broker import Broker

pytestmark = [pytest.mark.stack, pytest.mark.spark]

BATCH = 4
KEYS = range(8)


def send(broker: Broker, topic: Topic) -> None:
    """Write to Kafka what was not written yet."""
    producer = Producer({"bootstrap.servers": broker.address})
    for message in map(json.loads, topic.lines):
        key, value = (base64.b64decode(message[part]) for part in ("key", "value"))
        producer.produce(topic.name, value, key, partition=message["partition"])
    assert producer.flush(60) == 0
    topic.lines.clear()


def since_ms(lake: Lake) -> int | None:
    (main,) = lake.batches.readers("shop").values()
    return main.tables["shop.orders"].since_ms


def test_a_table_is_readable_though_its_topic_is_never_read_to_its_end(make_lake: LakeFactory, broker: Broker) -> None:
    lake = make_lake(max_batch_records=BATCH)
    topic = Topic(broker.create_topic(partitions=2), {"id": {"type": "int64"}, "v": {"type": "int64"}})

    def change_all() -> None:
        for key in KEYS:
            topic.update(None, {"id": key, "v": topic.lsn}, partition=key % 2)
        send(broker, topic)

    for partition in (0, 1):
        rows = [{"id": key, "v": 0} for key in KEYS if key % 2 == partition]
        topic.snapshot(rows, partition=partition, ended=partition == 1)
    change_all()
    lake.sql(
        f"CREATE CONNECTION kafka TO KAFKA (BROKER '{broker.address}');"
        f"CREATE SOURCE shop FROM KAFKA CONNECTION kafka (TOPICS ('{topic.name}')) FORMAT JSON;"
        f"CREATE TABLE shop.orders FROM SOURCE shop (TOPIC '{topic.name}') ENVELOPE DEBEZIUM UPSERT"
    )
    # A process that is killed after each batch: what is noted of the end survives it.
    for _ in range(8):
        batches = lake.batches_of("shop")
        next(batches)
        batches.close()
        if since_ms(lake) is not None:
            break
        change_all()
    assert since_ms(lake) is not None
    name = f"{lake.settings.catalog_name}.shop.orders"
    assert [row[0] for row in lake.sql(f"SELECT id FROM {name} ORDER BY id").rows] == [*KEYS]
    list(lake.batches_of("shop"))
    assert {row[0] > 0 for row in lake.sql(f"SELECT v FROM {name}").rows} == {True}
