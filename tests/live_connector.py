"""Events in the life of a connector of the live stack: its worker is killed, and its position is set back."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg

from lakehold import stack as lakehold_stack
from lakehold.stack import ConnectClient
from tests.stack_fixtures import SourceDatabase
from tests.waiting import wait_for

_STOPS_WITHIN_S = 60.0
_CONFIRMS_WITHIN_S = 60.0


def process_of(directory: Path, name: str) -> psutil.Process:
    """Return the process of a part of the stack."""
    (pid,) = (part.pid for part in lakehold_stack.status(directory) if part.name == name)
    return psutil.Process(pid)


def kill_connect(directory: Path) -> None:
    """Kill Kafka Connect, with everything that is in flight."""
    connect = process_of(directory, "connect")
    connect.kill()
    connect.wait()


@dataclass(frozen=True)
class ConnectorPosition:
    """An earlier position of a connector: its offsets, and a replication slot that keeps everything sent since then."""

    offsets: Any
    slot: str


def position_of(database: SourceDatabase) -> ConnectorPosition:
    """Return the connector's position. PostgreSQL keeps everything that it sends from there on."""
    offsets = httpx.get(f"{_address(database)}/offsets").raise_for_status().json()
    position = ConnectorPosition(offsets, f"{database.name}_kept")
    _copy_slot(database, database.name, position.slot)
    return position


def set_back(database: SourceDatabase, position: ConnectorPosition) -> None:
    """Set the connector back to a position, as a crash does without Kafka transactions."""
    connector = _stopped(database)
    database.drop_slot(database.name)
    _copy_slot(database, position.slot, database.name)
    database.drop_slot(position.slot)
    # A worker answers 500 while Kafka still ends the transactions of a worker that was killed.
    wait_for(
        lambda: httpx.patch(f"{connector}/offsets", json=position.offsets, timeout=100).is_success,
        "Connect sets the connector's position back",
    )
    _resume(database)


def restart_connector(database: SourceDatabase) -> None:
    """Stop and start the connector."""
    _stopped(database)
    _resume(database)


def wait_until_confirmed(database: SourceDatabase, lsn: str) -> None:
    """Wait until the connector has confirmed to PostgreSQL that everything up to a log position is in Kafka."""
    deadline = time.monotonic() + _CONFIRMS_WITHIN_S
    with psycopg.connect(database.addresses.postgres(database.name), autocommit=True) as connection:
        while not connection.execute(
            "SELECT confirmed_flush_lsn >= %s FROM pg_replication_slots WHERE slot_name = %s", [lsn, database.name]
        ).fetchall()[0][0]:
            assert time.monotonic() < deadline, f"the connector does not confirm {lsn}"


def _copy_slot(database: SourceDatabase, name: str, copy: str) -> None:
    with psycopg.connect(database.addresses.postgres(database.name), autocommit=True) as connection:
        connection.execute("SELECT pg_copy_logical_replication_slot(%s, %s)", [name, copy])


def forget_connector(database: SourceDatabase) -> Any:
    """Delete the connector, its offsets and its replication slot. Returns its configuration."""
    config = httpx.get(f"{_address(database)}/config").raise_for_status().json()
    httpx.delete(f"{_stopped(database)}/offsets", timeout=30).raise_for_status()
    database.drop_connector()
    return config


def _address(database: SourceDatabase) -> str:
    return f"{database.addresses.connect}/connectors/{database.name}"


def _resume(database: SourceDatabase) -> None:
    httpx.put(f"{_address(database)}/resume").raise_for_status()
    with ConnectClient(database.addresses.connect) as connect:
        connect.wait_until_running(database.name)


def _stopped(database: SourceDatabase) -> str:
    """Stop the connector, and return its address."""
    httpx.put(f"{_address(database)}/stop").raise_for_status()
    with ConnectClient(database.addresses.connect) as connect:
        deadline = time.monotonic() + _STOPS_WITHIN_S
        while connect.status(database.name).tasks:
            assert time.monotonic() < deadline, "the connector does not stop"
    return _address(database)
