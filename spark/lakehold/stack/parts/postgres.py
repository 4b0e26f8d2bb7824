"""PostgreSQL with logical replication, from the binaries of the operating system."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psutil

from lakehold.errors import EnvironmentMissing
from lakehold.servers import HOST, ServerCommand
from lakehold.stack.addresses import POSTGRES_PASSWORD, POSTGRES_USER
from lakehold.stack.errors import StackError
from lakehold.stack.parts.part import Part

_DEBIAN_BINARIES = Path("/usr/lib/postgresql")
_SERVER_USER = "postgres"
_COMMAND_TIMEOUT_S = 60
_LEFT_WITHIN_S = 30.0
_POLL_INTERVAL_S = 0.1

_SETTINGS = {
    "wal_level": "logical",
    "max_wal_senders": 16,
    "max_replication_slots": 16,
    # A forgotten replication slot must not fill the disk.
    "max_slot_wal_keep_size": "2GB",
    "shared_buffers": "32MB",
    "max_connections": 60,
    "unix_socket_directories": "",
    "listen_addresses": HOST,
}


def binary_directory() -> Path:
    """Find the directory of `initdb`, `postgres` and `psql`: `LAKEHOLD_PG_BIN`, else Debian's newest version, else the PATH.

    Raises:
        EnvironmentMissing: None of these has the programs.
    """
    configured = os.environ.get("LAKEHOLD_PG_BIN")
    on_path = shutil.which("initdb")
    candidates = [Path(configured)] if configured else _debian_versions()
    if not configured and on_path:
        candidates.append(Path(on_path).parent)
    for candidate in candidates:
        if (candidate / "initdb").is_file():
            return candidate
    looked_in = ", ".join(map(str, candidates)) or f"{_DEBIAN_BINARIES} and the PATH"
    raise EnvironmentMissing(
        "PostgreSQL not found",
        detail=f"No initdb in {looked_in}.",
        hint="Run apt-get install postgresql, or set LAKEHOLD_PG_BIN to the directory of initdb.",
    )


def _debian_versions() -> list[Path]:
    versions = [path for path in _DEBIAN_BINARIES.glob("*/bin") if path.parent.name.isdigit()]
    return sorted(versions, key=lambda path: int(path.parent.name), reverse=True)


class Postgres(Part):
    """The database that changes are captured from; it also stores the registry's schemas."""

    name = "postgres"
    # SIGTERM would wait for every client to leave.
    stop_signal = signal.SIGINT

    @property
    def port(self) -> int:
        """Return the port of the server."""
        return self.ports.postgres

    def prepare(self) -> None:
        """Create the data directory, which only the server's user may enter; wait until a server that died there has left it."""
        data = self.folder / "data"
        user = server_user()
        if user:
            _check_reachable(self.folder.parent, user)
        self.folder.mkdir(exist_ok=True)
        if user:
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        if not data.exists():
            self._initialize(data)
        deadline_s = time.monotonic() + _LEFT_WITHIN_S
        while _is_worked_in(data) and time.monotonic() < deadline_s:
            time.sleep(_POLL_INTERVAL_S)

    def command(self) -> ServerCommand:
        """Return the command that runs the server in the foreground."""
        settings = [argument for key, value in _SETTINGS.items() for argument in ("-c", f"{key}={value}")]
        server = [str(binary_directory() / "postgres"), "-D", "data", "-p", str(self.port), *settings]
        return ServerCommand(as_server_user(server), self.folder, self.log, environment={})

    def is_healthy(self) -> bool:
        """Return whether a client can log in and run a query."""
        return self._psql("SELECT 1").returncode == 0

    def create_database(self, database: str) -> None:
        """Create a database unless it exists.

        Raises:
            StackError: PostgreSQL refused.
        """
        existing = self._psql("SELECT datname FROM pg_database").stdout.split()
        if database in existing:
            return
        result = self._psql(f'CREATE DATABASE "{database}"')
        if result.returncode != 0:
            raise StackError(f'database "{database}" cannot be created', detail=result.stderr.strip())

    def _initialize(self, data: Path) -> None:
        # initdb fills another directory, which is then renamed: an interrupted initdb must not pass for a database.
        partial, password = self.folder / "data.partial", self.folder / "password"
        shutil.rmtree(partial, ignore_errors=True)
        password.write_text(POSTGRES_PASSWORD)
        initdb = [
            str(binary_directory() / "initdb"),
            *("-D", str(partial), "-U", POSTGRES_USER, f"--pwfile={password}", "--auth=scram-sha-256"),
            *("--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions"),
        ]
        result = subprocess.run(as_server_user(initdb), cwd=self.folder, capture_output=True, text=True, check=False)
        password.unlink()
        if result.returncode != 0:
            raise StackError("the database cannot be initialized", detail=result.stderr.strip())
        partial.rename(data)

    def _psql(self, query: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [binary_directory() / "psql", self.addresses.postgres(), "-XAtqc", query],
            env={**os.environ, "PGCONNECT_TIMEOUT": "5"},
            capture_output=True,
            text=True,
            check=False,
            timeout=_COMMAND_TIMEOUT_S,
        )


def server_user() -> pwd.struct_passwd | None:
    """Return the user to switch to, because PostgreSQL refuses to run as root; None: this process is not root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(_SERVER_USER)
    except KeyError:
        raise EnvironmentMissing(
            "PostgreSQL does not run as root",
            detail=f'There is no user "{_SERVER_USER}" to run it as.',
            hint="Run the command as another user, or apt-get install postgresql.",
        ) from None


def _is_worked_in(data: Path) -> bool:
    """Return whether processes of a server remain: after it was killed, PostgreSQL refuses to start until they have ended."""
    folder = str(data.resolve())
    return any(process.info["cwd"] == folder for process in psutil.process_iter(["cwd"]))


def as_server_user(command: list[str]) -> list[str]:
    """Return a command that runs `command` as the user of the server."""
    user = server_user()
    if user is None:
        return command
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--init-groups", *command]


def _check_reachable(directory: Path, user: pwd.struct_passwd) -> None:
    closed = [path for path in (directory, *directory.parents) if not path.stat().st_mode & 0o001]
    if closed:
        raise StackError(
            "the stack's directory is closed to PostgreSQL's user",
            code="stack-directory",
            detail=f'User "{user.pw_name}" cannot enter {closed[-1]}.',
            hint="Set LAKEHOLD_STACK_DIR to a directory that every user can enter, such as /var/lib/lakehold/stack.",
        )
