"""The Python of executors: batches from Kafka need none of lakehold's, and what needs it reports what is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.kafka_broker import Broker
from tests.recorded_files import append, line
from tests.spark_connect import running_server

pytestmark = [pytest.mark.spark, pytest.mark.stack]

COMMAND = str(Path(sys.executable).with_name("lakehold"))
ENDS_WITHIN_S = 240


@dataclass(frozen=True)
class Commands:
    """Commands on one lake, as clients of a server; all that can be read by Spark is."""

    warehouse: Path
    remote: str

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        settings = {
            "LAKEHOLD_WAREHOUSE": str(self.warehouse),
            "LAKEHOLD_SPARK_REMOTE": self.remote,
            "LAKEHOLD_DRIVER_READ_MAX_RECORDS": "0",
            "LAKEHOLD_DRIVER_DIFF_MAX_ROWS": "0",
        }
        return subprocess.run(
            [COMMAND, *arguments],
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            timeout=ENDS_WITHIN_S,
            check=False,
        )

    def output(self, *arguments: str) -> str:
        """Return the output of a command that succeeds."""
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextmanager
def commands(directory: Path, python: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Commands]:
    """Run a server whose executors start this Python, without the modules on this process's path."""
    with monkeypatch.context() as changed:
        changed.delenv("PYTHONPATH", raising=False)
        conf = {"spark.pyspark.python": str(python), "spark.python.worker.reuse": "false"}
        with running_server(directory / "server", conf) as remote:
            changed.undo()
            yield Commands(directory / "lake", remote)


def test_without_lakehold_on_executors_batches_from_kafka_run_and_other_large_reads_say_what_is_missing(
    tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.create(tmp_path / "bare")
    topic = broker.create_topic()
    producer = Producer({"bootstrap.servers": broker.address})
    for number in (1, 2, 3):
        producer.produce(topic, row := json.dumps({"id": number}), key=row)
    assert producer.flush(ENDS_WITHIN_S) == 0
    append(tmp_path / "files" / "t.jsonl", [line("t", 0, 0, b'{"id": 1}', b'{"id": 1}')])
    with commands(tmp_path, tmp_path / "bare" / "bin" / "python", monkeypatch) as lake:
        lake.output(
            "sql",
            f"CREATE CONNECTION kafka TO KAFKA (BROKER '{broker.address}');"
            f"CREATE SOURCE live FROM KAFKA CONNECTION kafka (TOPICS ('{topic}')) FORMAT JSON;"
            f"CREATE TABLE live.t (id BIGINT) FROM SOURCE live (TOPIC '{topic}') KEY (id) ENVELOPE UPSERT;"
            f"CREATE SOURCE files FROM FILES '{tmp_path / 'files'}' FORMAT JSON;"
            "CREATE TABLE files.t (id BIGINT) FROM SOURCE files (TOPIC 't') KEY (id) ENVELOPE UPSERT",
        )
        lake.output("ingest", "live")
        assert json.loads(lake.output("sql", "SELECT count(*) AS n FROM live.t")) == {"n": 3}
        for refused in (lake.run("sql", "SUBSCRIBE live.t"), lake.run("ingest", "files")):
            assert refused.returncode == 1
            assert "the Python of Spark's executors cannot run lakehold's functions" in refused.stderr
            assert f"Install lakehold {metadata.version('lakehold')} for Python 3." in refused.stderr


@pytest.mark.soak
def test_another_version_of_lakehold_on_an_executor_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    older = tmp_path / "older" / "lakehold-0.0.1.dist-info"
    older.mkdir(parents=True)
    (older / "METADATA").write_text("Metadata-Version: 2.1\nName: lakehold\nVersion: 0.0.1\n")
    python = tmp_path / "python"
    modules = f"{older.parent}:{Path(__file__).parents[2] / 'spark'}"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{modules}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    append(tmp_path / "files" / "t.jsonl", [line("t", 0, 0, b'{"id": 1}', b'{"id": 1}')])
    with commands(tmp_path, python, monkeypatch) as lake:
        lake.output(
            "sql",
            f"CREATE SOURCE files FROM FILES '{tmp_path / 'files'}' FORMAT JSON;"
            "CREATE TABLE files.t (id BIGINT) FROM SOURCE files (TOPIC 't') KEY (id) ENVELOPE UPSERT",
        )
        refused = lake.run("ingest", "files")
    assert refused.returncode == 1
    version = metadata.version("lakehold")
    assert f"lakehold on an executor is version 0.0.1, in the driver {version}" in refused.stderr
