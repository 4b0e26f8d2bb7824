"""What every server must say about itself, and what is told about it."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

HOST = "127.0.0.1"
"""Everything listens on loopback only: no server asks its clients who they are."""


@dataclass(frozen=True)
class ServerCommand:
    """How a server is started.

    Attributes:
        argv: Absolute path of the program, and its arguments.
        environment: Variables on top of this process's own.
        folder: Working directory of the server.
        log: File that its output is appended to.
    """

    argv: Sequence[str]
    folder: Path
    log: Path
    environment: Mapping[str, str]


@dataclass(frozen=True)
class ServerEvent:
    """Something that happened to one server.

    Attributes:
        server: Its name.
        state: What it does now.
        detail: More for a person, possibly empty.
    """

    server: str
    state: Literal["fetching", "starting", "healthy", "already running", "recovering", "stopping", "stopped", "killed"]
    detail: str = ""


OnEvent = Callable[[ServerEvent], None]


@dataclass(frozen=True)
class ServerStatus:
    """How one server is.

    Attributes:
        name: Its name.
        state: Whether its process runs.
        healthy: Whether it answers its own protocol.
        port: The port of its clients.
        pid: Id of its process, if it runs.
        memory_bytes: Memory of the process and its children (proportional set size), if it runs.
        log: Its log file.
    """

    name: str
    state: Literal["running", "stopped"]
    healthy: bool
    port: int
    pid: int | None
    memory_bytes: int | None
    log: Path


class Server(ABC):
    """How to prepare, start, check and stop one server. It holds no process.

    Args:
        directory: It keeps everything in a folder of its own name in it, and its log and process record beside that.
    """

    name: ClassVar[str]
    artifact_sets: ClassVar[tuple[str, ...]] = ()
    """Sets of `lakehold.artifacts` that it is made of."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Names of the servers that must be healthy before this one is prepared and started."""
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    up_command: ClassVar[str]
    """What a person starts it with."""
    other_port_option: ClassVar[str]
    """What a person adds to that when its port is taken."""

    def __init__(self, directory: Path) -> None:
        self.folder = directory / self.name
        self.log = directory / "logs" / f"{self.name}.log"
        self.pid_file = directory / "run" / f"{self.name}.json"

    @property
    @abstractmethod
    def port(self) -> int:
        """The port that its clients connect to."""

    def all_ports(self) -> tuple[int, ...]:
        """Every port it listens on."""
        return (self.port,)

    @abstractmethod
    def prepare(self) -> None:
        """Make its folder, settings and empty storage; what is there already is kept. Called when it does not run."""

    @abstractmethod
    def command(self) -> ServerCommand:
        """How it is started once it is prepared."""

    @abstractmethod
    def is_healthy(self) -> bool:
        """Whether it answers a client of its own protocol now."""
