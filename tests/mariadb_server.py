"""A MariaDB server for tests, outside the stack, with the binaries of the operating system."""

from __future__ import annotations

import atexit
import functools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from lakehold.servers import HOST
from lakehold.stack import StackAddresses
from tests.certificates import Issued
from tests.stack_fixtures import free_ports, open_directory

_STARTS_WITHIN_S = 60.0
_USER = "mysql"
PASSWORD = "lakehold"
SIGNAL_RIGHTS = "GRANT CREATE, INSERT, DELETE, SELECT, DROP ON lakehold_signals.* TO lakehold@'%'"
_DEADLOCK = "ERROR 1213"

_SETTINGS = (
    "--log-bin=binlog",
    "--binlog-format=ROW",
    "--binlog-row-image=FULL",
    "--server-id=1",
    # By default a DELETE locks gaps beside its rows, and INSERT … SELECT a table's numbering: sessions wait for each other.
    "--transaction-isolation=READ-COMMITTED",
    "--innodb-autoinc-lock-mode=2",
)


class MariaDb:
    """A running server whose binary log can be captured by the user `lakehold`."""

    def __init__(self, directory: Path) -> None:
        self.port = free_ports().postgres
        self._socket = directory / "socket"
        data = directory / "data"
        shutil.chown(directory, _server_user(), _server_user())
        subprocess.run(["cp", "-a", _installed(), data], check=True)
        server = [
            shutil.which("mariadbd") or "/usr/sbin/mariadbd",
            "--no-defaults",
            f"--user={_server_user()}",
            f"--datadir={data}",
            f"--bind-address={HOST}",
            f"--port={self.port}",
            f"--socket={self._socket}",
            *_SETTINGS,
        ]
        self._server, self._directory = server, directory
        self._tls: list[str] = []
        self.start()
        self.execute(
            f"CREATE USER lakehold@'%' IDENTIFIED BY '{PASSWORD}'",
            "GRANT SELECT, RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT, BINLOG MONITOR ON *.* TO lakehold@'%'",
            SIGNAL_RIGHTS,
        )

    def declaring(self, stack: StackAddresses, source: str, prefix: str, *options: str, tls: str = "") -> str:
        """Return the statements that declare a source over the server, without tables and the last semicolon.

        Args:
            stack: The stack with Kafka and Kafka Connect.
            source: Name of the source.
            prefix: The first part of its topics' names.
            options: More options of INTO KAFKA.
            tls: More options of the connection, after a comma.
        """
        into = ", ".join((f"TOPIC PREFIX '{prefix}'", *options))
        return (
            f"CREATE CONNECTION kafka TO KAFKA (BROKER '{stack.kafka}');"
            f"CREATE CONNECTION maria TO MARIADB (HOST '{HOST}', PORT {self.port}, USER 'lakehold', "
            f"PASSWORD SECRET 'maria'{tls});"
            f"CREATE CONNECTION connect TO CONNECT (URL '{stack.connect}');"
            f"CREATE SOURCE {source} FROM MARIADB CONNECTION maria VIA CONNECT CONNECTION connect "
            f"INTO KAFKA CONNECTION kafka ({into}) FORMAT JSON"
        )

    def execute(self, *statements: str) -> None:
        """Run statements."""
        self._client(";".join(statements))

    def is_executed(self, *statements: str) -> bool:
        """Run statements, and return whether they were; if they are the victim of a deadlock, the server rolls them back."""
        answer = self._query(";".join(statements))
        assert answer.returncode == 0 or _DEADLOCK in answer.stderr, answer.stderr
        return answer.returncode == 0

    def rows(self, query: str) -> list[tuple[str, ...]]:
        """Return the rows of a query, values as text."""
        return [tuple(line.split("\t")) for line in self._client(query).splitlines()]

    def connected(self, database: str) -> pymysql.Connection[Any]:
        """Connect as root, without transactions of the connection's own."""
        socket = str(self._socket)
        return pymysql.connect(unix_socket=socket, user="root", database=database, autocommit=True, charset="utf8mb4")

    def start(self) -> None:
        self._log = (self._directory / "log").open("a")
        self._process = subprocess.Popen([*self._server, *self._tls], stdout=self._log, stderr=self._log)
        self._wait()

    def serve_tls(self, issued: Issued | None) -> None:
        """Restart the server so that it offers TLS with a certificate; None: so that it offers none."""
        self.stop()
        options = ["--skip-ssl"]
        if issued:
            for file in (issued.certificate, issued.key):
                shutil.chown(shutil.copy2(file, self._directory), _server_user())
            certificate, key = (self._directory / file.name for file in (issued.certificate, issued.key))
            options = [f"--ssl-cert={certificate}", f"--ssl-key={key}"]
        self._tls = options
        self.start()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()
        self._log.close()

    def back_up(self) -> None:
        """Copy the current data."""
        self.stop()
        subprocess.run(["cp", "-a", self._directory / "data", self._directory / "backup"], check=True)
        self.start()

    def restore(self) -> None:
        """Replace the data by the copy."""
        self.stop()
        shutil.rmtree(self._directory / "data")
        (self._directory / "backup").rename(self._directory / "data")
        self.start()

    def _wait(self) -> None:
        deadline = time.monotonic() + _STARTS_WITHIN_S
        while self._query("SELECT 1").returncode != 0:
            assert self._process.poll() is None, "the server ended"
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.1)

    def _client(self, sql: str) -> str:
        answer = self._query(sql)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def _query(self, sql: str) -> subprocess.CompletedProcess[str]:
        command = ["mariadb", "--no-defaults", f"--socket={self._socket}", "--user=root", "--batch", "-N", "-e", sql]
        return subprocess.run(command, check=False, capture_output=True, text=True)


@functools.cache
def _installed() -> Path:
    """Make the data of a server that never ran, which each server of this process begins with a copy of."""
    directory = Path(tempfile.mkdtemp(prefix="lakehold-mariadb-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    shutil.chown(directory, _server_user(), _server_user())
    data = directory / "data"
    install = ["--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal", "--skip-test-db"]
    subprocess.run(
        ["mariadb-install-db", *install, f"--user={_server_user()}"], check=True, capture_output=True, text=True
    )
    return data


def _server_user() -> str:
    """Return the user that the server runs as; it runs as root only if root is named explicitly."""
    return _USER if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name


@pytest.fixture
def mariadb() -> Iterator[MariaDb]:
    """Run a server for one test."""
    with open_directory() as directory:
        server = MariaDb(Path(directory))
        yield server
        server.stop()
