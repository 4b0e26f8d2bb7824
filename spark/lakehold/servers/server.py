"""The interface of a server, and the data that commands show about it."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from lakehold.servers.server_directory import log_file, pid_file

HOST = "127.0.0.1"
"""The address of every server: loopback only, because no server asks its clients who they are."""


@dataclass(frozen=True)
class ServerCommand:
    """The command that starts a server.

    Attributes:
        argv: Absolute path of the program, and its arguments.
        environment: Variables on top of this process's own, or all of them if the server does not inherit those.
        folder: Working directory of the server.
        log: File that its output is appended to.
        inherits: Whether the server also gets this process's own variables.
    """

    argv: Sequence[str]
    folder: Path
    log: Path
    environment: Mapping[str, str]
    inherits: bool = True


@dataclass(frozen=True)
class ServerEvent:
    """An event of one server.

    Attributes:
        server: Name of the server.
        state: What the server does now.
        detail: More for a person, possibly empty.
    """

    server: str
    state: Literal["fetching", "starting", "healthy", "already running", "recovering", "stopping", "stopped", "killed"]
    detail: str = ""


OnEvent = Callable[[ServerEvent], None]


@dataclass(frozen=True)
class ServerStatus:
    """The status of one server.

    Attributes:
        name: Name of the server.
        state: Whether the server's process runs.
        healthy: Whether the server answers its own protocol.
        port: The port for clients.
        pid: Id of the process, if it runs.
        memory_bytes: Memory of the process and its children (proportional set size), if it runs.
        log: The log file.
    """

    name: str
    state: Literal["running", "stopped"]
    healthy: bool
    port: int
    pid: int | None
    memory_bytes: int | None
    log: Path


class Server(ABC):
    """A description of how to prepare, start, check and stop one server. It holds no process.

    Args:
        directory: Holds a folder named after the server for all its files, and beside that its log and process record.
    """

    name: ClassVar[str]
    artifact_sets: ClassVar[tuple[str, ...]] = ()
    """Sets of `lakehold.artifacts` that the server needs."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Names of the servers that must be healthy before this one is prepared and started."""
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    up_command: ClassVar[str]
    """The command with which a person starts the server."""
    other_port_option: ClassVar[str]
    """The option that a person adds to `up_command` when the port is taken."""

    def __init__(self, directory: Path) -> None:
        self.folder = directory / self.name
        self.log = log_file(directory, self.name)
        self.pid_file = pid_file(directory, self.name)

    @property
    @abstractmethod
    def port(self) -> int:
        """Return the port that clients connect to."""

    def all_ports(self) -> tuple[int, ...]:
        """Return every port that the server listens on."""
        return (self.port,)

    @abstractmethod
    def prepare(self) -> None:
        """Create the server's folder, settings and empty storage; existing storage is kept. Called while it does not run."""

    @abstractmethod
    def command(self) -> ServerCommand:
        """Return the command that starts the server once it is prepared."""

    @abstractmethod
    def is_healthy(self) -> bool:
        """Return whether the server answers a client of its own protocol now."""
