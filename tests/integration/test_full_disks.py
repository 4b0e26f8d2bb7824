"""A disk becomes full under each part that writes: an error says so, and when there is room again nothing is lost or repeated."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from lakehold.errors import LakeholdError, UpstreamUnavailable
from lakehold.lake import Lake, connect
from lakehold.session import SHORT_RUN_OPTIONS
from tests import recorded_files
from tests.conftest import LakeFactory
from tests.kafka_broker import Broker
from tests.lakehold_process import IngestProcesses

pytestmark = pytest.mark.spark

SIZE_MB = 256
UPSERTED = "CREATE TABLE s.t (id BIGINT, n BIGINT) FROM SOURCE shop (TOPIC 't') KEY (id) ENVELOPE UPSERT"


class Disk:
    """A small file system, with ballast that fills it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self) -> None:
        """Leave no room for another byte."""
        with self._ballast.open("wb", buffering=0) as content:
            for size in (2**16, 1):
                with suppress(OSError):
                    while True:
                        content.write(bytes(size))
        assert shutil.disk_usage(self.path).free == 0

    def free(self) -> None:
        """Make room again."""
        self._ballast.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Mount a file system in memory; only root may."""
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m,mode=0777", "tmpfs", str(path)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("mounting a file system needs root")
    yield Disk(path)
    # Spark may still have files open there.
    subprocess.run(["umount", "--lazy", str(path)], check=True)


class Feed:
    """A source of files, elsewhere, whose batches change some rows and add others."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._offset = 0
        self.rows: dict[int, int] = {}
        self.declaring = f"CREATE SOURCE shop FROM FILES '{directory}' FORMAT JSON; {UPSERTED}"

    def send(self, rows: int = 50) -> None:
        lines = []
        for id_ in range(len(self.rows) // 2, len(self.rows) // 2 + rows):
            value = json.dumps({"id": id_, "n": self._offset}).encode()
            lines.append(recorded_files.line("t", 0, self._offset, value, None))
            self.rows[id_] = self._offset
            self._offset += 1
        recorded_files.append(self._directory / "t.jsonl", lines)

    def assert_equal(self, lake: Lake) -> None:
        """Check the rows, and that each message is in one batch."""
        rows = lake.catalog.load_table("s.t").scan().to_arrow().to_pylist()
        assert {row["id"]: row["n"] for row in rows} == self.rows
        assert len(rows) == len(self.rows)
        assert sum(batch.records for batch in lake.batches.history("shop")) == self._offset


def ingested(lake: Lake) -> str:
    """Ingest; return what the errors say, of the ingest or of the table that stopped."""
    try:
        stops = [error for report in lake.ingest("shop") for error in report.stopped.values()]
    except LakeholdError as error:
        stops = [error]
    return " ".join(f"{error.code} {error} {error.detail}" for error in stops)


@pytest.mark.parametrize("full", ["warehouse", pytest.param("catalog", marks=pytest.mark.soak)])
def test_a_full_disk_of_the_lake_stops_batches_until_there_is_room(
    make_lake: LakeFactory, disk: Disk, tmp_path: Path, full: str
) -> None:
    feed = Feed(tmp_path / "topics")
    if full == "warehouse":
        lake = make_lake(disk.path / "lake")
    else:
        lake = make_lake(tmp_path / "lake", catalog_uri=f"sqlite:///{disk.path}/catalog.db")
    lake.sql(feed.declaring)
    feed.send()
    assert not ingested(lake)
    for _ in range(2):
        feed.send()
        disk.fill()
        assert re.search("disk is full|No space left", ingested(lake))
        assert lake.sql("SELECT count(*) FROM s.t").rows
        disk.free()
    assert not ingested(lake)
    feed.assert_equal(lake)


@pytest.mark.soak
def test_a_full_disk_of_spark_stops_a_batch_until_there_is_room(disk: Disk, tmp_path: Path) -> None:
    feed = Feed(tmp_path / "topics")
    options = {"spark.driver.extraJavaOptions": SHORT_RUN_OPTIONS, "spark.local.dir": str(disk.path / "spark")}
    processes = IngestProcesses(
        tmp_path / "lake",
        "shop",
        {"spark_master": "local[2]", "spark_driver_memory": "1g", "spark_conf": json.dumps(options)},
    )
    with connect(str(tmp_path / "lake")) as lake:
        lake.sql(feed.declaring)
        feed.send()
        disk.fill()
        code, output = processes.run()
        assert code == 1
        assert "No space left on device" in output
        disk.free()
        code, output = processes.run()
        assert code == 0, output
        feed.assert_equal(lake)


@pytest.mark.stack
def test_a_full_disk_of_kafka_ends_the_broker_and_an_ingest_goes_on_with_the_next_one(
    make_lake: LakeFactory, disk: Disk
) -> None:
    broker = Broker(disk.path / "broker")
    try:
        topic = broker.create_topic()
        lake = make_lake(upstream_timeout_ms=3_000)
        lake.sql(
            f"CREATE CONNECTION kafka TO KAFKA (BROKER '{broker.address}');"
            f"CREATE SOURCE shop FROM KAFKA CONNECTION kafka (TOPICS ('{topic}')) FORMAT JSON;"
            f"CREATE TABLE s.t (id BIGINT) FROM SOURCE shop (TOPIC '{topic}') ENVELOPE NONE"
        )
        acknowledged = _produced(broker, topic, range(100), lambda: None)
        assert not ingested(lake)
        acknowledged |= _produced(broker, topic, range(100, 200), disk.fill)
        with pytest.raises(UpstreamUnavailable) as failure:
            lake.ingest("shop")
        assert failure.value.code == "kafka-unavailable"
        disk.free()
        broker.stop()
        broker.start()
        acknowledged |= _produced(broker, topic, range(200, 300), lambda: None)
        assert not ingested(lake)
        rows = [id_ for (id_,) in lake.sql("SELECT id FROM s.t").rows]
        assert acknowledged <= {*rows}
        assert {*range(100), *range(200, 300)} <= acknowledged
    finally:
        broker.stop()


def _produced(broker: Broker, topic: str, ids: range, meanwhile: Callable[[], None]) -> set[int]:
    """Produce large rows one by one, the second half after an event; return those that the broker acknowledged."""
    acknowledged: set[int] = set()

    def answered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            acknowledged.add(json.loads(message.value() or b"")["id"])

    producer = Producer({"bootstrap.servers": broker.address, "message.timeout.ms": 5_000, "log_level": 0})
    for number in ids:
        if number == ids[len(ids) // 2]:
            producer.flush()
            meanwhile()
        producer.produce(topic, json.dumps({"id": number, "pad": "x" * 50_000}), on_delivery=answered)
    producer.flush()
    return acknowledged
