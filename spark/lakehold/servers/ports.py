"""A check that the ports of servers are free, before anything is started."""

from __future__ import annotations

import socket
from collections.abc import Iterable

import psutil

from lakehold.servers.errors import ServerError
from lakehold.servers.server import HOST, Server


def refuse_ports_in_use(servers: Iterable[Server]) -> None:
    """Refuse to start while a port of the servers is taken.

    Raises:
        ServerError: A port is taken; the error names the program that listens on it, if that is known.
    """
    in_use = [(server, port) for server in servers for port in server.all_ports() if not _is_free(port)]
    if not in_use:
        return
    server, port = in_use[0]
    raise ServerError(
        f"port {port} for {server.name} is taken",
        code="port-taken",
        detail=" ".join(f"Port {port} for {server.name}: {_listener(port)} listens on it." for server, port in in_use),
        hint=f"Stop that program, or choose other ports: {server.up_command} {server.other_port_option}.",
    )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # Servers set this option too: connections of a server that just stopped do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _listener(port: int) -> str:
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
