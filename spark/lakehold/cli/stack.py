"""`lakehold stack`: a change-data-capture stack on this machine, for the demo and for tests.

The command `lakehold` always imports this module, so that the commands below import what only the stack needs.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lakehold.servers.screen import OutputFormat, directory_option, progress, show_status

app = typer.Typer(help="PostgreSQL, Kafka, a registry and Debezium on this machine.")

Directory = Annotated[Path, directory_option("stack", "LAKEHOLD_STACK_DIR", "Where the stack keeps data and logs.")]


@app.command()
def up(
    directory: Directory,
    port_base: Annotated[
        int | None,
        typer.Option(min=1024, max=65_000, help="First of five consecutive ports, instead of the usual ones."),
    ] = None,
) -> None:
    """Start every part that does not run, and write the addresses."""
    from lakehold.stack import StackPorts, lifecycle

    ports = StackPorts.from_base(port_base) if port_base is not None else None
    addresses = lifecycle.up(directory, ports, progress())
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
    from lakehold.stack import lifecycle

    lifecycle.down(directory, delete_data=delete_data, on_event=progress())


@app.command()
def status(
    directory: Directory,
    output_format: Annotated[OutputFormat, typer.Option("--format", help="Format of the output.")] = OutputFormat.TABLE,
) -> None:
    """Show the state of every part. The exit code is 0 if all of them are healthy, else 1."""
    from lakehold.stack import lifecycle

    parts = lifecycle.status(directory)
    show_status(parts, output_format)
    if not all(part.healthy for part in parts):
        raise typer.Exit(1)
