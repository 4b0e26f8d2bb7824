"""Promises of `lakehold spark` that need no server: its configuration, and its file permissions."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lakehold.errors import UpstreamUnavailable
from lakehold.lake import connect
from lakehold.servers import HOST, ServerError
from lakehold.settings import load_settings
from lakehold.spark_server import DEFAULT_PORT, lifecycle
from lakehold.spark_server.cli import app
from lakehold.spark_server.composition import SparkConnectServer, server_conf
from tests.spark_connect import free_port


@pytest.fixture
def listener() -> Iterator[int]:
    """Listen on a port of loopback, without speaking Spark Connect."""
    with socket.create_server((HOST, 0)) as server:
        yield server.getsockname()[1]


def test_the_server_knows_no_lake_and_listens_on_loopback_whatever_is_configured() -> None:
    settings = load_settings(
        warehouse="w",
        spark_driver_memory="3g",
        spark_master="local[7]",
        spark_conf={
            "spark.connect.grpc.binding.address": "0.0.0.0",
            "spark.sql.shuffle.partitions": "3",
            "spark.sql.catalog.lake.s3.endpoint": "http://127.0.0.1:9000",
        },
    )
    conf = server_conf(settings, 15_099)
    assert conf["spark.connect.grpc.binding.address"] == HOST
    assert conf["spark.connect.grpc.binding.port"] == "15099"
    assert (conf["spark.driver.memory"], conf["spark.master"]) == ("3g", "local[7]")
    assert conf["spark.sql.shuffle.partitions"] == "3"
    of_catalogs = {name for name in conf if name.startswith("spark.sql.catalog.")}
    assert of_catalogs == {"spark.sql.catalog.lake.s3.endpoint"}
    assert conf["spark.connect.session.manager.defaultSessionTimeout"] == "1h"


def test_a_server_without_memory_ends_unless_the_user_decides_otherwise() -> None:
    name, own = "spark.driver.extraJavaOptions", "-XX:-ExitOnOutOfMemoryError"
    options = server_conf(load_settings(warehouse="w", spark_conf={name: own}), 15_099)[name].split()
    assert options.index("-XX:+ExitOnOutOfMemoryError") < options.index(own), "Java takes the last of two"


def test_each_start_begins_a_log_and_keeps_the_one_before(tmp_path: Path) -> None:
    server = SparkConnectServer(tmp_path, 15_099)
    server.log.parent.mkdir()
    for text in ("first", "second"):
        server.log.write_text(text)
        server.prepare()
    assert {path.name: path.read_text() for path in server.log.parent.iterdir()} == {"spark.previous.log": "second"}


def test_the_configuration_is_for_its_owner_only_and_not_on_the_command_line(tmp_path: Path) -> None:
    conf = {"spark.hadoop.fs.s3a.secret.key": "hidden", "spark.a": r"C:\dir", "spark.b": "two\nlines"}
    server = SparkConnectServer(tmp_path, 15_099, conf)
    server.prepare()
    server.prepare()
    path = server.folder / "spark.properties"
    assert path.stat().st_mode & 0o077 == 0
    assert path.read_text().splitlines() == [
        "spark.a C:\\\\dir",
        "spark.b two\\nlines",
        "spark.hadoop.fs.s3a.secret.key hidden",
    ]
    command = server.command()
    assert str(path) in command.argv
    assert not any("hidden" in argument for argument in command.argv)
    assert "hidden" not in command.environment.values()


def test_a_server_that_does_not_speak_spark_connect_is_not_healthy(
    tmp_path: Path, listener: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakehold.spark_server.composition._ANSWERS_WITHIN_S", 0.3)
    assert not SparkConnectServer(tmp_path, listener).is_healthy()
    assert not SparkConnectServer(tmp_path, free_port()).is_healthy()


def test_a_taken_port_is_refused_before_anything_starts(tmp_path: Path, listener: int) -> None:
    with pytest.raises(ServerError) as refusal:
        lifecycle.up(tmp_path, load_settings(warehouse=str(tmp_path)), listener)

    assert refusal.value.code == "port-taken"
    assert f"(process {os.getpid()})" in refusal.value.detail
    assert "lakehold spark up --port" in refusal.value.hint
    assert lifecycle.status(tmp_path).state == "stopped"


def test_status_of_a_stopped_server_exits_with_1_and_down_does_nothing(tmp_path: Path) -> None:
    never = tmp_path / "never"
    result = CliRunner().invoke(app, ["status", "--directory", str(never), "--format", "json"])

    assert result.exit_code == 1
    (server,) = json.loads(result.stdout)
    assert (server["name"], server["state"], server["port"]) == ("spark", "stopped", DEFAULT_PORT)
    assert CliRunner().invoke(app, ["down", "--directory", str(never)]).exit_code == 0
    assert not never.exists()


def test_a_lake_without_its_server_is_reported_at_once(tmp_path: Path) -> None:
    remote = f"sc://{HOST}:{free_port()}"
    with connect(str(tmp_path / "lake"), spark_remote=remote) as lake, pytest.raises(UpstreamUnavailable) as refusal:
        lake.sql("SELECT 1")

    assert refusal.value.code == "spark-unreachable"
    assert remote in refusal.value.detail
    assert "lakehold spark up" in refusal.value.hint
