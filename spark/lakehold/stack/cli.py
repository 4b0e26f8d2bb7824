"""`lakehold stack`: a change-data-capture stack on this machine, for the demo and for tests."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from lakehold.stack import lifecycle
from lakehold.stack.addresses import StackPorts
from lakehold.stack.lifecycle import PartEvent, PartStatus
from lakehold.stack.plan import default_directory

app = typer.Typer(help="PostgreSQL, Kafka, a schema registry and Kafka Connect with Debezium on this machine.")

_MIB = 1024 * 1024


class OutputFormat(StrEnum):
    """How `status` writes its result."""

    TABLE = "table"
    JSON = "json"


Directory = Annotated[
    Path,
    typer.Option(
        default_factory=default_directory, envvar="LAKEHOLD_STACK_DIR", help="Where the stack keeps data and logs."
    ),
]


@app.command()
def up(
    directory: Directory,
    port_base: Annotated[
        int | None, typer.Option(min=1024, max=65_000, help="First of five consecutive ports, instead of the usual.")
    ] = None,
) -> None:
    """Start every part that does not run, and write the stack's addresses to standard output."""
    ports = StackPorts.from_base(port_base) if port_base is not None else None
    addresses = lifecycle.up(directory, ports, _progress())
    typer.echo(f"kafka     {addresses.kafka}")
    typer.echo(f"registry  {addresses.registry}")
    typer.echo(f"connect   {addresses.connect}")
    typer.echo(f"postgres  {addresses.postgres()}")


@app.command()
def down(
    directory: Directory,
    *,
    delete_data: Annotated[bool, typer.Option("--delete-data", help="Delete its data and logs as well.")] = False,
) -> None:
    """Stop every part."""
    lifecycle.down(directory, delete_data=delete_data, on_event=_progress())


@app.command()
def status(
    directory: Directory,
    output_format: Annotated[OutputFormat, typer.Option("--format", help="Of the output.")] = OutputFormat.TABLE,
) -> None:
    """Show how every part is; the exit code is 0 if all of them are healthy, else 1."""
    parts = lifecycle.status(directory)
    if output_format is OutputFormat.JSON:
        typer.echo(json.dumps([asdict(part) for part in parts], default=str))
    else:
        Console().print(_table(parts))
    if not all(part.healthy for part in parts):
        raise typer.Exit(1)


def _progress() -> lifecycle.OnEvent:
    console = Console(stderr=True, highlight=False)

    def show(event: PartEvent) -> None:
        console.print(f"{event.part:<9} {event.state:<15} {event.detail}".rstrip(), markup=False)

    return show


def _table(parts: tuple[PartStatus, ...]) -> Table:
    table = Table("part", "state", "health", "port", "pid", "memory")
    for column in ("port", "pid", "memory"):
        next(each for each in table.columns if each.header == column).justify = "right"
    for part in parts:
        table.add_row(
            part.name,
            part.state,
            "healthy" if part.healthy else "not healthy" if part.state == "running" else "-",
            str(part.port),
            str(part.pid or "-"),
            f"{part.memory_bytes / _MIB:.0f} MiB" if part.memory_bytes is not None else "-",
        )
    return table
