"""`lakehold spark` as a person uses it: a server is started, clients connect and leave, and it is stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from lakehold.servers import HOST
from lakehold.servers.processes import has_ended
from lakehold.session import SHORT_RUN_OPTIONS
from lakehold.spark_server import lifecycle
from tests.client_program import output_of
from tests.runnable_pages import checked
from tests.spark_connect import free_port, running_server

pytestmark = pytest.mark.spark

COMMAND = str(Path(sys.executable).with_name("lakehold"))
ENDS_WITHIN_S = 240
(SHOWN,) = checked("docs/operate/spark-connect.md", __file__)
UP, STATUS, DOWN = [line.removeprefix("lakehold spark ") for line in SHOWN.splitlines()]

CLIENT = """
import sys
from lakehold.lake import connect

warehouse, remote, *statements = sys.argv[1:]
with connect(warehouse, spark_remote=remote) as lake:
    for statement in statements:
        print(lake.spark.sql(statement).collect())
"""

IDLE_CLIENT = """
import sys, time
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from lakehold import remote_session
from lakehold.errors import LakeholdError
from lakehold.lake import connect
from lakehold.other_sessions import another_session

warehouse, remote = sys.argv[1:]
remote_session._KEEP_ALIVE_EVERY_S = 0.5
given = SparkSession.builder.remote(remote).create()
with (
    connect(warehouse, spark_remote=remote) as lake,
    another_session(lake.spark, lake.settings) as beside,
    connect(warehouse, spark=given) as with_given,
):
    for own in (lake.spark, beside, with_given.spark):
        own.sql("CREATE TEMPORARY VIEW kept AS SELECT 1 AS a")
    silent = [SparkSession.builder.remote(remote).create() for _ in range(15)]
    for other in silent:
        other.conf.get("spark.sql.session.timeZone")
    for other in silent:
        time.sleep(1)
        try:
            other.conf.get("spark.sql.session.timeZone")
        except PySparkException as error:
            print(error.getCondition())
            break
    print([own.sql("TABLE kept").collect()[0].a for own in (lake.spark, beside, with_given.spark)])
    given.stop()
    try:
        with_given.sql("SELECT 1")
    except LakeholdError as error:
        print(error.code, error.retryable)
    for other in silent:
        other.stop()
"""
"""A program with idle lakes and silent sessions, which it uses one a second, since a session that is used is not silent."""


FORGOTTEN_CLIENT = """
import sys, time
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from lakehold import remote_session
from lakehold.errors import LakeholdError
from lakehold.ingest.side_by_side import OwnSession
from lakehold.lake import connect

warehouse, remote = sys.argv[1:]
remote_session._KEEP_ALIVE_EVERY_S = 0.5
with connect(warehouse, spark_remote=remote) as lake:
    own = OwnSession(lambda: lake.spark, lambda _: lake.another_session())
    own.get().sql("SELECT 1").collect()
    remote_session._KEEP_ALIVE_EVERY_S = 1_000
    time.sleep(1)
    silent = [SparkSession.builder.remote(remote).create() for _ in range(15)]
    for other in silent:
        other.conf.get("spark.sql.session.timeZone")
    for other in silent:
        time.sleep(1)
        try:
            other.conf.get("spark.sql.session.timeZone")
        except PySparkException as error:
            print(error.getCondition())
            break
    try:
        own.get().sql("SELECT 1").collect()
    except PySparkException as error:
        print(error.getCondition())
    try:
        lake.sql("SELECT 1")
    except LakeholdError as error:
        print(error.code, error.retryable)
    print(lake.sql("SELECT 2").rows, own.get().sql("SELECT 3").collect()[0][0])
    own.close()
    for other in silent:
        other.stop()
"""
"""A program with a lake and a session beside it that the server forgets while silent sessions are watched, as above."""


@dataclass(frozen=True)
class Commands:
    """The `lakehold` commands over a server of their own."""

    directory: Path
    port: int

    @property
    def remote(self) -> str:
        return f"sc://{HOST}:{self.port}"

    def run(self, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, with settings by name."""
        environment = {f"LAKEHOLD_{name.upper()}": value for name, value in settings.items()}
        return self._ended([COMMAND, *arguments], environment)

    def spark(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one of the commands over the server."""
        conf = {"spark.driver.extraJavaOptions": SHORT_RUN_OPTIONS}
        return self.run(
            "spark",
            *arguments,
            spark_dir=str(self.directory / "server"),
            spark_driver_memory="1g",
            spark_master="local[2]",
            spark_conf=json.dumps(conf),
        )

    def client(self, remote: str, *statements: str) -> subprocess.CompletedProcess[str]:
        """Run statements in the session of a lake, in a program that closes the lake."""
        warehouse = str(self.directory / "lake")
        return self._ended([sys.executable, "-c", CLIENT, warehouse, remote, *statements], {})

    def pid(self) -> int:
        """Return the id of the server's process."""
        (server,) = json.loads(self.spark(STATUS, "--format", "json").stdout)
        assert isinstance(server["pid"], int)
        return server["pid"]

    def _ended(self, command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.directory,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=ENDS_WITHIN_S,
        )


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """Start a server with its command, and stop it after the tests."""
    commands = Commands(tmp_path_factory.mktemp("spark-server"), free_port())
    started = commands.spark(UP, "--port", str(commands.port))
    try:
        assert started.returncode == 0, started.stderr
        assert started.stdout == f"export LAKEHOLD_SPARK_REMOTE={commands.remote}\n"
        assert "starting" in started.stderr
        yield commands
    finally:
        lifecycle.down(commands.directory / "server")


def test_a_second_up_finds_the_running_server(commands: Commands) -> None:
    pid = commands.pid()
    again = commands.spark("up")
    assert (again.returncode, again.stdout) == (0, f"export LAKEHOLD_SPARK_REMOTE={commands.remote}\n")
    assert "already running" in again.stderr
    assert commands.pid() == pid
    elsewhere = commands.spark("up", "--port", str(free_port()))
    assert elsewhere.returncode == 1
    assert "lakehold spark down" in elsewhere.stderr


def test_the_server_listens_on_this_machine_only(commands: Commands) -> None:
    listening = [c for c in psutil.Process(commands.pid()).net_connections("inet") if c.status == psutil.CONN_LISTEN]
    assert commands.port in {connection.laddr.port for connection in listening}
    assert {connection.laddr.ip.removeprefix("::ffff:") for connection in listening} == {HOST}


def test_commands_share_the_server_each_with_its_own_lake(commands: Commands) -> None:
    for name in ("here", "there"):
        written = commands.run(
            "sql",
            f"CREATE NAMESPACE s; CREATE TABLE s.t USING iceberg AS SELECT '{name}' AS lake; SELECT * FROM s.t",
            warehouse=str(commands.directory / name),
            spark_remote=commands.remote,
        )
        assert written.returncode == 0, written.stderr
        assert json.loads(written.stdout) == {"lake": name}


def test_temporary_views_of_a_client_are_dropped_with_its_session(commands: Commands) -> None:
    one_session = f"{commands.remote}/;session_id={uuid4()}"
    first = commands.client(one_session, "CREATE TEMPORARY VIEW left_behind AS SELECT 1 AS a", "TABLE left_behind")
    assert first.returncode == 0, first.stderr
    assert "Row(a=1)" in first.stdout

    other = commands.client(commands.remote, "TABLE left_behind")
    assert "TABLE_OR_VIEW_NOT_FOUND" in other.stderr
    same = commands.client(one_session, "SELECT 1")
    assert "SESSION_CLOSED" in same.stderr


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[str]:
    """Start a server that forgets sessions after three silent seconds."""
    timeouts = {
        "spark.connect.session.manager.defaultSessionTimeout": "3s",
        "spark.connect.session.manager.maintenanceInterval": "200ms",
    }
    with running_server(tmp_path / "server", timeouts) as remote:
        yield remote


def test_an_idle_client_keeps_its_session_beyond_the_timeout_of_silent_ones(forgetful: str, tmp_path: Path) -> None:
    shown = output_of(IDLE_CLIENT, str(tmp_path / "lake"), forgetful, cwd=tmp_path)
    assert shown == "INVALID_HANDLE.SESSION_CLOSED\n[1, 1, 1]\nsession-ended False\n"


def test_sessions_that_the_server_has_forgotten_are_opened_again(forgetful: str, tmp_path: Path) -> None:
    shown = output_of(FORGOTTEN_CLIENT, str(tmp_path / "lake"), forgetful, cwd=tmp_path)
    closed = "INVALID_HANDLE.SESSION_CLOSED"
    assert shown.splitlines() == [closed, closed, "spark-unreachable True", "[(2,)] 3"]


def test_down_stops_the_process_that_up_started(commands: Commands) -> None:
    server = psutil.Process(commands.pid())
    stopped = commands.spark(DOWN)
    assert stopped.returncode == 0
    assert "stopped" in stopped.stderr
    assert has_ended(server)
    assert commands.spark("status").returncode == 1
    refused = commands.run("sql", "SELECT 1", warehouse=str(commands.directory / "here"), spark_remote=commands.remote)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "code: spark-unreachable" in refused.stderr
    assert commands.spark("down").returncode == 0, "no server is left to stop"
