"""`lakehold spark`: one Spark for all commands and tasks of this machine.

The command `lakehold` always reads this: what the server needs is imported by the commands over it.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lakehold.servers.screen import OutputFormat, directory_option, progress, show_status
from lakehold.spark_server import DEFAULT_PORT

app = typer.Typer(
    help="One Spark for all commands of this machine. They have a session of its Spark Connect server at once, instead of "
    "starting Spark each."
)

Directory = Annotated[Path, directory_option("spark", "LAKEHOLD_SPARK_DIR", "Where it keeps its log.")]


@app.command()
def up(
    directory: Directory,
    port: Annotated[
        int | None,
        typer.Option(
            min=1, max=65_535, help=f"Port on 127.0.0.1; by default that of the last time, or {DEFAULT_PORT}."
        ),
    ] = None,
) -> None:
    """Start the server unless it runs, and wait until it answers.

    What it writes makes a shell use it:

    eval "$(lakehold spark up)"

    The server knows no lake: each client brings its own. Its heap is LAKEHOLD_SPARK_DRIVER_MEMORY, its cores are
    LAKEHOLD_SPARK_MASTER, and LAKEHOLD_SPARK_CONF sets the rest of Spark. Whoever reaches its port, which only programs on
    this machine can, may do there what its user may.
    """
    from lakehold.settings import load_settings
    from lakehold.spark_server import lifecycle

    remote = lifecycle.up(directory, load_settings(), port, progress())
    typer.echo(f"export LAKEHOLD_SPARK_REMOTE={remote}")


@app.command()
def down(directory: Directory) -> None:
    """Stop the server. Statements that run on it fail; whoever ingests goes on with its batch on the next one."""
    from lakehold.spark_server import lifecycle

    lifecycle.down(directory, progress())


@app.command()
def status(
    directory: Directory,
    output_format: Annotated[OutputFormat, typer.Option("--format", help="Of the output.")] = OutputFormat.TABLE,
) -> None:
    """Show how the server is. The exit code is 0 if it is healthy, else 1."""
    from lakehold.spark_server import lifecycle

    server = lifecycle.status(directory)
    show_status([server], output_format)
    if not server.healthy:
        raise typer.Exit(1)
