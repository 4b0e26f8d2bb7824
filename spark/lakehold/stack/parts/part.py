"""The interface of the stack's servers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lakehold.servers import Server
from lakehold.stack.addresses import StackAddresses, StackPorts


class Part(Server):
    """A server of the stack. It is prepared when the parts it needs are healthy.

    Args:
        directory: The stack's directory.
        ports: The ports of the whole stack.
    """

    up_command = "lakehold stack up"
    other_port_option = "--port-base 20000"

    def __init__(self, directory: Path, ports: StackPorts) -> None:
        super().__init__(directory)
        self.ports = ports
        self.addresses = StackAddresses.of(ports)


def write_properties(path: Path, properties: Mapping[str, object]) -> None:
    """Write a Java properties file; values must not need escapes."""
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
