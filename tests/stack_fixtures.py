"""Fixtures over one real stack per test session, on its own ports and in its own directory."""

from __future__ import annotations

import itertools
import os
import socket
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql

from lakehold import stack as lakehold_stack
from lakehold.stack import ConnectClient, ConnectorError, StackAddresses, StackPorts, debezium_postgres, publication_sql
from lakehold.stack.connectors import ValueFormat

_FIRST_PORT_BASE = 24_000
PORTS_PER_WORKER = 500
"""Distance between the port ranges of workers, so that two never choose the same free ports; stacks take the lower half."""
_PORTS_PER_STACK = 5
_SLOT_RELEASED_WITHIN_S = 30


class SourceDatabase:
    """A database for one test, and the connector that captures it; `name` replaces another database of that name."""

    def __init__(self, addresses: StackAddresses, name: str | None = None) -> None:
        self.addresses = addresses
        self.name = name or f"shop_{uuid.uuid4().hex[:8]}"
        self._maintain(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(self.name)))

    @property
    def topic_prefix(self) -> str:
        """Return the first part of its topics' names."""
        return self.name

    def topic(self, table: str) -> str:
        """Return the topic of one `schema.table`."""
        return f"{self.topic_prefix}.{table}"

    def execute(self, *statements: LiteralString) -> None:
        """Run statements in one transaction."""
        with psycopg.connect(self.addresses.postgres(self.name)) as connection:
            for statement in statements:
                connection.execute(statement)

    def query(self, statement: LiteralString) -> list[tuple[Any, ...]]:
        """Return the rows of one query."""
        with psycopg.connect(self.addresses.postgres(self.name)) as connection:
            return connection.execute(statement).fetchall()

    def capture(
        self,
        *tables: str,
        value_format: ValueFormat = "avro",
        partitions: int = 1,
        addresses: StackAddresses | None = None,
    ) -> None:
        """Start a connector over `schema.table` names and wait until it runs; `addresses` go into its configuration."""
        with psycopg.connect(self.addresses.postgres(self.name)) as connection:
            for statement in publication_sql("captured", tables):
                connection.execute(statement.encode())
        config = self.connector_config(*tables, value_format=value_format, partitions=partitions, addresses=addresses)
        with ConnectClient(self.addresses.connect) as connect:
            connect.put(self.name, config)
            connect.wait_until_running(self.name)

    def connector_config(
        self,
        *tables: str,
        value_format: ValueFormat = "avro",
        partitions: int = 1,
        addresses: StackAddresses | None = None,
    ) -> dict[str, str]:
        """Return the configuration of the connector that `capture` starts."""
        return debezium_postgres(
            addresses or self.addresses,
            topic_prefix=self.topic_prefix,
            database=self.name,
            tables=tables,
            publication="captured",
            slot=self.name,
            value_format=value_format,
            partitions=partitions,
        )

    def drop(self) -> None:
        """Delete the connector, its replication slot and the database."""
        self.drop_connector()
        self._maintain(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(self.name)))

    def drop_connector(self) -> None:
        """Delete the connector, if it exists, and its replication slot."""
        with ConnectClient(self.addresses.connect) as connect, suppress(ConnectorError):
            connect.delete(self.name)
        self.drop_slot(self.name)

    def drop_slot(self, name: str) -> None:
        """Drop a replication slot, if it exists, as soon as the connector releases it."""
        deadline = time.monotonic() + _SLOT_RELEASED_WITHIN_S
        while not self._slot_dropped(name) and time.monotonic() < deadline:
            time.sleep(0.1)

    def _slot_dropped(self, name: str) -> bool:
        with (
            psycopg.connect(self.addresses.postgres(), autocommit=True) as connection,
            suppress(psycopg.errors.ObjectInUse),
        ):
            connection.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s",
                [name],
            )
            return True
        return False

    def _maintain(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.addresses.postgres(), autocommit=True) as connection:
            connection.execute(statement)


def first_port() -> int:
    """Return the first port of this process's worker, in a range from which the system gives no ports to clients."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return _FIRST_PORT_BASE + worker * PORTS_PER_WORKER


def free_ports() -> StackPorts:
    """Return ports for a stack that nobody listens on."""
    bases = itertools.count(first_port(), _PORTS_PER_STACK)
    return StackPorts.from_base(next(base for base in bases if are_free(range(base, base + _PORTS_PER_STACK))))


def open_directory() -> tempfile.TemporaryDirectory[str]:
    """Make a temporary directory that PostgreSQL's user can enter, unlike pytest's own directories."""
    directory = tempfile.TemporaryDirectory(prefix="lakehold-stack-")
    Path(directory.name).chmod(0o755)
    return directory


def are_free(ports: range) -> bool:
    """Return whether nobody listens on any of these ports."""
    with ExitStack() as sockets:
        try:
            for port in ports:
                sockets.enter_context(socket.socket()).bind((lakehold_stack.HOST, port))
        except OSError:
            return False
    return True


@pytest.fixture(scope="session")
def stack_directory() -> Iterator[Path]:
    """Return the directory of the session's stack, and stop the stack afterwards."""
    with open_directory() as directory:
        yield Path(directory)
        lakehold_stack.down(Path(directory), delete_data=True)


@pytest.fixture(scope="session")
def stack(stack_directory: Path) -> StackAddresses:
    """Start the session's stack when the first test requests it."""
    return lakehold_stack.up(stack_directory, free_ports())


@pytest.fixture
def database(stack: StackAddresses) -> Iterator[SourceDatabase]:
    """Create an empty database in the session's stack, and drop it afterwards."""
    database = SourceDatabase(stack)
    yield database
    database.drop()
