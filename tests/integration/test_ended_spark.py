"""A command ends with its own Spark, whose Java process was killed, and no table stops for it: the next one goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import LakeFactory
from tests.debezium_messages import Topic
from tests.lakehold_process import IngestProcesses
from tests.waiting import wait_for

pytestmark = pytest.mark.spark

WITHIN_S = 120


def row(id_: int) -> dict[str, Any]:
    return {"id": id_}


def test_an_ingest_that_follows_ends_with_its_spark_and_stops_no_table(make_lake: LakeFactory, tmp_path: Path) -> None:
    topic = Topic("t", {"id": {"type": "int64"}})
    topic.snapshot([row(1)])
    topic.write(tmp_path / "topics")
    lake = make_lake(tmp_path / "lake")
    lake.sql(f"""
        CREATE SOURCE shop FROM FILES '{tmp_path}/topics' FORMAT JSON;
        CREATE TABLE s.t FROM SOURCE shop (TOPIC 't') ENVELOPE DEBEZIUM
    """)
    processes = IngestProcesses(tmp_path / "lake", "shop", {"catalog_name": lake.settings.catalog_name}, ("--follow",))
    process = processes.start()
    wait_for(lambda: bool(lake.batches.history("shop")), "the first batch", within_s=WITHIN_S)
    (java,) = (child for child in psutil.Process(process.pid).children(recursive=True) if child.name() == "java")
    java.kill()
    topic.create(row(2))
    topic.write(tmp_path / "topics")

    code, stderr = processes.ended(process)
    assert code == 1
    assert "code: spark-ended" in stderr
    assert "Traceback" not in stderr, stderr
    assert list(lake.batches.readers("shop")) == ["main"]
    lake.ingest("shop")
    assert lake.sql("SELECT id FROM s.t ORDER BY id").rows == [(1,), (2,)]
