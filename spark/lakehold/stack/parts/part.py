"""What every server of the stack must say about itself."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from lakehold.stack.addresses import StackAddresses, StackPorts
from lakehold.stack.processes import ServerCommand


class Part(ABC):
    """One server of the stack: how to prepare, start, check and stop it. It holds no process.

    Args:
        directory: The stack's directory; the part keeps everything in a folder of its own name in it.
        ports: The ports of the whole stack.
    """

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()
    """Names of the parts that must be healthy before this one is started."""
    artifact_sets: ClassVar[tuple[str, ...]] = ()
    """Sets of `lakehold.artifacts` that it is made of."""
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, directory: Path, ports: StackPorts) -> None:
        self.folder = directory / self.name
        self.log = directory / "logs" / f"{self.name}.log"
        self.pid_file = directory / "run" / f"{self.name}.json"
        self.ports = ports
        self.addresses = StackAddresses.of(ports)

    @property
    @abstractmethod
    def port(self) -> int:
        """The port that clients of this part connect to."""

    def all_ports(self) -> tuple[int, ...]:
        """Every port it listens on."""
        return (self.port,)

    @abstractmethod
    def prepare(self) -> None:
        """Make its folder, settings and empty storage; what is there already is kept.

        Called when the parts it needs are healthy and it does not run itself.
        """

    @abstractmethod
    def command(self) -> ServerCommand:
        """How it is started once it is prepared."""

    @abstractmethod
    def is_healthy(self) -> bool:
        """Whether it answers a client of its own protocol now."""


def write_properties(path: Path, properties: Mapping[str, object]) -> None:
    """Write a Java properties file; values must not need escapes."""
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
