"""The composition of a stack: a directory, its ports and its parts. Nothing here starts or stops anything."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

from lakehold.servers.server_directory import locked, make_directory, read_record, write_record
from lakehold.stack.addresses import StackAddresses, StackPorts
from lakehold.stack.parts.connect import Connect
from lakehold.stack.parts.kafka import Kafka
from lakehold.stack.parts.part import Part
from lakehold.stack.parts.postgres import Postgres
from lakehold.stack.parts.registry import Registry

_PARTS: tuple[type[Part], ...] = (Postgres, Kafka, Registry, Connect)
"""The parts, each after those that it needs."""


@dataclass(frozen=True)
class StackPlan:
    """A stack on this machine.

    Attributes:
        directory: Holds a folder per part, `logs`, `run` (process records) and `stack.json` (the ports in use).
        ports: The ports that the parts listen on.
    """

    directory: Path
    ports: StackPorts

    @classmethod
    def recorded(cls, directory: Path) -> StackPlan:
        """Return the stack of that directory as it was last started; on the default ports if it never was."""
        return cls(directory, StackPorts(**read_record(directory / "stack.json")))

    @property
    def addresses(self) -> StackAddresses:
        """Return the addresses that clients of the stack connect to."""
        return StackAddresses.of(self.ports)

    @property
    def only_for_users(self) -> Path:
        """Return the file that exists while the stack runs only until its last user ends."""
        return self.directory / "only-for-users"

    def parts(self) -> tuple[Part, ...]:
        """Return the stack's servers, each after those that it needs."""
        return tuple(part(self.directory, self.ports) for part in _PARTS)

    def record(self) -> None:
        """Create the directory and record the ports in it."""
        make_directory(self.directory)
        write_record(self.directory / "stack.json", asdict(self.ports))

    def locked(self) -> AbstractContextManager[None]:
        """Keep other commands from starting or stopping this stack meanwhile; they wait."""
        return locked(self.directory)
