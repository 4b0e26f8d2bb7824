"""Promises of the Kafka reader beyond those of every reader."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakehold.errors import UpstreamError, UpstreamUnavailable
from lakehold.ingest.read.kafka import KafkaReader
from lakehold.ingest.read.offset_checks import faults
from lakehold.ingest.read.reader import RAW_DDL, FetchedOffsets
from lakehold.kafka.client import shared_client
from lakehold.kafka.connection_options import KafkaOptions, kafka_options
from lakehold.model.offsets import Offsets, TopicPartition, Watermarks
from lakehold.times import now_ms
from tests.contract.test_readers import LARGE, numbered, values
from tests.kafka_broker import Broker

pytestmark = pytest.mark.stack


def test_an_open_transaction_is_not_read_before_it_ends(broker: Broker) -> None:
    topic = broker.create_topic()
    reader = KafkaReader(kafka_options({"BROKER": broker.address}))
    broker.produce(topic, numbered(0, 2))
    transaction = broker.begin_transaction(topic, numbered(2, 4))
    broker.produce(topic, numbered(4, 6))

    first = reader.plan(reader.fetch_offsets([topic]), {}, LARGE)
    assert values(reader.in_driver(first.ranges)) == numbered(0, 2)
    transaction.commit_transaction()
    broker.wait_until_stable(topic)
    second = reader.plan(reader.fetch_offsets([topic]), first.position, LARGE)
    assert values(reader.in_driver(second.ranges)) == numbered(2, 6)


def test_a_topic_deleted_between_two_requests_is_skipped(broker: Broker) -> None:
    there, gone = (TopicPartition(broker.create_topic(), 0) for _ in range(2))
    broker.produce(there.topic, numbered(0, 3))
    broker.delete_topic(gone.topic)
    client = shared_client(kafka_options({"BROKER": broker.address}), 15)
    assert client.watermarks([there, gone]) == {there: Watermarks(0, 3)}
    assert client.written_ends([there, gone]) == {there: 3}
    assert client.watermarks([gone]) == {}


def test_ends_are_fetched_first_of_the_ordered_topic_then_of_others_and_of_uncommitted_records_last(
    broker: Broker,
) -> None:
    ordered, other = broker.create_topic(), broker.create_topic(partitions=2)
    transactions, first, second = TopicPartition(ordered, 0), TopicPartition(other, 0), TopicPartition(other, 1)
    uncommitted = broker.begin_transaction(other, numbered(0, 4), partition=1)
    fetches: list[list[str]] = []

    class Busy(KafkaReader):
        def _fetch(self, topics: Collection[str]) -> FetchedOffsets:
            found = super()._fetch(topics)
            fetches.append([*topics])
            broker.produce(ordered, numbered(0, 1))
            broker.produce(other, numbered(0, 1))
            return found

    before_ms = now_ms()
    found = Busy(kafka_options({"BROKER": broker.address})).fetch_offsets([other, ordered], ordered)
    assert fetches == [[ordered], [other]]
    assert {tp: watermarks.end_exclusive for tp, watermarks in found.partitions.items()} == {
        transactions: 0,
        first: 1,
        second: 0,
    }
    assert found.written == {transactions: 2, first: 2, second: 4}
    assert before_ms <= found.fetched_ms <= now_ms()
    assert found.topics == found.identities.keys() == {ordered, other}
    assert found.without([other]).written == {transactions: 2}
    uncommitted.abort_transaction()


def test_topics_are_missing_whether_they_are_ordered_or_not(broker: Broker) -> None:
    there = broker.create_topic()
    reader = KafkaReader(kafka_options({"BROKER": broker.address}))
    assert reader.fetch_offsets([there, "no", "nor"], "no").missing == ("no", "nor")
    assert there in reader.fetch_offsets([there, "no"], "no").other_topics


def test_a_backlog_of_aborted_records_alone_is_skipped(broker: Broker) -> None:
    topic = broker.create_topic()
    reader = KafkaReader(kafka_options({"BROKER": broker.address}))
    broker.transaction(topic, numbered(0, 5), commit=False)
    plan = reader.plan(reader.fetch_offsets([topic]), {}, LARGE)
    assert plan.ranges
    assert reader.in_driver(plan.ranges).num_rows == 0
    assert reader.plan(reader.fetch_offsets([topic]), plan.position, LARGE).ranges == ()


def test_reading_begins_at_the_earliest_existing_offset(broker: Broker) -> None:
    topic = broker.create_topic()
    reader = KafkaReader(kafka_options({"BROKER": broker.address}))
    broker.produce(topic, numbered(0, 10))
    broker.delete_records(topic, 0, 6)
    plan = reader.plan(reader.fetch_offsets([topic]), {}, LARGE)
    assert values(reader.in_driver(plan.ranges)) == numbered(6, 10)


def test_records_deleted_between_plan_and_read_are_an_error(broker: Broker) -> None:
    topic = broker.create_topic()
    reader = KafkaReader(kafka_options({"BROKER": broker.address}))
    broker.produce(topic, numbered(0, 10))
    plan = reader.plan(reader.fetch_offsets([topic]), {}, LARGE)
    broker.delete_records(topic, 0, 6)
    with pytest.raises(UpstreamError) as raised:
        reader.in_driver(plan.ranges)
    assert raised.value.code == "offsets-lost"


def test_a_topic_deleted_while_it_is_read_is_not_created_again(broker: Broker, spark: SparkSession) -> None:
    topic = broker.create_topic()
    impatient = {"request.timeout.ms": "3000", "default.api.timeout.ms": "4000"}
    reader = KafkaReader(KafkaOptions(broker.address, java=impatient, librdkafka={}), timeout_s=2.0)
    broker.produce(topic, numbered(0, 10))
    frame = reader.dataframe(spark, reader.plan(reader.fetch_offsets([topic]), {}, LARGE).ranges)
    frame.explain()  # Spark fetches the offsets here; after this only its tasks read.
    broker.delete_topic(topic)
    with pytest.raises(Exception, match="TimeoutException"):
        frame.collect()
    assert topic not in broker.admin.list_topics(timeout=5).topics


def test_timestamps_later_than_spark_can_hold_are_read_the_same_in_driver_and_by_spark(
    broker: Broker, spark: SparkSession
) -> None:
    last = 2**63 - 1
    topic = broker.create_topic(partitions=2, message_timestamp_after_max_ms=str(last))
    reader = KafkaReader(kafka_options({"BROKER": broker.address}))
    broker.produce(topic, numbered(0, 3))
    broker.produce(topic, numbered(0, 6), partition=1, timestamps=[1, last // 1_000, 2, last // 1_000 + 1, 3, last])
    position: Offsets = {}
    fetched = reader.fetch_offsets([topic])
    ends: list[Offsets] = [
        {TopicPartition(topic, 0): 1, TopicPartition(topic, 1): 2},
        {TopicPartition(topic, 0): 2, TopicPartition(topic, 1): 4},
        {TopicPartition(topic, 0): 3, TopicPartition(topic, 1): 6},
    ]
    for end in ends:
        planned = reader.plan_to(fetched, position, end)
        by_spark = reader.dataframe(spark, planned.ranges)
        assert by_spark.schema.simpleString() == spark.createDataFrame([], RAW_DDL).schema.simpleString()
        in_driver = reader.in_driver(planned.ranges).to_pylist()
        assert sorted(map(repr, by_spark.toArrow().to_pylist())) == sorted(map(repr, in_driver))
        position = planned.position


def test_a_missing_topic_is_reported_with_similar_names(broker: Broker) -> None:
    topic = broker.create_topic(name=f"shop.public.orders-{uuid.uuid4().hex[:8]}")
    reader = KafkaReader(kafka_options({"BROKER": broker.address}))
    broker.produce(topic, numbered(0, 1))
    misspelt = topic.replace("orders", "order")
    fetched = reader.fetch_offsets([topic, misspelt])
    assert fetched.missing == (misspelt,)
    error = faults(fetched, {})[misspelt]
    assert error.code == "topic-missing"
    assert topic in error.hint
    assert values(reader.in_driver(reader.plan(fetched, {}, LARGE).ranges)) == numbered(0, 1)


def test_a_new_partition_is_read_from_its_beginning(broker: Broker) -> None:
    topic = broker.create_topic()
    reader = KafkaReader(kafka_options({"BROKER": broker.address}))
    broker.produce(topic, numbered(0, 2))
    first = reader.plan(reader.fetch_offsets([topic]), {}, LARGE)
    broker.add_partitions(topic, 2)
    broker.produce(topic, numbered(2, 4), partition=1)
    second = reader.plan(reader.fetch_offsets([topic]), first.position, LARGE)
    assert values(reader.in_driver(second.ranges)) == numbered(2, 4)


def test_a_dead_broker_is_an_error_and_reading_continues_when_it_restarts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broker = Broker(tmp_path)
    try:
        topic = broker.create_topic()
        broker.produce(topic, numbered(0, 10))
        reader = KafkaReader(kafka_options({"BROKER": broker.address}), timeout_s=3)
        plan = reader.plan(reader.fetch_offsets([topic]), {}, LARGE)
        assert reader.in_driver(plan.ranges).num_rows == 10
        broker.stop()
        for call in (lambda: reader.fetch_offsets([topic]), lambda: reader.in_driver(plan.ranges)):
            with pytest.raises(UpstreamUnavailable) as raised:
                call()
            assert broker.address in raised.value.message
            assert raised.value.detail
            assert raised.value.retryable
        broker.start()
        assert reader.in_driver(reader.plan(reader.fetch_offsets([topic]), {}, LARGE).ranges).num_rows == 10
    finally:
        broker.stop()
    assert capfd.readouterr().err == ""
