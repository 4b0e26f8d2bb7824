"""A snapshot in several partitions of Kafka: the table is readable once its rows were read, even if the topic grows on."""

from __future__ import annotations

import base64
import json

import pytest
from confluent_kafka import Producer

from lakehold.lake import Lake
from lakehold.model.offsets import TopicPartition
from tests.conftest import LakeFactory
from tests.debezium_messages import Topic
from tests.kafka_broker import Broker

pytestmark = [pytest.mark.stack, pytest.mark.spark]

BATCH = 4
KEYS = range(8)


def send(broker: Broker, topic: Topic) -> None:
    """Send the topic's new messages to Kafka."""
    producer = Producer({"bootstrap.servers": broker.address})
    for message in map(json.loads, topic.lines):
        key, value = (base64.b64decode(message[part]) for part in ("key", "value"))
        producer.produce(topic.name, value, key, partition=message["partition"])
    assert producer.flush(60) == 0
    topic.lines.clear()


def since_ms(lake: Lake) -> int | None:
    (main,) = lake.batches.readers("shop").values()
    return main.tables["shop.orders"].since_ms


def test_a_table_is_readable_though_its_topic_is_never_fully_read(make_lake: LakeFactory, broker: Broker) -> None:
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
    # The process is killed after each batch: the recorded end offsets survive it.
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


def test_a_backlog_after_a_snapshot_in_several_partitions_is_history(make_lake: LakeFactory, broker: Broker) -> None:
    lake = make_lake(max_batch_records=6)
    topic = Topic(broker.create_topic(partitions=4), {"id": {"type": "int64"}, "v": {"type": "int64"}})
    topic.snapshot([{"id": key, "v": 0} for key in range(6)], ended=False)
    topic.snapshot([{"id": 10, "v": 0}], partition=1)
    topic.snapshot([{"id": 20, "v": 0}], partition=2, ended=False)
    for _ in range(8):
        topic.update(None, {"id": 10, "v": topic.lsn}, partition=1)
        topic.update(None, {"id": 20, "v": topic.lsn}, partition=2)
    send(broker, topic)
    lake.sql(
        f"CREATE CONNECTION kafka TO KAFKA (BROKER '{broker.address}');"
        f"CREATE SOURCE shop FROM KAFKA CONNECTION kafka (TOPICS ('{topic.name}')) FORMAT JSON;"
        f"CREATE TABLE shop.orders FROM SOURCE shop (TOPIC '{topic.name}') ENVELOPE DEBEZIUM UPSERT"
    )
    lake.ingest("shop")
    batches = lake.batches.history("shop")
    read = [batch.end.get(TopicPartition(topic.name, 0), 0) for batch in batches]
    whole = next(number for number, end in enumerate(read) if end >= 6)
    assert since_ms(lake) == batches[whole].mz_timestamp
    assert 0 < whole < len(batches) - 1
    assert lake.sql(f"SELECT count(*) FROM shop.orders AS OF {since_ms(lake)}").rows == [(8,)]
