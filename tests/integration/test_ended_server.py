"""A Spark Connect server that ends leaves its reason in its log, and its clients report at once that it is gone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from lakehold.servers.processes import has_ended
from lakehold.spark_server import lifecycle
from tests.doc_pages import ROOT
from tests.spark_connect import free_port, session_settings
from tests.waiting import wait_for

pytestmark = pytest.mark.spark

COMMAND = str(Path(sys.executable).with_name("lakehold"))
WITHIN_S = 240
AT_ONCE_S = 60.0
"""Spark's own client retries for ten minutes."""

TOO_LARGE = "SELECT sum(size(transform(sequence(1L, 300000000L + id), x -> x + 1))) AS n FROM range(2)"
SLOW = "SELECT max(n) FROM (SELECT count(*) AS n FROM range(0, 1000000000000, 1, 8))"


@dataclass(frozen=True)
class EndingServer:
    """A server, and the commands of its clients."""

    directory: Path
    remote: str

    @property
    def log(self) -> Path:
        return lifecycle.status(self.directory).log

    def process(self) -> psutil.Process:
        pid = lifecycle.status(self.directory).pid
        assert pid is not None
        return psutil.Process(pid)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command of a client."""
        settings = {
            "LAKEHOLD_WAREHOUSE": str(self.directory / "lake"),
            "LAKEHOLD_SPARK_REMOTE": self.remote,
            "LAKEHOLD_SPARK_DIR": str(self.directory),
        }
        return subprocess.Popen(
            [COMMAND, *arguments], env={**os.environ, **settings}, stderr=subprocess.PIPE, text=True
        )

    def start_slowly(self) -> subprocess.Popen[str]:
        """Start a script that reaches a statement of some hours."""
        marker = self.directory / "lake" / "s" / "marker"
        started = self.start("sql", f"CREATE NAMESPACE s; CREATE TABLE s.marker USING iceberg AS SELECT 1 AS a; {SLOW}")
        wait_for(marker.exists, "the statement before the slow one", within_s=WITHIN_S)
        return started

    def errors(self, *arguments: str) -> str:
        """Run a command of a client that fails, and return its errors."""
        return ended(self.start(*arguments), WITHIN_S)


def ended(command: subprocess.Popen[str], within_s: float) -> str:
    """Return the errors of a command that fails within a time."""
    try:
        _, errors = command.communicate(timeout=within_s)
    finally:
        command.kill()
    assert command.returncode == 1
    return errors


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EndingServer]:
    settings = session_settings(tmp_path, {"spark.sql.shuffle.partitions": "2"})
    try:
        yield EndingServer(tmp_path, lifecycle.up(tmp_path, settings, free_port()))
    finally:
        lifecycle.down(tmp_path)


def on_the_page(server: EndingServer) -> str:
    """Return the error that the page shows, with this server's address and log."""
    page = (ROOT / "docs" / "operate" / "spark-connect.md").read_text()
    shown = page.partition(f"{Path(__file__).name} -->\n```text\n")[2].partition("```")[0]
    return shown.replace("sc://127.0.0.1:15002", server.remote).replace(
        "/var/lib/lakehold/spark/logs/spark.log", str(server.log)
    )


def test_a_server_without_memory_ends_and_its_clients_quote_the_reason_from_its_log(server: EndingServer) -> None:
    reason = "Terminating due to java.lang.OutOfMemoryError: Java heap space"
    process = server.process()
    for errors in (server.errors("sql", TOO_LARGE), server.errors("sql", "SELECT * FROM s.t")):
        assert "error: the Spark Connect server has ended\n" in errors
        assert f"{server.remote}: its process is gone. The end of its log:\n{reason}\n" in errors
        assert f"Read {server.log}" in errors
        assert on_the_page(server) in errors
        assert "code: spark-unreachable" in errors
    assert has_ended(process)
    assert reason in server.errors("spark", "status")
    assert server.log.read_text().count("releaseExecute") == 0


def test_a_statement_ends_with_its_killed_server_and_its_error_says_that_the_log_is_silent(
    server: EndingServer,
) -> None:
    running = server.start_slowly()
    server.process().kill()

    errors = ended(running, AT_ONCE_S)
    assert "the Spark Connect server has ended\n" in errors
    assert "its process is gone, and its log does not say why" in errors
    assert str(server.log) in errors


@pytest.mark.soak
def test_a_statement_ends_with_its_server_that_is_stopped(server: EndingServer) -> None:
    running = server.start_slowly()
    lifecycle.down(server.directory)

    assert "code: spark-unreachable" in ended(running, AT_ONCE_S)
    assert "lakehold spark down stopped it." in server.errors("sql", "SELECT * FROM s.t")
