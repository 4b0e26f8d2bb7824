"""A long-lived client of a Spark Connect server goes on when the server was killed and started again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from lakehold.servers.processes import has_ended
from lakehold.settings import Settings
from lakehold.spark_server import lifecycle
from tests.recorded_files import append, line
from tests.spark_connect import free_port, session_settings
from tests.waiting import wait_for

pytestmark = pytest.mark.spark

COMMAND = str(Path(sys.executable).with_name("lakehold"))
WITHIN_S = 180

CLIENT = """
import sys
from lakehold.errors import LakeholdError
from lakehold.lake import connect

SLOW = "SELECT max(n) FROM (SELECT count(*) AS n FROM range(0, 1000000000000, 1, 8))"

def show_end(name, lake):
    lake.spark.registerProgressHandler(lambda **_: print(f"{name}: runs", flush=True))
    try:
        lake.sql(SLOW)
    except LakeholdError as error:
        print(f"{name}: {error.message}, {error.code}, {error.retryable}", flush=True)

warehouse, remote = sys.argv[1:]
with connect(warehouse, spark_remote=remote) as lake:
    lake.spark.client.set_retry_policies([])  # they take ten minutes
    show_end("first", lake)
sys.stdin.read()  # until the next server runs
with connect(warehouse, spark_remote=remote) as lake:
    show_end("second", lake)
    print(lake.sql("SELECT 1").rows, flush=True)
"""


@dataclass(frozen=True)
class RestartedServer:
    """A server that tests kill and start again on the same port."""

    directory: Path
    settings: Settings
    remote: str

    def kill(self) -> None:
        """Kill the server."""
        pid = lifecycle.status(self.directory).pid
        assert pid is not None
        process = psutil.Process(pid)
        process.kill()
        wait_for(lambda: has_ended(process), "the server is gone")

    def restart(self) -> None:
        """Kill the server, and start it again."""
        self.kill()
        self.start()

    def start(self) -> None:
        """Start the server again."""
        assert lifecycle.up(self.directory, self.settings, urlsplit(self.remote).port) == self.remote


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestartedServer]:
    directory, settings = tmp_path / "server", session_settings(tmp_path, {"spark.sql.shuffle.partitions": "2"})
    try:
        yield RestartedServer(directory, settings, lifecycle.up(directory, settings, free_port()))
    finally:
        lifecycle.down(directory)


class Feed:
    """A source of files with two tables, which are written side by side."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._offset = 0
        self.statements = (
            f"CREATE SOURCE feed FROM FILES '{directory}' FORMAT JSON;"
            "CREATE TABLE shop.a (id BIGINT) FROM SOURCE feed (TOPIC 'a') KEY (id) ENVELOPE UPSERT;"
            "CREATE TABLE shop.b (id BIGINT) FROM SOURCE feed (TOPIC 'b') KEY (id) ENVELOPE UPSERT"
        )

    def send(self) -> None:
        """Send a row to each table."""
        row = json.dumps({"id": self._offset}).encode()
        for topic in ("a", "b"):
            append(self._directory / f"{topic}.jsonl", [line(topic, 0, self._offset, row, row)])
        self._offset += 1


def test_an_ingest_that_follows_goes_on_over_a_server_that_was_killed_and_started_again(
    server: RestartedServer, tmp_path: Path
) -> None:
    feed, shown = Feed(tmp_path / "topics"), tmp_path / "shown"
    settings = {"WAREHOUSE": str(tmp_path / "lake"), "SPARK_REMOTE": server.remote, "TABLES_AT_ONCE": "2"}
    environment = {**os.environ, **{f"LAKEHOLD_{name}": value for name, value in settings.items()}}
    feed.send()
    subprocess.run([COMMAND, "sql", feed.statements], env=environment, check=True, timeout=WITHIN_S)
    with shown.open("w") as output:
        following = subprocess.Popen(
            [COMMAND, "ingest", "feed", "--follow", "--format", "csv"], env=environment, stdout=output
        )
    try:
        wait_for(lambda: shown.read_text().count("shop.") == 2, "the first rows", within_s=WITHIN_S)
        server.restart()
        feed.send()
        wait_for(lambda: shown.read_text().count("shop.") == 4, "rows after the restart", within_s=WITHIN_S)
    finally:
        following.terminate()
    assert following.wait(WITHIN_S) == 0
    counted = subprocess.run(
        [
            COMMAND,
            "sql",
            "--format",
            "csv",
            "SELECT (SELECT count(*) FROM shop.a) AS a, (SELECT count(*) FROM shop.b) AS b",
        ],
        env=environment,
        check=True,
        timeout=WITHIN_S,
        capture_output=True,
        text=True,
    )
    assert counted.stdout == "a,b\n2,2\n"


def test_a_statement_ends_with_a_server_of_another_machine_and_the_lake_goes_on_over_the_next_one(
    server: RestartedServer, tmp_path: Path
) -> None:
    """Run a client that does not know the server's directory, as that of a server of another machine is unknown."""
    shown = tmp_path / "shown"

    def wait_until(text: str) -> None:
        wait_for(lambda: text in shown.read_text(), text, within_s=WITHIN_S)

    arguments = [sys.executable, "-c", CLIENT, str(tmp_path / "lake"), server.remote]
    with (
        shown.open("w") as output,
        subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=output, text=True) as client,
    ):
        try:
            wait_until("first: runs")
            server.kill()
            wait_until("first: the Spark Connect server does not answer any more, spark-unreachable, True")
            server.start()
            assert client.stdin is not None
            client.stdin.close()
            wait_until("second: runs")
            server.restart()
            wait_until("second: the Spark Connect server does not know the session any more, spark-unreachable, True")
            assert client.wait(WITHIN_S) == 0
        finally:
            client.kill()
    assert "\n[(1,)]\n" in shown.read_text()
