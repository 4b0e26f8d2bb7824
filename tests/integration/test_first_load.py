"""The first load writes new rows as it reads them; if anything else is among them, it deduplicates them with the same result.

Each test reads a topic into two lakes: with Spark, which may load directly, and in the driver, which never does.
"""

from __future__ import annotations

import json
import logging
import signal
from base64 import b64decode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from lakehold.ingest.write import apply
from lakehold.lake import Lake, connect
from lakehold.model.high_water_marks import HighWaterMarks
from lakehold.times import now_ms
from tests.conftest import LakeFactory
from tests.debezium_messages import Topic
from tests.kafka_broker import Broker
from tests.lakehold_process import IngestProcesses
from tests.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.spark]

PARTITIONS = 2
ROWS = 20
"""Rows in each partition: more than lakehold samples first, so that the odd ones come after the sample."""


def row(id_: int, name: str = "new") -> dict[str, Any]:
    return {"id": id_, "name": name}


@pytest.fixture
def topic(broker: Broker) -> Topic:
    """Create a topic at the broker; its messages are still to be published."""
    return Topic(broker.create_topic(partitions=PARTITIONS), {"id": {"type": "int64"}, "name": {"type": "string"}})


def publish(broker: Broker, topic: Topic) -> None:
    """Send the topic's messages to the broker, in their order."""
    producer = Producer({"bootstrap.servers": broker.address})
    for text in topic.lines:
        message = json.loads(text)
        key, value = (None if message[part] is None else b64decode(message[part]) for part in ("key", "value"))
        producer.produce(topic.name, value, key=key, partition=message["partition"])
    assert producer.flush(30) == 0
    topic.lines.clear()


def define(lake: Lake, broker: Broker, topic: Topic, envelope: str) -> None:
    lake.sql(f"""
        CREATE CONNECTION kafka TO KAFKA (BROKER '{broker.address}');
        CREATE SOURCE shop FROM KAFKA CONNECTION kafka (TOPICS ('{topic.name}')) FORMAT JSON;
        CREATE TABLE s.t FROM SOURCE shop (TOPIC '{topic.name}') ENVELOPE {envelope}
    """)


def half_snapshot(topic: Topic, partition: int, *, ended: bool = False) -> None:
    """Write a partition's share of a snapshot."""
    topic.snapshot([row(ROWS * partition + n) for n in range(ROWS)], partition=partition, ended=ended)


def found(lake: Lake) -> dict[str, Any]:
    """Return the rows, errors and progress of a lake, without its times and snapshot ids."""
    catalog = lake.settings.catalog_name
    progress = lake.batches.readers("shop")["main"].tables["s.t"]
    state = lake.tables.table_state("s.t")
    assert state is not None
    written = [HighWaterMarks.from_json(s.summary.get("lakehold.marks")) for s in state.history]
    return {
        "rows": sorted(lake.sql(f"SELECT * FROM {catalog}.s.t").rows),
        "errors": sorted(lake.sql(f"SELECT partition, offset, reason FROM {catalog}.mz_catalog.mz_source_errors").rows),
        "marks": progress.high_water_marks,
        "marks written": written[0],
        "readable": progress.since_ms is not None,
        "open errors": progress.open_errors,
    }


def direct(lake: Lake) -> list[bool]:
    """Return for each snapshot, oldest first, whether it was loaded directly."""
    state = lake.tables.table_state("s.t")
    assert state is not None
    return [s.summary.get("wap.id", "").endswith(":direct") for s in reversed(state.history)]


@pytest.mark.parametrize("envelope", ["DEBEZIUM", "DEBEZIUM UPSERT"])
def test_a_snapshot_is_written_in_one_pass(make_lake: LakeFactory, broker: Broker, topic: Topic, envelope: str) -> None:
    half_snapshot(topic, 0)
    half_snapshot(topic, 1, ended=True)
    publish(broker, topic)
    by_spark, in_driver = make_lake(driver_read_max_records=0), make_lake()
    for lake in (by_spark, in_driver):
        define(lake, broker, topic, envelope)
        (report,) = lake.ingest("shop")
        assert [(t.records, t.inserted, t.repeated) for t in report.tables] == [(2 * ROWS, 2 * ROWS, 0)]
    assert direct(by_spark) == [True]
    assert direct(in_driver) == [False]
    assert found(by_spark) == found(in_driver)
    assert found(by_spark)["readable"]
    topic.update(row(3), row(3, "changed"), partition=0)
    topic.delete(row(ROWS), partition=1)
    publish(broker, topic)
    for lake in (by_spark, in_driver):
        lake.ingest("shop")
    assert direct(by_spark) == [True, False]
    assert found(by_spark) == found(in_driver)


def _twice(topic: Topic) -> None:
    topic.snapshot([row(1, "later")], ended=False)


def _elsewhere_twice(topic: Topic) -> None:
    topic.snapshot([row(ROWS + 1, "in another partition")], ended=False)


def _streamed(topic: Topic) -> None:
    lsn = topic.lsn
    topic.update(row(1), row(1, "changed"))
    topic.lsn = lsn


def _undecodable(topic: Topic) -> None:
    topic.raw(topic._key(row(1)), b"not json")


def _resnapshotted(topic: Topic) -> None:
    topic.lsn += 1_000
    topic.snapshot([row(99, "of a later snapshot")], ended=False)
    topic.lsn -= 1_000


def _end(topic: Topic) -> None:
    topic.snapshot([row(99)], ended=True)


ODD = [_twice, _elsewhere_twice, _streamed, _undecodable, _resnapshotted, _end]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: odd.__name__.strip("_"))
def test_odd_messages_among_new_rows_are_deduplicated(
    make_lake: LakeFactory,
    broker: Broker,
    topic: Topic,
    odd: Callable[[Topic], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "lakehold")
    half_snapshot(topic, 0)
    odd(topic)
    topic.snapshot([row(200 + n) for n in range(ROWS)], ended=False)
    half_snapshot(topic, 1)
    publish(broker, topic)
    by_spark, in_driver = make_lake(driver_read_max_records=0), make_lake()
    for lake in (by_spark, in_driver):
        define(lake, broker, topic, "DEBEZIUM")
        lake.ingest("shop")
    assert "are not all new rows" in caplog.text, "the rows were checked when all were written"
    assert not any(direct(by_spark))
    assert found(by_spark) == found(in_driver)


def test_a_snapshot_goes_on_in_the_next_batches(make_lake: LakeFactory, broker: Broker, topic: Topic) -> None:
    topic.snapshot([row(n) for n in range(0, 60, 2)], partition=0, ended=False)
    topic.snapshot([row(n) for n in range(1, 61, 2)], partition=1, ended=True)
    publish(broker, topic)
    by_spark, in_driver = make_lake(driver_read_max_records=0, max_batch_records=24), make_lake()
    for lake in (by_spark, in_driver):
        define(lake, broker, topic, "DEBEZIUM")
        lake.ingest("shop")
    assert direct(by_spark) == [True] * 3, "no batch was deduplicated, though the keys of batches overlap"
    assert found(by_spark)["rows"] == found(in_driver)["rows"]
    assert found(by_spark)["marks"] == found(in_driver)["marks"]


def test_a_row_of_an_earlier_batch_is_not_added_again(make_lake: LakeFactory, broker: Broker, topic: Topic) -> None:
    topic.snapshot([row(n) for n in range(20)], ended=False)
    topic.snapshot([row(n) for n in range(20, 30)], ended=False)
    topic.snapshot([row(7, "once more")], ended=False)
    topic.snapshot([row(n) for n in range(30, 39)], ended=True)
    publish(broker, topic)
    lake = make_lake(driver_read_max_records=0, max_batch_records=20)
    define(lake, broker, topic, "DEBEZIUM")
    lake.ingest("shop")
    assert direct(lake) == [True, False]
    assert found(lake)["rows"] == sorted((n, "once more" if n == 7 else "new") for n in range(39))


@pytest.fixture
def latest(broker: Broker) -> Topic:
    """Publish a topic in which each key has one value."""
    topic = Topic(broker.create_topic(partitions=PARTITIONS), {"id": {"type": "int64"}})
    for n in range(2 * ROWS):
        value = {"schema": {"type": "struct", "fields": [{"type": "string", "field": "v"}]}, "payload": {"v": str(n)}}
        topic.raw(topic._key({"id": n}), json.dumps(value).encode(), partition=n % PARTITIONS)
    publish(broker, topic)
    return topic


def test_latest_values_of_unique_keys_are_loaded_directly(
    make_lake: LakeFactory, broker: Broker, latest: Topic
) -> None:
    by_spark, in_driver = make_lake(driver_read_max_records=0), make_lake()
    for lake in (by_spark, in_driver):
        define(lake, broker, latest, "UPSERT")
        lake.ingest("shop")
    assert direct(by_spark) == [True]
    assert found(by_spark) == found(in_driver)


def test_rows_that_another_writer_adds_meanwhile_remain(
    make_lake: LakeFactory, broker: Broker, latest: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = make_lake(driver_read_max_records=0)
    define(lake, broker, latest, "UPSERT")

    def failpoint(point: str) -> None:
        if point == "before-merge" and not direct(lake):
            lake.spark.sql(f"INSERT INTO {lake.settings.catalog_name}.s.t VALUES (99, 'of another writer')")

    monkeypatch.setattr(apply, "failpoint", failpoint)
    lake.ingest("shop")
    assert direct(lake) == [False, False]
    assert found(lake)["rows"] == [*((n, str(n)) for n in range(2 * ROWS)), (99, "of another writer")]


def test_a_killed_load_adds_its_rows_once(spark_connect: str, tmp_path: Path, broker: Broker, topic: Topic) -> None:
    half_snapshot(topic, 0)
    half_snapshot(topic, 1, ended=True)
    publish(broker, topic)
    lake = connect(str(tmp_path / "lake"))
    define(lake, broker, topic, "DEBEZIUM")
    settings: Mapping[str, str | int] = {
        "driver_read_max_records": 0,
        "lease_ms": 3_000,
        "lease_renew_ms": 500,
        "spark_remote": spark_connect,
    }
    processes = IngestProcesses(tmp_path / "lake", "shop", settings)
    code, output = processes.run(kill_at="before-publish")
    assert code == -signal.SIGKILL, output
    wait_for(lambda: _is_free(lake), within_s=13)
    code, output = processes.run()
    assert code == 0, output
    assert direct(lake) == [True], "the snapshot staged by the killed process is on no branch"
    state = lake.tables.table_state("s.t")
    assert state is not None
    assert state.row_count == 2 * ROWS
    progress = lake.batches.readers("shop")["main"].tables["s.t"]
    high_water_marks, written = (
        progress.high_water_marks,
        HighWaterMarks.from_json(state.history[0].summary["lakehold.marks"]),
    )
    assert high_water_marks.positions == written.positions
    assert high_water_marks.is_whole, "the end of the other partition was fetched after the snapshot's end was written"
    assert progress.since_ms is not None


def _is_free(lake: Lake) -> bool:
    readers = lake.batches.readers("shop").values()
    return all(r.lease is None or r.lease.until_ms <= now_ms() for r in readers)
