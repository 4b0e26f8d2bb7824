"""Whether the stack's ports are free, asked before anything is started."""

from __future__ import annotations

import socket
from collections.abc import Iterable

import psutil

from lakehold.stack.addresses import HOST
from lakehold.stack.errors import StackError
from lakehold.stack.parts.part import Part


def refuse_taken(parts: Iterable[Part]) -> None:
    """Check that every port of the parts is free.

    Raises:
        StackError: One is not; says who has it, as far as that can be seen.
    """
    taken = [(part, port) for part in parts for port in part.all_ports() if not _is_free(port)]
    if not taken:
        return
    part, port = taken[0]
    raise StackError(
        f"port {port} for {part.name} is taken",
        code="stack-port-taken",
        detail=" ".join(f"Port {port} for {part.name}: {_owner(port)} listens on it." for part, port in taken),
        hint="Stop that program, or move the whole stack: lakehold stack up --port-base 20000.",
    )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do it: connections of a server that just stopped do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _owner(port: int) -> str:
    try:
        listeners = [
            connection.pid
            for connection in psutil.net_connections(kind="tcp")
            if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port
        ]
        pid = next(filter(None, listeners))
        return f"{psutil.Process(pid).name()} (process {pid})"
    except (StopIteration, psutil.AccessDenied, psutil.NoSuchProcess):
        return "another program"
