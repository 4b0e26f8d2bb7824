"""Shared parts of the commands over servers: an option, progress on standard error, and states as a table or JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from functools import partial
from typing import Any

import typer
from rich.table import Table

from lakehold.console import Console
from lakehold.servers.server import OnEvent, ServerEvent, ServerStatus
from lakehold.servers.server_directory import default_directory, unset_directory

_MIB = 1024 * 1024


class OutputFormat(StrEnum):
    """The format in which the state of servers is written."""

    TABLE = "table"
    JSON = "json"


def directory_option(name: str, variable: str, text: str) -> Any:
    """Build `--directory` for the servers called `name`; else `variable` of the environment is used. `text` is its help."""
    return typer.Option(
        default_factory=partial(default_directory, name, variable),
        envvar=variable,
        show_default=os.environ.get(variable) or f"{unset_directory(name)}",
        help=text,
    )


def progress() -> OnEvent:
    """Return a function that shows each event as a line."""
    console = Console(stderr=True, highlight=False)

    def show(event: ServerEvent) -> None:
        console.print(f"{event.server:<9} {event.state:<15} {event.detail}".rstrip(), markup=False)

    return show


def show_status(servers: Sequence[ServerStatus], output_format: OutputFormat) -> None:
    """Write the states of servers."""
    if output_format is OutputFormat.JSON:
        typer.echo(json.dumps([asdict(server) for server in servers], default=str))
    else:
        Console().print(_table(servers))


def _table(servers: Sequence[ServerStatus]) -> Table:
    table = Table("server", "state", "health", "port", "pid", "memory")
    for column in ("port", "pid", "memory"):
        next(each for each in table.columns if each.header == column).justify = "right"
    for server in servers:
        table.add_row(
            server.name,
            server.state,
            "healthy" if server.healthy else "not healthy" if server.state == "running" else "-",
            str(server.port),
            str(server.pid or "-"),
            f"{server.memory_bytes / _MIB:.0f} MiB" if server.memory_bytes is not None else "-",
        )
    return table
