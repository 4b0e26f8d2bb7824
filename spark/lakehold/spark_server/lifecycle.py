"""Starts, stops and inspects a Spark Connect server, whose files are in a directory (`lakehold spark`)."""

from __future__ import annotations

from pathlib import Path
from threading import Event

from lakehold.servers import ServerError, ServerEvent, ServerStatus, lifecycle, processes
from lakehold.servers.ports import refuse_ports_in_use
from lakehold.servers.server import OnEvent
from lakehold.servers.server_directory import locked, make_directory, write_record
from lakehold.settings import Settings
from lakehold.spark_endpoint import port_file, recorded_port
from lakehold.spark_server import DEFAULT_PORT
from lakehold.spark_server.composition import SparkConnectServer, server_conf


def _ignore(_: ServerEvent) -> None:
    pass


def up(directory: Path, settings: Settings, port: int | None = None, on_event: OnEvent = _ignore) -> str:
    """Start the server of `directory` unless it runs, and wait until it answers. It waits for other commands on the directory.

    Args:
        directory: The server's directory, created if need be.
        settings: Memory, cores (`spark_master`) and further configuration of the server; only a server that is started
            gets them, and those of a lake do not matter.
        port: The port to listen on; by default that of the last time, or 15002.
        on_event: Called when the server starts, becomes healthy or runs already, and while programs are fetched.

    Returns:
        The address for clients, `sc://…`.

    Raises:
        EnvironmentMissing: Java is missing, or Spark's jars cannot be fetched.
        ServerError: The server runs on another port, its port is taken, or it does not become healthy.
    """
    with locked(directory):
        last = _recorded(directory)
        server = SparkConnectServer(directory, port or last.port, server_conf(settings, port or last.port))
        if processes.recorded(server.pid_file) is None:
            refuse_ports_in_use([server])
            lifecycle.fetch_programs([server], on_event)
            make_directory(directory)
            write_record(port_file(directory), {"port": server.port})
        elif server.port != last.port:
            raise ServerError(
                "the server runs on another port",
                detail=f"The server of {directory} listens on {last.port}.",
                hint="Stop it first (lakehold spark down), or choose another --directory for a second one.",
            )
        lifecycle.start(server, Event(), on_event)
    return server.remote


def down(directory: Path, on_event: OnEvent = _ignore) -> None:
    """Stop the server of `directory` if it runs; kill it if it does not stop in time. Its clients' statements fail."""
    if not directory.exists():
        return
    with locked(directory):
        lifecycle.stop(_recorded(directory), on_event)


def status(directory: Path) -> ServerStatus:
    """Return the status of the server of `directory`."""
    return lifecycle.status(_recorded(directory))


def _recorded(directory: Path) -> SparkConnectServer:
    """Return the server as it was last started; on the default port if it never was."""
    return SparkConnectServer(directory, recorded_port(directory) or DEFAULT_PORT)
